"""The fold of a segment in Python: what the C kernel is held against, and what runs where that one was not built.

What the results mean is said in `storage.kernel.fold`. Whole columns are folded at a time, so that a batch costs no
step of Python where nothing happens at it; a window is looked at row by row only for what its columns say is there.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, chain, compress, islice
from operator import gt
from typing import Final
from zlib import crc32

from storage.base.units import INT32_MAX
from storage.kernel.python.columns import AT_ONCE, Columns, Course, Event, PlainBatches, numbers_of
from storage.kernel.python.scan_python import crc32c, next_columns, package_crc32c
from storage.kernel.rows import COLUMNS, CONTROL_NONE, BatchRows, Folded, Stop

__all__ = ("Event", "Facts", "Pair", "PythonFold", "Triple")

Pair = tuple[int, int]
Triple = tuple[int, int, int]
Facts = tuple[
    int, int, int | None, int, int, int, int, int, int, bool, int, bool, Triple | None, Triple | None, Pair | None
]
"""What a kernel tells after each `add`, in the order in which `SegmentFold` takes it."""

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
    return Columns(getattr(rows, name)[:count].tolist() for name in COLUMNS)


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
        self._waiting: list[PlainBatches] = []
        self._waiting_count = 0

    def add(self, rows: BatchRows, count: int) -> None:
        if not 0 <= count <= rows.capacity:
            raise ValueError(f"{count} of {rows.capacity} rows")
        self._settle()
        if count:
            self._add(_of_rows(rows, count))

    def _add(self, columns: Columns) -> None:
        self._magics |= sum(1 << magic for magic in columns.magics())
        self._codecs |= sum(1 << codec for codec in {bits & _CODEC_BITS for bits in columns.kinds()})
        self._records += columns.records()
        self._fold_offsets(columns)
        self._epochs.add(columns)
        self._index.add(columns)
        self._fold_digest(columns)
        if self._blocks is not None:
            self._blocks.add(columns)
        self._has_producers = self._producers.add(columns) or self._has_producers

    def scan(self, window: memoryview, _rows: BatchRows, position: int, next_offset: int) -> Folded:
        size, last_position, before_last, stop = 0, 0, next_offset, Stop.END
        sum_of = package_crc32c()
        while stop is Stop.END and size != len(window):
            columns, size, stop = next_columns(window, size, len(window), position, next_offset, sum_of)
            if columns.count:
                self._put(columns)
                last = columns.last_offset
                before_last = last[-2] + 1 if columns.count > 1 else next_offset
                last_position, next_offset = columns.origin + columns.places[-1], last[-1] + 1
        return Folded(size, stop, next_offset, last_position, before_last)

    def _put(self, columns: Columns) -> None:
        """Fold them, or let them wait for others: so much has to be done for few as for many."""
        if not isinstance(columns, PlainBatches) or columns.count > AT_ONCE // 2 or columns.has_controls():
            self._settle()
            self._add(columns)
            return
        if self._waiting_count + columns.count > AT_ONCE:
            self._settle()
        self._waiting.append(columns)
        self._waiting_count += columns.count

    def _settle(self) -> None:
        """Fold those that wait."""
        waiting = self._waiting
        if waiting:
            self._waiting, self._waiting_count = [], 0
            self._add(waiting[0] if len(waiting) == 1 else PlainBatches.joining(waiting))

    def facts(self) -> Facts:
        self._settle()
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
        self._settle()
        return list(self._epochs.rises)

    def offset_index(self) -> bytes:
        self._settle()
        return bytes(self._index.offsets)

    def time_index(self) -> bytes:
        self._settle()
        return self._index.closed_times()

    def blocks(self) -> bytes:
        self._settle()
        return b"" if self._blocks is None else self._blocks.packed()

    def events(self) -> array[int]:
        self._settle()
        return array("q", chain.from_iterable(self._producers.events()))

    def events_overflowed(self) -> bool:
        self._settle()
        return self._producers.overflowed

    def _fold_offsets(self, columns: Columns) -> None:
        base, last = columns.base_offset, columns.last_offset
        is_next = columns.magics() == {2} and (self._first is None or base[0] <= self._next)
        if not is_next or not columns.joined():
            self._fold_gaps(columns)
        if last[0] < self._base or last[-1] - self._base > INT32_MAX:
            self._find_range_fault(columns)
        if self._first is None:
            self._first = base[0]
        self._next = last[-1] + 1
        self._batches += columns.count

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
        words = array("q", bytes(24 * columns.count))
        words[0::3], words[1::3] = numbers_of(columns.base_offset), numbers_of(columns.last_offset)
        words[2::3] = numbers_of(columns.crc)
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
        if columns.epochs() <= {-1, self._newest}:
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
        places, origin, last = columns.places, columns.origin, columns.last_offset
        due = self._due(columns)
        fits = min(last[0], self.max_timestamp_offset) >= self._base
        fits = fits and last[-1] - self._base <= INT32_MAX and origin + places[-1] <= INT32_MAX
        room = min(self._offsets_room // 8 - len(self.offsets) // 8, self._times_room // 12 - len(self._times) // 12)
        if not fits or len(due) > room:
            self._add_singly(columns, due)
            return
        course, times = columns.course_of_times(self.max_timestamp), columns.times()
        if course is Course.FALLS:  # what counts is the largest so far
            times = array("q", islice(accumulate(times, max, initial=self.max_timestamp), 1, None))
        if len(due) == columns.count:
            offsets, entered = columns.offsets_above(self._base), array("i", columns.position)
            if course is Course.RISES:
                stamps, of_stamps = times, offsets
            else:
                stamps, of_stamps = self._firsts(times, offsets)
        else:
            offsets = array("i", [last[number] - self._base for number in due])
            entered = array("i", [origin + places[number] for number in due])
            stamps, of_stamps = self._risen(times, last, due)
        self.offsets += _packed([offsets, entered])
        self._add_times(stamps, of_stamps)
        if times[-1] > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = times[-1], last[bisect_left(times, times[-1])]

    def _add_times(self, stamps: array[int], offsets: array[int]) -> None:
        """Enter timestamps that rise, with the offset of each."""
        if stamps:
            self._times += _packed([*_halves(stamps), offsets])
            self._last_timestamp = self.max_timestamp = stamps[-1]
            self.max_timestamp_offset = offsets[-1] + self._base

    def _firsts(self, times: array[int], offsets: array[int]) -> tuple[array[int], array[int]]:
        """Return what enters a timestamp where every batch is due: the first of each time."""
        rises = list(map(gt, times, chain((self._last_timestamp,), times)))
        stamps, firsts = array("q", compress(times, rises)), array("i", compress(offsets, rises))
        return self._mended(stamps, firsts)

    def _risen(self, times: array[int], last: Sequence[int], due: Sequence[int]) -> tuple[array[int], array[int]]:
        """Return the timestamps of those due batches that enter one, and the offset that belongs to each."""
        newest = self._last_timestamp
        stamps, rows, done = array("q"), [], 0
        for number, stamp in zip(due, [times[number] for number in due], strict=True):
            if stamp > newest:
                newest = stamp
                stamps.append(stamp)
                is_first = times[number - 1] < stamp  # never so for number 0: none is above the last
                rows.append(number if is_first else bisect_left(times, stamp, done, number))
            done = number
        return self._mended(stamps, array("i", [last[row] - self._base for row in rows]))

    def _mended(self, stamps: array[int], offsets: array[int]) -> tuple[array[int], array[int]]:
        """Return the same, but where the first time was met before with the offset that it was met at."""
        if stamps and stamps[0] == self.max_timestamp:
            offsets[0] = self.max_timestamp_offset - self._base
        return stamps, offsets

    def _due(self, columns: Columns) -> Sequence[int]:
        """Return which batches are entered; the last of them is where the next interval begins."""
        places, interval, count = columns.places, self._interval, columns.count
        limit = self._indexed + interval - columns.origin
        due: list[int] | range
        if places[0] > limit and columns.are_larger(interval):
            due = range(count)
            limit = places[-1] + interval
        else:
            due, number = [], 0
            while (number := bisect_right(places, limit, number)) < count:
                due.append(number)
                limit = places[number] + interval
        self._indexed = limit - interval + columns.origin
        return due

    def _add_singly(self, columns: Columns, due: Sequence[int]) -> None:
        """Do the same where a number does not fit, or the room ends."""
        timestamps, last = columns.max_timestamp, columns.last_offset
        done = 0
        for number in [*due, None]:
            behind = len(last) if number is None else number + 1
            newest = max(timestamps[done:behind], default=-1)
            if newest > self.max_timestamp:
                self.max_timestamp = newest
                self.max_timestamp_offset = last[timestamps.index(newest, done, behind)]
            if number is not None:
                self._enter(last[number], columns.origin + columns.places[number])
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


def _halves(numbers: array[int]) -> tuple[array[int], array[int]]:
    """Return the upper and the lower 32 bits of each."""
    words = array("i", numbers.tobytes())
    return (words[1::2], words[::2]) if sys.byteorder == "little" else (words[::2], words[1::2])


def _packed(columns: Sequence[array[int]]) -> bytes:
    """Return the entries of an index, big-endian, with 32 bits of each column in each."""
    step = len(columns)
    entries = array("i", bytes(4 * step * len(columns[0])))
    for number, column in enumerate(columns):
        entries[number::step] = column
    if sys.byteorder == "little":
        entries.byteswap()
    return entries.tobytes()


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
        self._newer: Columns | None = None
        self._in_newer: set[int] = set()
        self._count = 0

    def add(self, columns: Columns) -> bool:
        """Tell whether any batch had a producer id."""
        producers = columns.producer_ids()
        if producers == {-1}:
            return False
        if self._only_newer(columns):
            self._hold(producers)
            self._newer, self._in_newer = columns, producers
            return True
        self._hold()
        wanted = (columns.base_offset, columns.last_offset, columns.attributes, columns.max_timestamp,
                  columns.producer_id, columns.producer_epoch, columns.base_sequence, columns.control)  # fmt: skip
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
        if columns.has_controls():
            return False
        known = self._runs.get
        for producer, epoch, bits in columns.writers():
            run = known(producer)
            if run is None or run.held is None or not run.takes(epoch, bits):
                return False
        return True

    def _hold(self, but: Collection[int] = ()) -> None:
        """Let the runs hold what `add` found to be only newer, except what newer ones are about to replace."""
        late = self._in_newer.difference(but)
        if self._newer is not None and late:
            for producer, event in self._newer.last_events(late):
                self._runs[producer].held = event
        self._newer, self._in_newer = None, set()

    def events(self) -> list[Event]:
        self._hold()
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
