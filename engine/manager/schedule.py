"""Schedule: runs periodic tasks by the time that it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.base.errors import LogmendError

Task = Callable[[int], list[LogmendError]]
"""Takes the time in ms; returns what went wrong."""


class Schedule:
    """Tasks with their intervals in ms, run in this order, each first due one interval after `now_ms`."""

    def __init__(self, tasks: Iterable[tuple[int, Task]], now_ms: int) -> None:
        self._tasks = list(tasks)
        self._last_runs = [now_ms] * len(self._tasks)

    def run_due(self, now_ms: int) -> list[LogmendError]:
        """Run each task whose interval has gone by since it last ran; return what went wrong."""
        failures: list[LogmendError] = []
        for number, (interval, task) in enumerate(self._tasks):
            # A clock that was set back must not put off everything until it has caught up.
            if now_ms - self._last_runs[number] >= interval or now_ms < self._last_runs[number]:
                self._last_runs[number] = now_ms
                failures += task(now_ms)
        return failures
