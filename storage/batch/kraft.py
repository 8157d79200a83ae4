"""KRaft's own log and its snapshots: the frame of a metadata record, and the order of a snapshot's batches; pure.

`<offset>-<epoch>.checkpoint` and `bootstrap.checkpoint` are batches of magic 2 in sequence, as in a `.log`.
Source: Apache Kafka 4.3.0, AbstractApiMessageSerde, RecordsSnapshotWriter, RecordsSnapshotReader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.varint import encode_uvarint, read_uvarint
from storage.batch.batch import BatchHeader, ensure_sound
from storage.batch.control import Control, KRaftVersion, KRaftVoters, SnapshotFooter, SnapshotHeader, decode_control
from storage.batch.record import records_of

FRAME_VERSION: Final = 1
"""The only one; 0 was that of a preview, which brokers refuse too."""

_FAULTS_KEPT: Final = 20


class MetadataRecord(NamedTuple):
    """What precedes the body of a metadata record: which structure it is, and in which version of its schema."""

    api_key: int
    version: int
    body: bytes


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """Return the parts of a data record's value in `__cluster_metadata` or a snapshot of it.

    Raises `BatchCorrupt`, and `UnsupportedFormat` for another version of the frame.
    """
    if value is None:
        raise BatchCorrupt("a metadata record without a value")
    frame_version, position = read_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise UnsupportedFormat(f"frame version {frame_version} of a metadata record")
    api_key, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    if api_key > 0x7FFF or version > 0x7FFF:
        raise BatchCorrupt(f"api key {api_key}, version {version} of a metadata record")
    return MetadataRecord(api_key, version, value[position:])


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Return the value of a data record."""
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.api_key) + encode_uvarint(record.version)
    return frame + record.body


@dataclass(slots=True)
class SnapshotStructure:
    """What the batches of a snapshot add up to, and in `faults` what is wrong with their order, the first 20 of it.

    `last_contained_log_timestamp` (ms) is the header's, None without one. Kafka's reader refuses a snapshot without
    its header; that the footer is missing, which is how an incomplete one looks, it does not notice.
    """

    last_contained_log_timestamp: int | None = None
    has_footer: bool = False
    kraft_version: int = 0
    voters: KRaftVoters | None = None
    record_count: int = 0
    """Data records, control records not counted."""
    next_offset: int = 0
    is_begun: bool = False
    """Whether there was any record."""
    faults: list[str] = field(default_factory=list)

    def add_fault(self, reason: str) -> None:
        """Keep `reason`, unless there are enough."""
        if len(self.faults) < _FAULTS_KEPT:
            self.faults.append(reason)


def check_snapshot(batches: Iterable[memoryview]) -> SnapshotStructure:
    """Return what the batches of a snapshot file, in their order, are, every checksum and record looked at.

    Raises `BatchCorrupt` with the position in the file, and `UnsupportedFormat`, for a batch that cannot be read.
    """
    structure = SnapshotStructure()
    position = 0
    for batch in batches:
        try:
            _add_batch(structure, batch, ensure_sound(batch))
        except BatchCorrupt as fault:
            raise BatchCorrupt(fault.reason, position=position) from None
        position += len(batch)
    if not structure.is_begun:
        structure.add_fault("it holds no record")
    elif not structure.has_footer:
        structure.add_fault("the footer is missing: it may not have been written to its end")
    return structure


def _add_batch(structure: SnapshotStructure, batch: memoryview, header: BatchHeader) -> None:
    if header.magic != 2:
        structure.add_fault(f"a batch of magic {header.magic} at offset {header.base_offset}")
    if header.base_offset != structure.next_offset:
        structure.add_fault(f"offset {header.base_offset} follows where {structure.next_offset} is due")
    structure.next_offset = header.last_offset + 1
    if structure.has_footer:
        structure.add_fault(f"a batch at offset {header.base_offset} behind the footer")
    for record in records_of(batch):
        control = decode_control(record.key, record.value) if header.is_control else None
        if isinstance(control, SnapshotHeader) == structure.is_begun:
            which = "a second snapshot header" if structure.is_begun else "a record before the snapshot header"
            structure.add_fault(f"{which} at offset {record.offset}")
        structure.is_begun = True
        if control is not None:
            _add_control(structure, control)
        else:
            decode_metadata_record(record.value)
            structure.record_count += 1


def _add_control(structure: SnapshotStructure, control: Control) -> None:
    match control:
        case SnapshotHeader(timestamp):
            structure.last_contained_log_timestamp = timestamp
        case SnapshotFooter():
            structure.has_footer = True
        case KRaftVersion(kraft_version):
            structure.kraft_version = kraft_version
        case KRaftVoters():
            structure.voters = control
        case _:
            pass  # changes of leader have no place here and do no harm
