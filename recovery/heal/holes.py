"""Finds the holes of a log, and the sound batches on both sides of each, which tell what belongs there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.segment.segment_files import SegmentFiles
from storage.disk.fs import ReadFile, ReadFs
from storage.kernel.rows import BatchRows
from storage.reading.log_reader import LogReader, find_sound_batch

_HEAD: Final = 27
"""Bytes of a batch up to its last offset delta."""


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
    fs: ReadFs, segments: Sequence[SegmentFiles], damaged: Collection[PurePath], point: int | None, reader: LogReader
) -> dict[PurePath, list[Hole]]:
    """Return the holes of the damaged logs of one partition, in order, by log.

    `point`: the recovery point where the last log ends below it; that log then has a hole at its end. Raises
    `ReadFault`, and `FileVanished` where a file has shrunk.
    """
    found: dict[PurePath, list[Hole]] = {}
    for number, files in enumerate(segments):
        is_last = number + 1 == len(segments)
        if files.log in damaged or (is_last and point is not None):
            until = point if is_last else int(segments[number + 1].base_offset)
            with fs.open_read(files.log) as file:
                found[files.log] = _holes_of(file, files, until, reader)
    _look_back(fs, segments, found, reader)
    _look_ahead(fs, segments, found)
    return found


def _holes_of(file: ReadFile, files: SegmentFiles, until: int | None, reader: LogReader) -> list[Hole]:
    """Return the holes of one segment. `until`: the offset that what follows the segment begins with."""
    size, holes, start, next_offset = files.log_stat.size, [], 0, int(files.base_offset)
    before = _LastBatch()
    while True:
        scan = reader.scan(file, files.log, size, next_offset, before.see, start=start)
        at, first = scan.valid_size, scan.next_offset
        if at == size:
            if until is not None and first < until:
                holes.append(Hole(files.log, size, size, first, until, before.batch))
            return holes
        sound = find_sound_batch(file, size, at + 1, first)
        if sound is None:
            return [*holes, Hole(files.log, at, size, first, until, before.batch)]
        start, next_offset = sound, _base_offset(file, sound)
        behind = _read_neighbour(file, sound)
        holes.append(Hole(files.log, at, sound, first, next_offset, before.batch, behind, is_bounded=True))


class _LastBatch:
    """Keeps the last batch that a walk has passed; None for one of an old format."""

    def __init__(self) -> None:
        self.batch: Neighbour | None = None

    def see(self, rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        """Take in the rows of one window."""
        at = count - 1
        self.batch = None
        if rows.magic[at] == 2:
            self.batch = Neighbour(
                rows.base_offset[at], rows.last_offset[at], rows.leader_epoch[at], rows.size[at], rows.crc[at]
            )


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


def _look_ahead(fs: ReadFs, segments: Sequence[SegmentFiles], holes: dict[PurePath, list[Hole]]) -> None:
    """Give a hole at the end of a segment the next batch behind it, which a later segment holds."""
    behind: Neighbour | None = None
    for files in reversed(segments):
        here = holes.get(files.log)
        if here and not here[-1].is_bounded:
            here[-1] = here[-1]._replace(behind=behind)
        if here and here[0].position == 0:
            behind = here[0].behind
        elif files.log_stat.size:
            with fs.open_read(files.log) as file:
                behind = _read_neighbour(file, 0)
