"""Follows the recovery of log directories: bytes done, rate, time left; and cuts it short on request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import PurePath

from daemon.status.model import RecoveryProgress
from recovery.plan.plan import Action
from recovery.report.meter import Clock, Meter


class Interrupted(BaseException):
    """Raised in the threads of a recovery that is cut short; a crash at that place would do the same."""


class RecoveryWatch:
    """A `Reporter` for one log directory after another. Any thread may call.

    `began` is called with each directory as its recovery begins, from the thread that begins it.
    """

    def __init__(self, clock: Clock, began: Callable[[PurePath], None]) -> None:
        self._clock, self._began = clock, began
        self._turn = threading.Lock()
        self._meters: dict[PurePath, Meter] = {}
        self._current = Meter(clock)
        self._is_stopped = False
        self.calls = 0
        """Rises with every progress."""

    def stop(self) -> None:
        """Make the recovery end at its next call."""
        self._is_stopped = True

    def begin(self, what: str, total_bytes: int, partitions: int) -> None:
        path = PurePath(what)
        is_new = False
        with self._turn:
            self.calls += 1
            if path not in self._meters:
                is_new = True
                self._current = self._meters[path] = Meter(self._clock)
                self._current.start(what, total_bytes, partitions)
            else:  # a second look at the recovered directory
                self._current.expect(total_bytes)
            self._current.expect_lists(partitions)
        if is_new:
            self._began(path)

    def listed(self, partition: str, total_bytes: int, segments: int) -> None:  # noqa: ARG002 (it is a `Reporter`)
        self._raise_if_stopped()
        with self._turn:
            self.calls += 1
            self._current.listed(total_bytes, segments)

    def segment_done(self, partition: str) -> None:  # noqa: ARG002 (it is a `Reporter`)
        with self._turn:
            self.calls += 1
            self._current.segments_done += 1

    def scanned(self, partition: str, size: int) -> None:
        self._raise_if_stopped()
        with self._turn:
            self.calls += 1
            self._current.add(size)
            self._current.current = partition

    def partition_done(self, partition: str, findings: int) -> None:  # noqa: ARG002 (it is a `Reporter`)
        with self._turn:
            self.calls += 1
            meter = self._current
            meter.partitions_done = min(meter.partitions_done + 1, meter.partitions)
            meter.findings += findings

    def applying(self, action: Action) -> None:  # noqa: ARG002 (it is a `Reporter`)
        self._raise_if_stopped()
        with self._turn:
            self.calls += 1
            self._current.actions += 1

    def end(self) -> None:
        self.calls += 1

    def progress(self, path: PurePath, *, finished_ms: int | None = None, result: str = "") -> RecoveryProgress | None:
        """Return the progress of the recovery of a log directory, None if it had none."""
        with self._turn:
            meter = self._meters.get(path)
            if meter is None:
                return None
            ended = finished_ms is not None
            return RecoveryProgress(
                total_bytes=meter.done if ended else max(meter.total, meter.done),
                done_bytes=meter.done,
                bytes_per_second=0.0 if ended else meter.rate,
                eta_seconds=None if ended else meter.seconds_left,
                partitions_total=meter.partitions,
                partitions_done=meter.partitions_done,
                segments_remaining=0 if ended else meter.segments_left,
                is_listed=ended or not meter.unlisted,
                finished_ms=finished_ms,
                result=result,
            )

    def seconds(self, path: PurePath) -> float:
        """Return the seconds since the recovery of a log directory began; 0 if it had none."""
        meter = self._meters.get(path)
        return 0.0 if meter is None else self._clock() - meter.began

    def _raise_if_stopped(self) -> None:
        if self._is_stopped:
            raise Interrupted
