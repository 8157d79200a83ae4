"""From the bytes of an append to what may be written: checked, and for a leader with its offsets, epoch and times set.

Pure. What depends on the log's own state, producers and segments, is left to `storage.log.log`.
Source: Apache Kafka 4.3.0, UnifiedLog.analyzeAndValidateRecords, LogValidator.

A client's header is not believed: `storage.append.append_records` looks at every record, as a broker does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from storage.append.append_records import ENCODED_LIMIT, Judge, decode, judge_records, level_of, with_codec
from storage.base.config import PRODUCER, LogConfig
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.refusals import InvalidRecord, InvalidTimestamp, OffsetsOutOfOrder, RecordTooLarge
from storage.base.rows import CONTROL_NONE, BatchRows, ProducerEvent, Stop
from storage.batch.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
    TimestampType,
    attributes_of,
    checksum,
    parse_header,
    reseal,
    set_offsets_and_epoch,
)
from storage.batch.record import Record, encode_batch
from storage.codec.compression import Codec
from storage.kernel.scan import scan_batches
from storage.producers.producers import Origin, events_of
from storage.segment.segment_types import BatchEnd

_CODECS: Final = {"uncompressed": 0, **{codec.name.lower(): codec.value for codec in Codec if codec}}
_LEAST_SIZE_FIELD: Final = 14
_RECORD_BYTES: Final = 256
"""What a record that is re-encoded takes besides its key and value: seven bytes can claim to be one."""


@dataclass(slots=True)
class Checked:
    """An append that may be written: its bytes, and what the log must know of them."""

    data: bytes | bytearray | memoryview
    ends: list[BatchEnd] = field(default_factory=list)
    events: list[ProducerEvent] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, base offset) where the epoch changes; epoch -1 for batches of magic 0 and 1, which have none."""
    first_offset: int = -1
    """Of the first record; in a follower's append of magic 0 or 1 the last offset of the first batch."""
    last_offset: int = -1
    max_timestamp: int = -1
    append_time_ms: int = -1
    """The time that all records were given; -1 where they keep theirs."""
    is_first_known: bool = True
    size: int = 0


class Leading(NamedTuple):
    """What a leader puts into a batch, and by which rules it judges it."""

    config: LogConfig
    next_offset: int
    leader_epoch: int
    now_ms: int
    origin: Origin = Origin.CLIENT


# ---- leader


def check_leader_append(data: memoryview, leading: Leading) -> Checked | None:
    """Return the append as the leader writes it, in a copy; None if `data` holds no whole batch.

    Bytes behind the last whole batch are left out. Raises `BatchCorrupt`, `RecordTooLarge`, `InvalidRecord`,
    `InvalidTimestamp`, and `UnsupportedFormat` for a codec or magic that is not known.
    """
    batches = [(header, batch) for header, batch in _whole_batches(data) if _analysed(header, batch, leading)]
    if not batches:
        return None
    first = batches[0][0]
    codec = next((header.codec for header, _ in reversed(batches) if header.codec), 0)
    if len(batches) > 1 and (first.magic == 2 or codec):
        raise InvalidRecord(f"{len(batches)} batches in one append; one is allowed")
    for header, _ in batches:
        _check_header(header, first, leading.origin)
    wanted = leading.config.compression_type
    target = codec if wanted == PRODUCER else _CODECS[wanted]
    if first.magic == 2 and (codec == target or (codec == 0 and first.is_control)):
        return _in_place(*batches[0], leading)
    return _re_encoded(batches, target, leading)


def _whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    position = 0
    while len(data) - position >= LOG_OVERHEAD:
        size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if size < _LEAST_SIZE_FIELD:
            raise BatchCorrupt(f"size field {size}", position=position)
        if size > len(data) - position - LOG_OVERHEAD:
            return
        batch = data[position : position + size + LOG_OVERHEAD]
        yield parse_header(batch), batch
        position += len(batch)


def _analysed(header: BatchHeader, batch: memoryview, leading: Leading) -> bool:
    if header.magic == 2 and header.base_offset and leading.origin is Origin.CLIENT:
        raise InvalidRecord(f"base offset {header.base_offset} in a batch from a client; 0 is what it has to be")
    if header.size > leading.config.max_message_bytes:
        raise _too_large(header.size, leading.config)
    if (found := checksum(batch)) != header.crc:
        raise BatchCorrupt(f"checksum {header.crc:08x} is stored, {found:08x} is that of the bytes")
    if header.magic > 2:
        raise UnsupportedFormat(f"magic {header.magic}")
    if header.codec > Codec.ZSTD:
        raise UnsupportedFormat(f"codec {header.codec}")
    return True


def _too_large(size: int, config: LogConfig) -> RecordTooLarge:
    return RecordTooLarge(f"batch of {size} bytes, max.message.bytes is {config.max_message_bytes}")


def _check_header(header: BatchHeader, first: BatchHeader, origin: Origin) -> None:
    if header.magic != first.magic:
        raise InvalidRecord(f"magic {header.magic} and {first.magic} in one append")
    if origin is not Origin.CLIENT or header.magic < 2:
        return
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records, last offset delta {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecord("control batch from a client")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"sequence number {header.base_sequence} of producer {header.producer_id}")


def _in_place(header: BatchHeader, batch: memoryview, leading: Leading) -> Checked:
    """Check a batch whose payload stays as it is, and set what the leader sets in its header."""
    facts = judge_records(header, batch, leading.config, leading.now_ms)
    if header.codec and not facts.is_dense:  # a broker sets out to re-encode them, and fails
        raise InvalidRecord("offsets that are not 0, 1, 2 and so on in a compressed batch")
    base_offset = leading.next_offset + header.record_count - 1 - header.last_offset_delta
    copy = bytearray(batch)
    view = memoryview(copy)
    set_offsets_and_epoch(view, base_offset, leading.leader_epoch)
    is_append_time = leading.config.uses_append_time
    largest = leading.now_ms if is_append_time else facts.largest
    _set_times(view, header, largest, LOG_APPEND_TIME_BIT if is_append_time else 0)
    return _checked_leader(copy, header, base_offset, largest, leading)


def _set_times(view: memoryview, header: BatchHeader, timestamp: int, type_bit: int) -> None:
    """Store type and largest timestamp where they differ, with a new checksum; unused attributes are cleared."""
    if header.max_timestamp == timestamp and header.attributes & LOG_APPEND_TIME_BIT == type_bit:
        return
    attributes = header.attributes & 0x77 | type_bit
    view[21:23] = attributes.to_bytes(2, "big")
    view[35:43] = timestamp.to_bytes(8, "big", signed=True)
    reseal(view)


def _checked_leader(copy: bytearray, header: BatchHeader, base_offset: int, largest: int, leading: Leading) -> Checked:
    """Return what the log must know of one batch, `copy`, as it will be written.

    Of `header` offset, epoch and times may be those that the client sent.
    """
    last = base_offset + header.last_offset_delta
    made = Checked(
        copy,
        [BatchEnd(last, largest, header.size)],
        epochs=[(leading.leader_epoch, base_offset)],
        first_offset=leading.next_offset,
        last_offset=last,
        max_timestamp=largest,
        append_time_ms=leading.now_ms if leading.config.uses_append_time else -1,
        size=header.size,
    )
    if header.producer_id >= 0:
        control = CONTROL_NONE
        if header.attributes & CONTROL_BIT:
            rows = BatchRows(1)
            scan_batches(memoryview(copy), rows)
            control = rows.control[0]
        made.events.append(
            ProducerEvent(
                base_offset, last, header.attributes, largest,
                header.producer_id, header.producer_epoch, header.base_sequence, control,
            )
        )  # fmt: skip
    return made


# ---- re-encoded


def _re_encoded(batches: Sequence[tuple[BatchHeader, memoryview]], target: int, leading: Leading) -> Checked:
    """Return all records in one batch of magic 2 with the codec `target`, with dense offsets."""
    header, batch = batches[0]
    config = leading.config
    is_dense = False
    _ensure_can_be_encoded(header)
    if header.magic == 2:
        found = judge_records(header, batch, config, leading.now_ms)
        if found.has_negative_time:
            raise InvalidTimestamp("a negative timestamp")
        is_dense = found.is_dense
    copy = bytearray(with_codec(header, batch, target, config) if is_dense else _rewritten(batches, target, leading))
    view = memoryview(copy)
    if config.uses_append_time:
        _set_times(view, parse_header(view), leading.now_ms, LOG_APPEND_TIME_BIT)
    if len(copy) > config.max_message_bytes:
        raise _too_large(len(copy), config)
    set_offsets_and_epoch(view, leading.next_offset, leading.leader_epoch)
    made = parse_header(view)
    return _checked_leader(copy, made, made.base_offset, made.max_timestamp, leading)


def _ensure_can_be_encoded(header: BatchHeader) -> None:
    """Refuse what a broker's encoder refuses, which takes more than it would give."""
    if header.producer_id == -1 and header.is_transactional:
        raise InvalidRecord("transactional records without a producer")
    if header.producer_id != -1 and (header.producer_epoch == -1 or header.base_sequence < 0):
        raise InvalidRecord(f"producer {header.producer_id} without an epoch or a sequence number")


def _rewritten(batches: Iterable[tuple[BatchHeader, memoryview]], target: int, leading: Leading) -> bytes:
    """Return the records of batches of magic 0 or 1, or of one whose offsets are not dense, record by record."""
    records: list[Record] = []
    first, size = None, 0
    for header, batch in batches:
        first = first or header
        judge = Judge(header, leading.config, leading.now_ms)
        for number, record in enumerate(decode(batch)):
            judge.see(number, record)
            size += _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
            if size > ENCODED_LIMIT:
                raise UnsupportedFormat(f"records that take more than {ENCODED_LIMIT} bytes to be re-encoded")
            records.append(record._replace(offset=len(records), timestamp_type=TimestampType.CREATE))
        judge.finish()
    if first is None or not records:
        raise InvalidRecord("no record to be re-encoded")
    return encode_batch(
        records,
        codec=target,
        level=level_of(target, leading.config),
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        flags=attributes_of(is_transactional=first.is_transactional),
    )


# ---- follower


def check_follower_append(data: memoryview, rows: BatchRows, leader_epoch: int) -> Checked | None:
    """Return what a follower writes of `data`: all whole batches as they are; None if there is none.

    It ends before the first batch of an epoch above `leader_epoch`, as what a deposed leader never had. Raises
    `BatchCorrupt`, `OffsetsOutOfOrder`, `InvalidRecord` for a negative epoch, and `UnsupportedFormat`.
    """
    made = Checked(data)
    position = next_offset = 0
    stop = Stop.ROWS_FULL
    while stop is Stop.ROWS_FULL:
        done = scan_batches(data[position:], rows, position=position, next_offset=next_offset)
        stop = done.stop
        if done.count:
            if _take_rows(made, rows, done.count, leader_epoch) < done.count:
                break
            next_offset = made.last_offset + 1
        position += done.size
    else:
        _check_stop(stop, position)
    if not made.ends:
        return None
    made.data = data[: made.size]
    return made


def _check_stop(stop: Stop, position: int) -> None:
    match stop:
        case Stop.END | Stop.NEED_MORE:
            return
        case Stop.BAD_ORDER:
            raise OffsetsOutOfOrder(f"offsets of the batch at {position} of the append do not follow those before")
        case Stop.UNKNOWN_MAGIC:
            raise UnsupportedFormat("magic above 2", position=position)
        case _:
            raise BatchCorrupt(stop.name, position=position)


def _take_rows(made: Checked, rows: BatchRows, count: int, leader_epoch: int) -> int:
    """Add rows to the append, up to the first of a later epoch; return how many."""
    magics = rows.magic[:count].tolist()
    epochs = rows.leader_epoch[:count].tolist()
    bases = rows.base_offset[:count].tolist()
    if max(epochs) > leader_epoch:
        count = next(row for row, epoch in enumerate(epochs) if epoch > leader_epoch)
        if not count:
            return 0
    if not made.ends:
        made.first_offset, made.is_first_known = bases[0], magics[0] == 2
    for row in range(count):
        if not made.epochs or made.epochs[-1][0] != epochs[row]:
            if epochs[row] < 0 and magics[row] == 2:
                raise InvalidRecord(f"leader epoch {epochs[row]} in the batch of offset {bases[row]}")
            made.epochs.append((epochs[row], bases[row]))
    lasts, times = rows.last_offset[:count].tolist(), rows.max_timestamp[:count].tolist()
    made.ends += map(BatchEnd, lasts, times, rows.size[:count].tolist())
    made.max_timestamp = max(made.max_timestamp, *times)
    made.last_offset = lasts[-1]
    made.size = rows.position[count - 1] + rows.size[count - 1]
    if max(rows.producer_id[:count]) >= 0:
        made.events += events_of(rows, count)
    return count
