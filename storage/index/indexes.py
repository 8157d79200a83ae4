"""`.index` (offset to position) and `.timeindex` (timestamp to offset): entries, lookup, and whether they are valid.

Both are bare entries without header or checksum; the file of an active segment is preallocated, with zero bytes or
stale entries behind the used part. All functions take whole files, as bytes or a memoryview, and cost at most one bulk
pass. Source: Apache Kafka 4.3.0, OffsetIndex, TimeIndex, AbstractIndex.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice
from operator import lt
from typing import Final, NamedTuple

from storage.base.errors import IndexCorrupt
from storage.base.layout import Layout
from storage.base.rows import BatchRows
from storage.base.units import Offset, Position, TimestampMs
from storage.kernel.scan import count_up_to

OFFSET_ENTRY: Final = Layout(
    ("i", "relative offset"),
    ("i", "position"),
)
TIME_ENTRY: Final = Layout(
    ("q", "timestamp"),
    ("i", "relative offset"),
)

SHORT_BYTES: Final = 16 << 20
"""A log may go on this far behind its last index entry: followers add one entry for a whole fetch."""

_NO_TIMESTAMP: Final = -1


class OffsetEntry(NamedTuple):
    """The batch at `position` and those appended with it end at `offset`, or did when the entry was written."""

    offset: Offset
    position: Position


class TimeEntry(NamedTuple):
    """No record up to `offset` has a larger timestamp; the batch that holds `offset` has this one as its largest."""

    timestamp: TimestampMs
    offset: Offset


class IndexKind(Enum):
    """Which of the two; the value is the bytes of an entry."""

    OFFSET = OFFSET_ENTRY.size
    TIME = TIME_ENTRY.size


Data = bytes | bytearray | memoryview


# ---- codec


def decode_offset_index(data: Data, base_offset: Offset) -> list[OffsetEntry]:
    """Return all entries of a trimmed index; cut `data` to its `used_length` first if it may be preallocated.

    Raises `IndexCorrupt` at the first entry that does not rise above the one before it in offset and position, and for
    a partial entry at the end.
    """
    columns = _offset_columns(data)
    _demand_sound(data, IndexKind.OFFSET, _rising_offset_entries(*columns))
    return [
        OffsetEntry(Offset(base_offset + relative), Position(place)) for relative, place in zip(*columns, strict=True)
    ]


def decode_time_index(data: Data, base_offset: Offset) -> list[TimeEntry]:
    """Return all entries of a trimmed index, as `decode_offset_index` does."""
    columns = _time_columns(data)
    _demand_sound(data, IndexKind.TIME, _rising_time_entries(*columns))
    return [
        TimeEntry(TimestampMs(time), Offset(base_offset + relative)) for time, relative in zip(*columns, strict=True)
    ]


def _demand_sound(data: Data, kind: IndexKind, rising: int) -> None:
    width = kind.value
    if rising < len(data) // width:
        raise IndexCorrupt("entry does not rise above the one before it", position=rising * width)
    if len(data) % width:
        raise IndexCorrupt(f"{len(data)} bytes are no multiple of {width}", position=rising * width)


def encode_offset_index(entries: Iterable[OffsetEntry], base_offset: Offset) -> bytes:
    """Return the trimmed file; an entry that does not fit 31 bits raises `struct.error`, our own mistake."""
    return b"".join([OFFSET_ENTRY.pack(entry.offset - base_offset, entry.position) for entry in entries])


def encode_time_index(entries: Iterable[TimeEntry], base_offset: Offset) -> bytes:
    """Return the trimmed file, as `encode_offset_index` does."""
    return b"".join([TIME_ENTRY.pack(entry.timestamp, entry.offset - base_offset) for entry in entries])


# ---- lookup; `data` is the used part of an index


def look_up_offset(data: Data, base_offset: Offset, target: Offset) -> OffsetEntry:
    """Return the last entry with an offset up to `target`; without one, the beginning of the segment."""
    relative = target - base_offset
    count = count_up_to(data, OFFSET_ENTRY.size, relative)
    if count == 0:
        return OffsetEntry(base_offset, Position(0))
    found, position = _offset_at(data, count - 1)
    return OffsetEntry(Offset(base_offset + found), Position(position))


def look_up_timestamp(data: Data, base_offset: Offset, target: TimestampMs) -> TimeEntry:
    """Return the last entry with a timestamp up to `target`; without one, (-1, base offset) as Kafka has it."""
    count = count_up_to(data, TIME_ENTRY.size, max(target, _NO_TIMESTAMP - 1))
    if count == 0:
        return TimeEntry(TimestampMs(_NO_TIMESTAMP), base_offset)
    timestamp, relative = _time_at(data, count - 1)
    return TimeEntry(TimestampMs(timestamp), Offset(base_offset + relative))


def truncate_to(data: Data, kind: IndexKind, base_offset: Offset, offset: Offset) -> int:
    """Return the bytes of the entries below `offset`: what stays when the log is truncated to it."""
    relative, width = offset - base_offset, kind.value
    if kind is IndexKind.OFFSET:
        return width * bisect_left(range(len(data) // width), relative, key=lambda i: _offset_at(data, i)[0])
    return width * bisect_left(range(len(data) // width), relative, key=lambda i: _time_at(data, i)[1])


def _offset_at(data: Data, index: int) -> tuple[int, int]:
    relative, position = OFFSET_ENTRY.unpack_from(data, index * OFFSET_ENTRY.size)
    return relative, position


def _time_at(data: Data, index: int) -> tuple[int, int]:
    timestamp, relative = TIME_ENTRY.unpack_from(data, index * TIME_ENTRY.size)
    return timestamp, relative


# ---- shape


def used_length(data: Data, kind: IndexKind, log_size: int | None = None) -> int:
    """Return the bytes of the valid prefix of an index file that may be preallocated or hold stale entries.

    It ends before the first entry that does not rise above the one before it, and, in an offset index, before the
    first whose position is not inside a `.log` of `log_size` bytes. An index of zero bytes only is empty,
    but for a time index of one entry: a segment whose largest timestamp is 0 at its first offset has that one.
    """
    width = kind.value
    filled = _filled(data, width)
    if kind is IndexKind.TIME:
        if filled == 0 and len(data) == width:
            return width
        return width * _rising_time_entries(*_time_columns(memoryview(data)[:filled]))
    relatives, positions = _offset_columns(memoryview(data)[:filled])
    count = _rising_offset_entries(relatives, positions)
    if log_size is not None:
        count = bisect_left(positions, log_size, 0, count)
    return width * count


def _filled(data: Data, width: int) -> int:
    """Return the bytes of whole entries up to the last one that is not all zero."""
    whole = bytes(data) if not isinstance(data, bytes) else data
    kept = len(whole.rstrip(b"\0"))
    return min(-(-kept // width), len(whole) // width) * width


def _offset_columns(data: Data) -> tuple[array[int], array[int]]:
    numbers = _native(_words(data, OFFSET_ENTRY.size))
    return numbers[0::2], numbers[1::2]


def _time_columns(data: Data) -> tuple[array[int], array[int]]:
    """Split the entries in bulk: an index of millions of entries must not become millions of objects."""
    words = _words(data, TIME_ENTRY.size)
    pairs = array("i", bytes(len(words) // 3 * 8))
    pairs[0::2], pairs[1::2] = words[0::3], words[1::3]
    times = array("q", pairs.tobytes())
    return _native(times), _native(words[2::3])


def _words(data: Data, width: int) -> array[int]:
    words = array("i", bytes(memoryview(data)[: len(data) // width * width]))
    assert words.itemsize == 4
    return words


def _native(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _rising(numbers: Sequence[int], lowest: int) -> int:
    """Return how many leading numbers rise strictly, the first of them being at least `lowest`."""
    if not numbers or numbers[0] < lowest:
        return 0
    stop = bytes(map(lt, numbers, islice(numbers, 1, None))).find(0)
    return len(numbers) if stop < 0 else stop + 1


def _rising_offset_entries(relatives: Sequence[int], positions: Sequence[int]) -> int:
    return min(_rising(relatives, 0), _rising(positions, 1))


def _rising_time_entries(times: Sequence[int], relatives: Sequence[int]) -> int:
    return min(_rising(times, 0), _rising(relatives, 0))


# ---- validity against the batches of the log


class IndexFaultKind(Enum):
    """What is wrong with an index."""

    MISORDERED = "misordered"  # an entry does not rise above the one before it, or is cut off
    OFF_BATCH = "off_batch"  # a position where no batch begins, or an offset or timestamp that is not of that batch
    PAST_END = "past_end"  # an entry for what lies behind the end of the log
    PADDED = "padded"  # nothing but zero bytes behind entries that are all valid
    SHORT = "short"  # valid, but much of the log is not indexed: slow, and no damage


class IndexFault(NamedTuple):
    """The first thing that is wrong, and the position in the index file of the entry that shows it."""

    kind: IndexFaultKind
    position: int
    reason: str


class OffsetIndexCheck:
    """Holds an offset index against the batches of its segment.

    Valid is: strictly rising; each position above 0 and the beginning of a batch; all batches before it end below the
    entry's offset; that offset is not below the batch's base offset (v2) and not above the end of the log. No spacing
    is demanded, nor that the offset be the end of that batch: appends write one entry for a set of batches.

    Protocol: `feed` all rows of the segment in log order, then `finish` once.
    """

    def __init__(
        self, entries: Data, base_offset: Offset, *, short_bytes: int = SHORT_BYTES, size: int | None = None
    ) -> None:
        """`size`: of the file, where `entries` lacks zero bytes at its end."""
        self._base_offset, self._short_bytes, self._width = base_offset, short_bytes, OFFSET_ENTRY.size
        self.size = size = len(entries) if size is None else size
        filled = _filled(entries, self._width)
        self._relatives, self._positions = _offset_columns(memoryview(entries)[:filled])
        self._count = _rising_offset_entries(self._relatives, self._positions)
        self._shape = _find_misshape(size, filled, self._count, self._width)
        self._next = 0
        self._last_offset = base_offset - 1
        self._fault: IndexFault | None = None

    def resume(self, entries: int, position: int, last_offset: int) -> bool:
        """Go on as if all rows below `position` had been fed, of which `last_offset` is the last, before the first.

        The first `entries` are known to be right. False, where others speak of those rows, too: nothing is done then.
        """
        if bisect_left(self._positions, position, 0, self._count) != entries:
            return False
        self._next, self._last_offset = entries, last_offset
        return True

    def feed(self, rows: BatchRows, count: int) -> None:
        """Compare the entries that point to one of the first `count` rows."""
        if not count:
            return
        row, end = 0, bisect_right(self._positions, rows.position[count - 1], self._next, self._count)
        while self._next < end and self._fault is None:
            row = bisect_left(rows.position, self._positions[self._next], row, count)
            self._fault = self._compare(rows, row)
            self._next += 1
        self._last_offset = rows.last_offset[count - 1]

    def _compare(self, rows: BatchRows, row: int) -> IndexFault | None:
        position, offset = self._positions[self._next], self._base_offset + self._relatives[self._next]
        if rows.position[row] != position:
            return self._off_batch(f"no batch begins at {position}")
        before = rows.last_offset[row - 1] if row else self._last_offset
        if offset <= before:
            return self._off_batch(f"offset {offset} for position {position}, but it lies before there")
        # Older formats do not tell the first offset of a compressed set without looking into it.
        if rows.magic[row] >= 2 and offset < rows.base_offset[row]:
            return self._off_batch(f"offset {offset} for the batch of offset {rows.base_offset[row]} at {position}")
        return None

    def _off_batch(self, reason: str) -> IndexFault:
        return IndexFault(IndexFaultKind.OFF_BATCH, self._next * self._width, reason)

    def finish(self, log_valid_size: int) -> IndexFault | None:
        """Return the first fault, None for a valid index; `log_valid_size` is where the fed batches end."""
        if self._fault is not None:
            return self._fault
        return self._find_past_end(log_valid_size) or self._shape or self._find_short(log_valid_size)

    def _find_past_end(self, size: int) -> IndexFault | None:
        if self._next < self._count:
            position = self._positions[self._next]
            if position < size:
                return self._off_batch(f"no batch begins at {position}")
            reason = f"position {position} in a log of {size} bytes"
            return IndexFault(IndexFaultKind.PAST_END, self._next * self._width, reason)
        if self._count and self._base_offset + self._relatives[self._count - 1] > self._last_offset:
            offset = self._base_offset + self._relatives[self._count - 1]
            reason = f"offset {offset} in a log that ends with {self._last_offset}"
            return IndexFault(IndexFaultKind.PAST_END, (self._count - 1) * self._width, reason)
        return None

    def _find_short(self, size: int) -> IndexFault | None:
        covered = self._positions[self._count - 1] if self._count else 0
        if size - covered <= self._short_bytes:
            return None
        reason = f"nothing behind position {covered} is indexed, the log has {size} bytes"
        return IndexFault(IndexFaultKind.SHORT, self._count * self._width, reason)


class TimeIndexCheck:
    """Holds a time index against the batches of its segment.

    Valid is: strictly rising; no batch up to the entry's offset has a larger timestamp; the batch that holds the offset
    has the entry's timestamp as its largest, where compaction has left it. Protocol as for `OffsetIndexCheck`.
    """

    def __init__(self, entries: Data, base_offset: Offset, *, size: int | None = None) -> None:
        """`size`: of the file, where `entries` lacks zero bytes at its end."""
        self.size = size = len(entries) if size is None else size
        self._base_offset, self._width = base_offset, TIME_ENTRY.size
        filled = _filled(entries, self._width) or (self._width if size == self._width else 0)
        self._times, self._relatives = _time_columns(memoryview(entries)[:filled])
        self._count = _rising_time_entries(self._times, self._relatives)
        self._shape = _find_misshape(size, filled, self._count, self._width)
        self._next = 0
        self._largest = _NO_TIMESTAMP
        self._fault: IndexFault | None = None

    def resume(self, entries: int, last_offset: int, largest: int) -> bool:
        """Go on as if all rows up to `last_offset`, whose largest timestamp is `largest`, had been fed.

        The first `entries` are known to be right. False, where others speak of those rows, too: nothing is done then.
        """
        if bisect_right(self._relatives, last_offset - self._base_offset, 0, self._count) != entries:
            return False
        self._next, self._largest = entries, largest
        return True

    def feed(self, rows: BatchRows, count: int) -> None:
        """Compare the entries whose offset lies among the first `count` rows."""
        if not count:
            return
        row, last = 0, rows.last_offset[count - 1] - self._base_offset
        end = bisect_right(self._relatives, last, self._next, self._count)
        while self._next < end and self._fault is None:
            offset = self._base_offset + self._relatives[self._next]
            holder = bisect_left(rows.last_offset, offset, row, count)
            self._see(rows.max_timestamp[row:holder])
            self._fault = self._compare(rows, holder, offset)
            row = holder
            self._next += 1
        self._see(rows.max_timestamp[row:count])

    def _see(self, timestamps: memoryview[int]) -> None:
        if timestamps:
            self._largest = max(self._largest, max(timestamps))  # noqa: PLW3301 (one pass, nothing copied)

    def _compare(self, rows: BatchRows, holder: int, offset: int) -> IndexFault | None:
        timestamp = self._times[self._next]
        reason = None
        if self._largest > timestamp:
            reason = f"timestamp {timestamp} up to offset {offset}, but {self._largest} is among them"
        # An offset in a gap is one that compaction has taken away, unless the format hides where a batch begins.
        elif rows.max_timestamp[holder] != timestamp and (rows.magic[holder] < 2 or rows.base_offset[holder] <= offset):
            reason = f"timestamp {timestamp}, but that of the batch of offset {offset} is {rows.max_timestamp[holder]}"
        return None if reason is None else IndexFault(IndexFaultKind.OFF_BATCH, self._next * self._width, reason)

    def finish(self, log_valid_size: int) -> IndexFault | None:
        """Return the first fault, None for a valid index; `log_valid_size` is where the fed batches end.

        A missing closing entry is not among the faults: see `has_closing_entry`.
        """
        if self._fault is None and self._next < self._count:
            offset = self._base_offset + self._relatives[self._next]
            reason = f"offset {offset} in a log whose {log_valid_size} bytes end below it"
            self._fault = IndexFault(IndexFaultKind.PAST_END, self._next * self._width, reason)
        return self._fault or self._shape

    def has_closing_entry(self) -> bool:
        """Tell, once all rows were fed, whether the last entry has the log's largest timestamp.

        It must in a closed segment, unless the file is empty: brokers do that to a time index that they rebuilt.
        """
        return self._largest < 0 or (self._count > 0 and self._times[self._count - 1] == self._largest)


def _find_misshape(size: int, filled: int, rising: int, width: int) -> IndexFault | None:
    if rising * width < filled:
        return IndexFault(IndexFaultKind.MISORDERED, rising * width, "entry does not rise above the one before it")
    if size % width:
        return IndexFault(IndexFaultKind.MISORDERED, size // width * width, f"{size} bytes are no multiple of {width}")
    if filled < size:
        return IndexFault(IndexFaultKind.PADDED, filled, f"{size - filled} zero bytes behind the last entry")
    return None
