"""When what was appended becomes durable: the policies, and the thread that flushes where nobody waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from daemon.manager import LogManager
from daemon.owned import Engine
from storage.errors import EnvironmentFault, LogmendError
from storage.units import TopicPartition


class FlushPolicy(Enum):
    """What an acknowledged record has been through.

    `NONE`: written; the kernel brings it to the disk, as with a broker. `INTERVAL`: written, and on the disk soon
    after. `SYNC`: on the disk; no consumer sees it before, either.
    """

    NONE = "none"
    INTERVAL = "interval"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """The policy, with what goes with it."""

    policy: FlushPolicy = FlushPolicy.SYNC
    interval_ms: int = 1_000
    """Of `INTERVAL`: at the latest so long after an append its partition is flushed."""
    interval_bytes: int = 64 << 20
    """Of `INTERVAL`: so many bytes that are not on the disk are flushed before their time."""
    dirty_limit: int = 256 << 20
    """Of `NONE` and `INTERVAL`: with so many bytes that are not on the disk, appends wait."""


_PART_OF_LIMIT: Final = 4
"""Without an interval the flusher begins at this part of the limit, so that hardly anybody gets there."""


class Flusher:
    """Knows which partitions have bytes that are not on the disk, and brings them there beside everything else.

    Most of it without the engine's turn: only what came meanwhile is left for the flush itself. `note` is called by
    whoever has the turn, `start` and `stop` once, the rest from any thread.
    """

    def __init__(self, engine: Engine, settings: FlushSettings, now_ms: Callable[[], int]) -> None:
        self._engine, self._now_ms = engine, now_ms
        self._limit = settings.dirty_limit
        is_timed = settings.policy is FlushPolicy.INTERVAL
        self._wait_seconds = settings.interval_ms / 1000 if is_timed else None
        self._begin_at = min(settings.interval_bytes if is_timed else self._limit, self._limit // _PART_OF_LIMIT)
        self._dirty: dict[TopicPartition, int] = {}
        self.dirty_bytes = 0
        """Appended and not flushed."""
        self._asked = threading.Condition()
        self._is_stopping = self._is_due = False
        self._thread = threading.Thread(target=self._work, name="flusher", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End after the flush that it is in; what is left is for whoever closes the logs."""
        with self._asked:
            self._is_stopping = True
            self._asked.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def is_full(self) -> bool:
        """Whether appends have to wait."""
        return self.dirty_bytes >= self._limit

    def note(self, name: TopicPartition, size: int) -> None:
        """Hear of an append."""
        self._dirty[name] = self._dirty.get(name, 0) + size
        self.dirty_bytes += size
        if self.dirty_bytes >= self._begin_at and not self._is_due:
            with self._asked:
                self._is_due = True
                self._asked.notify()

    def flush(self, manager: LogManager, names: list[TopicPartition] | None = None) -> None:
        """Flush these partitions, or all that have something to flush; for whoever has the turn.

        What the disk refuses takes its log directory offline, as everywhere.
        """
        now_ms = self._now_ms()
        for name in list(self._dirty) if names is None else names:
            size = self._dirty.pop(name, 0)
            with contextlib.suppress(LogmendError):  # it is gone or offline, as who appends next hears; or has no room
                manager.flush(name, now_ms)
            self.dirty_bytes -= size

    def _work(self) -> None:
        while self._wait():
            names = list(self._dirty)
            try:
                self._write_back(names)
                self._engine.run(lambda manager, names=names: self.flush(manager, names))  # type: ignore[misc]
            except LogmendError:  # the logs are being closed, which flushes them
                self._dirty.clear()
                self.dirty_bytes = 0

    def _wait(self) -> bool:
        with self._asked:
            if not self._is_stopping and not self._is_due:
                self._asked.wait(self._wait_seconds)
            self._is_due = False
            return not self._is_stopping

    def _write_back(self, names: list[TopicPartition]) -> None:
        manager = self._engine.run(lambda manager: manager)
        for name in names:
            try:
                manager.write_back(name)
            except EnvironmentFault as fault:
                self._engine.run(lambda manager, name=name, fault=fault: manager.fail(name, fault))  # type: ignore[misc]
            except LogmendError:
                continue
