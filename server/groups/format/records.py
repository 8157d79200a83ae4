"""The records of `__consumer_offsets`: keys and values of offset commits and of classic groups, read and written.

Pure. Read are all versions that brokers wrote: keys 0 to 2, values 0 to 4. Written are those that a broker of 4.3.0
writes: offset key 1 with value 4, or 1 where an old client names a retention; group key 2 with value 3. Keys of other
versions belong to groups of newer protocols: their raw bytes are kept, so that they can be told apart and removed.
Source: Apache Kafka 4.3.0, OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue,
CoordinatorRecordType, GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.varint import encode_uvarint, read_uvarint

NO_TOPIC_ID: Final = bytes(16)
"""What stands for no topic id."""

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_NEWEST_VALUE: Final = 4
_FLEXIBLE: Final = 4
_TOPIC_ID_TAG: Final = 0
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class Protocol(Enum):
    """What kind of group a record belongs to; the values are Kafka's names of group types."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"


_NEWER_KEYS: Final = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), Protocol.CONSUMER),
    **dict.fromkeys((9, 10, 11, 12, 13, 14, 15), Protocol.SHARE),
    **dict.fromkeys((17, 18, 19, 20, 21, 22, 23), Protocol.STREAMS),
}
_MEMBER_KEYS: Final = frozenset((5, 10, 19))


class OffsetKey(NamedTuple):
    """The key of a committed offset: which group's, of which partition."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of a classic group's state."""

    group: str


class NewerKey(NamedTuple):
    """The key of a record that belongs to a group of a newer protocol, with the bytes it was made of."""

    version: int
    group: str
    raw: bytes

    @property
    def protocol(self) -> Protocol:
        """The protocol of that group; `UNKNOWN` for keys of brokers newer than 4.3."""
        return _NEWER_KEYS.get(self.version, Protocol.UNKNOWN)

    @property
    def is_member(self) -> bool:
        """Whether the record stands for a member of the group."""
        return self.version in _MEMBER_KEYS


Key: TypeAlias = OffsetKey | GroupKey | NewerKey


class OffsetValue(NamedTuple):
    """A committed offset; times in ms. -1 stands for no leader epoch and for no time of expiry."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    topic_id: bytes = NO_TOPIC_ID


class MemberValue(NamedTuple):
    """A member of a classic group as it is stored; timeouts in ms, -1 where version 0 had no rebalance timeout."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    instance_id: str | None = None
    subscription: bytes = b""
    assignment: bytes = b""


class GroupValue(NamedTuple):
    """The state of a classic group as it is stored; `state_timestamp` in ms, -1 where it is not known."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state_timestamp: int = -1
    members: tuple[MemberValue, ...] = ()


class _Reader:
    """Takes fields off the front of some bytes; `BatchCorrupt` where there are too few."""

    def __init__(self, data: bytes, position: int, *, flexible: bool = False) -> None:
        self.data, self.position, self.flexible = data, position, flexible

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise BatchCorrupt(f"a field of {size} bytes, {len(self.data) - self.position} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def int16(self) -> int:
        return int(_SHORT.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self.take(8))[0])

    def varint(self) -> int:
        value, self.position = read_uvarint(self.data, self.position)
        return value

    def nullable_text(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.int16()
        return None if size < 0 else self.take(size).decode("utf-8", "surrogateescape")

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise BatchCorrupt("a text that must be there is missing")
        return text

    def blob(self) -> bytes:
        return self.take(self.count())

    def count(self) -> int:
        count = self.varint() - 1 if self.flexible else self.int32()
        if not 0 <= count <= len(self.data) - self.position:
            raise BatchCorrupt(f"{count} entries, {len(self.data) - self.position} bytes are left")
        return count

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields, of which versions that are not flexible have none."""
        if not self.flexible:
            return {}
        values = {}
        for _ in range(self.varint()):
            tag = self.varint()
            values[tag] = self.take(self.varint())
        return values


def decode_key(data: bytes | None) -> Key:
    """Return what a record of `__consumer_offsets` is about. Raises `BatchCorrupt` for bytes that are no key."""
    reader = _Reader(data or b"", 0)
    version = reader.int16()
    group = reader.text()
    if version in _OFFSET_KEYS:
        return OffsetKey(group, reader.text(), reader.int32())
    if version == _GROUP_KEY:
        return GroupKey(group)
    return NewerKey(version, group, bytes(reader.data))


def encode_key(key: Key) -> bytes:
    """Return the bytes of a key, in the version that a broker of 4.3.0 writes."""
    match key:
        case OffsetKey(group, topic, partition):
            return _SHORT.pack(1) + _text(group) + _text(topic) + _INT.pack(partition)
        case GroupKey(group):
            return _SHORT.pack(_GROUP_KEY) + _text(group)
        case NewerKey():
            return key.raw


def decode_offset(data: bytes) -> OffsetValue:
    """Return a committed offset. Raises `UnsupportedFormat` for a newer version, `BatchCorrupt` for nonsense."""
    version, reader = _value_of(data)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.text()
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG, NO_TOPIC_ID)
    if len(topic_id) != len(NO_TOPIC_ID):
        raise BatchCorrupt(f"a topic id of {len(topic_id)} bytes")
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)


def encode_offset(value: OffsetValue) -> bytes:
    """Return the bytes of a committed offset: version 4, or 1 with a time of expiry, which 4 cannot hold."""
    if value.expire_timestamp != -1:
        times = _LONG.pack(value.commit_timestamp) + _LONG.pack(value.expire_timestamp)
        return _SHORT.pack(1) + _LONG.pack(value.offset) + _text(value.metadata) + times
    text = value.metadata.encode("utf-8", "surrogateescape")
    tags = b"\0" if value.topic_id == NO_TOPIC_ID else b"\1\0\x10" + value.topic_id
    return b"".join((
        _SHORT.pack(4),
        _LONG.pack(value.offset),
        _INT.pack(value.leader_epoch),
        encode_uvarint(len(text) + 1),
        text,
        _LONG.pack(value.commit_timestamp),
        tags,
    ))  # fmt: skip


def decode_group(data: bytes) -> GroupValue:
    """Return the state of a classic group. Raises as `decode_offset` does."""
    version, reader = _value_of(data)
    protocol_type, generation = reader.text(), reader.int32()
    protocol, leader = reader.nullable_text(), reader.nullable_text()
    state_timestamp = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupValue(protocol_type, generation, protocol, leader, state_timestamp, members)


def _read_member(reader: _Reader, version: int) -> MemberValue:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout = reader.int32() if version >= 1 else -1
    session_timeout = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    return MemberValue(
        member_id, client_id, client_host, session_timeout, rebalance_timeout, instance_id, subscription, assignment
    )


def encode_group(value: GroupValue) -> bytes:
    """Return the bytes of a classic group's state, in version 3."""
    head = (
        _SHORT.pack(3),
        _text(value.protocol_type),
        _INT.pack(value.generation),
        _text(value.protocol),
        _text(value.leader),
        _LONG.pack(value.state_timestamp),
        _INT.pack(len(value.members)),
    )
    return b"".join(head) + b"".join(map(_encode_member, value.members))


def _encode_member(member: MemberValue) -> bytes:
    return b"".join((
        _text(member.member_id),
        _text(member.instance_id),
        _text(member.client_id),
        _text(member.client_host),
        _INT.pack(member.rebalance_timeout_ms),
        _INT.pack(member.session_timeout_ms),
        _INT.pack(len(member.subscription)),
        member.subscription,
        _INT.pack(len(member.assignment)),
        member.assignment,
    ))  # fmt: skip


def partition_of(group: str, partitions: int) -> int:
    """Return which partition of `__consumer_offsets` a group, or of `__transaction_state` an id, belongs to.

    It is Java's hash of the text, over its UTF-16 units, without its sign. Source: Apache Kafka 4.3.0, Utils.abs.
    """
    units = group.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _value_of(data: bytes) -> tuple[int, _Reader]:
    reader = _Reader(data, 0)
    version = reader.int16()
    if not 0 <= version <= _NEWEST_VALUE:
        raise UnsupportedFormat(f"a value of version {version} in __consumer_offsets")
    reader.flexible = version >= _FLEXIBLE
    return version, reader


def _text(text: str | None) -> bytes:
    if text is None:
        return _SHORT.pack(-1)
    data = text.encode("utf-8", "surrogateescape")
    return _SHORT.pack(len(data)) + data
