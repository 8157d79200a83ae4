"""The records inside a batch: lazily, for every magic and codec, in bounded memory; and the writing of magic 2.

Pure. Checksums are not looked at here: `storage.batch.batch.ensure_sound` does that. Kafka's crash recovery does not
look at records at all, so what breaks the format here may lie in a batch whose checksum holds, as its writer made it.
Source: Apache Kafka 4.3.0, DefaultRecord, DefaultRecordBatch.RecordIterator.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.units import INT32_MAX, INT64_MAX
from storage.base.varint import encode_varint, read_varint, read_varlong
from storage.batch.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_V2,
    BatchHeader,
    TimestampType,
    add_to_sequence,
    attributes_of,
    encode_batch_v2,
    parse_header,
)
from storage.batch.legacy import decode_messages
from storage.codec.compression import HELD_LIMIT, Codec, compress, decompress_stream

Header: TypeAlias = tuple[str, bytes | None]
"""Name and value of a record header. Bytes of a name that are not UTF-8 are kept as lone surrogates."""

_VARINT_BYTES: Final = 5
_MOST_LIMITS: Final = 32  # how many times the limit of a record all records of a compressed batch may have


class Record(NamedTuple):
    """One record as a consumer sees it: int64 offset, ms; -1 stands for no timestamp, and for no sequence number."""

    offset: int
    timestamp: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    sequence: int = -1


def records_of(batch: memoryview, *, limit: int = HELD_LIMIT) -> Iterator[Record]:
    """Yield the records of a whole batch of magic 0, 1 or 2, decompressed as they are asked for.

    Memory is a few MiB and up to three times a record, in wrappers of magic 0 and 1 the decompressed set as well, and
    for zstd its window, 128 MiB at most. A compressed record, or set, of more than `limit` bytes raises
    `UnsupportedFormat`, as an unknown magic or codec does, and so do records of 32 times that in one compressed batch:
    Kafka may read them, and a crafted batch of 1 MiB could ask for any amount of memory and time. Raises `BatchCorrupt`
    at the first record that breaks the format, and behind the last one where bytes are left.
    """
    header = parse_header(batch)
    if header.size > len(batch):
        raise BatchCorrupt(f"batch of {header.size} bytes, there are {len(batch)}")
    match header.magic:
        case 0 | 1:
            yield from (Record(*message) for message in decode_messages(batch[: header.size], limit=limit))
        case 2:
            payload = batch[HEADER_V2.size : header.size]
            if header.record_count:
                chunks = decompress_stream(header.codec, payload, magic=2, limit=limit)
                if not header.codec:  # then the bytes are there already
                    yield from decode_records(header, chunks, limit=INT32_MAX)
                else:
                    yield from decode_records(header, _at_most(chunks, _MOST_LIMITS * limit), limit=limit)
        case magic:
            raise UnsupportedFormat(f"magic {magic}")


def decode_records(header: BatchHeader, chunks: Iterable[bytes], *, limit: int = HELD_LIMIT) -> Iterator[Record]:
    """Yield the `header.record_count` records of magic 2 that `chunks`, decompressed already, add up to.

    Offsets, timestamps and sequences are made from the base values in `header`. Raises as `records_of` does; the first
    fault ends it. With a count of 0 nothing is taken from `chunks`.
    """
    if header.record_count < 0:
        raise BatchCorrupt(f"record count {header.record_count}")
    if not header.record_count:
        return
    feed = _Feed(chunks)
    for number in range(header.record_count):
        try:
            record = _next_record(feed, header, limit)
        except BatchCorrupt as fault:
            raise BatchCorrupt(f"record {number}: {fault.reason}") from None
        yield record
    if feed.has(1):
        raise BatchCorrupt(f"bytes are left behind record {header.record_count - 1}, the last one")


def _at_most(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    left = size
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise UnsupportedFormat(f"decompresses to more than {size} bytes")
        yield chunk


class _Feed:
    """Makes contiguous bytes of a stream of chunks; holds no more than was asked for and one chunk."""

    __slots__ = ("_chunks", "data", "position")

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.data = b""
        self.position = 0

    def has(self, size: int) -> bool:
        """Make `size` bytes available in `data` from `position` on; return whether the stream holds as many."""
        if len(self.data) - self.position >= size:
            return True
        gathered = io.BytesIO()
        gathered.write(memoryview(self.data)[self.position :])
        self.data, self.position = b"", 0
        while gathered.tell() < size and (chunk := next(self._chunks, b"")):
            gathered.write(chunk)
        self.data = gathered.getvalue()
        return len(self.data) >= size


def _next_record(feed: _Feed, header: BatchHeader, limit: int) -> Record:
    feed.has(_VARINT_BYTES)  # fewer may be left: then they have to do
    size, feed.position = read_varint(feed.data, feed.position)
    if size > limit:
        raise UnsupportedFormat(f"record of {size} bytes, more than {limit}")
    if size < 0 or not feed.has(size):
        raise BatchCorrupt(f"size {size}, {len(feed.data) - feed.position} bytes are left")
    start = feed.position
    feed.position += size
    return _parse_body(feed.data, start, feed.position, header)


def _parse_body(data: bytes, position: int, end: int, header: BatchHeader) -> Record:
    """Return the record whose body is `data[position:end]`.

    Numbers may be read beyond `end`, from the next record; the position then never comes back to `end`.
    """
    timestamp_delta, position = read_varlong(data, position + 1)  # one byte of attributes, of which none is used
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = read_varint(data, position)
    headers: tuple[Header, ...] = ()
    if count:
        headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise BatchCorrupt("the fields do not fill the size")
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND
    timestamp = header.max_timestamp if is_append_time else _int64(header.base_timestamp + timestamp_delta)
    sequence = add_to_sequence(header.base_sequence, offset_delta) if header.base_sequence >= 0 else -1
    offset = _int64(header.base_offset + offset_delta)
    return Record(offset, timestamp, header.timestamp_type, key, value, headers, sequence)


def _int64(value: int) -> int:
    """Return the sum as Java makes it, which only nonsense needs."""
    return value if -INT64_MAX <= value <= INT64_MAX else (value + INT64_MAX + 1) % (2 * INT64_MAX + 2) - INT64_MAX - 1


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    if size > end - position:
        raise BatchCorrupt(f"a field of {size} bytes, {end - position} are left")
    return data[position : position + size], position + size


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if not 0 <= count <= end - position:
        raise BatchCorrupt(f"{count} headers, {end - position} bytes are left")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise BatchCorrupt("a header without a name")
        value, position = _read_bytes(data, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return a record of magic 2 in a batch with these base values."""
    body = b"".join((
        b"\0",
        encode_varint(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
        _encode_bytes(record.key),
        _encode_bytes(record.value),
        encode_varint(len(record.headers)),
        *(part for name, value in record.headers
          for part in (_encode_bytes(name.encode("utf-8", "surrogateescape")), _encode_bytes(value))),
    ))  # fmt: skip
    return encode_varint(len(body)) + body


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\1" if value is None else encode_varint(len(value)) + value


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    flags: int = 0,
    level: int | None = None,
) -> bytes:
    """Return a new batch of magic 2 with these records, of which there is at least one, in order of offset.

    The first record's timestamp is the base, its timestamp type that of all; records of log append time show the
    largest timestamp. `flags` are attributes as of `attributes_of`, for transactions and control batches; `level` is as
    of `compress`.
    """
    assert records
    first, timestamp = records[0], max(record.timestamp for record in records)
    payload = b"".join(encode_record(record, first.offset, first.timestamp) for record in records)
    header = BatchHeader(
        first.offset,
        leader_epoch=leader_epoch,
        attributes=flags | attributes_of(codec, first.timestamp_type),
        last_offset_delta=records[-1].offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return encode_batch_v2(header, compress(codec, payload, level=level))


def encode_remaining(header: BatchHeader, records: Sequence[Record], *, delete_horizon: int | None = None) -> bytes:
    """Return what compaction leaves of a batch of magic 2: `records` of it, at least one, under its own header.

    Base and last offset, producer, sequence, epochs, flags and codec stay. `delete_horizon` (ms) takes the place of the
    base timestamp; without it the batch keeps its own, horizon or not.
    """
    assert records
    attributes, base = header.attributes, header.base_timestamp
    if delete_horizon is not None:
        attributes, base = attributes | DELETE_HORIZON_BIT, delete_horizon
    payload = b"".join(encode_record(record, header.base_offset, base) for record in records)
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND
    newest = header.max_timestamp if is_append_time else max(record.timestamp for record in records)
    changed = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=len(records)
    )
    return encode_batch_v2(changed, compress(attributes & CODEC_MASK, payload))
