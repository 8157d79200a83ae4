"""The header of a batch in all three formats: reading, checking, writing, and the few edits that are made in place.

Pure: bytes in, values out. What is inside a batch is known to `storage.batch.record` and `storage.batch.legacy`.
Source: Apache Kafka 4.3.0, DefaultRecordBatch, LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.layout import Layout
from storage.kernel.scan import crc32c

HEADER_V0: Final = Layout(
    ("q", "offset"),
    ("i", "remaining size"),
    ("I", "crc"),
    ("b", "magic"),
    ("b", "attributes"),
)
HEADER_V1: Final = Layout(*HEADER_V0.fields, ("q", "timestamp"))
HEADER_V2: Final = Layout(
    ("q", "base offset"),
    ("i", "remaining size"),
    ("i", "leader epoch"),
    ("b", "magic"),
    ("I", "crc"),
    ("h", "attributes"),
    ("i", "last offset delta"),
    ("q", "base timestamp"),
    ("q", "max timestamp"),
    ("q", "producer id"),
    ("h", "producer epoch"),
    ("i", "base sequence"),
    ("i", "record count"),
)

LOG_OVERHEAD: Final = 12
"""Bytes of a batch that its size field does not count: the offset and that field."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_MAGIC: Final = 16  # where the magic byte stands, in all formats
_FIRST_SUMMED: Final = (16, 16, 21)  # by magic: where the bytes under the checksum begin
_CRC: Final = (12, 12, 17)
_LEAST_SIZE_FIELD: Final = 14
_SEQUENCES: Final = 1 << 31


class TimestampType(IntEnum):
    """What the timestamps of a batch are; magic 0 has none."""

    NONE = -1
    CREATE = 0
    LOG_APPEND = 1


class BatchHeader(NamedTuple):
    """The header of one batch of any magic, with the numbers as they are stored, so -1 where that stands for none.

    Of magic 0 and 1: `base_offset` is the entry's own offset (of a wrapper: that of its last inner message), and what
    the format does not have is at its default, but `record_count` is -1. Bounds are those of the field types;
    `last_offset` can exceed int64 in a damaged header.
    """

    base_offset: int
    size: int = 0
    """Bytes of the whole batch, the first 12 included."""
    leader_epoch: int = -1
    magic: int = 2
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = -1
    """Milliseconds; with `has_delete_horizon` the time from which tombstones may go. Magic 1: the entry's timestamp."""
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0

    @property
    def last_offset(self) -> int:
        """The last offset that the batch had when it was written; compaction keeps it."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Number of the codec, 0 to 7; `storage.codec.compression.Codec` names those that exist."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction, its markers included."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether its records are Kafka's own and never shown to consumers."""
        return self.magic >= 2 and bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may drop its tombstones or marker."""
        return self.magic >= 2 and bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record as written, wrapping from 2147483647 to 0; -1 for none."""
        if self.base_sequence == -1:
            return -1
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, delta: int) -> int:
    """Return the sequence number `delta` records further on, in 0 to 2147483647."""
    return (sequence + delta) % _SEQUENCES


def attributes_of(
    codec: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE,
    *,
    is_transactional: bool = False,
    is_control: bool = False,
    has_delete_horizon: bool = False,
) -> int:
    """Return the attributes of a batch of magic 2."""
    flags = (
        (timestamp_type is TimestampType.LOG_APPEND, LOG_APPEND_TIME_BIT),
        (is_transactional, TRANSACTIONAL_BIT),
        (is_control, CONTROL_BIT),
        (has_delete_horizon, DELETE_HORIZON_BIT),
    )
    return codec & CODEC_MASK | sum(bit for is_set, bit in flags if is_set)


def parse_header(data: memoryview | bytes, position: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at byte `position` of `data`; the rest of the batch need not be there.

    A magic above 2 is read in the layout of magic 2, as brokers do; who must not guess asks `ensure_sound`. Raises
    `BatchCorrupt` if `data` ends inside the header, the size field is below what its format needs, or the magic is
    negative. Its position is None: where `data` lies in a file is known to the caller only.
    """
    if len(data) - position < _MAGIC + 1:
        raise BatchCorrupt(f"{len(data) - position} bytes are no batch header")
    magic = data[position + _MAGIC]
    if magic > 127:
        raise BatchCorrupt(f"magic {magic - 256}")
    layout = (HEADER_V0, HEADER_V1, HEADER_V2)[min(magic, 2)]
    if len(data) - position < layout.size:
        raise BatchCorrupt(f"{len(data) - position} bytes are no batch header of magic {magic}")
    fields = layout.unpack_from(data, position)
    least = HEADER_V2.size - LOG_OVERHEAD if magic >= 2 else _LEAST_SIZE_FIELD
    if fields[1] < least:
        raise BatchCorrupt(f"size field {fields[1]}, magic {magic} has {least} or more")
    size = fields[1] + LOG_OVERHEAD
    if magic >= 2:
        return BatchHeader(fields[0], size, *fields[2:])
    timestamp = fields[5] if magic else -1
    return BatchHeader(
        fields[0], size, crc=fields[2], magic=magic, attributes=fields[4],
        base_timestamp=timestamp, max_timestamp=timestamp, record_count=-1,
    )  # fmt: skip


def split_batches(data: memoryview) -> Iterator[memoryview]:
    """Yield each batch of `data`, one after another, by their size fields alone.

    Raises `BatchCorrupt` with the position in `data` where a header breaks its format or the data ends in a batch.
    """
    position = 0
    while position < len(data):
        try:
            size = parse_header(data, position).size
        except BatchCorrupt as fault:
            raise BatchCorrupt(fault.reason, position=position) from None
        if size > len(data) - position:
            reason = f"batch of {size} bytes, {len(data) - position} are left"
            raise BatchCorrupt(reason, position=position)
        yield data[position : position + size]
        position += size


def checksum(batch: memoryview) -> int:
    """Return the checksum that the bytes of a whole batch call for: CRC-32C from magic 2 on, CRC-32 before.

    It covers neither the base offset nor the size field, and in magic 2 neither the leader epoch nor the magic itself.
    """
    if 2 <= batch[_MAGIC] < 128:
        return crc32c(batch[_FIRST_SUMMED[2] :])
    return zlib.crc32(batch[_FIRST_SUMMED[0] :])


def ensure_sound(batch: memoryview) -> BatchHeader:
    """Return the header of a whole batch if size, checksum and magic hold.

    Raises `BatchCorrupt`; `UnsupportedFormat` for a magic above 2 with the checksum of magic 2: a newer broker's.
    """
    header = parse_header(batch)
    if header.size != len(batch):
        raise BatchCorrupt(f"size field says {header.size} bytes, there are {len(batch)}")
    if (found := checksum(batch)) != header.crc:
        raise BatchCorrupt(f"checksum {header.crc:08x} is stored, {found:08x} is that of the bytes")
    if header.magic > 2:
        raise UnsupportedFormat(f"magic {header.magic}")
    return header


def set_offsets_and_epoch(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch of magic 2 its place in the log, in place; both lie outside the checksum.

    Raises `UnsupportedFormat` for another magic: there offsets would have to be moved inside a wrapper, and epochs
    do not exist.
    """
    if batch[_MAGIC] != 2:
        raise UnsupportedFormat(f"magic {batch[_MAGIC]} has no leader epoch")
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    batch[12:16] = leader_epoch.to_bytes(4, "big", signed=True)


def set_log_append_time(batch: memoryview, timestamp: int) -> None:
    """Make `timestamp` (ms) that of all records, in place, and sum the batch again; the records are not touched.

    In magic 1 it is set in the entry alone: readers give the wrapper's to the inner messages. Raises
    `UnsupportedFormat` for magic 0, which has no timestamps.
    """
    magic = batch[_MAGIC]
    if magic not in {1, 2}:
        raise UnsupportedFormat(f"magic {magic} has no log append time")
    attributes, place = (17, 18) if magic == 1 else (22, 35)
    batch[attributes] |= LOG_APPEND_TIME_BIT
    batch[place : place + 8] = timestamp.to_bytes(8, "big", signed=True)
    reseal(batch)


def reseal(batch: memoryview) -> None:
    """Store the checksum that the bytes call for."""
    place = _CRC[min(batch[_MAGIC], 2)]
    batch[place : place + 4] = checksum(batch).to_bytes(4, "big")


def encode_batch_v2(header: BatchHeader, payload: bytes) -> bytes:
    """Return the batch of magic 2 with the fields of `header` and these records, compressed as its attributes say.

    Size, magic and checksum of `header` are not used but computed.
    """
    size = HEADER_V2.size + len(payload) - LOG_OVERHEAD
    fields = header._replace(size=size, magic=2, crc=0)
    batch = bytearray(HEADER_V2.pack(*fields) + payload)
    reseal(memoryview(batch))
    return bytes(batch)


def encode_empty_batch(header: BatchHeader) -> bytes:
    """Return what compaction keeps of a batch without a record left: its 61 bytes of header.

    Offsets, producer, sequence, epoch, flags and max timestamp stay; codec, delete horizon and base timestamp go.
    """
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return encode_batch_v2(header._replace(attributes=attributes, base_timestamp=-1, record_count=0), b"")
