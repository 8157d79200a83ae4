"""The services that the coordinator of transactions calls, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from server.api.errors import ErrorCode
from storage.base.units import Offset, TopicPartition
from storage.log.log_types import Appended, ReadableLog
from storage.producers.producers import Origin

T = TypeVar("T")

STATE_TOPIC: Final = "__transaction_state"
OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """By Kafka's names and defaults, but for the first interval: a check is cheap here. All ms."""

    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`."""
    id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`."""
    abort_interval_ms: int = 1_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`, with Kafka 10 seconds."""
    expiration_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`."""
    retry_ms: int = 1_000
    """Time until a marker that could not be written is tried again."""


class StateStore(Protocol):
    """The part of the store that holds transactions: the topic of their records, and partitions for their markers."""

    def append(
        self, name: TopicPartition, batch: bytes, *, origin: Origin, wait_durable: bool | None = None
    ) -> asyncio.Future[Appended]:
        """Append a batch; done when it counts."""

    def log(self, name: TopicPartition) -> ReadableLog:
        """Return the log of a partition; raises `UnknownTopic` and `PartitionOffline`."""

    def topics(self) -> Mapping[str, Any]:
        """Return all topics by name, each with its number of `partitions`."""

    def batches(self, name: TopicPartition, start: Offset) -> Iterator[memoryview]:
        """Yield whole batches up to the high watermark; for any thread."""

    def in_background(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have `call` made by another thread."""

    def ensure_internal(self, topic: str) -> Awaitable[int]:
        """Create an internal topic if it is missing; return its number of partitions."""


class OffsetCommits(Protocol):
    """The part of the groups that takes part in transactions."""

    verify: Callable[[str, int, int, int], ErrorCode] | None
    """If set, returns whether a producer may commit offsets: transactional id, producer, epoch, partition."""

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds the offsets of a group."""

    def end_transaction(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:  # noqa: FBT001
        """Commit or forget the offsets of a transaction, whose marker is in the log of that partition."""


class Ids(Protocol):
    """Where producer ids come from."""

    def note_seen(self, producer_id: int) -> None:
        """Never return this id or one below it."""

    async def draw(self) -> int:
        """Return an id that no producer has."""
