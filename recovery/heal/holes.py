"""Finds the holes of a log, and the sound batches on both sides of each, which tell what belongs there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.segment.segment_files import SegmentFiles
from storage.base.rows import BatchRows
from storage.disk.fs import ReadFile, ReadFs
from storage.reading.log_reader import MAX_RELATIVE_OFFSET, LogReader, find_sound_batch

_HEAD: Final = 27
"""Bytes of a batch up to its last offset delta."""
_LEAST: Final = 61


class Neighbour(NamedTuple):
    """A batch beside a hole, by what no other batch of its partition has: offsets, epoch, size, stored checksum."""

    base_offset: int
    last_offset: int
    epoch: int
    size: int
    crc: int


class Hole(NamedTuple):
    """Bytes of a `.log` that are no sound batches in order, and the offsets that are missing with them.

    Bytes from `position` to `end`; offsets from `first` up to, not including, `until`, which is None at the end of the
    log, where nothing says how far it went. `before`, `behind`: the nearest batches of format 2 in the log; where
    `is_bounded`, the one behind lies in the same file, so that the hole has its true size.
    """

    log: PurePath
    position: int
    end: int
    first: int
    until: int | None
    before: Neighbour | None = None
    behind: Neighbour | None = None
    is_bounded: bool = False

    @property
    def size(self) -> int:
        """How many bytes are no batches."""
        return self.end - self.position


def find_holes(
    fs: ReadFs,
    segments: Sequence[SegmentFiles],
    damaged: Collection[PurePath],
    point: int | None,
    reader: LogReader,
    *,
    has_gaps: bool,
) -> dict[PurePath, list[Hole]]:
    """Return the holes of the damaged logs of one partition, in order, by log.

    `point`: the recovery point where the last log ends below it; that log then has a hole at its end. `has_gaps`:
    compaction has taken offsets away; else a batch beside a hole that leaves offsets out has a wrong base offset, which
    no checksum covers, and belongs to the hole. Raises `ReadFault`, and `FileVanished` where a file has shrunk.
    """
    holes: dict[PurePath, list[Hole]] = {}
    for number, files in enumerate(segments):
        is_last = number + 1 == len(segments)
        if files.log in damaged or (is_last and point is not None):
            until = point if is_last else int(segments[number + 1].base_offset)
            with fs.open_read(files.log) as file:
                holes[files.log] = _holes_of(file, files, until, reader, has_gaps=has_gaps)
    _look_back(fs, segments, holes, reader)
    _look_ahead(fs, segments, holes, has_gaps=has_gaps)
    return holes


def _holes_of(
    file: ReadFile, files: SegmentFiles, until: int | None, reader: LogReader, *, has_gaps: bool
) -> list[Hole]:
    """Return the holes of one segment. `until`: the offset that what follows the segment begins with."""
    size, holes, start, next_offset = files.log_stat.size, [], 0, int(files.base_offset)
    last = _LastBatch()
    while True:
        last.begin(next_offset)
        scan = reader.scan(file, files.log, size, next_offset, last.see, start=start)
        at, first, before = scan.valid_size, scan.next_offset, last.batch
        if scan.blamed_earlier:
            before = last.earlier
        elif last.has_gap and not has_gaps and first != until:
            at, first, before = last.position, last.expected, last.earlier
        goes_back = None
        if last.gap is not None and not has_gaps:
            goes_back = _goes_back(file, size, at, last.gap, scan.next_offset, until)
        if goes_back is not None and last.gap is not None:
            at, first, before = last.gap
        if at == size:
            if until is not None and first < until:
                holes.append(Hole(files.log, size, size, first, until, before))
            return holes
        sound = goes_back or _next_sound(file, size, at + 1, first, until, has_gaps=has_gaps)
        if sound is None or sound == size:
            return [*holes, Hole(files.log, at, size, first, until, before)]
        start, next_offset = sound, _base_offset(file, sound)
        behind = _read_neighbour(file, sound)
        holes.append(Hole(files.log, at, sound, first, next_offset, before, behind, is_bounded=True))


def _goes_back(file: ReadFile, size: int, at: int, gap: _Gap, first: int, until: int | None) -> int | None:
    """Return where the log goes on below what the batches from a gap on claim, whose base offsets are then wrong."""
    sound = _next_sound(file, size, max(at, gap.position + 1), gap.expected, until, has_gaps=False)
    behind = until if sound is None else _base_offset(file, sound)
    if behind is None or behind > first or (behind == first and at == size):
        return None
    return size if sound is None else sound


def _next_sound(file: ReadFile, size: int, start: int, first: int, until: int | None, *, has_gaps: bool) -> int | None:
    """Return where the next sound batch is whose offsets agree with what follows it, None without any."""
    while (sound := find_sound_batch(file, size, start, first)) is not None and not has_gaps:
        batch = _read_neighbour(file, sound)
        if batch is None or _follower(file, size, sound + batch.size, first, until) in (None, batch.last_offset + 1):
            break
        start = sound + 1
    return sound


def _follower(file: ReadFile, size: int, position: int, first: int, until: int | None) -> int | None:
    """Return the offset that begins at a position, None where no batch tells it."""
    if position == size:
        return until
    batch = _read_neighbour(file, position)
    if batch is None or batch.size < _LEAST or not first <= batch.base_offset <= first + MAX_RELATIVE_OFFSET:
        return None
    return batch.base_offset


class _Gap(NamedTuple):
    """The first batch of a walk that leaves offsets out: where it lies, what would have followed, the batch before."""

    position: int
    expected: int
    before: Neighbour | None


class _LastBatch:
    """Keeps the last two batches that a walk has passed, None for an old format, and where the last one lies."""

    def __init__(self) -> None:
        self.gap: _Gap | None = None
        self.batch: Neighbour | None = None
        self.earlier: Neighbour | None = None
        self.position = self.expected = 0
        self._base = self._next = 0

    @property
    def has_gap(self) -> bool:
        """Whether the last batch leaves out offsets behind the one before it."""
        return self._base > self.expected

    def begin(self, next_offset: int) -> None:
        """Take note that a walk begins, with this offset."""
        self._base = self.expected = self._next = next_offset
        self.gap = None

    def see(self, rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        """Take in the rows of one window."""
        at = count - 1
        if self.gap is None:
            self.gap = self._first_gap(rows, count)
        self.earlier = _neighbour(rows, at - 1) if at else self.batch
        self.expected = rows.last_offset[at - 1] + 1 if at else self._next
        self.batch = _neighbour(rows, at)
        self.position, self._base, self._next = rows.position[at], rows.base_offset[at], rows.last_offset[at] + 1

    def _first_gap(self, rows: BatchRows, count: int) -> _Gap | None:
        expected = self._next
        for at in range(count):
            if rows.base_offset[at] > expected:
                return _Gap(rows.position[at], expected, _neighbour(rows, at - 1) if at else self.batch)
            expected = rows.last_offset[at] + 1
        return None


def _neighbour(rows: BatchRows, at: int) -> Neighbour | None:
    if rows.magic[at] != 2:
        return None
    return Neighbour(rows.base_offset[at], rows.last_offset[at], rows.leader_epoch[at], rows.size[at], rows.crc[at])


def _base_offset(file: ReadFile, position: int) -> int:
    head = bytearray(8)
    file.read_into(position, memoryview(head))
    return int.from_bytes(head, "big", signed=True)


def _read_neighbour(file: ReadFile, position: int) -> Neighbour | None:
    """Return the batch at `position` by its header alone; None for an old format, or where the file ends."""
    head = bytearray(_HEAD)
    if file.read_into(position, memoryview(head)) < _HEAD or head[16] != 2:
        return None
    base = int.from_bytes(head[:8], "big", signed=True)
    return Neighbour(
        base_offset=base,
        last_offset=base + int.from_bytes(head[23:27], "big", signed=True),
        epoch=int.from_bytes(head[12:16], "big", signed=True),
        size=12 + int.from_bytes(head[8:12], "big", signed=True),
        crc=int.from_bytes(head[17:21], "big"),
    )


def _look_back(
    fs: ReadFs, segments: Sequence[SegmentFiles], holes: dict[PurePath, list[Hole]], reader: LogReader
) -> None:
    """Give a hole at the begin of a segment the last batch before it, which an earlier segment holds."""
    for number, files in enumerate(segments[1:], 1):
        here = holes.get(files.log)
        if not here or here[0].position > 0:
            continue
        earlier = segments[number - 1]
        last = _LastBatch()
        if there := holes.get(earlier.log):
            if there[-1].end == earlier.log_stat.size and not there[-1].is_bounded:
                here[0] = here[0]._replace(before=there[-1].before)
                continue
            start, next_offset = there[-1].end, there[-1].until or 0
        else:
            start, next_offset = 0, int(earlier.base_offset)
        with fs.open_read(earlier.log) as file:
            reader.walk(file, earlier.log, earlier.log_stat.size, next_offset, last.see, start=start)
        here[0] = here[0]._replace(before=last.batch)


def _look_ahead(
    fs: ReadFs, segments: Sequence[SegmentFiles], holes: dict[PurePath, list[Hole]], *, has_gaps: bool
) -> None:
    """Give a hole at the end of a segment the next batch behind it, which a later segment holds."""
    behind: Neighbour | None = None
    for files in reversed(segments):
        here = holes.get(files.log)
        if here and not here[-1].is_bounded:
            here[-1] = here[-1]._replace(behind=behind)
        if here and here[0].position == 0:
            behind = here[0].behind
        elif files.log_stat.size:
            behind = _first_batch(fs, files, has_gaps=has_gaps)


def _first_batch(fs: ReadFs, files: SegmentFiles, *, has_gaps: bool) -> Neighbour | None:
    """Return the first batch of a segment, without gaps the first one whose base offset can be right."""
    base = int(files.base_offset)
    with fs.open_read(files.log) as file:
        batch = _read_neighbour(file, 0)
        if batch is None or has_gaps or batch.base_offset == base:
            return batch
        sound = _next_sound(file, files.log_stat.size, 1, base, None, has_gaps=False)
        return None if sound is None else _read_neighbour(file, sound)
