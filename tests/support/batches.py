"""Record batches made by hand, field by field, so that a test can have any value anywhere and a checksum that holds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import crc32c

TS = 1_700_000_000_000
"""The time stamp that everything has unless told otherwise: milliseconds since 1970."""

TRANSACTIONAL, CONTROL, LOG_APPEND_TIME, DELETE_HORIZON = 0x10, 0x20, 0x08, 0x40


def varint(value: int) -> bytes:
    """Return `value` as a zig-zag varint; the same bytes serve int32 and int64."""
    left = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int = 0,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """Return one magic 2 record with its length in front."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + _sized(key) + _sized(value) + varint(len(headers))
    body += b"".join(_sized(name) + _sized(content) for name, content in headers)
    return varint(len(body)) + body


def batch_v2(
    base_offset: int,
    records: int | Iterable[bytes] = 1,
    *,
    count: int | None = None,
    last_offset_delta: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    base_timestamp: int = TS,
    max_timestamp: int | None = None,
    payload: bytes | None = None,
    magic: int = 2,
) -> bytes:
    """Return a sealed magic 2 batch.

    `records` are encoded records or a number of small ones; `payload` takes their place as it stands (compressed bytes,
    rubbish). `count` and `last_offset_delta` follow from the records unless given.
    """
    made = [record(n, timestamp_delta=n) for n in range(records)] if isinstance(records, int) else list(records)
    body = b"".join(made) if payload is None else payload
    number = len(made) if count is None else count
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        max(number - 1, 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp + max(number - 1, 0) if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        number,
    )
    crc = crc32c.crc32c(tail + body)
    return struct.pack(">qiibI", base_offset, 9 + len(tail) + len(body), leader_epoch, magic, crc) + tail + body


def legacy(
    offset: int,
    magic: int = 1,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    timestamp: int = TS,
    attributes: int = 0,
) -> bytes:
    """Return one sealed entry of magic 0 or 1."""
    tail = struct.pack(">bB", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        tail += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(tail), zlib.crc32(tail)) + tail


def marker_record(*, commit: bool, coordinator_epoch: int = 0) -> bytes:
    """Return the one record of a transaction marker."""
    value = struct.pack(">hi", 0, coordinator_epoch)
    return record(key=struct.pack(">hh", 0, int(commit)), value=value)


def marker(
    offset: int,
    producer_id: int,
    producer_epoch: int = 0,
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    timestamp: int = TS,
) -> bytes:
    """Return a transaction marker: a control batch of a producer."""
    return batch_v2(
        offset,
        [marker_record(commit=commit, coordinator_epoch=coordinator_epoch)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        base_timestamp=timestamp,
    )


def reseal(batch: bytes) -> bytes:
    """Return the batch with its checksum made to hold again, whatever was changed in it."""
    sealed = bytearray(batch)
    if batch[16] < 2:
        sealed[12:16] = struct.pack(">I", zlib.crc32(sealed[16:]))
    else:
        sealed[17:21] = struct.pack(">I", crc32c.crc32c(bytes(sealed[21:])))
    return bytes(sealed)
