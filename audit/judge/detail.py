"""The second, small look: batches and records of a few blocks of offsets, from the replicas that disagree."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

from audit.judge.replicas import Batch, Replica, Told
from audit.tables.reading import open_place
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished
from storage.base.rows import BatchRows
from storage.batch.batch import parse_header
from storage.batch.record import Record, records_of
from storage.disk.fs import ReadFile, ReadFs
from storage.index.indexes import OFFSET_ENTRY
from storage.reading.log_reader import LogReader, find_sound_batch

KEYS_BUDGET: Final = 1 << 30
"""Bytes of one replica that are read, at most, to look for keys."""
_INDEX_LIMIT: Final = 64 << 20
_FAULTS: Final = 64
_DIGEST: Final = 16


class SegmentPlace(NamedTuple):
    """Where a segment of a replica lies; `log` and `index_name` are names in the partition directory."""

    base_offset: int
    directory: str
    log: str
    index_name: str


@dataclass(frozen=True, slots=True)
class _Place:
    fs: ReadFs
    path: PurePath
    position: int
    size: int


class _Enough(Exception):
    """No more is wanted of this file."""


class DiskFetch:
    """Reads where the replicas lie. `segments`: by log directory, in the order of offsets."""

    def __init__(self, segments: Mapping[str, Sequence[SegmentPlace]]) -> None:
        self._segments = segments
        self._reader = LogReader()
        self._budget: dict[str, int] = {}

    def batches(self, replica: Replica, first: int, last: int) -> list[Batch]:
        """Return the sound batches with a base offset from `first` to `last`, and those that reach into them."""
        batches: list[Batch] = []
        segments = self._segments.get(replica.log_dir, ())
        start = max(bisect_right(segments, first, key=lambda segment: segment.base_offset) - 1, 0)
        for segment in segments[start:]:
            if segment.base_offset > last:
                break
            batches += self._in_segment(replica.log_dir, segment, first, last)
        return batches

    def _in_segment(self, log_dir: str, segment: SegmentPlace, first: int, last: int) -> list[Batch]:
        fs, root = open_place(log_dir)
        directory = root / segment.directory
        path = directory / segment.log
        size = fs.stat(path).size
        position = _position_for(fs, directory / segment.index_name, first - segment.base_offset, size)
        with fs.open_read(path) as file:
            found = self._walk(_Place(fs, path, position, size), file, segment.base_offset, first, last)
            if found is None:  # the index is wrong, which is told elsewhere
                found = self._walk(_Place(fs, path, 0, size), file, segment.base_offset, first, last)
        return found or []

    def _walk(self, place: _Place, file: ReadFile, floor: int, first: int, last: int) -> list[Batch] | None:
        """Return the batches from a place on that meet the offsets; None if no batch begins at that place."""
        batches: list[Batch] = []

        def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
            for i in range(count):
                base, end = rows.base_offset[i], rows.last_offset[i]
                if base > last:
                    raise _Enough
                if end >= first:
                    at = _Place(place.fs, place.path, rows.position[i], rows.size[i])
                    batches.append(Batch(base, end, rows.crc[i], rows.leader_epoch[i], at))

        start: int | None = place.position
        try:
            for _ in range(_FAULTS):
                if start is None:
                    break
                scan = self._reader.scan(file, place.path, place.size, floor, on_rows, start=start)
                if scan.valid_size == place.position > 0:
                    return None
                if scan.valid_size == place.size or scan.next_offset > last:
                    break
                floor = scan.next_offset
                start = find_sound_batch(file, place.size, scan.valid_size + 1, floor)
        except _Enough:
            pass
        return batches

    def records(self, replica: Replica, batch: Batch) -> Iterator[Told]:  # noqa: ARG002 (the place says whose it is)
        """Return the records of a batch; raises `CorruptData`."""
        place = batch.place
        assert isinstance(place, _Place)
        data = bytearray(place.size)
        with place.fs.open_read(place.path) as file, memoryview(data) as view:
            if file.read_into(place.position, view) < place.size:
                raise FileVanished("reading", place.path, OSError("it has shrunk"))
        with memoryview(bytes(data)) as whole:
            is_control = parse_header(whole).is_control
            for record in records_of(whole):
                yield _told(record, is_control=is_control)

    def keys_behind(self, replica: Replica, keys: Mapping[bytes, int]) -> set[bytes] | None:
        """Return which of the keys occur behind the offset given with each; None if that were too much to read."""
        behind: set[bytes] = set()
        budget = KEYS_BUDGET
        segments = self._segments.get(replica.log_dir, ())
        start = max(bisect_right(segments, min(keys.values()), key=lambda segment: segment.base_offset) - 1, 0)
        for segment in segments[start:]:
            for batch in self._in_segment(replica.log_dir, segment, min(keys.values()), (1 << 63) - 1):
                place = batch.place
                assert isinstance(place, _Place)
                budget -= place.size
                if budget < 0:
                    return None
                try:
                    for told in self.records(replica, batch):
                        if told.key is not None and told.offset > keys.get(told.key, told.offset):
                            behind.add(told.key)
                except CorruptData:
                    continue
                if len(behind) == len(keys):
                    return behind
        return behind


def _told(record: Record, *, is_control: bool) -> Told:
    content = hashlib.blake2b(digest_size=_DIGEST)
    headers = [part for name, value in record.headers for part in (str(name).encode("utf-8", "replace"), value)]
    for part in (record.key, record.value, *headers):
        content.update(b"-" if part is None else b"%d:" % len(part))
        content.update(part or b"")
    content.update(b"%d" % record.timestamp)
    has_key = record.key is not None and not is_control
    key = hashlib.blake2b(record.key or b"", digest_size=_DIGEST).digest() if has_key else None
    # Markers and tombstones go some time after they were cleaned, and nothing takes their place.
    return Told(record.offset, content.digest(), key, may_go=is_control or record.value is None)


def _position_for(fs: ReadFs, path: PurePath, relative: int, log_size: int) -> int:
    """Return the position of a batch at or before an offset, by the index; 0 where that says nothing."""
    if relative <= 0:
        return 0
    try:
        size = min(fs.stat(path).size, _INDEX_LIMIT)
        data = bytearray(size)
        with fs.open_read(path) as file, memoryview(data) as view:
            size = file.read_into(0, view)
    except EnvironmentFault:
        return 0
    best = 0
    for offset, position in OFFSET_ENTRY.iter_unpack(bytes(data[: size // OFFSET_ENTRY.size * OFFSET_ENTRY.size])):
        if offset >= relative or not best < position < log_size:
            break
        best = position
    return best
