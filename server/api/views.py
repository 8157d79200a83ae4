"""What handlers read: topics, partitions, log directories, and the store that has them.

`ReadStore` is the reading half of a store. Two have it: the one over the engine, which writes as well, and the one over
an unrepaired directory. All is for the thread of the listener's loop; nothing in here blocks for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Protocol

from server.api.clock import Timers
from server.api.dispatch import ListenerInfo
from storage.base.config import LogConfig
from storage.base.errors import EnvironmentFault
from storage.base.units import TopicPartition
from storage.log.log_types import ReadableLog


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its id (None: its directories have none), its number of partitions, settings in force and as given."""

    name: str
    topic_id: bytes | None
    partitions: int
    config: LogConfig
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of this topic alone, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class LogDirView:
    """A log directory. `offline`: why, None if it is not; `sizes`: bytes of each partition's `.log` files."""

    path: PurePath
    offline: str | None
    sizes: Mapping[TopicPartition, int]
    total_bytes: int = -1
    free_bytes: int = -1


class ReadStore(Protocol):
    """The reading half of a store."""

    is_read_only: bool

    def topics(self) -> Mapping[str, TopicView]:
        """Return all topics by name; what is returned does not change."""

    def log(self, name: TopicPartition) -> ReadableLog:
        """Return the log of a partition; raises `UnknownTopic` and `PartitionOffline`."""

    def leader_epoch(self, name: TopicPartition) -> int:
        """Return the leader epoch for clients; raises as `log` does."""

    def end_offset_for_epoch(self, name: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """Return the newest leader epoch up to `epoch` and where it ends, None for one that is not known.

        Raises as `log` does.
        """

    def log_dirs(self) -> Sequence[LogDirView]:
        """Return the log directories."""

    def report(self, name: TopicPartition, fault: EnvironmentFault) -> None:
        """Take note of a fault of the disk in a read: the log directory goes offline; any thread."""

    def on_append(self, name: TopicPartition, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called in the loop's thread whenever the high watermark has moved; return what ends that."""


@dataclass(slots=True)
class Parts:
    """The parts that handlers share. Transactions and producer ids of the log exist in the writing mode only."""

    store: Any
    """A `ReadStore`, in the writing mode a `Store`."""
    info: ListenerInfo
    timers: Timers
    groups: Any = None
    transactions: Any = None
    producer_ids: Any = None
