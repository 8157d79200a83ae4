"""Carries the fold of one segment on to the end of its log, a piece at a time, and makes the mark that says so.

A broker may truncate the log and append something else between two looks, and while it is read. Whatever it does, the
bytes below a place are as they were if the batch that ends there is: same offset, epoch, checksum (the argument is in
docs/understand/marks.md). So the last batch of the mark is compared before a piece is read and after it. Within the
piece, batches of two histories differ in their leader epochs: a piece in which the epoch changes is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

from daemon.ends.tail import Advance, Stamp, TailFile, TailReader
from recovery.segment.marks import EVENT_LIMIT, Circumstances, Mark, index_digest, prove
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData
from storage.base.names import FileRole, segment_file_name
from storage.base.rows import Stop
from storage.base.units import Offset
from storage.batch.batch import parse_header
from storage.kernel.fold import SegmentFold

PIECE: Final = 8 << 20
"""Bytes of one segment that are read at a time."""
_UNFINISHED: Final = (Stop.END, Stop.NEED_MORE, Stop.ROWS_FULL)


@dataclass(slots=True)
class Followed:
    """A segment that is followed. `stamp`: its log at the last look after which nothing was left to read."""

    base: int
    place: str
    """Path of its log: the system takes a string in half the time."""
    size: int = 0
    stamp: Stamp | None = None
    mark: Mark | None = None
    durable: Mark | None = None
    stored: list[Mark] = field(default_factory=list)
    """Marks that may hold, of an earlier run or an earlier look, the farthest first."""
    refusals: int = 0
    """Looks in a row at which no mark could be made."""
    retry_at: float = 0.0

    @property
    def log(self) -> PurePath:
        """Path of its log."""
        return PurePath(self.place)

    @property
    def position(self) -> int:
        """How far the log is marked."""
        return 0 if self.mark is None else self.mark.position

    @property
    def left(self) -> int:
        """Bytes that no mark covers."""
        return max(self.size - self.position, 0)

    @property
    def not_durable(self) -> int:
        """Bytes that no durable mark covers."""
        return max(self.size - (0 if self.durable is None else self.durable.position), 0)


class Step(NamedTuple):
    """What a piece gave: the mark behind it, None where none can be made, then `doubt` says why.

    `is_end`: nothing is left to read at this look. `is_odd`: what follows is neither a batch nor a part of one.
    """

    mark: Mark | None
    doubt: str = ""
    is_end: bool = False
    is_odd: bool = False


def doubt_about(mark: Mark, file: TailFile, now: Circumstances) -> str | None:
    """Return why a mark may not hold, None where it does; raises `ReadFault`."""
    directory, base = file.path.parent, mark.base_offset
    index, time_index, txn_index = (
        directory / segment_file_name(Offset(base), role)
        for role in (FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)
    )
    files = SegmentFiles(base, file.path, file.stat, index, None, time_index, None, txn_index, None)
    return prove(mark, file, files, now)


class Follower:
    """Carries marks on. The buffers of one thread."""

    def __init__(self) -> None:
        self._reader = TailReader()

    def step(self, file: TailFile, base: int, mark: Mark | None, now: Circumstances, now_ms: int) -> Step:
        """Read the next piece behind a mark that holds; raises `ReadFault`, `FileVanished`, `NotInMemory`."""
        begin, size = (0 if mark is None else mark.position), file.stat.size
        end = min(size, begin + PIECE)
        fold, piece = self._fold(file, base, mark, now, end)
        while piece.position == begin and piece.stop is Stop.NEED_MORE and end < size:
            end = min(size, 2 * end - begin)  # a batch that is larger than a piece
            fold, piece = self._fold(file, base, mark, now, end)
        is_odd = piece.stop not in _UNFINISHED
        is_end = is_odd or end == size
        if piece.header is None:
            return Step(mark, is_end=is_end, is_odd=is_odd)
        if piece.stop is Stop.BAD_ORDER:  # the wrong batch may be the last of those that were taken for sound
            return Step(mark, is_end=True, is_odd=True)
        if mark is not None and not _is_still_there(file, mark):
            return Step(None, "the log was truncated while it was read")
        if _changes_epoch(fold, mark):
            again, second = self._fold(file, base, mark, now, end)
            if (again.save(), second) != (fold.save(), piece):
                return Step(None, "the log was truncated while it was read")
        further = _marked(file, mark, fold, piece, now, now_ms)
        if doubt := doubt_about(further, file, now):
            return Step(None, doubt)
        return Step(further, is_end=is_end, is_odd=is_odd)

    def _fold(
        self, file: TailFile, base: int, mark: Mark | None, now: Circumstances, end: int
    ) -> tuple[SegmentFold, Advance]:
        if mark is not None:
            fold = SegmentFold.restore(mark.fold)
            return fold, self._reader.fold(file, fold, mark.position, mark.next_offset, end)
        fold = SegmentFold(
            base, index_interval_bytes=now.index_interval_bytes, max_index_size=now.max_index_size,
            event_limit=EVENT_LIMIT,
        )  # fmt: skip
        return fold, self._reader.fold(file, fold, 0, base, end)


def _is_still_there(file: TailFile, mark: Mark) -> bool:
    try:
        start = mark.position - parse_header(memoryview(mark.header), 0).size
    except CorruptData:
        return False
    return file.header(start) == mark.header


def _changes_epoch(fold: SegmentFold, mark: Mark | None) -> bool:
    """Tell whether a piece has batches of more than one leader epoch, the batch before it included."""
    before = 1 if mark is None else len(SegmentFold.restore(mark.fold).epochs)
    return len(fold.epochs) > before or fold.epoch_fall is not None


def _marked(
    file: TailFile, mark: Mark | None, fold: SegmentFold, piece: Advance, now: Circumstances, now_ms: int
) -> Mark:
    """Return the mark behind a piece."""
    assert piece.header is not None
    offsets, times = fold.take_indexes()
    index_size, time_index_size = fold.index_sizes
    before = (0, 0) if mark is None else (mark.index_digest, mark.time_index_digest)
    base, interval, most, _ = fold.settings
    return Mark(
        now.directory, now.topic_id, file.stat.device, file.stat.inode, base, interval, most, piece.position,
        piece.next_offset, piece.header, index_size, index_digest(offsets, before[0]), time_index_size,
        index_digest(times, before[1]), fold.save(), now.boot_id, now_ms,
    )  # fmt: skip
