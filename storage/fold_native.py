"""The fold of a segment in C; importing it fails where `storage._scan` was not built."""

from __future__ import annotations

from array import array

from storage import _scan
from storage.rows import BatchRows, Folded, Stop


class NativeFold:
    """One segment's fold. A second thread that calls it while one is in it gets a `RuntimeError`."""

    def __init__(
        self, base_offset: int, interval: int, max_index_size: int, event_limit: int, block_offsets: int
    ) -> None:
        self._fold = _scan.Fold(base_offset, interval, max_index_size, event_limit, block_offsets)
        self.blocks = self._fold.blocks
        self.facts, self.epochs = self._fold.facts, self._fold.epochs
        self.offset_index, self.time_index = self._fold.offset_index, self._fold.time_index
        self.events_overflowed = self._fold.events_overflowed

    def add(self, rows: BatchRows, count: int) -> None:
        self._fold.add(rows.block, rows.capacity, count)

    def scan(self, window: memoryview, rows: BatchRows, position: int, next_offset: int) -> Folded:
        _, size, stop, following, last_position, before_last = self._fold.scan(
            window, rows.block, rows.capacity, position, next_offset
        )
        return Folded(size, Stop(stop), following, last_position, before_last)

    def scan_file(self, descriptor: int, rows: BatchRows, position: int, end: int, next_offset: int) -> Folded:
        _, size, stop, following, last_position, before_last = self._fold.scan_file(
            descriptor, rows.block, rows.capacity, position, end, next_offset
        )
        return Folded(size, Stop(stop), following, last_position, before_last)

    def events(self) -> array[int]:
        return array("q", self._fold.packed_events())
