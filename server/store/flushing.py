"""When an append becomes durable: the policies, and the thread that flushes where no client waits for it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Final

from daemon.own.engine import Engine
from storage.base.errors import EnvironmentFault, LogmendError
from storage.base.units import TopicPartition


class FlushPolicy(Enum):
    """How far a record is when it is acknowledged.

    `NONE`: written; the kernel writes it back to the disk, as with a broker. `INTERVAL`: written, and on the disk soon
    after. `SYNC`: on the disk; no consumer sees it before, either.
    """

    NONE = "none"
    INTERVAL = "interval"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """The policy with its limits."""

    policy: FlushPolicy = FlushPolicy.SYNC
    interval_ms: int = 1_000
    """Of `INTERVAL`: a partition is flushed at most so long after an append."""
    interval_bytes: int = 64 << 20
    """Of `INTERVAL`: so many bytes that are not on the disk are flushed before the interval is over."""
    dirty_limit: int = 1 << 30
    """Of `NONE` and `INTERVAL`: with so many bytes that are not on the disk, appends wait."""


_PART_OF_LIMIT: Final = 4
"""Without an interval the flusher begins at this part of the limit, so that appends hardly ever wait."""


class Flusher:
    """Partitions with bytes that are not on the disk, and the thread that writes them back.

    It does not take the engine's turn for that: appends and reads go on. Recovery points stay; they move when a segment
    is full. From any thread, but for `start` and `stop`, which are called once.
    """

    def __init__(self, engine: Engine, settings: FlushSettings) -> None:
        self._engine = engine
        self._limit = settings.dirty_limit
        is_timed = settings.policy is FlushPolicy.INTERVAL
        self._wait_seconds = settings.interval_ms / 1000 if is_timed else None
        self._begin_at = min(settings.interval_bytes if is_timed else self._limit, self._limit // _PART_OF_LIMIT)
        self._dirty: dict[TopicPartition, int] = {}
        self.dirty_bytes = 0
        """Appended, and not known to be on the disk."""
        self._changed = threading.Condition()
        self._is_stopping = self._is_due = False
        self._thread = threading.Thread(target=self._work, name="flusher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End after the partition that is being flushed; closing the logs flushes the rest."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def is_full(self) -> bool:
        """Whether appends must wait."""
        return self.dirty_bytes >= self._limit

    def wait_for_room(self) -> None:
        """Wait until the flusher has caught up."""
        with self._changed:
            self._changed.wait_for(lambda: self.dirty_bytes < self._limit or self._is_stopping)

    def note(self, name: TopicPartition, size: int) -> None:
        """Count an append."""
        with self._changed:
            self._dirty[name] = self._dirty.get(name, 0) + size
            self.dirty_bytes += size
            if self.dirty_bytes >= self._begin_at and not self._is_due:
                self._is_due = True
                self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (sizes := self._take()) is not None:
                for name, size in sizes.items():
                    if not self._is_stopping:
                        self._write_back(name)
                    with self._changed:
                        self.dirty_bytes -= size
                        self._changed.notify_all()
        finally:
            with self._changed:  # no append must wait for a thread that has ended
                self._is_stopping = True
                self._changed.notify_all()

    def _take(self) -> dict[TopicPartition, int] | None:
        """Wait until something is due and return it; None at the end."""
        with self._changed:
            if not self._is_due and not self._is_stopping:
                self._changed.wait(self._wait_seconds)
            self._is_due = False
            sizes, self._dirty = self._dirty, {}
            return None if self._is_stopping else sizes

    def _write_back(self, name: TopicPartition) -> None:
        """Sync a partition; a fault of the disk takes its log directory offline, as everywhere."""
        with contextlib.suppress(
            LogmendError
        ):  # it is deleted or offline, which the next append reports; or the listener stops
            manager = self._engine.run(lambda manager: manager)
            try:
                manager.write_back(name)
            except EnvironmentFault as fault:
                failed = fault
                self._engine.run(lambda manager: manager.fail(name, failed))
