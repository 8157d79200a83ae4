"""When what is due: the intervals of a log manager against the time that it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.logdir.log_dir import LogDir
from storage.base.errors import LogmendError

if TYPE_CHECKING:
    from engine.manager.manager import LogManager

Task = Callable[[int], list[LogmendError]]


class Schedule:
    """The periodic tasks of a log manager, each first due one interval after its opening."""

    def __init__(self, manager: LogManager, now_ms: int) -> None:
        every = manager.options.intervals

        def expire(now_ms: int) -> list[LogmendError]:
            manager.expire_producers(now_ms)
            return []

        def in_each(work: Callable[[LogDir], object]) -> Task:
            return lambda _: manager.each_log_dir(work)

        def remove(now_ms: int) -> list[LogmendError]:
            return manager.each_log_dir(lambda log_dir: log_dir.remove_due(now_ms))

        tasks: list[tuple[int, Task]] = [
            (every.flush_ms, manager.flush_due),
            (every.retention_ms, manager.retain),
            (every.compaction_ms, manager.compact),
            (every.producers_ms, expire),
            (every.removal_ms, remove),
            # After what moves the points, so that one call writes what it has done.
            (every.recovery_points_ms, in_each(LogDir.write_recovery_points)),
            (every.log_starts_ms, in_each(LogDir.write_log_starts)),
            (every.high_watermarks_ms, in_each(LogDir.write_high_watermarks)),
        ]
        self._tasks = [(interval, task) for interval, task in tasks]
        self._last = [now_ms] * len(tasks)

    def run_due(self, now_ms: int) -> list[LogmendError]:
        """Run each task whose interval has gone by since it last ran; return what went wrong."""
        failed: list[LogmendError] = []
        for number, (interval, task) in enumerate(self._tasks):
            # A clock that was set back must not put off everything until it has caught up.
            if now_ms - self._last[number] >= interval or now_ms < self._last[number]:
                self._last[number] = now_ms
                failed += task(now_ms)
        return failed
