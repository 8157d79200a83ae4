"""Plans and manifests made by somebody who means harm: refused before anything is changed, and nothing outside is.

Ids are made to fit the content, as whoever edits such a file on purpose would do. Beside the log directory is a canary.
"""

from __future__ import annotations

import copy
import hashlib
import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import DAMAGES, EVERYTHING, write_tree
from support.log_dirs import STARTS, TOP, checkpoint, place
from support.memory_fs import MemoryFs
from support.recovering import tree

from cli.main import main
from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from storage.base.errors import NoRoom

CANARY = {"file": b"a canary\n" * 30, "00000000000000000020.log": b"another\n" * 30, "x.logmend": b"a third"}
BEFORE = {**DAMAGES["broken_in_the_middle"], "pay-3/00000000000000000000.log": b"", STARTS: checkpoint({})}
PLAN = "0123456789ab"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_tree(tmp_path / "canary", CANARY)
    home = write_tree(tmp_path / "data", BEFORE)
    (home / "way-out").symlink_to(tmp_path / "canary")
    return home


def refused(home: Path, words: list[str], statuses: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; return what is wrong with how it ended, or nothing."""
    was, canary = tree(home), tree(home.parent / "canary")
    status = main(words)
    said = capsys.readouterr()
    if status not in statuses:
        return f"status {status}: {said.err}"
    if "Traceback" in said.err:
        return "a traceback"
    if (tree(home), tree(home.parent / "canary")) != (was, canary):
        return "something has changed"
    return "" if said.err.startswith("logmend: ") else f"it does not say why: {said.err}"


# ---- plans


def resealed(told: dict[str, Any]) -> dict[str, Any]:
    for each in told["plans"]:
        content = {name: value for name, value in each.items() if name != "plan_id"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        each["plan_id"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    ids = [each["plan_id"] for each in told["plans"]]
    told["id"] = ids[0] if len(ids) == 1 else hashlib.sha256("".join(sorted(ids)).encode()).hexdigest()[:12]
    return told


Where = tuple[str | int, ...]


def paths_in(value: object, where: Where = ()) -> Iterator[Where]:
    """Yield the place of every path in a plan, of each kind of place one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("path", "target", "directory", "log_dir") and isinstance(inner, str):
                yield (*where, name)
            yield from paths_in(inner, (*where, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:4]):
            yield from paths_in(inner, (*where, number))


def put(told: dict[str, Any], where: Where, value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(told)
    at = changed
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = value
    return resealed(changed)


def hostile_paths(home: Path, where: Where) -> list[object]:
    name = "00000000000000000020.log"
    return [
        "/etc/passwd", "/", "", ".", "..", "orders-0/" + name, f"{home}/../canary/{name}", f"{home}/orders-0/../../x",
        f"{home}/way-out/{name}", f"{home}/pay-3/{name}", f"{home}//orders-0/{name}", f"{home}/orders-0/a\0b",
        f"{home}/orders-0/\ud800", f"{home}/{'x' * 5000}", f"{home.parent}/canary/{name}", 7, None, [], {},
    ]  # fmt: skip


def test_a_plan_that_names_what_it_should_not_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home.parent / "plan.json"
    assert main(["plan", "--out", str(file), str(home)]) == 1
    capsys.readouterr()
    told = json.loads(file.read_text())
    wrong, tried = [], 0
    places = list(paths_in(told))
    assert {where[-1] for where in places} >= {"path", "directory", "log_dir"}
    every = [(where, value) for where in places for value in hostile_paths(home, where)]
    for where, value in every[:: 1 if EVERYTHING else max(len(every) // 205, 1)]:
        file.write_text(json.dumps(put(told, where, value)))
        tried += 1
        # 5: a log directory that is none; 7: not the plan that comes out now.
        if why := refused(home, ["apply", str(file)], (2, 5, 7), capsys):
            wrong.append(f"{where} = {value!r:.80}: {why}")
    print(f"{tried} plans")
    assert (wrong, tried >= 200) == ([], True)


Change = Callable[[dict[str, Any]], object]
NUMBERS = [-1, 1 << 63, 10**30, 1.5, True, "1", None]


def test_a_plan_with_numbers_that_cannot_be_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home.parent / "plan.json"
    main(["plan", "--out", str(file), str(home)])
    capsys.readouterr()
    told = json.loads(file.read_text())
    partition: Where = ("plans", 0, "partitions", 0)
    places: list[Where] = [
        (*partition, "actions", 0, "size"), (*partition, "actions", 0, "position"), (*partition, "cuts", 0, "size"),
        (*partition, "preconditions", 0, "inode"), (*partition, "loaded", "log_end"), ("plans", 0, "options", "user"),
    ]  # fmt: skip
    wrong = []
    for where in places:
        for number in NUMBERS:
            if where[-1] == "user" and number is None:
                continue  # so it is
            file.write_text(json.dumps(put(told, where, number)))
            if why := refused(home, ["apply", str(file)], (2, 7), capsys):
                wrong.append(f"{where} = {number!r}: {why}")
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"schema_version": 1, "schema_version": 1}',
        b'{"document": "plan"' + b" " * 100_000,
        b"\xef\xbb\xbf{}",
        b'{"a": ' + b"9" * 100_000 + b"}",
        b'{"a": 1e999}',
        b'{"\\u0000": "\\ud800"}',
    ],
    ids=["lists", "objects", "a key twice", "cut off", "a mark", "a huge number", "infinity", "half a letter"],
)
def test_bytes_that_hurt_a_parser_are_refused(home: Path, text: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file = home.parent / "plan.json"
    file.write_bytes(text)
    assert refused(home, ["apply", str(file)], (2,), capsys) == ""
    manifest = home / "orders-0" / f"{PLAN}.logmend.json"
    manifest.write_bytes(text)
    assert refused(home, ["quarantine", "restore", "--plan", PLAN, str(home)], (2,), capsys) == ""
    assert refused(home, ["quarantine", "restore", "--all", str(home)], (1,), capsys) == ""


# ---- manifests

ITEM = {"step": "cut", "name": place(20).partition("/")[2], "reason": "r", "position": 3, "size": 9, "zeroes": True,
        "mtime_ns": 5, "result_size": 3}  # fmt: skip
STEPS = ("cut", "aside", "renamed", "replaced", "created")
NAMES = [
    "..", ".", "", "/etc/passwd", "../pay-3/00000000000000000000.log", "../../canary/file", "../way-out/file", "a\0b",
    "a/b", "x" * 256, "\ud800", 5, None,
]  # fmt: skip


def manifest_of(directory: object, *items: dict[str, Any]) -> str:
    told = {"schema_version": 1, "plan_id": PLAN, "directory": str(directory), "created_ms": 1, "logmend_version": "1"}
    return json.dumps({**told, "items": list(items)})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("field", ["name", "kept", "result_name"])
def test_a_manifest_that_names_what_it_should_not_is_not_used(
    home: Path, step: str, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = home / "orders-0" / f"{PLAN}.logmend.json"
    wrong = []
    for name in NAMES:
        if name == "" and field != "name":
            continue  # so it may be
        value = name if field != "kept" or not isinstance(name, str) else name + ".logmend"
        manifest.write_text(manifest_of(home / "orders-0", {**ITEM, "step": step, field: value}))
        if (field, name) in (("kept", ".."), ("kept", ".")):
            continue  # a plain name with that ending
        wrong += [
            f"{command} {field} = {name!r:.60}: {why}"
            for command in ("restore", "expire")
            if (why := refused(home, ["quarantine", command, "--plan", PLAN, str(home)], (2,), capsys))
        ]
    assert wrong == []


@pytest.mark.parametrize("command", ["restore", "expire"])
@pytest.mark.parametrize("where", ["canary", "data/way-out", "data/../canary", "", "data/orders-0/..", "data/orders-0"])
def test_a_manifest_kept_elsewhere_speaks_of_a_log_directory_that_was_named(
    home: Path, where: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies on another volume says itself which directory it is about, and is not believed in that."""
    kept = home.parent / "kept" / PLAN / "orders-0"
    kept.mkdir(parents=True)
    canary = home.parent / "canary"
    (canary / f"kept.file.{PLAN}.logmend").write_bytes(b"kept")
    items = [
        {"step": "created", "name": "file", "reason": "r", "result_size": len(CANARY["file"]),
         "result_sha256": hashlib.sha256(CANARY["file"]).hexdigest()},
        {"step": "aside", "name": "gone", "reason": "r", "kept": f"kept.file.{PLAN}.logmend", "size": 4},
    ]  # fmt: skip
    text = manifest_of(home.parent / where, *(items if where != "data/orders-0" else []))
    (kept / f"{PLAN}.logmend.json").write_text(text)
    words = ["quarantine", command, "--plan", PLAN, "--quarantine", str(home.parent / "kept"), str(home)]
    if where == "data/orders-0":
        assert main(words) == 0
        return
    assert refused(home, words, (2,), capsys) == ""
    only = ["quarantine", command, "--plan", PLAN, "--quarantine", str(home.parent / "kept")]
    assert refused(home, only, (2,), capsys) == ""


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file grow beyond 16 MiB, lest a test that fails fills the disk."""
    was, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, was[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, was)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("position", [0, 100, 1 << 62])
@pytest.mark.parametrize("size", [1 << 33, 1 << 62, (1 << 63) - 1])
def test_zeroes_without_end_are_not_written(
    home: Path, size: int, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = home / "orders-0" / f"{PLAN}.logmend.json"
    log = home / place(20)
    at = min(position, log.stat().st_size)
    manifest.write_text(manifest_of(home / "orders-0", {**ITEM, "position": at, "size": size}))
    assert refused(home, ["quarantine", "restore", "--plan", PLAN, str(home)], (7,), capsys) == ""


def test_many_zeroes_need_room_before_the_first_effect() -> None:
    files = {f"{number:020d}.log": b"log" for number in range(20)}
    items = [{**ITEM, "name": name, "position": 3, "size": 1 << 20} for name in files]
    text = manifest_of(TOP / "orders-0", *items).encode()
    at = {f"{TOP}/orders-0/{name}": data for name, data in {**files, f"{PLAN}.logmend.json": text}.items()}
    fs = MemoryFs(at, room=10 << 20)
    kept, bad = find_kept(fs, [TOP])
    assert (len(kept), bad) == (1, [])
    effects = fs.effects
    with pytest.raises(NoRoom, match="20971520 bytes"):
        restore(fs, kept)
    assert fs.effects == effects
