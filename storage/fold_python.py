"""The fold of a segment in Python: what the C kernel is held against, and what runs where that one was not built.

What the results mean is said in `storage.fold`. Whole columns are folded at a time, so that a batch costs no step of
Python where nothing happens at it; a window is looked at row by row only for what its columns say is there.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import ge
from typing import Final
from zlib import crc32

from storage.rows import COLUMNS, CONTROL_NONE, BatchRows, Folded, Stop
from storage.scan_python import Columns, crc32c, next_columns, package_crc32c
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


def _of_rows(rows: BatchRows, count: int) -> Columns:
    return Columns(*(getattr(rows, name)[:count].tolist() for name in COLUMNS))


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
        if count:
            self._add(_of_rows(rows, count))

    def _add(self, columns: Columns) -> None:
        count, magics = len(columns.magic), set(columns.magic)
        self._magics |= sum(1 << magic for magic in magics)
        self._codecs |= sum(1 << codec for codec in {bits & _CODEC_BITS for bits in set(columns.attributes)})
        # The columns of magic 0 and 1 say -1: each is made up for.
        old = 0 if magics == {2} else count - columns.magic.count(2)
        self._records += sum(columns.record_count) + old
        self._fold_offsets(columns, any_old=bool(old))
        self._epochs.add(columns)
        self._index.add(columns)
        self._fold_digest(columns)
        if self._blocks is not None:
            self._blocks.add(columns)
        if set(columns.producer_id) != {-1}:
            self._has_producers = self._producers.add(columns) or self._has_producers

    def scan(self, window: memoryview, _rows: BatchRows, position: int, next_offset: int) -> Folded:
        size, last_position, before_last, stop = 0, 0, next_offset, Stop.END
        sum_of = package_crc32c()
        while stop is Stop.END and size != len(window):
            columns, size, stop = next_columns(window, size, len(window), position, next_offset, sum_of)
            if columns.position:
                self._add(columns)
                last = columns.last_offset
                before_last = last[-2] + 1 if len(last) > 1 else next_offset
                last_position, next_offset = columns.position[-1], last[-1] + 1
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

    def _fold_offsets(self, columns: Columns, *, any_old: bool) -> None:
        base, last, count = columns.base_offset, columns.last_offset, len(columns.base_offset)
        joined = not any_old and (self._first is None or base[0] <= self._next)
        # Batches do not overlap, so that sums which meet leave no room for a gap anywhere between.
        if not joined or sum(base[1:]) - sum(last[:-1]) != count - 1:
            self._fold_gaps(columns)
        if last[0] < self._base or last[-1] - self._base > INT32_MAX:
            self._find_range_fault(columns)
        if self._first is None:
            self._first = base[0]
        self._next = last[-1] + 1
        self._batches += count

    def _fold_gaps(self, columns: Columns) -> None:
        expected = self._next
        for row, (base, last) in enumerate(zip(columns.base_offset, columns.last_offset, strict=True)):
            if base > expected and columns.magic[row] == 2 and (row or self._first is not None):
                self._gaps += 1
                self._first_gap = self._first_gap or (columns.position[row], expected, base)
            expected = last + 1

    def _find_range_fault(self, columns: Columns) -> None:
        for position, last in zip(columns.position, columns.last_offset, strict=True):
            if self._range_fault is None and not 0 <= last - self._base <= INT32_MAX:
                self._range_fault = position, last

    def _fold_digest(self, columns: Columns) -> None:
        words = array("q", bytes(24 * len(columns.crc)))
        words[0::3], words[1::3] = array("q", columns.base_offset), array("q", columns.last_offset)
        words[2::3] = array("q", columns.crc)
        if sys.byteorder == "big":
            words.byteswap()
        data = memoryview(words).cast("B")
        self._digest = crc32(data, self._digest[0]), crc32c(data, self._digest[1])


class _Epochs:
    def __init__(self) -> None:
        self.rises: list[Pair] = []
        self.fall: Triple | None = None
        self._newest = -1

    def add(self, columns: Columns) -> None:
        if set(columns.leader_epoch) <= {-1, self._newest}:
            return
        for row, epoch in enumerate(columns.leader_epoch):
            if epoch > self._newest:
                self.rises.append((epoch, columns.base_offset[row]))
                self._newest = epoch
            elif 0 <= epoch < self._newest and self.fall is None:
                self.fall = columns.position[row], epoch, self._newest


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

    def add(self, columns: Columns) -> None:
        timestamps, positions, last = columns.max_timestamp, columns.position, columns.last_offset
        due = self._due(positions)
        rises = timestamps[0] >= self.max_timestamp and all(map(ge, timestamps[1:], timestamps))
        fits = min(last[0], self.max_timestamp_offset) >= self._base
        fits = fits and last[-1] - self._base <= INT32_MAX and positions[-1] <= INT32_MAX
        room = min(self._offsets_room // 8 - len(self.offsets) // 8, self._times_room // 12 - len(self._times) // 12)
        if not (rises and fits) or len(due) > room:
            self._add_singly(columns, due)
            return
        entries = array("i", bytes(8 * len(due)))
        entries[0::2], entries[1::2] = (
            array("i", [last[n] - self._base for n in due]),
            array("i", [positions[n] for n in due]),
        )
        if sys.byteorder == "little":
            entries.byteswap()
        self.offsets += entries.tobytes()
        for number in due:
            if timestamps[number] > self._last_timestamp:
                self._last_timestamp = self._seen(timestamps, last, number)
                self._times += _TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self._base)
        self._seen(timestamps, last, len(timestamps) - 1)

    def _seen(self, timestamps: Sequence[int], last: Sequence[int], number: int) -> int:
        """Take in timestamps that do not fall, up to that of batch `number`, and return it."""
        if timestamps[number] > self.max_timestamp:
            self.max_timestamp = timestamps[number]
            self.max_timestamp_offset = last[bisect_left(timestamps, self.max_timestamp, 0, number)]
        return self.max_timestamp

    def _due(self, positions: Sequence[int]) -> list[int]:
        """Return which batches are entered; the last of them is where the next interval begins."""
        due, number, count, limit = [], 0, len(positions), self._indexed + self._interval
        while number < count:
            if positions[number] <= limit:  # never so with large batches
                number = bisect_right(positions, limit, number)
                if number == count:
                    break
            due.append(number)
            limit = positions[number] + self._interval
            number += 1
        self._indexed = limit - self._interval
        return due

    def _add_singly(self, columns: Columns, due: list[int]) -> None:
        """Do the same where timestamps go back, a number does not fit, or the room ends."""
        timestamps, last = columns.max_timestamp, columns.last_offset
        done = 0
        for number in [*due, None]:
            behind = len(last) if number is None else number + 1
            newest = max(timestamps[done:behind], default=-1)
            if newest > self.max_timestamp:
                self.max_timestamp = newest
                self.max_timestamp_offset = last[timestamps.index(newest, done, behind)]
            if number is not None:
                self._enter(last[number], columns.position[number])
            done = behind

    def closed_times(self) -> bytes:
        return bytes(self._times) + self._time_entry()

    def _enter(self, last_offset: int, position: int) -> None:
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

    def add(self, columns: Columns) -> None:
        wanted = (columns.base_offset, columns.last_offset, columns.crc, columns.size, columns.leader_epoch)
        now = self._now
        for base, last, crc, size, epoch in zip(*wanted, strict=True):
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

    def takes(self, epoch: int, attributes: int) -> bool:
        """Tell whether a data batch of this producer belongs to the run."""
        return self.epoch == epoch and self.transactional == attributes & _TRANSACTIONAL


class _Producers:
    def __init__(self, limit: int) -> None:
        self.overflowed = False
        self._limit = limit
        self._out: list[Event] = []
        self._runs: dict[int, _Run] = {}
        self._count = 0

    def add(self, columns: Columns) -> bool:
        """Tell whether any batch had a producer id."""
        wanted = (columns.base_offset, columns.last_offset, columns.attributes, columns.max_timestamp,
                  columns.producer_id, columns.producer_epoch, columns.base_sequence, columns.control)  # fmt: skip
        if self._only_newer(columns):
            # Of each producer the last batch counts; a dictionary keeps the last number of each.
            for producer, row in dict(zip(columns.producer_id, range(len(columns.control)), strict=True)).items():
                self._runs[producer].held = tuple(column[row] for column in wanted)  # type: ignore[assignment]
            return True
        any_found = False
        known = self._runs.get
        for event in zip(*wanted, strict=True):
            if event[4] < 0:
                continue
            any_found = True
            run = known(event[4])
            if run is not None and event[7] == CONTROL_NONE and run.takes(event[5], event[2]) and run.held is not None:
                run.held = event
            elif not self.overflowed:
                self._add_event(event, run)
        return any_found

    def _only_newer(self, columns: Columns) -> bool:
        """Tell whether all batches are but newer ones of runs that hold one already, as nearly always."""
        if set(columns.control) != {CONTROL_NONE}:
            return False
        known = self._runs.get
        for producer, epoch, bits in set(
            zip(columns.producer_id, columns.producer_epoch, columns.attributes, strict=True)
        ):
            run = known(producer)
            if run is None or run.held is None or not run.takes(epoch, bits):
                return False
        return True

    def events(self) -> list[Event]:
        held = [run.held for run in self._runs.values() if run.held is not None]
        return self._out + sorted(held)

    def _add_event(self, event: Event, run: _Run | None) -> None:
        """Add one event to those kept: whatever is not just a newer last batch of its run."""
        is_data = event[7] == CONTROL_NONE
        self._count += 1
        if run is not None and is_data and run.takes(event[5], event[2]):
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
