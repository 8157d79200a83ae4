"""The scanner in Python: what the C kernel is held against, and what runs where that one was not built.

What each function returns is said in `storage.kernel.scan`, which is what everybody else imports. Sources: Apache Kafka
4.3.0, DefaultRecordBatch, LegacyRecord, DefaultRecord, ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from functools import cache
from typing import Final
from zlib import crc32

from storage.base.units import INT64_MAX
from storage.kernel.python.columns import V2_HEADER, Columns, plain_batches
from storage.kernel.python.records_python import check_records, find_record, walk_records
from storage.kernel.rows import COLUMNS, CONTROL_NONE, BatchRows, Data, Led, Scanned, Stop

__all__ = (  # what a kernel offers, wherever it is written
    "check_records",
    "count_up_to",
    "crc32c",
    "crc_name",
    "find_batch",
    "find_record",
    "lead_batch",
    "scan_batches",
    "walk_headers",
    "walk_records",
)

LEAST: Final = 17  # up to and with the magic byte, which stands at the same place in all three formats

_START: Final = struct.Struct(
    ">"
    "q"  # base offset, or the entry's own
    "i"  # bytes after this field
    "4x"
    "b"  # magic
)
_LEGACY: Final = struct.Struct(
    ">"
    "q"  # offset
    "i"  # bytes after this field
    "I"  # CRC-32 of all that follows
    "b"  # magic
    "b"  # attributes
    "q"  # timestamp; magic 1 only
)


def crc_name() -> str:
    """Do what `storage.kernel.scan.crc_name` says."""
    return "crc32c package"


def crc32c(data: memoryview, value: int = 0) -> int:
    """Do what `storage.kernel.scan.crc32c` says."""
    return package_crc32c()(data, value)


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.scan_batches` says."""
    return _scan(window, rows, position, next_offset, package_crc32c())


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.walk_headers` says."""
    return _scan(window, rows, position, next_offset, None)


@cache
def package_crc32c() -> Callable[..., int]:
    """Return the function that sums: a batch each call, so that nothing must stand between."""
    # Late, so that what never scans does not pay for the import, nor what has the C kernel. First without what the
    # package does when it is imported: it asks for its own version, which brings zip files and mail, for 20 ms.
    from importlib.machinery import PathFinder  # noqa: PLC0415
    from importlib.util import module_from_spec  # noqa: PLC0415

    package = PathFinder.find_spec("crc32c")
    inner = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations) if package else None
    if inner is not None and inner.loader is not None:
        module = module_from_spec(inner)
        inner.loader.exec_module(module)
        found: Callable[..., int] | None = getattr(module, "crc32c", None)
        if found is not None and found(b"123456789") == 0xE3069283:
            return found
    from crc32c import crc32c as sum_of  # noqa: PLC0415

    return sum_of


def _scan(
    window: memoryview, rows: BatchRows, position: int, next_offset: int, sum_of: Callable[..., int] | None
) -> Scanned:
    count, place, stop = 0, 0, Stop.END
    while stop is Stop.END and place != len(window):
        if count == rows.capacity:
            return Scanned(count, place, Stop.ROWS_FULL)
        columns, place, stop = next_columns(window, place, rows.capacity - count, position, next_offset, sum_of)
        behind = count + columns.count
        for name in COLUMNS if columns.count else ():
            getattr(rows, name)[count:behind] = array("q", getattr(columns, name))
        if behind > count:
            next_offset = columns.last_offset[-1] + 1
        count = behind
    return Scanned(count, place, stop)


def next_columns(
    window: memoryview, place: int, most: int, position: int, next_offset: int, sum_of: Callable[..., int] | None
) -> tuple[Columns, int, Stop]:
    """Return up to `most` batches from `place` in the window on, where the next one begins, and what is wrong there.

    That is END where nothing is; more of them may follow. `position` is that of the window in its file; `sum_of` the
    CRC-32C, None for headers only.
    """
    found = plain_batches(window, place, most, position, sum_of)
    if found is not None:
        sound = found.count_ordered(next_offset)
        if sound == found.count:
            return found, found.behind, Stop.END
        if not sound:
            return _NOTHING, place, Stop.BAD_ORDER
        found = found.first(sound)
        return found, found.behind, Stop.BAD_ORDER
    judged = _judge(window, place, sum_of)
    if judged is not Stop.END:
        return _NOTHING, place, judged
    row = _legacy_row(window, place, position)
    if not next_offset <= row[3] < INT64_MAX:
        return _NOTHING, place, Stop.BAD_ORDER
    return Columns((value,) for value in row), place + row[1], Stop.END


_NOTHING: Final = Columns(() for _ in COLUMNS)


def _judge(window: memoryview, place: int, sum_of: Callable[..., int] | None) -> Stop:
    """Return END if a whole entry of magic 0 or 1 lies at `place` and its checksum holds, otherwise what is wrong.

    A sound batch of magic 2 never comes here. What a magic above 2 is rests on its checksum even where only headers
    are wanted: it is asked once a scan at most, and the answer decides between rubbish and a newer broker's data.
    """
    left = len(window) - place
    if left < LEAST:
        return Stop.NEED_MORE
    _, size, magic = _START.unpack_from(window, place)
    size += 12
    if size < 26:
        return Stop.BAD_SIZE
    if magic < 0 or (magic > 2 and size <= left and not _newer_holds(window[place : place + size])):
        return Stop.BAD_MAGIC
    if magic == 2 and size < V2_HEADER:
        return Stop.BAD_SIZE
    if size > left:
        return Stop.NEED_MORE
    if magic > 2:
        return Stop.UNKNOWN_MAGIC
    if sum_of is not None and (magic == 2 or crc32(window[place + 16 : place + size]) != _stored(window, place + 12)):
        return Stop.BAD_CRC
    return Stop.END


def _newer_holds(batch: memoryview) -> bool:
    return len(batch) >= V2_HEADER and crc32c(batch[21:]) == _stored(batch, 17)


def _stored(window: memoryview, place: int) -> int:
    return int.from_bytes(window[place : place + 4], "big")


def _legacy_row(window: memoryview, place: int, position: int) -> tuple[int, ...]:
    offset, size, crc, magic, attributes, timestamp = _LEGACY.unpack_from(window, place)
    if magic == 0:
        timestamp = -1
    return (
        position + place,
        size + 12,
        offset,
        offset,
        magic,
        attributes,
        crc,
        -1,
        timestamp,
        -1,
        -1,
        -1,
        -1,
        CONTROL_NONE,
    )


def find_batch(window: memoryview, start: int, *, lowest: int, highest: int) -> int:
    """Do what `storage.kernel.scan.find_batch` says."""
    lowest, end = max(lowest, 0), len(window)
    budget = 2 * end
    if highest < lowest or start < 0:
        return -1
    candidate = _candidate(lowest, highest)
    place = start - 1
    while (match := candidate.search(window, place + 1)) is not None:
        place = match.start()
        base, size, magic = _START.unpack_from(window, place)
        size += 12
        if not lowest <= base <= highest or size > end - place or not _shaped(window, place, base, size, magic):
            continue
        first = 21 if magic == 2 else 16
        budget -= size - first
        if budget < 0:
            return -2
        summed = window[place + first : place + size]
        if (crc32c(summed) if magic == 2 else crc32(summed)) == _stored(window, place + first - 4):
            return place
    return -1


def _shaped(window: memoryview, place: int, base: int, size: int, magic: int) -> bool:
    if magic < 2:
        return base < INT64_MAX
    return (
        size >= V2_HEADER
        and 0 <= int.from_bytes(window[place + 23 : place + 27], "big", signed=True) < INT64_MAX - base
    )


def _candidate(lowest: int, highest: int) -> re.Pattern[bytes]:
    """Return what every batch in the range begins with: the common high bytes of its offset, a sound size, the magic.

    The pattern spares a step of Python for nearly every byte searched, zeroes in particular.
    """
    low, high = lowest.to_bytes(8, "big"), min(highest, INT64_MAX).to_bytes(8, "big")
    same = next((n for n in range(8) if low[n] != high[n]), 8)
    rest = rb".{%d}(?!\0\0\0[\0-\x0d])[\0-\x7f].{3}.{4}[\0-\x02]" % (8 - same)
    return re.compile(re.escape(low[:same]) + rest, re.DOTALL)


def count_up_to(data: Data, width: int, target: int) -> int:
    """Do what `storage.kernel.scan.count_up_to` says."""
    first = _INT32 if width == 8 else _INT64
    low, high = 0, len(data) // width
    while low < high:
        middle = (low + high) >> 1
        if target < first.unpack_from(data, middle * width)[0]:
            high = middle
        else:
            low = middle + 1
    return low


_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


def lead_batch(_data: Data, _next_offset: int, _leader_epoch: int) -> Led | None:
    """Do what `storage.kernel.scan.lead_batch` says: here nobody is faster than whoever looks closer."""
    return None
