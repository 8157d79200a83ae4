"""The scanner in C, with the functions of `storage.scan`; importing it fails where `storage._scan` was not built.

The loops run without the interpreter's lock: several threads scan at once, each with rows of its own. A window must not
be changed meanwhile; if it is, the answer may be wrong, but nothing outside of it is read.
"""

from __future__ import annotations

from storage import _scan
from storage.rows import COLUMNS, BatchRows, Scanned, Stop, Walked
from storage.units import INT64_MAX

if _scan.COLUMNS != COLUMNS or not hasattr(_scan.Fold, "packed_events") or not hasattr(_scan, "append_led"):
    raise ImportError("storage._scan was built from other sources")


def crc_name() -> str:
    """Return `sse4.2`, `arm` or `table`."""
    return _scan.crc_name()


def choose_crc(*, portable: bool) -> None:
    """Use the tables from now on, or again the best that this processor has: for tests and measurements."""
    _scan.choose_crc(portable)


def crc32c(data: memoryview, value: int = 0) -> int:
    """Do what `storage.scan.crc32c` says."""
    return _scan.crc32c(data, value)


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.scan.scan_batches` says."""
    count, size, stop = _scan.scan(window, rows.block, rows.capacity, position, next_offset)
    return Scanned(count, size, Stop(stop))


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.scan.walk_headers` says."""
    count, size, stop = _scan.walk(window, rows.block, rows.capacity, position, next_offset)
    return Scanned(count, size, Stop(stop))


def find_batch(window: memoryview, start: int, *, lowest: int, highest: int) -> int:
    """Do what `storage.scan.find_batch` says."""
    # Numbers beyond an int64 are fair to ask for and change no answer: no offset is there.
    return _scan.find(window, start, max(min(lowest, INT64_MAX), -1), max(min(highest, INT64_MAX), -1))


def check_records(payload: memoryview, count: int) -> int:
    """Do what `storage.scan.check_records` says."""
    return _scan.check_records(payload, count)


def walk_records(payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0) -> Walked:
    """Do what `storage.scan.walk_records` says."""
    return Walked(*_scan.walk_records(payload, count, first, base_timestamp))


def find_record(
    payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
) -> tuple[int, int] | None:
    """Do what `storage.scan.find_record` says."""
    return _scan.find_record(payload, count, base_timestamp, timestamp, offset_delta)


count_up_to = _scan.count_up_to
"""What `storage.scan.count_up_to` says."""

lead_batch = _scan.lead
"""What `storage.scan.lead_batch` says; called as it is, for it is called for every append."""

append_led = _scan.append_led
"""What `storage.scan.append_led` says."""
