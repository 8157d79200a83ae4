"""Reading a log: which bytes of which file answer a question for an offset or for a time.

Source: Apache Kafka 4.3.0, LocalLog.read, LogSegment.read, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.base.units import INT32_MAX, Offset, TimestampMs
from storage.batch.batch import HEADER_V2, TimestampType, parse_header
from storage.batch.record import records_of
from storage.index.txn_index import AbortedTxn
from storage.kernel.scan import find_record
from storage.log.log_types import Fetched, TimestampOffset
from storage.reading.segment_walk import BatchPlace, batches_since
from storage.segment.segment import LogSegment
from storage.segment.segment_list import SegmentList

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_NONE: Final = TimestampMs(-1)
_EPOCH: Final = 12  # its place in a batch of magic 2


class _Place(NamedTuple):
    """A batch in its segment."""

    segment: LogSegment
    batch: BatchPlace


def locate(segments: SegmentList, offset: Offset) -> _Place | None:
    """Return the first batch whose last offset is `offset` or more, None at the end of the log."""
    for segment in segments.reaching(offset):
        batch = segment.find(offset)
        if batch is not None:
            return _Place(segment, batch)
    return None


def fetch(
    segments: SegmentList,
    start: Offset,
    max_bytes: int,
    *,
    bound: Offset | None,
    end: Offset,
    min_one: bool,
    with_aborted: bool = False,
) -> Fetched:
    """Return the range of one segment that holds the batches from `start` on, below `bound` if there is one.

    A batch that reaches over `bound` is not part of it. `end` is the log end.
    """
    found = locate(segments, start) if start < (end if bound is None else bound) else None
    if found is None:
        return Fetched(aborted=() if with_aborted else None)
    segment, batch = found
    limit = _limit(segments, segment, bound if bound is not None and bound < end else None)
    wanted = max(max_bytes, batch.size) if min_one else max_bytes
    size = max(min(limit - batch.position, wanted), 0)
    aborted = None
    if with_aborted:
        behind = segment.indexes.offsets.offset_behind(batch.position + size)
        aborted = _aborted(segments, segment, start, behind or segments.next_base(segment) or end)
    return Fetched(segment.reader(), batch.position, size, wanted < batch.size, aborted)


def _limit(segments: SegmentList, segment: LogSegment, bound: Offset | None) -> int:
    """Return up to which position of the segment may be read."""
    if bound is None:
        return segment.size
    last = locate(segments, bound)
    if last is None or segment.base_offset < last.segment.base_offset:
        return segment.size
    return last.batch.position if segment is last.segment else 0


def _aborted(segments: SegmentList, first: LogSegment, start: int, end: int) -> tuple[AbortedTxn, ...]:
    transactions: list[AbortedTxn] = []
    for segment in segments.reaching(first.base_offset):
        part = segment.indexes.transactions.collect(Offset(start), Offset(end))
        transactions += part.transactions
        if part.is_complete:
            break
    return tuple(transactions)


def newest_epoch(segments: SegmentList) -> int:
    """Return the leader epoch of the last batch that has one, -1 if none has: they never fall from batch to batch.

    Mostly the headers behind the last index entry are all that is read. Raises `BatchCorrupt` and `ReadFault`.
    """
    for segment in reversed(segments.all):
        tail = segment.indexes.offsets.last().position
        for start in {tail: None, 0: None}:
            found = [batch for batch in segment.batches(start) if batch.magic == 2]
            if found:
                return _epoch_of(segment, found[-1])
    return -1


def _epoch_of(segment: LogSegment, batch: BatchPlace) -> int:
    epoch = memoryview(bytearray(4))
    segment.reader().read_into(batch.position + _EPOCH, epoch)
    return int.from_bytes(epoch, "big", signed=True)


# ---- by time


def find_by_time(segments: SegmentList, log_start: Offset, log_end: Offset, timestamp: int) -> TimestampOffset | None:
    """Return what `Log.offset_for_time` promises."""
    if timestamp == LATEST:
        return TimestampOffset(_NONE, log_end)
    if timestamp == EARLIEST:
        return TimestampOffset(_NONE, log_start)
    if timestamp == MAX_TIMESTAMP:
        return _find_largest(segments)
    for segment in segments:
        if segment.largest_timestamp_ms() >= timestamp:
            return _search(segment, timestamp, log_start)
    return None


def _search(segment: LogSegment, timestamp: int, log_start: Offset) -> TimestampOffset | None:
    quickly = segment.find_record(timestamp, log_start, TimestampOffset)
    if quickly is not None:
        return quickly
    entry = segment.indexes.times.look_up(TimestampMs(timestamp))
    start = segment.indexes.offsets.position_for(max(entry.offset, log_start))
    for batch in batches_since(segment.reader(), start, segment.size, timestamp):
        data = _load(segment, batch)
        found = _find_plain(data, timestamp, log_start)
        if found is not None:
            return found
        for record in records_of(data):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return TimestampOffset(TimestampMs(record.timestamp), Offset(record.offset))
    return None


def _find_plain(data: memoryview, timestamp: int, log_start: int) -> TimestampOffset | None:
    """Return the first record from `timestamp` on of a batch without codec, None if only decoding can tell."""
    header = parse_header(data)
    if header.magic != 2 or header.codec or header.timestamp_type is not TimestampType.CREATE:
        return None
    payload, first = data[HEADER_V2.size : header.size], max(log_start - header.base_offset, -INT32_MAX - 1)
    found = find_record(payload, header.record_count, header.base_timestamp, timestamp, first)
    return None if found is None else TimestampOffset(TimestampMs(found[1]), Offset(header.base_offset + found[0]))


def _find_largest(segments: SegmentList) -> TimestampOffset | None:
    segment = max(segments, key=lambda segment: segment.largest().timestamp)  # the first of equals
    timestamp, offset = segment.largest()
    for batch in segment.batches(segment.indexes.offsets.position_for(offset)):
        if batch.max_timestamp == timestamp:
            return _first_of(segment, batch, timestamp)
    return None


def _first_of(segment: LogSegment, batch: BatchPlace, timestamp: int) -> TimestampOffset | None:
    if batch.magic == 0:
        return None
    for record in records_of(_load(segment, batch)):
        if record.timestamp == timestamp:
            return TimestampOffset(TimestampMs(timestamp), Offset(record.offset))
    return None


def _load(segment: LogSegment, batch: BatchPlace) -> memoryview:
    buffer = memoryview(bytearray(batch.size))
    return buffer[: segment.reader().read_into(batch.position, buffer)]
