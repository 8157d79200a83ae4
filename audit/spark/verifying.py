"""Drives the verifying tasks: waves of jobs, and what to do when a job fails because something kills its workers.

A failed job has lost no result of a task that was done. Of those that were begun and are not done one is at fault; each
is tried alone, then each of its segments alone, and what still kills its worker becomes a row. So an audit always ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from audit.spark.steps import Staging

_ATTEMPTS: Final = 1000
"""Jobs that may fail; so many poisonous segments are no accident."""

_HOPELESS: Final = 4
"""So many jobs may fail before the first task is done."""

RunJob = Callable[[frozenset[int] | None], list[Any]]
"""Runs the tasks of these numbers as one job, all with None; raises if the job fails."""
Split = Callable[[int], Iterable[int]]
"""Makes each segment of a task a task of its own, and returns their numbers; none if it has one segment only."""


Failures = tuple[type[BaseException], ...]


@dataclass(slots=True)
class Driven:
    """Rows that jobs returned, tasks that could not be done by any, and why."""

    rows: list[Any] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


class Driver:
    """Runs tasks until each is done or known to be impossible."""

    def __init__(self, staging: Staging, run_job: RunJob, split: Split, failure: Failures) -> None:
        self._staging, self._run_job, self._split, self._failure = staging, run_job, split, failure
        self.driven = Driven()
        self._failures = 0

    def run(self, tasks: Iterable[int], wave: int) -> Driven:
        """Run all `tasks`, at most `wave` of them in a job; those that have a result already are not run again."""
        left = sorted(set(tasks) - self._staging.done())
        for start in range(0, len(left), wave):
            self._wave(set(left[start : start + wave]))
        return self.driven

    def _wave(self, left: set[int]) -> None:
        for _ in range(_ATTEMPTS):
            if not left:
                return
            known = self._staging.begun() - self._staging.done()
            if self._job(left) is None:
                return
            done = self._staging.done()
            suspects = sorted(left & (self._staging.begun() - done - known) or left & (self._staging.begun() - done))
            left -= done
            if not suspects:  # nothing was even begun: the cluster is at fault, not a task
                self._alone(left)
                return
            for task in suspects:
                self._try_alone(task)
            left -= set(suspects)

    def _alone(self, tasks: Iterable[int]) -> None:
        for task in sorted(tasks):
            self._try_alone(task)

    def _try_alone(self, task: int) -> None:
        reason = self._job({task})
        if reason is None:
            return
        parts = list(self._split(task))
        if not parts:
            self.driven.failed[task] = reason
        for part in parts:
            why = self._job({part})
            if why is not None:
                self.driven.failed[part] = why

    def _job(self, tasks: set[int]) -> str | None:
        """Run a job; return why it failed, None if it did not."""
        try:
            self.driven.rows += self._run_job(frozenset(tasks))
        except self._failure as error:
            self._failures += 1
            if self._failures >= _HOPELESS and not self._staging.done():
                raise  # it is no odd segment: nothing works at all
            return _reason(str(error))
        return None


def _reason(text: str) -> str:
    """Return the one line of what Spark says that tells why a task failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Lost task" in line or "Python worker" in line or "Caused by" in line]
    return (telling or lines or ["no reason given"])[0][:500]


def numbered(groups: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield group, place and task number: tasks beside one another read different groups, so different disks.

    `groups`: number of a group, and how many tasks it is cut into.
    """
    places = sorted((place, group) for group, count in groups for place in range(count))
    for number, (place, group) in enumerate(places):
        yield group, place, number


def grouped(costs: Iterable[int], task_bytes: int) -> list[tuple[int, int]]:
    """Return for each log directory its group, and the cost of those before it there.

    Small directories share a group until it fills a task; a large one has a group to itself.
    """
    found = []
    group, filled = -1, task_bytes
    for cost in costs:
        if filled + cost > task_bytes:
            group, filled = group + 1, 0
        found.append((group, filled))
        filled += cost
    return found


def evenly(cost: int, task_bytes: int) -> tuple[int, int]:
    """Return into how many tasks a group is cut, and what each of them costs at most.

    They are of one size, a tenth larger than asked at most: a last one with what is left over would cost its start for
    next to nothing.
    """
    count = max(-(-10 * cost // (11 * task_bytes)), 1)
    return count, max(-(-cost // count), 1)


def task_size(total: int, slots: int, asked: int, least: int = 256 << 20) -> int:
    """Return the bytes of a task: what was asked, less where all slots would not have three tasks each."""
    return max(min(asked, total // max(3 * slots, 1)), min(least, asked), 1)
