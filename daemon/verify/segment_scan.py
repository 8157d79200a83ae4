"""Reads a segment in pieces, so that the caller can stop, wait and go on between two of them.

A sound segment is known at once. An unsound one goes to `daemon.verify.diagnosis`, which reads it again: a broker may
be at work on the very file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from daemon.ledger.disk import Disk
from recovery.plan.findings import Damage, Finding, Severity
from recovery.segment.index_checks import IndexChecks, check_against_batches, finish_against_batches
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import FileVanished
from storage.base.names import FileRole, segment_file_name
from storage.base.rows import BatchRows, Stop
from storage.base.units import Offset
from storage.disk.fs import FileStat, ReadFile, read_all
from storage.index.txn_index import LoadSanity, check_as_on_load
from storage.kernel.fold import SegmentFold
from storage.reading.log_reader import LogReader, LogScan, LogWalk

PIECE: Final = 8 << 20
"""Bytes read between two looks at the clock."""
_KNOWN_CODECS: Final = 0b11111
_TXN_ENTRY: Final = 34
_TXN_LIMIT: Final = 64 << 20


def segment_files(disk: Disk, directory: PurePath, base: int) -> SegmentFiles:
    """Return the files of a segment with their stats as they are now; `FileVanished` if there is no log."""
    paths = [
        directory / segment_file_name(Offset(base), role)
        for role in (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)
    ]
    log, index, time_index, txn_index = paths
    return SegmentFiles(
        base, log, disk.stat(log), index, _stat(disk, index), time_index, _stat(disk, time_index), txn_index,
        _stat(disk, txn_index),
    )  # fmt: skip


def _stat(disk: Disk, path: PurePath) -> FileStat | None:
    try:
        return disk.stat(path)
    except FileVanished:
        return None


def are_same(before: SegmentFiles, after: SegmentFiles) -> bool:
    """Tell whether all files are unchanged between two listings, as far as stats show."""
    return all(
        (a is None) == (b is None) and (a is None or b is None or a[:5] == b[:5])
        for a, b in (
            (before.log_stat, after.log_stat),
            (before.index_stat, after.index_stat),
            (before.time_index_stat, after.time_index_stat),
            (before.txn_index_stat, after.txn_index_stat),
        )
    )


def check_txn_index(disk: Disk, files: SegmentFiles) -> list[Finding]:
    """Hold the index of aborted transactions against what a broker demands when it loads it."""
    stat = files.txn_index_stat
    if stat is None or stat.size == 0:
        return []
    data = read_all(disk, files.txn_index, _TXN_LIMIT)
    if len(data) % _TXN_ENTRY == 0 and check_as_on_load(data, Offset(files.base_offset)) is LoadSanity.SOUND:
        return []
    return [Finding(Damage.TXN_INDEX_CORRUPT, files.txn_index, "not a list of sound entries")]


def tells(finding: Finding) -> bool:
    """Tell whether a finding is for people, not a mere note, nor a file that went away."""
    return finding.kind.severity is not Severity.NOTE and finding.kind is not Damage.VANISHED


@dataclass(slots=True)
class Seen:
    """What a reading has shown so far. `position` and `next_offset`: where the sound chain ends."""

    position: int
    next_offset: int
    stop: Stop = Stop.END
    batches: int = 0
    from_device: bool = True

    def note(self, walk: LogWalk, scan: LogScan | None) -> None:
        """Take over how far a walk has come; `scan` is its result, None while it goes on."""
        if scan is None or not scan.blamed_earlier:
            self.position, self.next_offset = walk.position, walk.next_offset
        self.stop = Stop.END if scan is None else scan.stop


class ClosedScan:
    """One reading of a closed segment with its indexes. `advance` until it says so, then `is_sound`; then `close`.

    Everything raises `ReadFault` and `FileVanished`.
    """

    def __init__(self, disk: Disk, files: SegmentFiles, reader: LogReader) -> None:
        self.files, self._disk = files, disk
        self._file: ReadFile = disk.open_read(files.log)
        try:
            self._checks: IndexChecks = check_against_batches(disk, files)
        except BaseException:
            self._file.close()
            raise
        self._fold = SegmentFold(files.base_offset, event_limit=1)
        self.seen = Seen(0, files.base_offset)
        self._walk = reader.begin(self._file, files.log, files.log_stat.size, files.base_offset, self._take)

    @property
    def digest(self) -> str:
        """The fold's digest of the batches that were read, sixteen hex digits."""
        return f"{self._fold.digest:016x}"

    def advance(self) -> tuple[int, bool]:
        """Read the next piece; return its bytes, and whether that was the last."""
        before = self._walk.read_to
        scan = self._walk.advance(PIECE)
        self.seen.note(self._walk, scan)
        self.seen.from_device = self._disk.is_from_device(self._file)
        return self._walk.read_to - before, scan is not None

    def _take(self, rows: BatchRows, count: int, _window: memoryview, _origin: int) -> None:
        self._fold.add(rows, count)
        for check in self._checks:
            check.feed(rows, count)
        self.seen.batches += count

    def is_sound(self) -> bool:
        """Tell, after the last piece, whether log and indexes are as they should be."""
        if self.seen.stop is not Stop.END or self.seen.position != self.files.log_stat.size:
            return False
        fold = self._fold
        if fold.codecs & ~_KNOWN_CODECS or fold.range_fault is not None:
            return False
        found, _ = finish_against_batches(
            self._disk, self._checks, self.files, self.seen.position, fold, active=False, ends=True
        )
        return not any(map(tells, [*found, *check_txn_index(self._disk, self.files)]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FlushedScan:
    """One reading of the flushed part of a log from some batch on: up to `point`, or the end of the file.

    As `ClosedScan`, but bytes at or above `point` are not flushed, and never judged. Indexes are not read: a broker
    keeps those of its active segment preallocated.
    """

    def __init__(self, disk: Disk, path: PurePath, stat: FileStat, start: Seen, point: int, reader: LogReader) -> None:
        self.path, self.stat, self.point = path, stat, point
        self._disk = disk
        self._file: ReadFile = disk.open_read(path)
        self._walk = reader.begin(self._file, path, stat.size, start.next_offset, self._take, start=start.position)
        self.begin = replace(start)
        self.seen = replace(start)
        self._reached = start.next_offset >= point

    @property
    def reaches_point(self) -> bool:
        """Everything below the point was found sound, in this file."""
        return self._reached or self.seen.next_offset >= self.point

    @property
    def is_damaged(self) -> bool:
        """The chain ends below the point although the file goes on. It may still be a broker at work."""
        ended = self.seen.stop not in (Stop.END, Stop.ROWS_FULL)
        return not self.reaches_point and (ended or self.seen.position < self.stat.size)

    def advance(self) -> tuple[int, bool]:
        """Read the next piece; return its bytes, and whether that was the last."""
        progress, walk = self.seen, self._walk
        if self.reaches_point or progress.position >= self.stat.size:
            return 0, True
        before = walk.position
        scan = walk.advance(PIECE)
        progress.from_device = self._disk.is_from_device(self._file)
        if self._reached:  # where it stopped lies behind the point
            progress.stop = Stop.END
        else:
            progress.note(walk, scan)
        return walk.position - before, self._reached or scan is not None

    def _take(self, rows: BatchRows, count: int, _window: memoryview, _origin: int) -> None:
        if self._reached:
            return
        progress = self.seen
        if rows.last_offset[count - 1] + 1 < self.point:
            progress.batches += count
            return
        self._reached = True
        for row in range(count):  # remember where the point is: the next reading begins there
            if rows.last_offset[row] + 1 > self.point:
                break
            progress.position, progress.next_offset = rows.position[row] + rows.size[row], rows.last_offset[row] + 1
            progress.batches += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()
