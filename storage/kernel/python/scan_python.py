"""The scanner in Python: the readable reference for the C kernel, used where that one was not built.

`storage.kernel.scan.Kernel` says what each function returns. Sources: Apache Kafka 4.3.0, DefaultRecordBatch,
LegacyRecord, DefaultRecord, ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple
from zlib import crc32

from crc32c import crc32c

from storage.base.rows import COLUMNS, CONTROL_NONE, BatchRows, Data, Led, Scanned, Stop
from storage.base.units import INT64_MAX
from storage.kernel.python.records_python import control_of

LEAST: Final = 17  # up to and with the magic byte, which stands at the same place in all three formats
V2_HEADER: Final = 61
_CONTROL_BIT: Final = 0x20

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


_V2: Final = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # bytes after this field
    "i"  # leader epoch
    "b"  # magic
    "I"  # CRC-32C of all that follows
    "h"  # attributes
    "i"  # last offset delta
    "8x"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)


class Batch(NamedTuple):
    """The row of one batch: a number for each of `storage.base.rows.COLUMNS`, in that order."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    crc: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    control: int


def crc_name() -> str:
    """Do what `storage.kernel.scan.Kernel.crc_name` says."""
    return "crc32c package"


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.Kernel.scan_batches` says."""
    return _fill(window, rows, position, next_offset, sums=True)


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.kernel.scan.Kernel.walk_headers` says."""
    return _fill(window, rows, position, next_offset, sums=False)


def _fill(window: memoryview, rows: BatchRows, position: int, next_offset: int, *, sums: bool) -> Scanned:
    columns = [getattr(rows, name) for name in COLUMNS]
    count = place = 0
    while place != len(window):
        if count == rows.capacity:
            return Scanned(count, place, Stop.ROWS_FULL)
        batch = next_batch(window, place, position, next_offset, sums=sums)
        if isinstance(batch, Stop):
            return Scanned(count, place, batch)
        for column, value in zip(columns, batch, strict=True):
            column[count] = value
        count, place, next_offset = count + 1, place + batch.size, batch.last_offset + 1
    return Scanned(count, place, Stop.END)


def next_batch(window: memoryview, place: int, position: int, next_offset: int, *, sums: bool) -> Batch | Stop:
    """Return the batch at `place` in the window, or what is wrong there.

    `position` is that of the window in its file; checksums are verified if `sums` is true.
    """
    stop = _judge(window, place, sums=sums)
    if stop is not Stop.END:
        return stop
    batch = _v2_batch(window, place, position) if window[place + 16] == 2 else _legacy_batch(window, place, position)
    if next_offset <= batch.base_offset <= batch.last_offset < INT64_MAX:
        return batch
    return Stop.BAD_ORDER


def _judge(window: memoryview, place: int, *, sums: bool) -> Stop:
    """Return END if a whole batch lies at `place` and its checksum holds, otherwise what is wrong.

    A magic above 2 is judged by its checksum even where only headers are wanted: it is met once a scan at most, and the
    answer decides between rubbish and a newer broker's data.
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
    if sums and not _sum_holds(window[place : place + size], magic):
        return Stop.BAD_CRC
    return Stop.END


def _sum_holds(batch: memoryview, magic: int) -> bool:
    if magic == 2:
        return crc32c(batch[21:]) == _stored(batch, 17)
    return crc32(batch[16:]) == _stored(batch, 12)


def _newer_holds(batch: memoryview) -> bool:
    return len(batch) >= V2_HEADER and crc32c(batch[21:]) == _stored(batch, 17)


def _stored(window: memoryview, place: int) -> int:
    return int.from_bytes(window[place : place + 4], "big")


def _v2_batch(window: memoryview, place: int, position: int) -> Batch:
    fields = _V2.unpack_from(window, place)
    base, size, epoch, magic, crc, attributes, delta, timestamp, producer_id, producer_epoch, sequence, records = fields
    size += 12
    control = CONTROL_NONE
    if attributes & _CONTROL_BIT and producer_id >= 0:
        control = control_of(window[place + V2_HEADER : place + size], attributes, records)
    return Batch(
        position + place, size, base, base + delta, magic, attributes, crc, epoch, timestamp, producer_id,
        producer_epoch, sequence, records, control,
    )  # fmt: skip


def _legacy_batch(window: memoryview, place: int, position: int) -> Batch:
    offset, size, crc, magic, attributes, timestamp = _LEGACY.unpack_from(window, place)
    timestamp = timestamp if magic else -1
    return Batch(
        position + place, size + 12, offset, offset, magic, attributes, crc, -1, timestamp, -1, -1, -1, -1,
        CONTROL_NONE,
    )  # fmt: skip


def find_batch(window: memoryview, start: int, *, lowest: int, highest: int) -> int:
    """Do what `storage.kernel.scan.Kernel.find_batch` says."""
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
        budget -= size - (21 if magic == 2 else 16)
        if budget < 0:
            return -2
        if _sum_holds(window[place : place + size], magic):
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
    """Do what `storage.kernel.scan.Kernel.count_up_to` says."""
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
    """Return None always: the closer look is as fast in Python."""
    return None
