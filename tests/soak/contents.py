"""What the soak writes: every record follows from its number, so that a reader needs no copy of what was sent."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, Final

from storage.base.units import TopicPartition
from storage.batch.batch import attributes_of
from storage.batch.record import Record, encode_batch

NO_TXN: Final = -1
_TAG: Final = 8
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the soak. `rule` says what may let records go: size, time, asked, compaction."""

    name: str
    partitions: int
    rule: str
    settings: dict[str, str]


def _settings(**more: str) -> dict[str, str]:
    base = {
        "internal.segment.bytes": "8192", "index.interval.bytes": "512", "file.delete.delay.ms": "1000",
        "retention.ms": "-1", "retention.bytes": "-1",
    }  # fmt: skip
    return base | {name.replace("_", "."): value for name, value in more.items()}


COMPACT: Final = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "1000",
    "segment.ms": "3000",
}  # fmt: skip
TOPICS: Final = (
    Topic("asked", 2, "asked", _settings()),
    Topic("sized", 1, "size", _settings(retention_bytes="100000")),
    Topic("timed", 1, "time", _settings(retention_ms="4000", segment_ms="1500")),
    Topic("txns", 1, "size", _settings(retention_bytes="100000")),
    Topic("keys", 1, "compaction", _settings() | COMPACT),
    Topic("txkeys", 1, "compaction", _settings() | COMPACT),
)
FLEETING: Final = ("fleeting-a", "fleeting-b")
"""Topics that are made and deleted over and over."""
RULES: Final = {topic.name: topic.rule for topic in TOPICS} | dict.fromkeys(FLEETING, "asked")
PRODUCERS: Final = {
    1: "sized-0", 2: "sized-0", 3: "timed-0", 4: "asked-0", 5: "keys-0", 6: "keys-0",
    20: "txns-0", 21: "txns-0", 22: "txkeys-0", 23: "txkeys-0",
}  # fmt: skip
TRANSACTIONAL: Final = 20
"""Producers from this number on."""


@dataclass(frozen=True, slots=True)
class Send:
    """A batch as it is sent: `keys` is empty where records have none, `nulls` are its records without a value."""

    partition: str
    first: int
    count: int
    timestamp: int
    codec: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    txn: int = NO_TXN
    keys: tuple[int, ...] = ()
    nulls: tuple[int, ...] = ()

    def key(self, number: int) -> bytes | None:
        return b"key-%04d" % self.keys[number - self.first] if self.keys else None

    def value(self, number: int) -> bytes | None:
        return None if number in self.nulls else value_of(number)

    def numbers(self) -> range:
        return range(self.first, self.first + self.count)

    def encoded(self) -> bytes:
        """Return the batch, the same bytes each time. A tombstone tells its number in a header."""
        records = [
            Record(n, self.timestamp, key=self.key(self.first + n), value=self.value(self.first + n),
                   headers=(("number", _numbered(self.first + n)),))
            for n in range(self.count)
        ]  # fmt: skip
        return encode_batch(
            records, codec=self.codec, producer_id=self.producer_id, producer_epoch=self.producer_epoch,
            base_sequence=self.sequence, flags=attributes_of(is_transactional=self.txn != NO_TXN),
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Send:
        return cls(**plain | {name: tuple(plain[name]) for name in ("keys", "nulls")})


def _numbered(number: int) -> bytes:
    return number.to_bytes(8, "big")


def number_of(record: Record) -> int:
    """Return the number of a record."""
    return int.from_bytes(dict(record.headers)["number"] or b"", "big")


def value_of(number: int) -> bytes:
    """Return the value of the record with this number."""
    digest = hashlib.blake2b(_numbered(number), digest_size=64).digest()
    return (digest * 4)[: _TAG + digest[0] % _LONGEST]


def is_sound(record: Record) -> bool:
    """Tell whether a record has the value of its number, or none."""
    return record.value is None or record.value == value_of(number_of(record))


def partition_of(text: str) -> TopicPartition:
    """Return the partition with this name."""
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
