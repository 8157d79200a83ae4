"""The C kernel: everything that `storage.kernel.scan.Kernel` asks for; importing it fails where it was not built.

The loops run without the interpreter's lock: several threads scan at once, each with rows of its own. A window must not
be changed meanwhile; if it is, the answer may be wrong, but nothing outside of it is read.
"""

from __future__ import annotations

from array import array
from typing import Final

from storage.base.rows import COLUMNS, BatchRows, Facts, Folded, Scanned, Stop, Walked
from storage.base.units import INT64_MAX
from storage.kernel import _scan
from storage.kernel._dedupe import mark_kept, move_records, put_keys

__all__ = (
    "NAME",
    "check_records",
    "choose_crc",
    "count_up_to",
    "crc32c",
    "crc_name",
    "find_batch",
    "find_record",
    "lead_batch",
    "mark_kept",
    "move_records",
    "new_fold",
    "put_keys",
    "scan_batches",
    "walk_headers",
    "walk_records",
)

NAME: Final = "c"

if _scan.COLUMNS != COLUMNS or not hasattr(_scan.Fold, "take_indexes"):
    raise ImportError("storage.kernel._scan was built from other sources")


def crc_name() -> str:
    """Return `sse4.2`, `arm` or `table`."""
    return _scan.crc_name()


def choose_crc(*, portable: bool) -> None:
    """Use the tables from now on, or again the best that this processor has: for tests and measurements."""
    _scan.choose_crc(portable)


def crc32c(data: memoryview, value: int = 0) -> int:
    """Do what `storage.kernel.scan.Kernel` says."""
    return _scan.crc32c(data, value)


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.Kernel` says."""
    count, size, stop = _scan.scan(window, rows.block, rows.capacity, position, next_offset)
    return Scanned(count, size, Stop(stop))


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.Kernel` says."""
    count, size, stop = _scan.walk(window, rows.block, rows.capacity, position, next_offset)
    return Scanned(count, size, Stop(stop))


def find_batch(window: memoryview, start: int, *, lowest: int, highest: int) -> int:
    """Do what `storage.kernel.scan.Kernel` says."""
    # Numbers beyond an int64 are fair to ask for and change no answer: no offset is there.
    return _scan.find(window, start, max(min(lowest, INT64_MAX), -1), max(min(highest, INT64_MAX), -1))


def check_records(payload: memoryview, count: int) -> int:
    """Do what `storage.kernel.scan.Kernel` says."""
    return _scan.check_records(payload, count)


def walk_records(payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0) -> Walked:
    """Do what `storage.kernel.scan.Kernel` says."""
    return Walked(*_scan.walk_records(payload, count, first, base_timestamp))


def find_record(
    payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
) -> tuple[int, int] | None:
    """Do what `storage.kernel.scan.Kernel` says."""
    return _scan.find_record(payload, count, base_timestamp, timestamp, offset_delta)


count_up_to = _scan.count_up_to
lead_batch = _scan.lead


class NativeFold:
    """One segment's fold. A second thread that calls it while one is in it gets a `RuntimeError`."""

    def __init__(
        self, base_offset: int, interval: int, max_index_size: int, event_limit: int, block_offsets: int
    ) -> None:
        self._fold = _scan.Fold(base_offset, interval, max_index_size, event_limit, block_offsets)
        self.blocks = self._fold.blocks
        self.epochs = self._fold.epochs
        self.offset_index, self.time_index = self._fold.offset_index, self._fold.time_index
        self.events_overflowed = self._fold.events_overflowed
        self.take_indexes, self.put_back = self._fold.take_indexes, self._fold.put_back

    def facts(self) -> Facts:
        return Facts(*self._fold.facts())

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

    def numbers(self) -> array[int]:
        return array("q", self._fold.numbers())

    def load(self, numbers: array[int]) -> None:
        self._fold.load(numbers.tobytes())


new_fold = NativeFold
