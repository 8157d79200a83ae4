"""What compaction makes of one batch: it stays as it is, or some of it does, or a header, or nothing; pure.

The record bytes that stay are carried over, not decoded and encoded again. What is rebuilt is of magic 2, whatever it
was: brokers write nothing else any more. The batch is to be sound, its checksum verified: what is rebuilt gets a new
one, and rot must not be sealed under that.
Source: Apache Kafka 4.3.0, Cleaner.cleanInto, MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from storage.base.units import INT64_MAX, Offset
from storage.batch.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    TimestampType,
    encode_batch_v2,
    encode_empty_batch,
)
from storage.batch.legacy import decode_messages
from storage.batch.payload import MOST_DECOMPRESSED, control_kind, payload_of
from storage.batch.record import Record, encode_record
from storage.cleanup.cleaned_txns import CleanedTransactions
from storage.cleanup.offset_map import OffsetMap
from storage.codec.compression import compress
from storage.kernel.python.dedupe_python import fields_of
from storage.kernel.scan import move_records
from storage.segment.segment_types import BatchEnd


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

    @property
    def new_horizon(self) -> int | None:
        """The delete horizon of what is to get one now; None where that lies beyond all time: it stays for good."""
        horizon = self.now_ms + self.delete_retention_ms
        return horizon if horizon <= INT64_MAX else None


class Kept(NamedTuple):
    """What stays of a batch: its bytes, what a segment must know of it, and how many records it has."""

    data: bytes | memoryview
    end: BatchEnd
    records: int


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
        payload, count = payload_of(header, batch), header.record_count
        flags = bytearray(count)
        if header.is_control:
            flags[:] = b"\1" * count
            survivors, tombstones = count, sum(not field.has_value for field in fields_of(payload, count))
        else:
            tombstones_stay = not header.has_delete_horizon or rules.now_ms < header.base_timestamp
            survivors, tombstones, unkeyed = self._offsets.mark_kept(
                payload, count, header.base_offset, flags, tombstones_stay=tombstones_stay
            )
            self.records_without_key += unkeyed
        if not survivors:
            return None
        sets_horizon = (sets_horizon or tombstones > 0) and not header.has_delete_horizon
        if survivors == count and not sets_horizon:
            return Kept(batch, BatchEnd(header.last_offset, header.max_timestamp, header.size), survivors)
        return _rebuilt(header, payload, flags, survivors, rules.new_horizon if sets_horizon else None)

    def _clean_legacy(self, header: BatchHeader, batch: memoryview, rules: Rules) -> Kept | None:
        survivors = [
            Record(*message)
            for message in decode_messages(batch, limit=MOST_DECOMPRESSED)
            if self._stays(
                message.offset,
                message.key,
                has_value=message.value is not None,
                tombstones_stay=rules.legacy_tombstones_stay,
            )
        ]
        if not survivors:
            return None
        has_tombstone = any(record.value is None for record in survivors)
        return _converted(header, survivors, rules.new_horizon if has_tombstone else None)


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


def _rebuilt(header: BatchHeader, payload: bytes, flags: bytearray, survivors: int, horizon: int | None) -> Kept:
    """Return the batch with its `survivors` flagged records, and the delete horizon (ms) if one is to be set.

    Without a horizon the first record's timestamp is the base of the others, as when the batch was written.
    """
    attributes, base = header.attributes, header.base_timestamp
    if horizon is not None:
        attributes, base = attributes | DELETE_HORIZON_BIT, horizon
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND
    has_base = horizon is not None or header.has_delete_horizon
    records, base, newest = move_records(
        payload, flags, header.record_count, header.base_timestamp, is_append_time, header.max_timestamp, has_base, base
    )
    changed = header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=survivors)
    data = encode_batch_v2(changed, compress(attributes & CODEC_MASK, records))
    return Kept(data, BatchEnd(header.last_offset, newest, len(data)), survivors)


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


def put_keys(header: BatchHeader, batch: memoryview, offsets: OffsetMap, start: Offset) -> bool:
    """Put the keys of a data batch from offset `start` on into the map; return False if it is full before the last one.

    Raises as `BatchCleaner.clean` does.
    """
    if header.magic >= 2:
        return offsets.put_records(payload_of(header, batch), header.record_count, header.base_offset, start)
    for message in decode_messages(batch, limit=MOST_DECOMPRESSED):
        if message.key is not None and message.offset >= start:
            if offsets.is_full:
                return False
            offsets.put(message.key, message.offset)
    return True
