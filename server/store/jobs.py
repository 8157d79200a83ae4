"""Jobs: what the loop asks the appender for, and the queue between the two threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from engine.manager.manager import LogManager
from storage.append.append_records import Verdict
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition
from storage.log.log_types import Appended
from storage.producers.producers import Origin

Data: TypeAlias = bytes | bytearray | memoryview
Outcome: TypeAlias = Appended | LogmendError
"""The result of one append: its offsets, or why it was refused."""

_GROUP_BYTES: Final = 32 << 20
"""Of one group commit: appends behind that many bytes are in the next one."""


class Entry(NamedTuple):
    """One batch for one partition."""

    name: TopicPartition
    batch: Data
    origin: Origin = Origin.CLIENT
    transaction_version: int = 0
    verdict: Verdict | None = None
    """What `walk_batch` has made of its records already."""


class Job:
    """Appends, which get one outcome each, or a call."""

    __slots__ = ("call", "entries", "error", "future", "is_durable", "result", "size")

    def __init__(
        self,
        future: asyncio.Future[Any],
        entries: Sequence[Entry] = (),
        call: Callable[[LogManager], object] | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        self.future, self.entries, self.call, self.is_durable = future, entries, call, is_durable
        self.size = sum(len(entry.batch) for entry in entries)
        self.result: Any = None
        self.error: Exception | None = None


class JobQueue:
    """Jobs in the order in which they were asked for; from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._is_closed = False
        self._is_broken = False

    def put(self, job: Job) -> bool:
        """Add a job; return False if the queue is closed."""
        with self._changed:
            if not self._is_closed:
                self._jobs.append(job)
                self._changed.notify()
            return not self._is_closed

    def close(self, *, is_broken: bool = False) -> None:
        """Take no more jobs; with `is_broken` those that wait are not carried out, either."""
        with self._changed:
            self._is_closed = True
            self._is_broken = self._is_broken or is_broken
            self._changed.notify()

    def take_group(self) -> list[Job]:
        """Wait for jobs and return those of one group commit; none at the end."""
        with self._changed:
            while not self._jobs and not self._is_closed:
                self._changed.wait()
            if self._is_broken:
                return []
            size = count = 0
            for job in self._jobs:
                size += job.size
                if count and size > _GROUP_BYTES:
                    break
                count += 1
            group, self._jobs = self._jobs[:count], self._jobs[count:]
            return group

    def take_rest(self) -> list[Job]:
        """Return the jobs that are not carried out."""
        rest, self._jobs = self._jobs, []
        return rest
