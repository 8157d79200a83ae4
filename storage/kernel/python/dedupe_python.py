"""The passes of compaction over the records of one batch of magic 2, in Python: the reference for the C.

All take a payload, decompressed, that `storage.kernel.scan.check_records` has passed; else a `ValueError` may come up.
The offset map is a block of slots of three words each: the two halves of the key's MD5, and the offset + 1, which is 0
where the slot is free. The number of slots is prime, and one of them is free always.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import md5
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt
from storage.base.units import INT64_MAX
from storage.base.varint import encode_varint, read_varint, read_varlong
from storage.kernel.python.records_python import java_sum

SLOT_BYTES: Final = 24
_DIGEST: Final = struct.Struct("=QQ")


class Field(NamedTuple):
    """Where a record lies in its payload, and what tells whether it stays."""

    timestamp_delta: int
    offset_delta: int
    rest: int
    """Position of the offset delta, from where on everything stays the same wherever the record goes."""
    end: int
    key: bytes | None
    has_value: bool


def fields_of(payload: bytes, count: int) -> Iterator[Field]:
    """Yield where the `count` records of `payload` lie."""
    position = 0
    for _ in range(count):
        try:
            field = _field_at(payload, position)
        except BatchCorrupt:
            raise ValueError("the payload is not what the records should be") from None
        yield field
        position = field.end


def _field_at(payload: bytes, position: int) -> Field:
    size, position = read_varint(payload, position)
    end = position + size
    timestamp_delta, rest = read_varlong(payload, position + 1)
    offset_delta, position = read_varint(payload, rest)
    size, position = read_varint(payload, position)
    key = None
    if size >= 0:
        key = payload[position : position + size]
        position += size
    return Field(timestamp_delta, offset_delta, rest, end, key, read_varint(payload, position)[0] >= 0)


def digest_of(key: bytes) -> tuple[int, int]:
    """Return what the map knows a key by."""
    low, high = _DIGEST.unpack(md5(key, usedforsecurity=False).digest())
    return low, high


def find_slot(words: memoryview[int], table: int, low: int, high: int) -> int:
    """Return the place of the key's slot among the words, or of the free one where it belongs.

    Steps of any length come by every slot, since their number is prime; they differ from key to key, which keeps the
    way short where nine slots of ten are taken.
    """
    slot = low % table
    place = slot * 3
    step = 0
    while words[place + 2] and (words[place] != low or words[place + 1] != high):
        step = step or high % (table - 1) + 1
        slot += step
        if slot >= table:
            slot -= table
        place = slot * 3
    return place


def put_keys(
    block: bytearray, table: int, payload: bytes, count: int, base_offset: int, start: int, size: int, limit: int, /
) -> tuple[int, int, bool]:
    """Put the keys of the records from offset `start` on into a map that holds `size` keys.

    Return how many it holds then, the offset of the last one put in (-1: none), and whether it was full before the
    last: with `limit` keys in it nothing is put in, not even a known key.
    """
    words, latest = memoryview(block).cast("Q"), -1
    for field in fields_of(payload, count):
        offset = base_offset + field.offset_delta
        if field.key is None or offset < start:
            continue
        if size >= limit:
            return size, latest, True
        low, high = digest_of(field.key)
        place = find_slot(words, table, low, high)
        if not words[place + 2]:
            words[place], words[place + 1] = low, high
            size += 1
        words[place + 2] = offset + 1
        latest = offset
    return size, latest, False


def mark_kept(
    block: bytearray,
    table: int,
    payload: bytes,
    count: int,
    base_offset: int,
    latest: int,
    tombstones_stay: bool,  # noqa: FBT001 (as in the kernel)
    flags: bytearray,
    /,
) -> tuple[int, int, int]:
    """Set a flag for each record that stays, and clear it for the others.

    Those behind `latest`, the end of the map, stay; of those with a key the newest, if they have a value or
    `tombstones_stay`. Return how many stay, how many of these have no value, and how many go for want of a key.
    """
    words, survivors, tombstones, unkeyed = memoryview(block).cast("Q"), 0, 0, 0
    for number, field in enumerate(fields_of(payload, count)):
        offset = base_offset + field.offset_delta
        if offset > latest:
            stays = True
        elif field.key is None:
            stays = False
            unkeyed += 1
        else:
            stays = field.has_value or tombstones_stay
            stays = stays and offset >= words[find_slot(words, table, *digest_of(field.key)) + 2] - 1
        flags[number] = stays
        survivors += stays
        tombstones += stays and not field.has_value
    return survivors, tombstones, unkeyed


def move_records(
    payload: bytes,
    flags: bytes | bytearray,
    count: int,
    old_base: int,
    is_fixed: bool,  # noqa: FBT001 (as in the kernel)
    time: int,
    has_base: bool,  # noqa: FBT001
    base: int,
    /,
) -> tuple[bytes, int, int]:
    """Return the flagged records, at least one, with other timestamp deltas, their base, and their largest timestamp.

    Timestamps are `time` if it `is_fixed`, else deltas to `old_base`. The new base is `base` if it `has_base`, else the
    first of the timestamps; all ms.
    """
    out: list[bytes] = []
    newest = -INT64_MAX - 1
    for field, stays in zip(fields_of(payload, count), flags, strict=False):
        if not stays:
            continue
        its = time if is_fixed else java_sum(old_base + field.timestamp_delta)
        if not has_base:
            base, has_base = its, True
        newest = max(newest, its)
        delta = encode_varint(java_sum(its - base))
        rest = payload[field.rest : field.end]
        out += (encode_varint(1 + len(delta) + len(rest)), b"\0", delta, rest)
    return b"".join(out), base, newest
