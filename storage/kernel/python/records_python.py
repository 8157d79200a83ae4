"""The records of magic 2 in Python: what the C kernel is held against, and what runs where that one was not built.

`storage.kernel.scan.Kernel` says what each function returns. Sources: Apache Kafka 4.3.0, DefaultRecord,
ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from storage.base.rows import CONTROL_EMPTY, CONTROL_UNREADABLE, Walked
from storage.base.units import INT64_MAX

_CODEC_BITS: Final = 0x07


def check_records(payload: memoryview, count: int) -> int:
    """Do what `storage.kernel.scan.Kernel.check_records` says."""
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
    """Do what `storage.kernel.scan.Kernel.walk_records` says."""
    count_walked, place, least, most, is_dense, lacks_key = 0, 0, INT64_MAX, -1, True, False
    with memoryview(payload) as view:
        while count_walked < count:
            try:
                record = _record(view, place)
            except _Unreadable:
                break
            timestamp = java_sum(base_timestamp + record.timestamp_delta)
            most = max(most, timestamp)
            least = least if timestamp == -1 else min(least, timestamp)
            is_dense = is_dense and record.offset_delta == first + count_walked
            lacks_key = lacks_key or record.key is None
            count_walked, place = count_walked + 1, record.end
    return Walked(count_walked, place, least, most, is_dense, lacks_key)


def find_record(
    payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
) -> tuple[int, int] | None:
    """Do what `storage.kernel.scan.Kernel.find_record` says."""
    place = 0
    for _ in range(count):
        try:
            record = _record(payload, place)
        except _Unreadable:
            return None
        found = java_sum(base_timestamp + record.timestamp_delta)
        if found >= timestamp and record.offset_delta >= offset_delta:
            return record.offset_delta, found
        place = record.end
    return None


def java_sum(value: int) -> int:
    """Return the sum as Java makes it, which only nonsense needs."""
    return (value + INT64_MAX + 1) % (2 * INT64_MAX + 2) - INT64_MAX - 1


class _Unreadable(Exception):
    """The bytes are no record; caught here, where the answer is a number."""


def control_of(payload: memoryview, attributes: int, records: int) -> int:
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
