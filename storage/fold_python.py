"""The fold of a segment in Python: what the C kernel is held against, and what runs where that one was not built.

What the results mean is said in `storage.fold`. Whole columns are folded at a time, so that a batch costs no step of
Python where nothing happens at it; a window is looked at row by row only for what its columns say is there.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from typing import Final
from zlib import crc32

from storage.rows import CONTROL_NONE, BatchRows, Folded, Stop
from storage.scan_python import crc32c, scan_batches
from storage.units import INT32_MAX

Pair = tuple[int, int]
Triple = tuple[int, int, int]
Facts = tuple[
    int, int, int | None, int, int, int, int, int, int, bool, int, bool, Triple | None, Triple | None, Pair | None
]
"""What a kernel tells after each `add`, in the order in which `SegmentFold` takes it."""
Event = tuple[int, int, int, int, int, int, int, int]
"""The fields of a `ProducerEvent`."""

_INDEX_ENTRY: Final = struct.Struct(
    ">"
    "i"  # relative offset
    "i"  # position
)
_TIME_ENTRY: Final = struct.Struct(
    ">"
    "q"  # timestamp
    "i"  # relative offset
)
_TRANSACTIONAL: Final = 0x10
_CODEC_BITS: Final = 0x07
_UINT64: Final = (1 << 64) - 1


def _distinct(column: memoryview[int]) -> set[int]:
    """Return the values of a column; nearly always it is one, which comparing bytes finds at once."""
    raw = column.tobytes()
    return {column[0]} if raw == raw[:8] * len(column) else set(column.tolist())


class PythonFold:
    """One segment's fold. Not for several threads at once."""

    def __init__(
        self, base_offset: int, interval: int, max_index_size: int, event_limit: int, block_offsets: int
    ) -> None:
        self._base = base_offset
        self._batches = self._records = self._gaps = self._magics = self._codecs = 0
        self._first: int | None = None
        self._next = base_offset
        self._has_producers = False
        self._digest: Pair = (0, 0)
        self._first_gap: Triple | None = None
        self._range_fault: Pair | None = None
        self._epochs = _Epochs()
        self._index = _Index(base_offset, interval, max_index_size)
        self._producers = _Producers(event_limit)
        self._blocks = _Blocks(block_offsets) if block_offsets else None

    def add(self, rows: BatchRows, count: int) -> None:
        if not 0 <= count <= rows.capacity:
            raise ValueError(f"{count} of {rows.capacity} rows")
        if not count:
            return
        magics = _distinct(rows.magic[:count])
        self._magics |= sum(1 << magic for magic in magics)
        self._codecs |= sum(1 << codec for codec in {a & _CODEC_BITS for a in _distinct(rows.attributes[:count])})
        # The columns of magic 0 and 1 say -1: each is made up for.
        old = 0 if magics == {2} else count - rows.magic[:count].tolist().count(2)
        self._records += sum(rows.record_count[:count]) + old
        self._fold_offsets(rows, count, any_old=bool(old))
        self._epochs.add(rows, count)
        self._index.add(rows, count)
        self._fold_digest(rows, count)
        if self._blocks is not None:
            self._blocks.add(rows, count)
        if _distinct(rows.producer_id[:count]) != {-1}:
            self._has_producers = self._producers.add(rows, count) or self._has_producers

    def scan(self, window: memoryview, rows: BatchRows, position: int, next_offset: int) -> Folded:
        size, last_position, before_last = 0, 0, next_offset
        while True:
            count, part, stop = scan_batches(window[size:], rows, position=position + size, next_offset=next_offset)
            size += part
            if count:
                self.add(rows, count)
                before_last = rows.last_offset[count - 2] + 1 if count > 1 else next_offset
                last_position, next_offset = rows.position[count - 1], rows.last_offset[count - 1] + 1
            if stop is not Stop.ROWS_FULL:
                return Folded(size, stop, next_offset, last_position, before_last)

    def facts(self) -> Facts:
        return (
            self._batches,
            self._records,
            self._first,
            self._next,
            self._index.max_timestamp,
            self._index.max_timestamp_offset,
            self._gaps,
            self._magics,
            self._codecs,
            self._has_producers,
            self._digest[0] << 32 | self._digest[1],
            self._index.overflow,
            self._epochs.fall,
            self._first_gap,
            self._range_fault,
        )

    def epochs(self) -> list[Pair]:
        return list(self._epochs.rises)

    def offset_index(self) -> bytes:
        return bytes(self._index.offsets)

    def time_index(self) -> bytes:
        return self._index.closed_times()

    def blocks(self) -> bytes:
        return b"" if self._blocks is None else self._blocks.packed()

    def events(self) -> list[Event]:
        return self._producers.events()

    def events_overflowed(self) -> bool:
        return self._producers.overflowed

    def _fold_offsets(self, rows: BatchRows, count: int, *, any_old: bool) -> None:
        base, last = rows.base_offset[:count], rows.last_offset[:count]
        joined = not any_old and (self._first is None or base[0] <= self._next)
        # Batches do not overlap, so that sums which meet leave no room for a gap anywhere between.
        if not joined or sum(base[1:]) - sum(last[:-1]) != count - 1:
            self._fold_gaps(rows, count)
        if last[0] < self._base or last[-1] - self._base > INT32_MAX:
            self._find_range_fault(rows, count)
        if self._first is None:
            self._first = base[0]
        self._next = last[-1] + 1
        self._batches += count

    def _fold_gaps(self, rows: BatchRows, count: int) -> None:
        expected = self._next
        for row in range(count):
            base = rows.base_offset[row]
            if base > expected and rows.magic[row] == 2 and (row or self._first is not None):
                self._gaps += 1
                self._first_gap = self._first_gap or (rows.position[row], expected, base)
            expected = rows.last_offset[row] + 1

    def _find_range_fault(self, rows: BatchRows, count: int) -> None:
        for row in range(count):
            if self._range_fault is None and not 0 <= rows.last_offset[row] - self._base <= INT32_MAX:
                self._range_fault = rows.position[row], rows.last_offset[row]

    def _fold_digest(self, rows: BatchRows, count: int) -> None:
        words = memoryview(bytearray(24 * count)).cast("q")
        words[0::3], words[1::3], words[2::3] = rows.base_offset[:count], rows.last_offset[:count], rows.crc[:count]
        data = words.cast("B")
        if sys.byteorder == "big":
            data = memoryview(struct.pack(f"<{3 * count}q", *words))
        self._digest = crc32(data, self._digest[0]), crc32c(data, self._digest[1])


class _Epochs:
    def __init__(self) -> None:
        self.rises: list[Pair] = []
        self.fall: Triple | None = None
        self._newest = -1

    def add(self, rows: BatchRows, count: int) -> None:
        if _distinct(rows.leader_epoch[:count]) <= {-1, self._newest}:
            return
        for row, epoch in enumerate(rows.leader_epoch[:count]):
            if epoch > self._newest:
                self.rises.append((epoch, rows.base_offset[row]))
                self._newest = epoch
            elif 0 <= epoch < self._newest and self.fall is None:
                self.fall = rows.position[row], epoch, self._newest


class _Index:
    """Both indexes as recovery writes them."""

    def __init__(self, base_offset: int, interval: int, max_index_size: int) -> None:
        self.offsets, self._times = bytearray(), bytearray()
        self.max_timestamp, self.max_timestamp_offset = -1, base_offset
        self.overflow = False
        self._base, self._interval = base_offset, interval
        self._indexed = 0
        self._last_timestamp = -1
        self._offsets_room = max_index_size // 8 * 8
        self._times_room = (max_index_size // 12 - 1) * 12  # one slot is kept for the closing entry

    def add(self, rows: BatchRows, count: int) -> None:
        timestamps, positions = rows.max_timestamp[:count].tolist(), rows.position[:count].tolist()
        done = 0
        while done < count:
            if positions[done] - self._indexed > self._interval:  # always so with large batches
                due, behind, newest = done, done + 1, timestamps[done]
            else:
                due = bisect_right(positions, self._indexed + self._interval, done, count)
                behind = min(due + 1, count)
                newest = max(timestamps[done:behind])
            if newest > self.max_timestamp:
                self.max_timestamp = newest
                self.max_timestamp_offset = rows.last_offset[timestamps.index(newest, done, behind)]
            if due < count:
                self._enter(rows.last_offset[due], positions[due])
            done = behind

    def closed_times(self) -> bytes:
        return bytes(self._times) + self._time_entry()

    def _enter(self, last_offset: int, position: int) -> None:
        self._indexed = position
        relative = last_offset - self._base
        self.overflow = self.overflow or len(self.offsets) >= self._offsets_room
        if self.overflow:
            return
        if 0 <= relative <= INT32_MAX and position <= INT32_MAX:
            self.offsets += _INDEX_ENTRY.pack(relative, position)
        self.overflow = len(self._times) >= self._times_room
        entry = b"" if self.overflow else self._time_entry()
        if entry:
            self._times += entry
            self._last_timestamp = self.max_timestamp

    def _time_entry(self) -> bytes:
        relative = self.max_timestamp_offset - self._base
        if self.max_timestamp <= self._last_timestamp or not 0 <= relative <= INT32_MAX:
            return b""
        return _TIME_ENTRY.pack(self.max_timestamp, relative)


def _mixed(number: int) -> int:
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _UINT64
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _UINT64
    return number ^ number >> 31


class _Blocks:
    """The batches of each block of offsets, summed up."""

    def __init__(self, offsets: int) -> None:
        self._offsets = offsets
        self._done = bytearray()
        self._now: list[int] = []

    def add(self, rows: BatchRows, count: int) -> None:
        columns = (rows.base_offset, rows.last_offset, rows.crc, rows.size, rows.leader_epoch)
        now = self._now
        for base, last, crc, size, epoch in zip(*(column[:count].tolist() for column in columns), strict=True):
            block = base // self._offsets
            if not now or now[0] != block:
                self._done += self._pack(now)
                now = self._now = [block, 0, 0, 0, base, last, -1]
            first = _mixed((base + 0x9E3779B97F4A7C15) & _UINT64)
            now[1] ^= _mixed((_mixed((first + last) & _UINT64) + crc) & _UINT64)
            now[2] += 1
            now[3] += size
            now[5] = last
            now[6] = max(now[6], epoch)

    def packed(self) -> bytes:
        return bytes(self._done) + self._pack(self._now)

    def _pack(self, now: list[int]) -> bytes:
        return struct.pack("=qQqqqqq", *now) if now else b""


class _Run:
    """Data batches of one producer that differ in nothing but their place: the first is out, the last is held."""

    __slots__ = ("epoch", "held", "transactional")

    def __init__(self, event: Event) -> None:
        self.transactional, self.epoch = event[2] & _TRANSACTIONAL, event[5]
        self.held: Event | None = None


class _Producers:
    def __init__(self, limit: int) -> None:
        self.overflowed = False
        self._limit = limit
        self._out: list[Event] = []
        self._runs: dict[int, _Run] = {}
        self._count = 0

    def add(self, rows: BatchRows, count: int) -> bool:
        """Tell whether any batch had a producer id."""
        columns = (rows.base_offset, rows.last_offset, rows.attributes, rows.max_timestamp, rows.producer_id,
                   rows.producer_epoch, rows.base_sequence, rows.control)  # fmt: skip
        any_found = False
        known = self._runs.get
        for event in zip(*(column[:count].tolist() for column in columns), strict=True):
            if event[4] < 0:
                continue
            any_found = True
            run = known(event[4])
            if (
                run is not None
                and run.held is not None
                and run.epoch == event[5]
                and run.transactional == event[2] & _TRANSACTIONAL
                and event[7] == CONTROL_NONE
            ):
                run.held = event
            elif not self.overflowed:
                self._add_event(event, run)
        return any_found

    def events(self) -> list[Event]:
        held = [run.held for run in self._runs.values() if run.held is not None]
        return self._out + sorted(held)

    def _add_event(self, event: Event, run: _Run | None) -> None:
        """Add one event to those kept: whatever is not just a newer last batch of its run."""
        is_data = event[7] == CONTROL_NONE
        self._count += 1
        if run is not None and is_data and run.epoch == event[5] and run.transactional == event[2] & _TRANSACTIONAL:
            run.held = event
        else:
            if run is not None and run.held is not None:
                self._out.append(run.held)
            self._out.append(event)
            if is_data:
                self._runs[event[4]] = _Run(event)
            else:
                self._runs.pop(event[4], None)
        if self._count > self._limit:
            self.overflowed = True
            self._out.clear()
            self._runs.clear()
