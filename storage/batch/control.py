"""Control records: what brokers tell one another inside the log, and never show to consumers; pure.

Transaction markers, and KRaft's change of leader, snapshot frame, version and voters.
Source: Apache Kafka 4.3.0, ControlRecordType, EndTransactionMarker, ControlRecordUtils; LeaderChangeMessage.json,
SnapshotHeaderRecord.json, SnapshotFooterRecord.json, KRaftVersionRecord.json, VotersRecord.json.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar, assert_never

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.layout import Layout
from storage.base.varint import encode_uvarint, read_uvarint
from storage.batch.batch import attributes_of
from storage.batch.record import Record, encode_batch

KEY: Final = Layout(
    ("h", "version"),
    ("h", "type"),
)
END_TXN_MARKER: Final = Layout(
    ("h", "version"),
    ("i", "coordinator epoch"),
)
_UUID_BYTES: Final = 16


class ControlType(IntEnum):
    """The types of control record by their number in the key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN: Final = frozenset(map(int, ControlType))


class EndTxnMarker(NamedTuple):
    """The end of a producer's transaction: `type` is ABORT or COMMIT."""

    type: ControlType
    coordinator_epoch: int
    version: int = 0


class VoterKey(NamedTuple):
    """A voter in a change of leader; the directory's 16 bytes from version 1 on, else None."""

    voter_id: int
    directory_id: bytes | None = None


class LeaderChange(NamedTuple):
    """The first record of a leader's epoch."""

    leader_id: int
    voters: tuple[VoterKey, ...]
    granting_voters: tuple[VoterKey, ...]
    version: int = 0


class SnapshotHeader(NamedTuple):
    """The first record of a KRaft snapshot; ms of the last record that it stands for."""

    last_contained_log_timestamp: int
    version: int = 0


class SnapshotFooter(NamedTuple):
    """The last record of a KRaft snapshot."""

    version: int = 0


class KRaftVersion(NamedTuple):
    """The `kraft.version` from here on."""

    kraft_version: int
    version: int = 0


class Endpoint(NamedTuple):
    """Where a voter listens."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """One voter of the quorum: 16 bytes of directory id, and the range of `kraft.version` it supports."""

    voter_id: int
    directory_id: bytes
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int
    max_kraft_version: int


class KRaftVoters(NamedTuple):
    """The voters of the quorum from here on."""

    voters: tuple[Voter, ...]
    version: int = 0


class UnknownControl(NamedTuple):
    """A control record of a type that is not known; brokers ignore it."""

    type: int
    value: bytes | None


Control: TypeAlias = (
    EndTxnMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters | UnknownControl
)


def decode_control(key: bytes | None, value: bytes | None) -> Control:
    """Return what a record of a control batch says.

    Bytes behind a structure are ignored, as by brokers. Raises `BatchCorrupt`, and `UnsupportedFormat` for a version of
    a KRaft structure that is not known; of markers a higher version has the same beginning.
    """
    if key is None or len(key) < KEY.size:
        raise BatchCorrupt("a control record without a type")
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise BatchCorrupt(f"version {version} of a control record's key")
    if number not in _KNOWN:
        return UnknownControl(number, value)
    if value is None:
        raise BatchCorrupt("a control record without a value")
    kind = ControlType(number)
    if kind in {ControlType.ABORT, ControlType.COMMIT}:
        return decode_end_txn_marker(kind, value)
    return _decode_kraft(kind, value)


def decode_end_txn_marker(kind: ControlType, value: bytes) -> EndTxnMarker:
    """Return the marker with this value; raises `BatchCorrupt`."""
    if len(value) < END_TXN_MARKER.size:
        raise BatchCorrupt(f"a transaction marker of {len(value)} bytes")
    version, coordinator_epoch = END_TXN_MARKER.unpack_from(value)
    if version < 0:
        raise BatchCorrupt(f"version {version} of a transaction marker")
    return EndTxnMarker(kind, coordinator_epoch, version)


def encode_control(control: Control) -> tuple[bytes, bytes | None]:
    """Return key and value of a control record."""
    match control:
        case EndTxnMarker(kind, coordinator_epoch, version):
            return _key(kind), END_TXN_MARKER.pack(version, coordinator_epoch)
        case LeaderChange(leader_id, voters, granting_voters, version):
            body = _int(leader_id, 4) + _array(voters, _voter_key) + _array(granting_voters, _voter_key)
            return _key(ControlType.LEADER_CHANGE), _structure(version, body)
        case SnapshotHeader(timestamp, version):
            return _key(ControlType.SNAPSHOT_HEADER), _structure(version, _int(timestamp, 8))
        case SnapshotFooter(version):
            return _key(ControlType.SNAPSHOT_FOOTER), _structure(version, b"")
        case KRaftVersion(kraft_version, version):
            return _key(ControlType.KRAFT_VERSION), _structure(version, _int(kraft_version, 2))
        case KRaftVoters(voter_set, version):
            return _key(ControlType.KRAFT_VOTERS), _structure(version, _array(voter_set, _voter))
        case UnknownControl(number, value):
            return _key(number), value
        case _:
            assert_never(control)


def encode_control_batch(
    controls: Sequence[Control],
    *,
    base_offset: int,
    timestamp: int,
    leader_epoch: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """Return a control batch with these records; one with a producer is transactional, as its markers are."""
    records = [
        Record(base_offset + number, timestamp, key=key, value=value)
        for number, (key, value) in enumerate(map(encode_control, controls))
    ]
    return encode_batch(
        records,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        flags=attributes_of(is_control=True, is_transactional=producer_id >= 0),
    )


def _decode_kraft(kind: ControlType, value: bytes) -> Control:
    data = _Structure(value)
    version = data.number(2)
    if version < 0:
        raise BatchCorrupt(f"version {version} of control record {kind.name}")
    if version > (1 if kind is ControlType.LEADER_CHANGE else 0):
        raise UnsupportedFormat(f"version {version} of control record {kind.name}")
    match kind:
        case ControlType.LEADER_CHANGE:
            read = data.voter_key if version else data.voter_key_v0
            control: Control = LeaderChange(data.number(4), data.array(read), data.array(read), version)
        case ControlType.SNAPSHOT_HEADER:
            control = SnapshotHeader(data.number(8), version)
        case ControlType.SNAPSHOT_FOOTER:
            control = SnapshotFooter(version)
        case ControlType.KRAFT_VERSION:
            control = KRaftVersion(data.number(2), version)
        case _:
            control = KRaftVoters(data.array(data.voter), version)
    data.skip_tags()
    return control


Item = TypeVar("Item")


class _Structure:
    """Reads the fields of a structure in Kafka's flexible encoding, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if not 0 <= size <= len(self._data) - self._position:
            raise BatchCorrupt(f"a control record ends {end - len(self._data)} bytes before its last field")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def uvarint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def text(self) -> str:
        return self.take(self.uvarint() - 1).decode("utf-8", "surrogateescape")

    def array(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        count = self.uvarint() - 1
        if not 0 <= count <= len(self._data) - self._position:
            raise BatchCorrupt(f"a list of {count} in a control record")
        return tuple(read() for _ in range(count))

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def voter_key_v0(self) -> VoterKey:
        voter = VoterKey(self.number(4))
        self.skip_tags()
        return voter

    def voter_key(self) -> VoterKey:
        voter = VoterKey(self.number(4), self.take(_UUID_BYTES))
        self.skip_tags()
        return voter

    def endpoint(self) -> Endpoint:
        endpoint = Endpoint(self.text(), self.text(), self.number(2) & 0xFFFF)
        self.skip_tags()
        return endpoint

    def voter(self) -> Voter:
        voter_id, directory_id, endpoints = self.number(4), self.take(_UUID_BYTES), self.array(self.endpoint)
        least, most = self.number(2), self.number(2)
        self.skip_tags()  # of the range of versions
        self.skip_tags()
        return Voter(voter_id, directory_id, endpoints, least, most)


_NO_TAGS: Final = b"\0"


def _key(kind: int) -> bytes:
    return KEY.pack(0, kind)


def _structure(version: int, body: bytes) -> bytes:
    return _int(version, 2) + body + _NO_TAGS


def _int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return encode_uvarint(len(data) + 1) + data


def _array(items: Sequence[Item], encode: Callable[[Item], bytes]) -> bytes:
    return encode_uvarint(len(items) + 1) + b"".join(encode(item) for item in items)


def _voter_key(voter: VoterKey) -> bytes:
    return _int(voter.voter_id, 4) + (voter.directory_id or b"") + _NO_TAGS


def _endpoint(endpoint: Endpoint) -> bytes:
    return _text(endpoint.name) + _text(endpoint.host) + endpoint.port.to_bytes(2, "big") + _NO_TAGS


def _voter(voter: Voter) -> bytes:
    versions = _int(voter.min_kraft_version, 2) + _int(voter.max_kraft_version, 2) + _NO_TAGS
    return _int(voter.voter_id, 4) + voter.directory_id + _array(voter.endpoints, _endpoint) + versions + _NO_TAGS
