"""The whole command, by its real paths, on a faked file system: stopped at any effect, it is finished by the next.

pyfakefs knows nothing of what is durable, so this is what a kill leaves; what a power cut leaves, the others try.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash.engine_steps import STEPS, begun, opened, promises_of_begun
from crash.engine_steps import Machine as Steps
from pyfakefs.fake_filesystem import FakeFilesystem
from support.faults import DAMAGES, check_nothing_is_lost, read_tree, write_tree
from support.log_dirs import Files, live
from support.memory_fs import Crashed

from cli.main import main
from storage.disk import os_files
from storage.disk.fs import OsFs, OsWriteFile

CHANGES = ("create", "truncate", "rename", "link", "remove", "make_dir", "set_mtime", "sync_file", "sync_dir")
EFFECTS = [*((OsFs, name) for name in CHANGES), (OsWriteFile, "append"), (OsWriteFile, "sync")]
HOME, SENT = Path("/data"), Path("/sent")
EVERYTHING = os.environ.get("LOGMEND_CRASH_STATES") == "all"
STEP = 1 if EVERYTHING else 9
"""Of so many effects one is tried."""


class Machine:
    """Dies before the effect of a number, and stays dead."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.stop = 0, 0
        for owner, name in EFFECTS:
            patch.setattr(owner, name, self.counted(getattr(owner, name)))

    def counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if 0 < self.stop <= self.count:
                raise Crashed
            return real(*arguments, **named)

        return call

    def run(self, *words: str, stop: int = 0) -> int | None:
        """Run a command; return its status, None if it died."""
        self.count, self.stop = 0, stop
        status = None
        with contextlib.suppress(Crashed):
            status = main([*words, str(HOME)])
        is_dead = 0 < stop <= self.count  # whatever it says of it then: it changed nothing more
        self.stop = 0
        return None if is_dead else status


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os_files, "LINUX", False)  # descriptors of fake files are not the kernel's
    return Machine(monkeypatch)


def made(fs: FakeFilesystem, before: Files) -> None:
    if HOME.exists():
        fs.remove_object(str(HOME))
    write_tree(HOME, before)


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("name", sorted(DAMAGES) if EVERYTHING else ["broken_in_the_middle", "torn"])
def test_a_recover_that_dies_before_any_effect_is_finished_by_the_next(
    fs: FakeFilesystem, machine: Machine, name: str
) -> None:
    before = DAMAGES[name]
    made(fs, before)
    assert machine.run("recover", "-j", "1") == 0
    effects, wanted = machine.count, live(read_tree(HOME))
    assert effects > 5
    for stop in range(1, effects + 1, STEP):
        made(fs, before)
        assert machine.run("recover", "-j", "1", stop=stop) is None
        check_nothing_is_lost(HOME, before)
        assert machine.run("recover", "-j", "1") == 0, f"after it died before effect {stop}"
        assert live(read_tree(HOME)) == wanted, f"after it died before effect {stop}"
        check_nothing_is_lost(HOME, before)


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("name", sorted(DAMAGES) if EVERYTHING else ["broken_in_the_middle", "torn"])
def test_a_restore_that_dies_before_any_effect_is_finished_by_the_next(
    fs: FakeFilesystem, machine: Machine, name: str
) -> None:
    before = DAMAGES[name]
    effects, stop = 1, 0
    while stop < effects:
        made(fs, before)
        assert machine.run("recover", "-j", "1") == 0
        died = machine.run("quarantine", "restore", "--all", stop=stop)
        effects = machine.count if stop == 0 else effects
        assert (died is None) == (stop > 0)
        if died is None and list(HOME.rglob("*.logmend.json")):
            assert machine.run("quarantine", "restore", "--all") == 0
        assert read_tree(HOME) == before, f"after it died before effect {stop}"
        stop += 1 if stop == 0 else STEP
    assert effects > 3


# ---- the engine that `run` opens, and the commands that use it


class Engine:
    """The steps of a log manager, by real paths; each step promises what `engine_steps` says."""

    def __init__(self) -> None:
        self.promises = promises_of_begun()

    def run(self, names: tuple[str, ...]) -> None:
        machine = Steps(OsFs(), self.promises, written=3, home=HOME)
        machine.open()
        for name in names:
            if machine.can(name):
                STEPS[name](machine)
        machine.manager.close()

    def judge(self) -> None:
        promises = self.promises
        # Nothing is lost with the power here: what was said was written, flushed or not.
        promises.flushed = max(promises.said, default=promises.flushed - 1) + 1
        with opened(OsFs(), HOME) as manager:
            promises.judge(manager)


SEQUENCES = [
    ("append", "flush", "roll", "append", "checkpoint"),
    ("append", "roll", "compact", "remove", "append"),
    ("append", "truncate", "append", "retain", "remove"),
    ("create", "append", "delete", "remove", "create"),
    ("delete_records", "append", "restart", "append", "flush_closed"),
]


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("names", SEQUENCES if EVERYTHING else SEQUENCES[1:4], ids="-".join)
def test_an_engine_that_dies_before_any_effect_is_recovered_by_the_command(
    fs: FakeFilesystem, machine: Machine, names: tuple[str, ...]
) -> None:
    before = begun().contents(str(HOME))
    made(fs, before)
    machine.count = 0
    Engine().run(names)
    effects = machine.count
    assert effects > 10
    for stop in range(1 + len(names), effects + 1, STEP * 2 - 1):
        made(fs, before)
        engine = Engine()
        machine.count, machine.stop = 0, stop
        with contextlib.suppress(Crashed):
            engine.run(names)
        machine.stop = 0
        assert machine.run("recover", "-j", "1") == 0, f"after it died before effect {stop}"
        assert machine.run("plan", "-j", "1") == 0
        engine.judge()


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
def test_an_append_that_dies_before_any_effect_leaves_a_beginning_of_what_was_sent(
    fs: FakeFilesystem, machine: Machine, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    made(fs, {})
    HOME.mkdir(exist_ok=True)
    settings = ("--config", "internal.segment.bytes=200", "--config", "flush.messages=2")
    assert (
        machine.run("topics", "create", "--init", "--topic", "orders", "--partitions", "1", *settings, "--log-dir") == 0
    )
    before = read_tree(HOME)
    words = ("append", "--topic", "orders", "--format", "text", "--batch-bytes", "1", "--log-dir")
    sent = [f"value {number}" for number in range(6)]
    # The descriptor of a fake file may be that of a real one, at which nothing ever comes; a file is always ready.
    monkeypatch.setattr("cli.engine.append.select.select", lambda *asked: asked[:3])
    stop, effects, seen = 0, 1, set()
    while stop <= effects:
        made(fs, before)
        SENT.write_text("".join(f"{value}\n" for value in sent))
        with SENT.open("rb") as typed:
            monkeypatch.setattr("sys.stdin", typed)
            status = machine.run(*words, stop=stop)
        effects = machine.count if stop == 0 else effects
        assert status == (0 if stop == 0 else None)
        assert machine.run("recover", "-j", "1") == 0, f"after it died before effect {stop}"
        capsysbinary.readouterr()
        assert machine.run("read", "--topic", "orders", "--log-dir") == 0
        found = [json.loads(line)["value"] for line in capsysbinary.readouterr().out.splitlines()]
        assert found == sent[: len(found)], f"after it died before effect {stop}"
        seen.add(len(found))
        stop += 1 if stop == 0 else STEP
    assert len(seen) > 1
