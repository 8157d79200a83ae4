"""What compaction makes of one batch: it stays as it is, or some of it does, or a header, or nothing; pure.

The record bytes that stay are carried over, not decoded and encoded anew. What is rebuilt is of magic 2, whatever it
was: brokers write nothing else any more. The batch is to be sound, its checksum verified: what is rebuilt gets a new
one, and rot must not be sealed under that.
Source: Apache Kafka 4.3.0, Cleaner.cleanInto, MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from storage.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_V2,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    TimestampType,
    encode_batch_v2,
    encode_empty_batch,
)
from storage.cleaned_txns import CleanedTransactions
from storage.compression import HELD_LIMIT, compress, decompress
from storage.control import KEY as CONTROL_KEY
from storage.errors import BatchCorrupt
from storage.legacy import decode_messages
from storage.offset_map import OffsetMap
from storage.record import Record, encode_record
from storage.scan import check_records
from storage.segment import BatchEnd
from storage.units import Offset
from storage.varint import encode_varint, read_varint, read_varlong

MOST_DECOMPRESSED: Final = 8 * HELD_LIMIT
"""The most bytes that the records of one batch may decompress to; beyond it `UnsupportedFormat` is raised."""


class LastRecord(NamedTuple):
    """The last that is known of an active producer: offset of its last data (None: of none), and its epoch."""

    data_offset: Offset | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What a batch is held against; ms.

    `round_end`: the end of the cleanable range, exclusive. `legacy_tombstones_stay`: whether the segment is too young
    for those of magic 0 and 1 to go.
    """

    now_ms: int
    delete_retention_ms: int
    round_end: Offset
    last_records: Mapping[int, LastRecord]
    legacy_tombstones_stay: bool


class Kept(NamedTuple):
    """What stays of a batch: its bytes, what a segment must know of it, and how many records it has."""

    data: bytes | memoryview
    end: BatchEnd
    records: int


class Field(NamedTuple):
    """Where a record of magic 2 lies in its payload: all but its timestamp stay the same when it is moved."""

    timestamp_delta: int
    offset_delta: int
    rest: int
    """Position behind the timestamp delta, where the offset delta begins."""
    end: int
    key: bytes | None
    has_value: bool


def fields_of(payload: bytes, count: int) -> Iterator[Field]:
    """Yield where the `count` records lie that make up `payload`. Raises `BatchCorrupt` if they do not."""
    fault = check_records(memoryview(payload), count)
    if fault >= 0:
        raise BatchCorrupt(f"byte {fault} of the records: not what {count} records should be")
    position = 0
    for _ in range(count):
        size, position = read_varint(payload, position)
        end = position + size
        timestamp_delta, rest = read_varlong(payload, position + 1)
        offset_delta, position = read_varint(payload, rest)
        size, position = read_varint(payload, position)
        key = None
        if size >= 0:
            key = payload[position : position + size]
            position += size
        has_value = read_varint(payload, position)[0] >= 0
        yield Field(timestamp_delta, offset_delta, rest, end, key, has_value)
        position = end


def payload_of(header: BatchHeader, batch: memoryview) -> bytes:
    """Return the records of a batch of magic 2, decompressed. Raises as `storage.compression.decompress` does."""
    if not header.record_count:
        return b""
    payload = batch[HEADER_V2.size :]
    return decompress(header.codec, payload, magic=2, limit=MOST_DECOMPRESSED) if header.codec else bytes(payload)


def control_kind(header: BatchHeader, batch: memoryview) -> int | None:
    """Return the type of the first record of a control batch, None if it has no record.

    Raises `BatchCorrupt` if that cannot be read, as a broker gives up on such a log.
    """
    if not header.record_count:
        return None
    key = next(fields_of(payload_of(header, batch), header.record_count)).key
    if key is None or len(key) < CONTROL_KEY.size:
        raise BatchCorrupt("a control record without a type")
    version, kind = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise BatchCorrupt(f"version {version} of a control record's key")
    return int(kind)


class BatchCleaner:
    """Cleans the batches of one round, one after another in the order of the log.

    `records_without_key` counts those that were dropped because a compacted log cannot keep them.
    """

    def __init__(self, offsets: OffsetMap, transactions: CleanedTransactions) -> None:
        self._offsets, self._transactions = offsets, transactions
        self.records_without_key = 0

    def clean(self, header: BatchHeader, batch: memoryview, rules: Rules) -> Kept | None:
        """Return what stays of the batch, None if nothing does.

        Raises `BatchCorrupt` if its records break the format, `UnsupportedFormat` for what cannot be decompressed.
        """
        discard = self._is_discardable(header, batch)
        is_marker_of_nothing = discard and header.is_control
        if header.is_control:
            discard = discard and header.has_delete_horizon and header.base_timestamp <= rules.now_ms
        stays_empty = _stays_empty(header, rules)
        if discard:
            return _empty(header) if stays_empty else None
        if header.magic < 2:
            kept = self._clean_legacy(header, batch, rules)
        else:
            kept = self._clean_records(header, batch, rules, sets_horizon=is_marker_of_nothing)
        return kept or (_empty(header) if stays_empty else None)

    def _is_discardable(self, header: BatchHeader, batch: memoryview) -> bool:
        """Tell the transactions of the batch; return whether its data, or its marker, may go."""
        if header.is_control:
            kind = control_kind(header, batch)
            return self._transactions.meet_marker(header.producer_id, header.last_offset, kind)
        return self._transactions.meet_data(
            header.producer_id, header.last_offset, is_transactional=header.is_transactional
        )

    def _stays(self, offset: int, key: bytes | None, *, has_value: bool, tombstones_stay: bool) -> bool:
        if offset > self._offsets.latest:
            return True
        if key is None:
            self.records_without_key += 1
            return False
        return (has_value or tombstones_stay) and offset >= self._offsets.get(key)

    def _clean_records(
        self, header: BatchHeader, batch: memoryview, rules: Rules, *, sets_horizon: bool
    ) -> Kept | None:
        payload = payload_of(header, batch)
        tombstones_stay = not header.has_delete_horizon or rules.now_ms < header.base_timestamp
        base, stays = header.base_offset, self._stays
        kept = [
            field
            for field in fields_of(payload, header.record_count)
            if header.is_control
            or stays(base + field.offset_delta, field.key, has_value=field.has_value, tombstones_stay=tombstones_stay)
        ]
        if not kept:
            return None
        sets_horizon = sets_horizon or not all(field.has_value for field in kept)
        sets_horizon = sets_horizon and not header.has_delete_horizon
        if len(kept) == header.record_count and not sets_horizon:
            return Kept(batch, BatchEnd(header.last_offset, header.max_timestamp, header.size), len(kept))
        horizon = rules.now_ms + rules.delete_retention_ms if sets_horizon else None
        return _rebuilt(header, payload, kept, horizon)

    def _clean_legacy(self, header: BatchHeader, batch: memoryview, rules: Rules) -> Kept | None:
        kept = [
            Record(*message)
            for message in decode_messages(batch, limit=MOST_DECOMPRESSED)
            if self._stays(
                message.offset,
                message.key,
                has_value=message.value is not None,
                tombstones_stay=rules.legacy_tombstones_stay,
            )
        ]
        if not kept:
            return None
        has_tombstone = any(record.value is None for record in kept)
        return _converted(header, kept, rules.now_ms + rules.delete_retention_ms if has_tombstone else None)


def _stays_empty(header: BatchHeader, rules: Rules) -> bool:
    """Tell whether the header must stay whatever becomes of the records.

    The last batch of a producer tells its last sequence number, or, if that has no data, its epoch; the last one of
    the round tells where the log goes on.
    """
    if header.last_offset + 1 == rules.round_end:
        return True
    last = rules.last_records.get(header.producer_id) if header.producer_id >= 0 else None
    if last is None:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def _empty(header: BatchHeader) -> Kept:
    """Return the header alone. That of an older format, which cannot be empty, becomes one of magic 2."""
    attributes = header.attributes if header.magic >= 2 else header.attributes & LOG_APPEND_TIME_BIT
    count = 0 if header.magic < 2 else header.record_count
    data = encode_empty_batch(header._replace(attributes=attributes, record_count=count))
    return Kept(data, BatchEnd(header.last_offset, header.max_timestamp, len(data)), 0)


def _rebuilt(header: BatchHeader, payload: bytes, kept: list[Field], horizon: int | None) -> Kept:
    """Return the batch with the `kept` records of its payload, and the delete horizon (ms) if one is to be set.

    Without a horizon the first record's timestamp is the base of the others, as when the batch was written.
    """
    newest = header.max_timestamp
    if header.timestamp_type is TimestampType.LOG_APPEND:
        times = [newest] * len(kept)
    else:
        times = [header.base_timestamp + field.timestamp_delta for field in kept]
        newest = max(times)
    attributes = header.attributes
    if horizon is not None:
        attributes, base = attributes | DELETE_HORIZON_BIT, horizon
    else:
        base = header.base_timestamp if header.has_delete_horizon else times[0]
    records = b"".join([_moved(payload, field, time - base) for field, time in zip(kept, times, strict=True)])
    changed = header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=len(kept))
    data = encode_batch_v2(changed, compress(attributes & CODEC_MASK, records))
    return Kept(data, BatchEnd(header.last_offset, newest, len(data)), len(kept))


def _moved(payload: bytes, field: Field, timestamp_delta: int) -> bytes:
    """Return a record with another distance from the base timestamp."""
    delta = encode_varint(timestamp_delta)
    return b"".join((
        encode_varint(1 + len(delta) + field.end - field.rest), b"\0", delta, payload[field.rest : field.end],
    ))  # fmt: skip


def _converted(header: BatchHeader, records: list[Record], horizon: int | None) -> Kept:
    """Return the records of a set of magic 0 or 1 as a batch of magic 2, from the first to the last of those kept."""
    first, last = records[0], records[-1]
    base = first.timestamp if horizon is None else horizon
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND
    newest = header.max_timestamp if is_append_time else max(record.timestamp for record in records)
    attributes = header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT if header.magic else CODEC_MASK)
    changed = BatchHeader(
        first.offset,
        attributes=attributes | (0 if horizon is None else DELETE_HORIZON_BIT),
        last_offset_delta=last.offset - first.offset,
        base_timestamp=base,
        max_timestamp=newest,
        record_count=len(records),
    )
    payload = b"".join([encode_record(record, first.offset, base) for record in records])
    data = encode_batch_v2(changed, compress(header.codec, payload))
    return Kept(data, BatchEnd(last.offset, newest, len(data)), len(records))


def keys_of(header: BatchHeader, batch: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield key and offset of each record of a data batch that has a key. Raises as `BatchCleaner.clean` does."""
    if header.magic < 2:
        for message in decode_messages(batch, limit=MOST_DECOMPRESSED):
            if message.key is not None:
                yield message.key, message.offset
        return
    for field in fields_of(payload_of(header, batch), header.record_count):
        if field.key is not None:
            yield field.key, header.base_offset + field.offset_delta
