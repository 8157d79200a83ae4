"""The records of a client's batch: judged before they are appended, and encoded with another codec.

The kernel checks all that a broker checks, without an object for a record: format, offsets, keys, timestamps. Only
where something has to be refused are records decoded, to name the record and the reason.
Source: Apache Kafka 4.3.0, LogValidator, DefaultRecordBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, NoReturn

from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.refusals import InvalidRecord, InvalidTimestamp
from storage.base.rows import Walked
from storage.base.units import INT64_MAX
from storage.base.varint import read_varint
from storage.batch.batch import HEADER_V2, BatchHeader, TimestampType, attributes_of, encode_batch_v2
from storage.batch.record import Record, records_of
from storage.codec.compression import HELD_LIMIT, Codec, compress, decompress, decompress_stream
from storage.kernel.scan import move_records, walk_records

ENCODED_LIMIT: Final = 256 << 20
"""Bytes of keys and values, or of records, that are re-encoded at most."""
_STREAM_LIMIT: Final = 8 * HELD_LIMIT
_SHOWN: Final = 3
_LOOKED_AT: Final = 10_000
"""Records that are decoded at most to name those to be refused."""
_SIZE_BYTES: Final = 5


class Judged(NamedTuple):
    """Records that may be appended: their largest timestamp (ms, -1: none), and whether offsets are 0, 1, 2, ...

    `has_negative_time`: a timestamp below 0 other than -1, which a batch may come with, but cannot be encoded with.
    """

    largest: int
    is_dense: bool
    has_negative_time: bool


def judge_records(header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int) -> Judged:
    """Look at every record of a batch of magic 2 as a leader does at the time `now_ms`.

    Raises `InvalidRecord` for what breaks the format or lacks a key, `InvalidTimestamp`, and `UnsupportedFormat` for
    an unknown codec and beyond the limits of `storage.batch.record.records_of`.
    """
    try:
        walked = walk_batch(header, batch)
    except BatchCorrupt as fault:  # the checksum holds: it was sent like that
        raise InvalidRecord(fault.reason) from None
    if header.timestamp_type is TimestampType.LOG_APPEND:
        time = header.max_timestamp
        walked = walked._replace(least=INT64_MAX if time == -1 else time, most=max(time, -1))
    if not _has_right_times(walked, header, config, now_ms):
        refuse(header, batch, config, now_ms, InvalidTimestamp("a record has a timestamp that is out of range"))
    if config.is_compacted and walked.lacks_key:
        refuse(header, batch, config, now_ms, InvalidRecord("a record has no key, which a compacted topic needs"))
    return Judged(walked.most, walked.is_dense, has_negative_time=walked.least < 0)


def walk_batch(header: BatchHeader, batch: memoryview) -> Walked:
    """Return what all records of a batch of magic 2 are, decompressed in pieces; raises as `records_of` does."""
    payload = batch[HEADER_V2.size : header.size]
    if header.record_count == 0:  # then no reader parses the payload
        return _NOTHING
    if not header.codec:
        walked = walk_records(payload, header.record_count, base_timestamp=header.base_timestamp)
        _ensure_all(walked, header, len(payload) - walked.place)
        return walked
    return _walk_stream(header, decompress_stream(header.codec, payload, magic=2))


_NOTHING: Final = Walked(0, 0, INT64_MAX, -1, is_dense=True, lacks_key=False)


def _walk_stream(header: BatchHeader, chunks: Iterable[bytes]) -> Walked:
    """Walk what `chunks` add up to; held is no more than a record and a chunk."""
    walked, rest, size = _NOTHING, b"", 0
    for chunk in chunks:
        size += len(chunk)
        if size > _STREAM_LIMIT:
            raise UnsupportedFormat(f"decompresses to more than {_STREAM_LIMIT} bytes")
        data = rest + chunk if rest else chunk
        left = header.record_count - walked.count
        part = walk_records(data, left, first=walked.count, base_timestamp=header.base_timestamp)
        walked = Walked(
            walked.count + part.count,
            0,
            min(walked.least, part.least),
            max(walked.most, part.most),
            walked.is_dense and part.is_dense,
            walked.lacks_key or part.lacks_key,
        )
        rest = data[part.place :]
        if rest and (part.count == left or _is_whole(rest)):
            break
    _ensure_all(walked, header, len(rest))
    return walked


def _is_whole(data: bytes) -> bool:
    """Tell whether the record that `data` begins with is there, or what should be its size cannot be one.

    Raises `BatchCorrupt` and `UnsupportedFormat` for a size.
    """
    if len(data) < _SIZE_BYTES:
        return False
    size, place = read_varint(data, 0)
    if size > HELD_LIMIT:
        raise UnsupportedFormat(f"record of {size} bytes, more than {HELD_LIMIT}")
    return size <= len(data) - place


def _ensure_all(walked: Walked, header: BatchHeader, left: int) -> None:
    if walked.count < header.record_count:
        raise BatchCorrupt(f"record {walked.count} of {header.record_count} breaks the format")
    if left:
        raise BatchCorrupt(f"bytes are left behind record {header.record_count - 1}, the last one")


def _has_right_times(walked: Walked, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    claims_append_time = header.timestamp_type is TimestampType.LOG_APPEND
    if config.uses_append_time:
        return not claims_append_time
    if claims_append_time and header.max_timestamp == -1:
        return False
    is_old = walked.least < INT64_MAX and now_ms - walked.least > config.message_timestamp_before_max_ms
    return not is_old and walked.most - now_ms <= config.message_timestamp_after_max_ms


# ---- record by record


def decode(batch: memoryview) -> Iterator[Record]:
    """Yield the records of a batch with a sound checksum; raises `InvalidRecord` and `UnsupportedFormat`."""
    try:
        yield from records_of(batch)
    except BatchCorrupt as fault:
        raise InvalidRecord(fault.reason) from None


def refuse(
    header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int, otherwise: InvalidRecord | InvalidTimestamp
) -> NoReturn:
    """Raise `InvalidTimestamp` or `InvalidRecord` for a batch of which some record may not be appended.

    The message names the first of them; `otherwise` is raised where they are far behind, as a small batch may hold
    millions of records.
    """
    judge = Judge(header, config, now_ms)
    for number, record in enumerate(islice(decode(batch), _LOOKED_AT)):
        judge.see(number, record)
    judge.finish()
    raise otherwise


class Judge:
    """Notes what is wrong with the records of a batch; the first faults are named, the others counted."""

    def __init__(self, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
        self._needs_key = config.is_compacted
        self._uses_append_time, self._now = config.uses_append_time, now_ms
        self._before, self._after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        self._claims_append_time = header.timestamp_type is TimestampType.LOG_APPEND
        self._faults: list[str] = []
        self._count = 0
        self._has_bad_time = False

    def see(self, number: int, record: Record) -> None:
        """Look at the next record."""
        if self._needs_key and record.key is None:
            self._note(f"record {number} has no key, which a compacted topic needs")
        elif not self._uses_append_time and record.timestamp != -1:
            age = self._now - record.timestamp
            if age > self._before or -age > self._after:
                self._note(f"record {number} has the timestamp {record.timestamp}, the clock says {self._now}")
                self._has_bad_time = True
        elif self._claims_append_time:
            self._note(f"record {number} claims a log append time")
            self._has_bad_time = True

    def _note(self, fault: str) -> None:
        self._count += 1
        if self._count <= _SHOWN:
            self._faults.append(fault)

    def finish(self) -> None:
        """Raise what was found."""
        if self._count:
            more = f"; and {self._count - _SHOWN} more" if self._count > _SHOWN else ""
            text = "; ".join(self._faults) + more
            raise InvalidTimestamp(text) if self._has_bad_time else InvalidRecord(text)


# ---- another codec


def level_of(codec: int, config: LogConfig) -> int | None:
    """Return the level at which a topic wants this codec, None for that of the codec itself."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return levels.get(Codec(codec))


def with_codec(header: BatchHeader, batch: memoryview, target: int, config: LogConfig) -> bytes:
    """Return a batch that was judged, with dense offsets, with the codec `target`: as CreateTime, offset 0, no epoch.

    The base timestamp becomes that of the first record, the largest that of the records. Raises `UnsupportedFormat` for
    records of more than `ENCODED_LIMIT` bytes.
    """
    payload = decompress(header.codec, batch[HEADER_V2.size : header.size], magic=2, limit=ENCODED_LIMIT)
    is_fixed = header.timestamp_type is TimestampType.LOG_APPEND
    flags, has_base = b"\1" * header.record_count, False
    moved, base, largest = move_records(
        payload, flags, header.record_count, header.base_timestamp, is_fixed, header.max_timestamp, has_base, 0
    )
    made = BatchHeader(
        0,
        attributes=attributes_of(target) | attributes_of(is_transactional=header.is_transactional),
        last_offset_delta=header.record_count - 1,
        base_timestamp=base,
        max_timestamp=max(largest, -1),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    return encode_batch_v2(made, compress(target, moved, level=level_of(target, config)))
