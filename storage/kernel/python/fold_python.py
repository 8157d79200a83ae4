"""The fold of a segment in Python: the readable reference for the C kernel, used where that one was not built.

`storage.kernel.fold` says what the results mean. Every batch is folded by itself, in the order of the log.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Final
from zlib import crc32

from crc32c import crc32c

from storage.base.rows import COLUMNS, CONTROL_NONE, BatchRows, Facts, Folded, Pair, ProducerEvent, Stop, Triple
from storage.base.units import INT32_MAX
from storage.kernel.python.scan_python import Batch, next_batch

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
_FIXED: Final = 34
"""Numbers of a fold that are always there; the last three say how many rises, events and runs follow."""


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
        columns = [getattr(rows, name)[:count] for name in COLUMNS]
        for values in zip(*columns, strict=True):
            self._add(Batch(*values))

    def scan(self, window: memoryview, _rows: BatchRows, position: int, next_offset: int) -> Folded:
        place, last_position, before_last = 0, 0, next_offset
        while place != len(window):
            batch = next_batch(window, place, position, next_offset, sums=True)
            if isinstance(batch, Stop):
                return Folded(place, batch, next_offset, last_position, before_last)
            self._add(batch)
            last_position, before_last = batch.position, next_offset
            place, next_offset = place + batch.size, batch.last_offset + 1
        return Folded(place, Stop.END, next_offset, last_position, before_last)

    def scan_file(
        self, _descriptor: int, _rows: BatchRows, _position: int, _end: int, _next_offset: int
    ) -> Folded | None:
        """Return None: only C reads a file without copying it."""
        return None

    def take_indexes(self) -> tuple[bytes, bytes]:
        return self._index.take()

    def put_back(self, offsets: bytes, times: bytes) -> None:
        self._index.put_back(offsets, times)

    def numbers(self) -> array[int]:
        index, epochs, producers = self._index, self._epochs, self._producers
        numbers = [
            self._batches, self._records, self._first or 0, self._next, self._gaps, index.max_timestamp,
            index.max_timestamp_offset, index.last_timestamp, index.indexed, epochs.newest, self._magics, self._codecs,
            *self._digest, self._has_producers, index.overflow, producers.overflowed,
            *_fault_numbers(self._first_gap), *_fault_numbers(epochs.fall), *_fault_numbers(self._range_fault),
            index.offsets_taken + len(index.offsets), index.times_taken + len(index.times), *producers.counts(epochs),
        ]  # fmt: skip
        return array("q", chain(numbers, *epochs.rises, producers.numbers()))

    def load(self, numbers: array[int]) -> None:
        width = len(ProducerEvent._fields)
        counts = numbers[_FIXED - 3 : _FIXED]
        if len(counts) < 3 or min(counts) < 0 or self._batches:
            raise ValueError("these are not the numbers of a fold")
        ends = list(accumulate((2 * counts[0], width * counts[1], (4 + width) * counts[2]), initial=_FIXED))
        if ends[-1] != len(numbers):
            raise ValueError("these are not the numbers of a fold")
        index, epochs, producers = self._index, self._epochs, self._producers
        self._batches, self._records, first, self._next, self._gaps = numbers[:5]
        self._first = first if self._batches else None
        index.max_timestamp, index.max_timestamp_offset, index.last_timestamp, index.indexed = numbers[5:9]
        epochs.newest, self._magics, self._codecs = numbers[9:12]
        self._digest = numbers[12], numbers[13]
        self._has_producers, index.overflow, producers.overflowed = map(bool, numbers[14:17])
        gap, fall, fault = (tuple(numbers[n + 1 : n + 4]) if numbers[n] else None for n in (17, 21, 25))
        self._first_gap, epochs.fall = gap, fall  # type: ignore[assignment]  # of three numbers each
        self._range_fault = fault and fault[:2]  # type: ignore[assignment]
        index.offsets_taken, index.times_taken = numbers[29:31]
        rises = iter(numbers[ends[0] : ends[1]])
        epochs.rises = list(zip(rises, rises, strict=True))
        producers.load(numbers[ends[1] : ends[2]], numbers[ends[2] :])

    def _add(self, batch: Batch) -> None:
        self._magics |= 1 << batch.magic
        self._codecs |= 1 << (batch.attributes & _CODEC_BITS)
        self._records += batch.record_count if batch.magic == 2 else 0
        self._add_offsets(batch)
        words = struct.pack("<qqq", batch.base_offset, batch.last_offset, batch.crc)
        self._digest = crc32(words, self._digest[0]), crc32c(words, self._digest[1])
        self._epochs.add(batch)
        self._index.add(batch)
        if self._blocks is not None:
            self._blocks.add(batch)
        if batch.producer_id >= 0:
            self._has_producers = True
            self._producers.add(batch)

    def _add_offsets(self, batch: Batch) -> None:
        if self._first is None:
            self._first = batch.base_offset
        elif batch.base_offset > self._next and batch.magic == 2:
            self._gaps += 1
            self._first_gap = self._first_gap or (batch.position, self._next, batch.base_offset)
        if self._range_fault is None and not 0 <= batch.last_offset - self._base <= INT32_MAX:
            self._range_fault = batch.position, batch.last_offset
        self._next = batch.last_offset + 1
        self._batches += 1

    def facts(self) -> Facts:
        return Facts(
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
        return bytes(self._index.times) + self._index.time_entry()

    def blocks(self) -> bytes:
        return b"" if self._blocks is None else self._blocks.packed()

    def events(self) -> array[int]:
        return array("q", chain.from_iterable(self._producers.events()))

    def events_overflowed(self) -> bool:
        return self._producers.overflowed


def _fault_numbers(fault: Pair | Triple | None) -> list[int]:
    return [0, 0, 0, 0] if fault is None else [1, *fault, *[0] * (3 - len(fault))]


class _Epochs:
    def __init__(self) -> None:
        self.rises: list[Pair] = []
        self.fall: Triple | None = None
        self.newest = -1

    def add(self, batch: Batch) -> None:
        epoch = batch.leader_epoch
        if epoch > self.newest:
            self.rises.append((epoch, batch.base_offset))
            self.newest = epoch
        elif 0 <= epoch < self.newest and self.fall is None:
            self.fall = batch.position, epoch, self.newest


class _Index:
    """Both indexes as recovery writes them."""

    def __init__(self, base_offset: int, interval: int, max_index_size: int) -> None:
        self.offsets, self.times = bytearray(), bytearray()
        self.max_timestamp, self.max_timestamp_offset = -1, base_offset
        self.overflow = False
        self.offsets_taken = self.times_taken = 0
        self._base, self._interval = base_offset, interval
        self.indexed = 0
        self.last_timestamp = -1
        self._offsets_room = max_index_size // 8 * 8
        self._times_room = (max_index_size // 12 - 1) * 12  # one slot is kept for the closing entry

    def add(self, batch: Batch) -> None:
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if batch.position - self.indexed > self._interval:
            self.indexed = batch.position
            self._enter(batch.last_offset, batch.position)

    def _enter(self, last_offset: int, position: int) -> None:
        relative = last_offset - self._base
        self.overflow = self.overflow or self.offsets_taken + len(self.offsets) >= self._offsets_room
        if self.overflow:
            return
        if 0 <= relative <= INT32_MAX and position <= INT32_MAX:
            self.offsets += _INDEX_ENTRY.pack(relative, position)
        self.overflow = self.times_taken + len(self.times) >= self._times_room
        entry = b"" if self.overflow else self.time_entry()
        if entry:
            self.times += entry
            self.last_timestamp = self.max_timestamp

    def time_entry(self) -> bytes:
        """Return the time index entry that is due now, empty if none is."""
        relative = self.max_timestamp_offset - self._base
        if self.max_timestamp <= self.last_timestamp or not 0 <= relative <= INT32_MAX:
            return b""
        return _TIME_ENTRY.pack(self.max_timestamp, relative)

    def take(self) -> tuple[bytes, bytes]:
        taken = bytes(self.offsets), bytes(self.times)
        self.offsets_taken, self.times_taken = self.offsets_taken + len(taken[0]), self.times_taken + len(taken[1])
        self.offsets.clear()
        self.times.clear()
        return taken

    def put_back(self, offsets: bytes, times: bytes) -> None:
        if self.offsets or self.times or (len(offsets), len(times)) != (self.offsets_taken, self.times_taken):
            raise ValueError(
                f"{len(offsets)} and {len(times)} bytes of indexes of which {self.offsets_taken} and "
                f"{self.times_taken} were taken"
            )
        self.offsets += offsets
        self.times += times
        self.offsets_taken = self.times_taken = 0


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

    def add(self, batch: Batch) -> None:
        block = batch.base_offset // self._offsets
        if not self._now or self._now[0] != block:
            self._done += self._pack()
            self._now = [block, 0, 0, 0, batch.base_offset, batch.last_offset, -1]
        now = self._now
        first = _mixed((batch.base_offset + 0x9E3779B97F4A7C15) & _UINT64)
        now[1] ^= _mixed((_mixed((first + batch.last_offset) & _UINT64) + batch.crc) & _UINT64)
        now[2] += 1
        now[3] += batch.size
        now[5] = batch.last_offset
        now[6] = max(now[6], batch.leader_epoch)

    def packed(self) -> bytes:
        return bytes(self._done) + self._pack()

    def _pack(self) -> bytes:
        return struct.pack("=qQqqqqq", *self._now) if self._now else b""


class _Run:
    """Data batches of one producer with equal epoch and transactional bit: the first is kept, the last is held."""

    def __init__(self, producer_epoch: int, transactional: int) -> None:
        self.key = producer_epoch, transactional
        self.held: ProducerEvent | None = None

    def takes(self, event: ProducerEvent) -> bool:
        """Tell whether a data batch of this producer belongs to the run."""
        return self.key == (event.producer_epoch, event.attributes & _TRANSACTIONAL)


class _Producers:
    """The events of `storage.kernel.fold.ProducerEvents`, as batches go by."""

    def __init__(self, limit: int) -> None:
        self.overflowed = False
        self._limit = limit
        self._kept: list[ProducerEvent] = []
        self._runs: dict[int, _Run] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        if self.overflowed:
            return
        event = ProducerEvent(
            batch.base_offset, batch.last_offset, batch.attributes, batch.max_timestamp, batch.producer_id,
            batch.producer_epoch, batch.base_sequence, batch.control,
        )  # fmt: skip
        run = self._runs.get(event.producer_id)
        is_data = event.control == CONTROL_NONE
        if run is not None and is_data and run.takes(event):
            self._count += run.held is None
            run.held = event
        else:
            self._count += 1
            if run is not None and run.held is not None:
                self._kept.append(run.held)
            self._kept.append(event)
            if is_data:
                self._runs[event.producer_id] = _Run(event.producer_epoch, event.attributes & _TRANSACTIONAL)
            else:
                self._runs.pop(event.producer_id, None)
        if self._count > self._limit:
            self.overflowed = True
            self._kept.clear()
            self._runs.clear()

    def events(self) -> list[ProducerEvent]:
        return self._kept + sorted(run.held for run in self._runs.values() if run.held is not None)

    def counts(self, epochs: _Epochs) -> tuple[int, int, int]:
        return len(epochs.rises), len(self._kept), len(self._runs)

    def numbers(self) -> Iterator[int]:
        """Yield the events, then the runs by producer id: epoch, transactional bit, whether one is held, that one."""
        yield from chain.from_iterable(self._kept)
        none = (0,) * len(ProducerEvent._fields)
        for producer_id, run in sorted(self._runs.items()):
            yield from (producer_id, *run.key, run.held is not None, *(none if run.held is None else run.held))

    def load(self, events: array[int], runs: array[int]) -> None:
        width = len(ProducerEvent._fields)
        self._kept = [ProducerEvent(*events[at : at + width]) for at in range(0, len(events), width)]
        for at in range(0, len(runs), 4 + width):
            producer_id, epoch, transactional, has_held = runs[at : at + 4]
            run = self._runs[producer_id] = _Run(epoch, transactional)
            run.held = ProducerEvent(*runs[at + 4 : at + 4 + width]) if has_held else None
        self._count = len(self._kept) + sum(run.held is not None for run in self._runs.values())
