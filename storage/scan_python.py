"""The scanner in Python: what the C kernel is held against, and what runs where that one was not built.

What each function returns is said in `storage.scan`, which is what everybody else imports. Sources: Apache Kafka 4.3.0,
DefaultRecordBatch, LegacyRecord, DefaultRecord, ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable, Sequence
from operator import add, ge, gt
from typing import Final, NamedTuple
from zlib import crc32

from storage.rows import (
    COLUMNS,
    CONTROL_EMPTY,
    CONTROL_NONE,
    CONTROL_UNREADABLE,
    BatchRows,
    Data,
    Led,
    Scanned,
    Stop,
    Walked,
)
from storage.units import INT64_MAX

LEAST: Final = 17  # up to and with the magic byte, which stands at the same place in all three formats
V2_HEADER: Final = 61
_LEAST_V2: Final = V2_HEADER - 12

_START: Final = struct.Struct(
    ">"
    "q"  # base offset, or the entry's own
    "i"  # bytes after this field
    "4x"
    "b"  # magic
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
_LEGACY: Final = struct.Struct(
    ">"
    "q"  # offset
    "i"  # bytes after this field
    "I"  # CRC-32 of all that follows
    "b"  # magic
    "b"  # attributes
    "q"  # timestamp; magic 1 only
)
_CONTROL_BIT: Final = 0x20
_CODEC_BITS: Final = 0x07
_AT_ONCE: Final = 256
"""Batches whose headers are turned into columns at a time: so many stay in a cache."""


def crc_name() -> str:
    """Do what `storage.scan.crc_name` says."""
    return "crc32c package"


def crc32c(data: memoryview, value: int = 0) -> int:
    """Do what `storage.scan.crc32c` says."""
    return package_crc32c()(data, value)


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.scan.scan_batches` says."""
    return _scan(window, rows, position, next_offset, package_crc32c())


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do what `storage.scan.walk_headers` says."""
    return _scan(window, rows, position, next_offset, None)


def package_crc32c() -> Callable[..., int]:
    """Return the function that sums: a batch each call, so that nothing must stand between."""
    # Late, so that what never scans does not pay for the import, nor what has the C kernel.
    from crc32c import crc32c as sum_of  # noqa: PLC0415

    return sum_of


class Columns(NamedTuple):
    """What the scanner says of some batches: one sequence a field, in the order of `storage.rows.COLUMNS`."""

    position: Sequence[int]
    size: Sequence[int]
    base_offset: Sequence[int]
    last_offset: Sequence[int]
    magic: Sequence[int]
    attributes: Sequence[int]
    crc: Sequence[int]
    leader_epoch: Sequence[int]
    max_timestamp: Sequence[int]
    producer_id: Sequence[int]
    producer_epoch: Sequence[int]
    base_sequence: Sequence[int]
    record_count: Sequence[int]
    control: Sequence[int]


def _scan(
    window: memoryview, rows: BatchRows, position: int, next_offset: int, sum_of: Callable[..., int] | None
) -> Scanned:
    count, place, stop = 0, 0, Stop.END
    while stop is Stop.END and place != len(window):
        if count == rows.capacity:
            return Scanned(count, place, Stop.ROWS_FULL)
        columns, place, stop = next_columns(window, place, rows.capacity - count, position, next_offset, sum_of)
        behind = count + len(columns.position)
        for column, values in zip(COLUMNS, columns, strict=True):
            getattr(rows, column)[count:behind] = array("q", values)
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
    found, places, behind = _plain_batches(window, place, min(most, _AT_ONCE), sum_of)
    if found:
        columns = _columns(window, found, places, position)
        sound = _count_ordered(columns, next_offset)
        if sound == len(found):
            return columns, behind, Stop.END
        return Columns(*(column[:sound] for column in columns)), places[sound], Stop.BAD_ORDER
    judged = _judge(window, place, sum_of)
    if judged is not Stop.END:
        return _NOTHING, place, judged
    row = _legacy_row(window, place, position)
    if not next_offset <= row[3] < INT64_MAX:
        return _NOTHING, place, Stop.BAD_ORDER
    return Columns(*((value,) for value in row)), place + row[1], Stop.END


def _plain_batches(
    window: memoryview, place: int, most: int, sum_of: Callable[..., int] | None
) -> tuple[list[tuple[int, ...]], list[int], int]:
    """Return headers and places of whole batches of magic 2 from `place` on whose sums hold, and the place behind them.

    Calls and steps of Python are what this loop would spend its time on: all that can be done to columns is done later.
    """
    end = len(window)
    last_header = end - V2_HEADER
    found: list[tuple[int, ...]] = []
    places: list[int] = []
    keep, note, unpack = found.append, places.append, _V2.unpack_from
    for _ in range(most):
        if place > last_header:
            break
        fields = unpack(window, place)
        size = fields[1]
        behind = place + size + 12
        if behind > end or fields[3] != 2 or size < _LEAST_V2:
            break
        if sum_of is not None and sum_of(window[place + 21 : behind]) != fields[4]:
            break
        keep(fields)
        note(place)
        place = behind
    return found, places, place


def _columns(window: memoryview, found: list[tuple[int, ...]], places: list[int], position: int) -> Columns:
    base, size, epoch, magic, crc, attributes, delta, max_ts, pid, p_epoch, sequence, records = zip(*found, strict=True)
    sizes = [field + 12 for field in size]
    control: Sequence[int] = (CONTROL_NONE,) * len(found)
    if any(bits & _CONTROL_BIT for bits in set(attributes)):
        control = [
            _control(window[place + V2_HEADER : place + size], bits, count) if bits & _CONTROL_BIT and producer > -1
            else CONTROL_NONE
            for place, size, bits, count, producer in zip(places, sizes, attributes, records, pid, strict=True)
        ]  # fmt: skip
    positions = [position + place for place in places] if position else places
    last = tuple(map(add, base, delta))
    return Columns(positions, sizes, base, last, magic, attributes, crc, epoch, max_ts, pid, p_epoch, sequence, records,
                   control)  # fmt: skip


def _count_ordered(columns: Columns, next_offset: int) -> int:
    """Return how many batches follow each other as they must, from the first on."""
    base, last = columns.base_offset, columns.last_offset
    if base[0] >= next_offset and last[-1] < INT64_MAX and all(map(ge, last, base)) and all(map(gt, base[1:], last)):
        return len(base)
    for number, (first, behind) in enumerate(zip(base, last, strict=True)):
        if first < next_offset or behind < first or behind >= INT64_MAX:
            return number
        next_offset = behind + 1
    return len(base)


_NOTHING: Final = Columns(*((),) * len(COLUMNS))


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
    """Do what `storage.scan.find_batch` says."""
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


def check_records(payload: memoryview, count: int) -> int:
    """Do what `storage.scan.check_records` says."""
    if count <= 0:
        return 0 if count else -1
    place = 0
    for _ in range(count):
        try:
            place = _record(payload, place).end
        except _Unreadable:
            return place
    return -1 if place == len(payload) else place


def walk_records(payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0) -> Walked:
    """Do what `storage.scan.walk_records` says."""
    done, place, least, most, is_dense, lacks_key = 0, 0, INT64_MAX, -1, True, False
    with memoryview(payload) as view:
        while done < count:
            try:
                record = _record(view, place)
            except _Unreadable:
                break
            timestamp = _int64(base_timestamp + record.timestamp_delta)
            most = max(most, timestamp)
            least = least if timestamp == -1 else min(least, timestamp)
            is_dense = is_dense and record.offset_delta == first + done
            lacks_key = lacks_key or record.key is None
            done, place = done + 1, record.end
    return Walked(done, place, least, most, is_dense, lacks_key)


def find_record(
    payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
) -> tuple[int, int] | None:
    """Do what `storage.scan.find_record` says."""
    place = 0
    for _ in range(count):
        try:
            record = _record(payload, place)
        except _Unreadable:
            return None
        found = _int64(base_timestamp + record.timestamp_delta)
        if found >= timestamp and record.offset_delta >= offset_delta:
            return record.offset_delta, found
        place = record.end
    return None


def count_up_to(data: Data, width: int, target: int) -> int:
    """Do what `storage.scan.count_up_to` says."""
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
    """Do what `storage.scan.lead_batch` says: here nobody is faster than whoever looks closer."""
    return None


def _int64(value: int) -> int:
    """Return the sum as Java makes it."""
    return (value + INT64_MAX + 1) % (2 * INT64_MAX + 2) - INT64_MAX - 1


class _Unreadable(Exception):
    """The bytes are no record; caught here, where the answer is a number."""


def _control(payload: memoryview, attributes: int, records: int) -> int:
    """Return the `control` value of a producer's control batch with this payload.

    A broker reads only the first record; where it is the only one, nothing may lie behind it.
    """
    if records == 0:
        return CONTROL_EMPTY
    if records < 0 or attributes & _CODEC_BITS:
        return CONTROL_UNREADABLE
    try:
        record = _record(payload, 0)
    except _Unreadable:
        return CONTROL_UNREADABLE
    key, value = record.key, record.value
    if key is None or value is None or len(key) < 4 or len(value) < 6 or (records == 1 and record.end != len(payload)):
        return CONTROL_UNREADABLE
    version, kind = struct.unpack_from(">hh", key)
    value_version, epoch = struct.unpack_from(">hI", value)
    if version < 0 or value_version < 0 or kind not in (0, 1):
        return CONTROL_UNREADABLE
    return int(kind << 32 | epoch)


class _Record(NamedTuple):
    key: memoryview | None
    value: memoryview | None
    timestamp_delta: int
    offset_delta: int
    end: int
    """Where the next one begins."""


def _record(payload: memoryview, place: int) -> _Record:
    """Return the record at `place`."""
    size, place = _varint(payload, place, len(payload))
    end = place + size
    if not place < end <= len(payload):
        raise _Unreadable
    timestamp_delta, place = _varint(payload, place + 1, end, most=10)
    offset_delta, place = _varint(payload, place, end)
    key, place = _bytes(payload, place, end)
    value, place = _bytes(payload, place, end)
    headers, place = _varint(payload, place, end)
    if not 0 <= headers <= end - place:
        raise _Unreadable
    for _ in range(headers):
        name, place = _bytes(payload, place, end)
        if name is None:
            raise _Unreadable
        _, place = _bytes(payload, place, end)
    if place != end:
        raise _Unreadable
    return _Record(key, value, timestamp_delta, offset_delta, end)


def _bytes(payload: memoryview, place: int, end: int) -> tuple[memoryview | None, int]:
    size, place = _varint(payload, place, end)
    if size < 0:
        return None, place
    if size > end - place:
        raise _Unreadable
    return payload[place : place + size], place + size


def _varint(payload: memoryview, place: int, end: int, *, most: int = 5) -> tuple[int, int]:
    """Return the zig-zag number at `place` and where it ends; int32 in at most 5 bytes, int64 in at most 10."""
    raw = shift = 0
    for byte in payload[place : min(place + most, end)]:
        raw |= (byte & 0x7F) << shift
        shift += 7
        place += 1
        if byte < 0x80:
            raw &= 0xFFFFFFFF if most == 5 else 0xFFFFFFFFFFFFFFFF  # as Java's shift does with bits beyond the type
            return raw >> 1 ^ -(raw & 1), place
    raise _Unreadable
