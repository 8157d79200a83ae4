"""The quick look at a clean shutdown: nothing to do, or the same findings however files are read."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.batches import TS, batch_v2
from support.log_dirs import EPOCHS, MARKER, STARTS, checkpoint, name_of
from support.shut_down import OPTIONS, PARTITION, SEGMENTS, Segment, idempotent, make_odd, modern, write_shut_down

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import LogDirPlan, PlanOptions, to_plain
from storage.base.errors import ExitStatus
from storage.disk.fs import OsFs

_disk = pytest.importorskip("storage.disk._disk", reason="the kernel was not built")
SEEDS = 100
Change = Callable[[Path], object]


class FileByFile(OsFs):
    """The same disk without the kernel that reads parts of many files in one call."""


def told(plan: LogDirPlan) -> tuple[Any, ...]:
    return to_plain(plan), plan.status, [partition.seen for partition in plan.partitions]


def both(log_dir: Path) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what is told of a directory read file by file, and with many files in one call."""
    one_by_one, at_once = (plan_log_dir(fs, log_dir, OPTIONS).plan for fs in (FileByFile(), OsFs()))
    return told(one_by_one), told(at_once)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("segment", SEGMENTS)
def test_a_partition_that_was_shut_down_well_needs_nothing(tmp_path: Path, segment: Segment, *, rolled: bool) -> None:
    write_shut_down(tmp_path / "data", segment, rolled=rolled)
    one_by_one, at_once = both(tmp_path / "data")
    assert at_once == one_by_one
    assert at_once[1] is ExitStatus.CLEAN
    (plan,) = plan_log_dir(OsFs(), tmp_path / "data", OPTIONS).plan.partitions
    assert plan.loaded is not None
    assert (plan.verdicts, plan.actions, plan.scanned_bytes, plan.loaded.log_end) == ((), (), 0, 40)


@pytest.mark.parametrize("segment", SEGMENTS)
def test_whatever_is_odd_is_found_however_files_are_read(tmp_path: Path, segment: Segment) -> None:
    write_shut_down(tmp_path / "sound", segment)
    kinds, clean = set(), 0
    for seed in range(SEEDS):
        data = tmp_path / "data"
        shutil.copytree(tmp_path / "sound", data)
        make_odd(data / PARTITION, seed)
        one_by_one, at_once = both(data)
        assert at_once == one_by_one, seed
        clean += at_once[1] is ExitStatus.CLEAN
        kinds |= {verdict["finding"]["kind"] for part in at_once[0]["partitions"] for verdict in part["verdicts"]}
        shutil.rmtree(data)
    assert len(kinds) > 12, kinds
    assert clean > SEEDS // 20  # damage where a quick look reads nothing


def in_offset_index(*entries: tuple[int, int]) -> Change:
    return lambda d: (d / name_of(10, "index")).write_bytes(b"".join(struct.pack(">ii", *each) for each in entries))


def in_time_index(*entries: tuple[int, int]) -> Change:
    return lambda d: (d / name_of(10, "timeindex")).write_bytes(b"".join(struct.pack(">qi", *each) for each in entries))


def without_index(log: bytes) -> Change:
    def change(directory: Path) -> None:
        in_offset_index()(directory)
        (directory / name_of(10)).write_bytes(log)

    return change


ODD: dict[str, Change] = {
    "the offset index ends with zero bytes": in_offset_index((0, 0)),
    "the last offset is negative": in_offset_index((-1, 90)),
    "the last position is negative": in_offset_index((2, -1)),
    "the last position is 0": in_offset_index((2, 0)),
    "offsets do not rise": in_offset_index((4, 90), (4, 180)),
    "positions do not rise": in_offset_index((2, 90), (4, 90)),
    "the last position is the end of the log": in_offset_index((2, sum(map(len, modern(10))))),
    "the time index ends with zero bytes": in_time_index((0, 0)),
    "the last time is negative": in_time_index((-1, 3)),
    "the last offset of a time is negative": in_time_index((TS, -1)),
    "times do not rise": in_time_index((TS, 1), (TS, 3)),
    "offsets of times do not rise": in_time_index((TS, 3), (TS + 1, 3)),
    "offsets go back": without_index(b"".join(modern(10)[::-1])),
    "a batch begins below the base": without_index(b"".join(modern(0))),
    "a batch is damaged": without_index(b"".join(modern(10))[:-1] + b"?"),
    "a batch is cut": without_index(b"".join(modern(10))[:-1]),
    "bytes are no batch": without_index(b"".join(modern(10)) + bytes(20)),
    "a time index has no log": lambda d: (d / name_of(7, "timeindex")).touch(),
    "an offset index has no log": lambda d: (d / name_of(7, "index")).touch(),
    "an offset is no number": lambda d: (d / "0000000000000000000:.snapshot").touch(),
    "an offset has too few digits": lambda d: (d / "0000000000000000007.log").touch(),
    "an offset needs more than 63 bits": lambda d: (d / "09223372036854775808.snapshot").touch(),
    "a stranger is there": lambda d: (d / "notes.txt").touch(),
    "an aborted transaction is told": lambda d: (d / name_of(10, "txnindex")).write_bytes(bytes(34)),
    "the metadata is no text": lambda d: (d / "partition.metadata").write_bytes(b"\xff"),
    "the newest snapshot is damaged": lambda d: (d / name_of(40, "snapshot")).write_bytes(bytes(20)),
    "no snapshot is left": lambda d: [os.unlink(path) for path in d.glob("*.snapshot")],
    "an epoch begins where no log ends": lambda d: (d / EPOCHS_NAME).write_bytes(b"0\n1\n3 9223372036854775807\n"),
}  # fmt: skip


HARMLESS = {"a stranger is there", "an offset has too few digits", "no snapshot is left"}
"""After these nothing has to be repaired."""


@pytest.mark.parametrize("what", ODD)
def test_one_oddity_is_found_however_files_are_read(tmp_path: Path, what: str) -> None:
    directory = write_shut_down(tmp_path / "data", modern)
    ODD[what](directory)
    one_by_one, at_once = both(tmp_path / "data")
    assert at_once == one_by_one
    assert (at_once[1] is ExitStatus.CLEAN) == (what in HARMLESS)


@pytest.mark.parametrize("start", [5, 35, 40, 41])
def test_the_log_start_of_the_checkpoint_counts(tmp_path: Path, start: int) -> None:
    write_shut_down(tmp_path / "data", modern)
    (tmp_path / "data" / STARTS).write_bytes(checkpoint({PARTITION: start}))
    one_by_one, at_once = both(tmp_path / "data")
    assert at_once == one_by_one


def test_without_the_marker_the_active_segment_is_scanned(tmp_path: Path) -> None:
    directory = write_shut_down(tmp_path / "data", modern)
    (tmp_path / "data" / MARKER).unlink()
    plan = plan_log_dir(OsFs(), tmp_path / "data", OPTIONS).plan
    assert plan.partitions[0].scanned_bytes == (directory / name_of(30)).stat().st_size


def test_at_other_depths_every_byte_is_read(tmp_path: Path) -> None:
    write_shut_down(tmp_path / "data", modern)
    plan = plan_log_dir(OsFs(), tmp_path / "data", PlanOptions(depth="full", index_interval_bytes=150)).plan
    assert plan.partitions[0].scanned_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.log"))


def test_a_long_end_of_a_log_is_looked_at_up_to_a_mebibyte(tmp_path: Path) -> None:
    def two_large(base: int) -> list[bytes]:
        return [modern(base)[0], *(batch_of(base + 2 + 4 * n, 4, 500_000) for n in range(2))]

    directory = write_shut_down(tmp_path / "data", two_large)
    assert both(tmp_path / "data")[1][1] is ExitStatus.CLEAN
    log = directory / name_of(10)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    one_by_one, at_once = both(tmp_path / "data")
    assert at_once[1] is not ExitStatus.CLEAN
    assert at_once == one_by_one


def batch_of(base: int, count: int, size: int) -> bytes:
    return batch_v2(base, payload=bytes(size), count=count)


class FailsOnce:
    """A disk of which one read of many files fails once for one of them; after that it reads well."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def parts(self, directory: Path, wanted: Any) -> Any:
        found = _disk.parts(directory, wanted)
        for place, (name, _, _) in enumerate(wanted):
            if name == self._name:
                found[place], self._name = self._number, ""
        return found


class Failing(OsFs):
    def __init__(self, once: FailsOnce) -> None:
        self._once = once

    def kernel(self) -> Any:
        return self._once


def test_a_disk_that_failed_once_is_not_believed(tmp_path: Path) -> None:
    directory = write_shut_down(tmp_path / "data", idempotent)
    name = name_of(10, "index")
    plan = plan_log_dir(Failing(FailsOnce(name, errno.EIO)), tmp_path / "data", OPTIONS).plan
    assert [(finding.kind.value, finding.path) for finding in plan.findings] == [("read_error", directory / name)]
    assert plan.status is ExitStatus.ENVIRONMENT


def test_a_lost_history_of_epochs_is_not_passed_over(tmp_path: Path) -> None:
    write_shut_down(tmp_path / "data", modern)
    (tmp_path / "data" / EPOCHS).unlink()
    one_by_one, at_once = both(tmp_path / "data")
    assert at_once == one_by_one
    assert [v["finding"]["kind"] for v in at_once[0]["partitions"][0]["verdicts"]] == ["epochs_missing"]
