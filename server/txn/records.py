"""The records of `__transaction_state`: a transactional id, and what is known of its transaction; read and written.

Pure. Read are both versions of the value that brokers write; written is version 1, as a broker of 4.3.0 does whose
`transaction.version` is 1. A record without a value says that the id was forgotten.
Source: Apache Kafka 4.3.0, TransactionLogKey.json, TransactionLogValue.json, TransactionLog.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.units import TopicPartition
from storage.base.varint import encode_uvarint, read_uvarint

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1

_KEY_TYPE: Final = 0
_NEWEST: Final = 1
_FLEXIBLE: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2  # the tags
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">hqhib")  # version, producer id, epoch, timeout, state
_TIMES: Final = struct.Struct(">qq")  # last update, start


class State(IntEnum):
    """The state of a transactional id, by the number in its records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name of the state, as its commands show it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and the markers are due."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Facts(NamedTuple):
    """What is known of a transactional id: one record's value.

    Times are ms, -1 for none. `previous_producer_id` is the producer id of before the change that was recorded;
    `next_producer_id` and a `client_version` of 2 come from clients of the second protocol. `last_epoch`, the epoch of
    before the last bump, is not stored: what is read has none.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id of at most 32767 bytes."""
    text = transactional_id.encode("utf-8", "surrogateescape")
    return _SHORT.pack(_KEY_TYPE) + _SHORT.pack(len(text)) + text


def decode_key(key: bytes | None) -> str | None:
    """Return the transactional id, None for a key of a type that is not known, which brokers pass over.

    Raises `BatchCorrupt`.
    """
    if key is None:
        raise BatchCorrupt("a record of transactions without a key")
    data = _Reader(key)
    if data.number(_SHORT) != _KEY_TYPE:
        return None
    return data.take(data.number(_SHORT)).decode("utf-8", "surrogateescape")


def encode_value(facts: Facts) -> bytes:
    """Return the value for these facts."""
    assert facts.state is not State.EMPTY or not facts.partitions, facts
    head = _HEAD.pack(_NEWEST, facts.producer_id, facts.epoch, facts.timeout_ms, facts.state)
    topics = b"\0" if facts.state is State.EMPTY else _encode_partitions(facts.partitions)
    tags: dict[int, bytes] = {}
    if facts.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID] = _LONG.pack(facts.previous_producer_id)
    if facts.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID] = _LONG.pack(facts.next_producer_id)
    if facts.client_version:
        tags[_CLIENT_VERSION] = _SHORT.pack(facts.client_version)
    return head + topics + _TIMES.pack(facts.updated_ms, facts.started_ms) + _encode_tags(tags)


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [encode_uvarint(len(by_topic) + 1)]
    for topic, numbers in by_topic.items():
        name = topic.encode("utf-8", "surrogateescape")
        parts += [encode_uvarint(len(name) + 1), name, encode_uvarint(len(numbers) + 1)]
        parts += [_INT.pack(number) for number in numbers]
        parts.append(b"\0")
    return b"".join(parts)


def _encode_tags(tags: Mapping[int, bytes]) -> bytes:
    parts = [encode_uvarint(len(tags))]
    for tag, value in tags.items():
        parts += [encode_uvarint(tag), encode_uvarint(len(value)), value]
    return b"".join(parts)


def decode_value(value: bytes) -> Facts:
    """Return the facts in a value of version 0 or 1.

    Raises `BatchCorrupt`, and `UnsupportedFormat` for a later version and for a state that is not known.
    """
    data = _Reader(value)
    version = data.number(_SHORT)
    if version < 0:
        raise BatchCorrupt(f"version {version} of a transaction's record")
    if version > _NEWEST:
        raise UnsupportedFormat(f"version {version} of a transaction's record; {_NEWEST} is the last one known")
    data.is_flexible = version >= _FLEXIBLE
    producer_id, epoch, timeout_ms = data.number(_LONG), data.number(_SHORT), data.number(_INT)
    number = data.take(1)[0]
    if number not in frozenset(State):
        raise UnsupportedFormat(f"state {number} of a transaction")
    partitions = data.partitions()
    updated_ms, started_ms = data.number(_LONG), data.number(_LONG)
    tags = data.tags() if data.is_flexible else {}
    return Facts(
        producer_id, epoch, timeout_ms, State(number), frozenset(partitions), updated_ms, started_ms,
        _tagged(tags, _PREVIOUS_ID, _LONG, NO_PRODUCER_ID), _tagged(tags, _NEXT_ID, _LONG, NO_PRODUCER_ID),
        _tagged(tags, _CLIENT_VERSION, _SHORT, 0),
    )  # fmt: skip


def _tagged(tags: Mapping[int, bytes], tag: int, form: struct.Struct, default: int) -> int:
    return _Reader(tags[tag]).number(form) if tag in tags else default


class _Reader:
    """Reads the fields of a record one after another, in the flexible encoding or the one before it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.is_flexible = False

    def take(self, size: int) -> bytes:
        end = self._position + size
        if not 0 <= size <= len(self._data) - self._position:
            raise BatchCorrupt(f"a record of transactions ends before a field of {size} bytes at {self._position}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, form: struct.Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def _uvarint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value

    def _count(self) -> int:
        """Return the number of items of an array, -1 for a null one; each item takes a byte at least."""
        count = self._uvarint() - 1 if self.is_flexible else self.number(_INT)
        if not -1 <= count <= len(self._data) - self._position:
            raise BatchCorrupt(f"a list of {count} in a record of transactions")
        return count

    def _text(self) -> str:
        size = self._uvarint() - 1 if self.is_flexible else self.number(_SHORT)
        return self.take(size).decode("utf-8", "surrogateescape")

    def partitions(self) -> list[TopicPartition]:
        partitions = []
        for _ in range(self._count()):
            topic = self._text()
            partitions += [TopicPartition(topic, self.number(_INT)) for _ in range(self._count())]
            if self.is_flexible:
                self.tags()
        return partitions

    def tags(self) -> dict[int, bytes]:
        values = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            values[tag] = self.take(self._uvarint())
        return values


def partition_of(transactional_id: str, partitions: int) -> int:
    """Return the number of the partition, of so many, that holds the records of an id: Java's hash of the text."""
    value = 0
    data = transactional_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    # As `Utils.abs` does: the one number without a positive counterpart counts as 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
