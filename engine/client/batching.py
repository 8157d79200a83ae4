"""Gathers records into batches, one open batch for each partition, and says which partition a record goes to.

What a producer does, as far as it matters on one machine: keys by the hash of the Java client, records without a key to
one partition until its batch is sent, batches sent when they are large or old enough.
Source: Apache Kafka 4.3.0, KafkaProducer.partition, BuiltInPartitioner, RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from storage.batch.murmur2 import partition_for_key
from storage.batch.record import Header, Record

BATCH_BYTES: Final = 16_384
"""`batch.size` of the Java client."""
LINGER_MS: Final = 5
"""`linger.ms` of the Java client."""
_RECORD_OVERHEAD: Final = 21  # more than size, attributes, deltas and lengths mostly take
_HEADER_OVERHEAD: Final = 6


class NewRecord(NamedTuple):
    """A record without an offset yet. `source`: where it came from, for the report of what was refused."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    source: int = 0

    @property
    def size(self) -> int:
        """About the bytes it takes in a batch, before compression."""
        headers = sum(_HEADER_OVERHEAD + len(name) + len(value or b"") for name, value in self.headers)
        return _RECORD_OVERHEAD + len(self.key or b"") + len(self.value or b"") + headers


class Keyless(Protocol):
    """Chooses partitions for records without a key."""

    def partition(self) -> int:
        """Return the partition of the next record."""

    def sent(self, partition: int) -> None:
        """Take note that the batch of a partition is complete."""


class Sticky:
    """Stays with one partition until its batch is complete, then goes to another one, which `choose` picks.

    `choose` returns a number from 0 up to below the one it is given.
    """

    def __init__(self, partitions: int, choose: Callable[[int], int]) -> None:
        self._partitions, self._choose = partitions, choose
        self._current = choose(partitions)

    def partition(self) -> int:
        return self._current

    def sent(self, partition: int) -> None:
        if partition == self._current and self._partitions > 1:
            self._current = (partition + 1 + self._choose(self._partitions - 1)) % self._partitions


class RoundRobin:
    """Goes to the next partition with every record."""

    def __init__(self, partitions: int) -> None:
        self._partitions, self._next = partitions, 0

    def partition(self) -> int:
        chosen, self._next = self._next, (self._next + 1) % self._partitions
        return chosen

    def sent(self, partition: int) -> None: ...


@dataclass(slots=True)
class _Open:
    since_ms: int
    records: list[NewRecord] = field(default_factory=list)
    size: int = 0


class Batcher:
    """Gathers records and hands complete batches to `send`, in order within a partition.

    A batch is complete when the next record would bring it above `batch_bytes`, before compression, or when its first
    record has waited `linger_ms`; a larger record is a batch of its own. What `send` raises goes to the caller, and the
    records it was given are not kept. One thread at a time.
    """

    def __init__(
        self,
        partitions: int,
        keyless: Keyless,
        send: Callable[[int, list[NewRecord]], None],
        *,
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = LINGER_MS,
    ) -> None:
        self._partitions, self._keyless, self._send = partitions, keyless, send
        self._batch_bytes, self._linger_ms = batch_bytes, linger_ms
        self._open: dict[int, _Open] = {}

    def add(self, record: NewRecord, now_ms: int) -> int:
        """Take in a record; return its partition. One that names a partition goes there."""
        partition = self._partition_of(record)
        while (batch := self._open.get(partition)) is not None and batch.size + record.size > self._batch_bytes:
            self._complete(partition)
            partition = self._partition_again(record, partition)
        if batch is None:
            batch = self._open[partition] = _Open(now_ms)
        batch.records.append(record)
        batch.size += record.size
        if batch.size >= self._batch_bytes or self._linger_ms <= 0:
            self._complete(partition)
        return partition

    def _partition_of(self, record: NewRecord) -> int:
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, self._partitions)
        return self._keyless.partition()

    def _partition_again(self, record: NewRecord, partition: int) -> int:
        """Return where a record goes whose partition had a full batch: a sticky one moves on."""
        is_sticky = record.key is None and record.partition is None and isinstance(self._keyless, Sticky)
        return self._keyless.partition() if is_sticky else partition

    def _complete(self, partition: int) -> None:
        batch = self._open.pop(partition)
        self._keyless.sent(partition)
        self._send(partition, batch.records)

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long until a batch is old enough, ms, 0 if one is; None if none is open."""
        if not self._open:
            return None
        return max(min(batch.since_ms for batch in self._open.values()) + self._linger_ms - now_ms, 0)

    def send_due(self, now_ms: int) -> None:
        """Send the batches that are old enough."""
        for partition in [p for p, batch in self._open.items() if now_ms - batch.since_ms >= self._linger_ms]:
            self._complete(partition)

    def flush(self) -> None:
        """Send everything."""
        for partition in list(self._open):
            self._complete(partition)


def numbered(records: list[NewRecord]) -> list[Record]:
    """Return the records with the offsets that they have in a batch from a client: 0 and up."""
    return [
        Record(number, record.timestamp, key=record.key, value=record.value, headers=record.headers)
        for number, record in enumerate(records)
    ]
