"""Where the batches of a `.log` begin: a walk over headers alone, for finding a place, not for judging bytes.

Reads pieces of a few KiB rather than headers one by one: most walks begin at an index entry and end a few batches on.
Source: Apache Kafka 4.3.0, FileLogInputStream, FileRecords.searchForOffsetFromPosition.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt
from storage.base.units import INT64_MAX, Offset
from storage.batch.batch import HEADER_V2, LOG_OVERHEAD
from storage.disk.fs import ReadFile

_PIECE_BYTES: Final = 8 << 10
_PREFIX: Final = struct.Struct(">qi4xb")  # base offset, size field, magic
_V2: Final = struct.Struct(">23xi8xq")  # last offset delta, max timestamp
_WHOLE: Final = struct.Struct(">qi4xb6xi8xq")  # base offset, size field, magic, last offset delta, max timestamp
_V1_TIMESTAMP: Final = struct.Struct(">18xq")
_LEAST: Final = 14
_LEAST_V2: Final = HEADER_V2.size - LOG_OVERHEAD


class BatchPlace(NamedTuple):
    """A batch by its header: where it lies, in bytes, and its offsets.

    Of magic 0 and 1 `base_offset` is that of the entry, which in a compressed set is the last one.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    magic: int


def walk_places(file: ReadFile, start: int, end: int) -> Iterator[BatchPlace]:
    """Yield the batches that lie whole in the bytes from `start` to `end`; `start` is a batch border.

    Raises `BatchCorrupt` at a header that cannot be followed, and `ReadFault`.
    """
    piece = memoryview(bytearray(min(_PIECE_BYTES, max(end - start, 0))))
    origin = position = start
    filled = 0
    while end - position >= _PREFIX.size:
        at = position - origin
        if filled - at < min(HEADER_V2.size, end - position):
            filled = file.read_into(position, piece[: min(len(piece), end - position)])
            origin, at = position, 0
            if filled < min(HEADER_V2.size, end - position):
                return  # cut under us
        place = _place(piece[at:filled], position, end)
        if place is None:
            return
        yield place
        position += place.size


def _place(header: memoryview, position: int, end: int) -> BatchPlace | None:
    """Return the batch with this header, None if it does not end by `end`."""
    base, size, magic = _PREFIX.unpack_from(header)
    if size < (_LEAST_V2 if magic == 2 else _LEAST) or not 0 <= magic <= 2:
        raise BatchCorrupt(f"size field {size}, magic {magic}", position=position)
    size += LOG_OVERHEAD
    if position + size > end:
        return None
    if magic < 2:
        timestamp = _V1_TIMESTAMP.unpack_from(header)[0] if magic else -1
        return BatchPlace(position, size, base, base, timestamp, magic)
    delta, timestamp = _V2.unpack_from(header)
    return BatchPlace(position, size, base, base + delta, timestamp, magic)


def first_batch_reaching(file: ReadFile, start: int, end: int, offset: Offset) -> BatchPlace | None:
    """Return the first batch from position `start` on whose last offset is `offset` or more, None if there is none."""
    found, start = _first(file, start, end, offset, INT64_MAX)
    if found is not None:
        return found
    return next((place for place in walk_places(file, start, end) if place.last_offset >= offset), None)


def batches_since(file: ReadFile, start: int, end: int, timestamp: int) -> Iterator[BatchPlace]:
    """Yield the batches from position `start` on whose largest timestamp is `timestamp` or more."""
    found, start = _first(file, start, end, INT64_MAX, timestamp)
    if found is not None:
        yield found
        start = found.position + found.size
    yield from (place for place in walk_places(file, start, end) if place.max_timestamp >= timestamp)


def _first(file: ReadFile, start: int, end: int, offset: int, timestamp: int) -> tuple[BatchPlace | None, int]:
    """Return the first batch that reaches `offset` or `timestamp`, None if a walk has to tell, and where that begins.

    As long as nothing is odd, and without an object for each batch that is passed.
    """
    piece = memoryview(bytearray(min(_PIECE_BYTES, max(end - start, 0))))
    while True:
        filled = file.read_into(start, piece[: end - start])
        at = 0
        while filled - at >= HEADER_V2.size:
            base, size, magic, delta, largest = _WHOLE.unpack_from(piece, at)
            if magic != 2 or size < _LEAST_V2:
                return None, start + at
            if base + delta >= offset or largest >= timestamp:
                return _place(piece[at:], start + at, end), start + at
            at += size + LOG_OVERHEAD
        start += at
        if not at or end - start < HEADER_V2.size:
            return None, start
