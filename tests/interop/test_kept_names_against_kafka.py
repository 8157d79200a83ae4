"""Why what a recovery keeps has a name that does not begin with an offset."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden import golden
from interop.kafka_lab import Oracle
from support.recovering import kept_by_us, options_of, recover

from recovery.evidence.manifest import kept_name

KEY = "0/data/events-5"
PLAN_ID = "0123456789ab"


def with_swap(tmp_path: Path) -> Path:
    """Return a partition in which a compaction of its second segment was committed and not yet put in place."""
    golden.extract("two-disks", tmp_path)
    directory = tmp_path / KEY
    second = sorted(directory.glob("*.log"))[1]
    for suffix in (".log", ".index", ".timeindex"):
        path = second.with_suffix(suffix)
        path.rename(path.with_name(path.name + ".swap"))
    return directory


def test_finishing_a_swap_kafka_deletes_what_begins_with_an_offset_in_its_range_but_not_what_we_keep(
    tmp_path: Path, oracle: Oracle
) -> None:
    directory = with_swap(tmp_path)
    (swap,) = directory.glob("*.log.swap")
    base = swap.name.split(".", maxsplit=1)[0]
    within = f"{int(base) + 1:020d}"
    doomed = [
        f"{base}.log.4711.{PLAN_ID}.logmend",
        f"{within}.snapshot.{PLAN_ID}.logmend",
        f"{within}.anything",
    ]
    below = f"{int(base) - 1:020d}.log.0.{PLAN_ID}.logmend"
    kept = [
        kept_name(f"{base}.log", PLAN_ID, 4711),
        kept_name(f"{within}.snapshot", PLAN_ID),
        f"{PLAN_ID}.logmend.json",
    ]
    for name in (*doomed, below, within, *kept):
        (directory / name).write_bytes(b"bytes that were cut")
    asked = golden.expected("two-disks")["partitions"][KEY]["asked"]
    oracle(op="open", log="swap", dir=directory, clean=False, **asked)
    oracle(op="close", log="swap", abruptly=True)
    left = {path.name for path in directory.iterdir()}
    assert f"{base}.log" in left
    assert sorted(left & set(doomed)) == []
    assert left >= {below, within, *kept}  # the broker goes by what stands before the first dot


def test_kafka_itself_puts_a_swap_in_place_after_a_clean_stop(tmp_path: Path, oracle: Oracle) -> None:
    directory = with_swap(tmp_path)
    expected = golden.expected("two-disks")["partitions"][KEY]
    asked = expected["asked"] | {"recovery_point": expected["loaded"]["log_end"]}
    loaded = oracle.load(directory, clean=True, **asked)
    logs, before = loaded["segments"], expected["loaded"]["segments"]
    assert [(log["base"], log["size"]) for log in logs] == [(log["base"], log["size"]) for log in before]
    assert not list(directory.glob("*.swap"))


def test_what_a_recovery_kept_survives_a_swap_that_kafka_finishes_later(tmp_path: Path, oracle: Oracle) -> None:
    golden.extract("two-disks", tmp_path)
    directory, expected = tmp_path / KEY, golden.expected("two-disks")
    last = max(directory.glob("*.log"))
    with last.open("ab") as file:
        file.write(b"torn" * 5)
    recover(directory.parent, options_of(expected["config"]))
    kept = {path.name: path.read_bytes() for path in directory.iterdir() if kept_by_us(path.name)}
    assert any(data == b"torn" * 5 for data in kept.values())
    for suffix in (".log", ".index", ".timeindex"):
        path = last.with_suffix(suffix)
        shutil.copy2(path, path.with_name(path.name + ".swap"))
    oracle(op="open", log="swap", dir=directory, clean=False, **expected["partitions"][KEY]["asked"])
    oracle(op="close", log="swap", abruptly=True)
    assert {name: (directory / name).read_bytes() for name in kept} == kept
