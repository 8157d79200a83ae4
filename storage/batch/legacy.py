"""What lies inside the entries of magic 0 and 1: one message, or a wrapper with a compressed set of them; pure.

The wrapper's magic says whether inner offsets are relative; the inner magic, which an old bug of compaction may have
left different, says whether there is a timestamp. Inner checksums are not verified, as brokers do not when they read
from disk; the wrapper's own covers them.
Source: Apache Kafka 4.3.0, LegacyRecord, AbstractLegacyRecordBatch; KAFKA-4298 for the mixed magic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt
from storage.batch.batch import (
    CODEC_MASK,
    HEADER_V0,
    HEADER_V1,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    TimestampType,
    parse_header,
    reseal,
)
from storage.codec.compression import HELD_LIMIT, compress, decompress

_START: Final = struct.Struct(">qi")  # offset, remaining size
_LEAST_SIZE_FIELD: Final = 14
_SIZE_FIELD: Final = struct.Struct(">i")


class Message(NamedTuple):
    """One message with its absolute offset; ms, -1 for none, as always in magic 0."""

    offset: int
    timestamp: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE
    key: bytes | None = None
    value: bytes | None = None


def decode_messages(batch: memoryview, *, limit: int = HELD_LIMIT) -> Iterator[Message]:
    """Yield the message, or the messages of the wrapper, that a whole entry of magic 0 or 1 is.

    A wrapper is decompressed as a whole, to at most `limit` bytes, since offsets of magic 1 count back from its last
    message. Raises `BatchCorrupt`, and what `storage.codec.compression.decompress` raises.
    """
    wrapper = parse_header(batch)
    if not wrapper.codec:
        yield _parse_message(batch)
        return
    value = _read_bytes(batch, _read_bytes(batch, _layout_size(wrapper.magic))[1])[0]
    if value is None:
        raise BatchCorrupt("a wrapper without a value")
    inner = memoryview(decompress(wrapper.codec, value, magic=wrapper.magic, limit=limit))
    base = _offset_base(wrapper, _last_offset(inner))
    for entry in _entries(inner):
        message = _parse_inner(entry, wrapper)
        yield message._replace(offset=base + message.offset)


def encode_message(message: Message, *, magic: int, codec: int = 0) -> bytes:
    """Return an entry of magic 0 or 1; a magic 0 entry has no timestamp, whatever the message says."""
    attributes = codec & CODEC_MASK
    if magic == 0:
        head = HEADER_V0.pack(message.offset, 0, 0, 0, attributes)
    else:
        attributes |= LOG_APPEND_TIME_BIT if message.timestamp_type is TimestampType.LOG_APPEND else 0
        head = HEADER_V1.pack(message.offset, 0, 0, 1, attributes, message.timestamp)
    entry = bytearray(head + _encode_bytes(message.key) + _encode_bytes(message.value))
    _START.pack_into(entry, 0, message.offset, len(entry) - LOG_OVERHEAD)
    reseal(memoryview(entry))
    return bytes(entry)


def encode_wrapper(messages: Sequence[Message], *, magic: int, codec: int) -> bytes:
    """Return a wrapper of magic 0 or 1 with these messages, of which there is at least one, in order of offset.

    Inner offsets of magic 1 count from the first. With log append time only the wrapper says so, with the largest
    timestamp, and the messages keep theirs.
    """
    assert messages
    first, last = messages[0], messages[-1]
    base = first.offset if magic else 0
    inner = b"".join(
        encode_message(message._replace(offset=message.offset - base, timestamp_type=TimestampType.CREATE), magic=magic)
        for message in messages
    )
    timestamp = max(message.timestamp for message in messages)
    value = compress(codec, inner, magic=magic)
    outer = Message(last.offset, timestamp, first.timestamp_type, None, value)
    return encode_message(outer, magic=magic, codec=codec)


def _offset_base(wrapper: BatchHeader, last_inner_offset: int) -> int:
    """Return what is to be added to inner offsets."""
    if wrapper.magic == 0 or wrapper.base_offset == 0:  # old librdkafka left 0 outside, and counted from 0 inside
        return 0
    if wrapper.base_offset < last_inner_offset:
        reason = f"offset {wrapper.base_offset} of the wrapper, {last_inner_offset} of its last message"
        raise BatchCorrupt(reason)
    return wrapper.base_offset - last_inner_offset


def _last_offset(inner: memoryview) -> int:
    last = None
    for entry in _entries(inner):
        last = entry
    if last is None:
        raise BatchCorrupt("a wrapper without a message")
    return int(_START.unpack_from(last)[0])


def _entries(inner: memoryview) -> Iterator[memoryview]:
    """Yield the whole entries of a set; one that is cut short at the end is dropped, as brokers do."""
    position = 0
    while len(inner) - position >= LOG_OVERHEAD:
        size = _START.unpack_from(inner, position)[1]
        if size < _LEAST_SIZE_FIELD:
            raise BatchCorrupt(f"size field {size} of a message in a wrapper")
        end = position + LOG_OVERHEAD + size
        if end > len(inner):
            return
        yield inner[position:end]
        position = end


def _parse_inner(entry: memoryview, wrapper: BatchHeader) -> Message:
    """Return a message with its offset as it is stored, and with the wrapper's kind of time."""
    message = _parse_message(entry)
    if message.timestamp_type is TimestampType.NONE:
        return message
    if wrapper.timestamp_type is TimestampType.LOG_APPEND:
        return message._replace(timestamp=wrapper.max_timestamp, timestamp_type=TimestampType.LOG_APPEND)
    return message._replace(timestamp_type=wrapper.timestamp_type)


def _parse_message(entry: memoryview) -> Message:
    header = parse_header(entry)
    if header.magic > 1:
        raise BatchCorrupt(f"magic {header.magic} in a wrapper")
    if header.codec:
        raise BatchCorrupt("a compressed message in a wrapper")
    key, position = _read_bytes(entry, _layout_size(header.magic))
    value, _ = _read_bytes(entry, position)
    return Message(
        header.base_offset,
        header.max_timestamp,
        header.timestamp_type,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
    )


def _layout_size(magic: int) -> int:
    return HEADER_V1.size if magic else HEADER_V0.size


def _read_bytes(entry: memoryview, position: int) -> tuple[memoryview | None, int]:
    start = position + _SIZE_FIELD.size
    if start > len(entry):
        raise BatchCorrupt("a message ends before its key or value")
    size = _SIZE_FIELD.unpack_from(entry, position)[0]
    if size < 0:
        return None, start
    if size > len(entry) - start:
        raise BatchCorrupt(f"a key or value of {size} bytes, {len(entry) - start} are left")
    return entry[start : start + size], start + size


def _encode_bytes(value: bytes | None) -> bytes:
    return _SIZE_FIELD.pack(-1) if value is None else _SIZE_FIELD.pack(len(value)) + value
