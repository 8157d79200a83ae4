"""A worker and the thread that drives it: start, steps, stop; and whether its work moves."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Hashable
from dataclasses import replace
from pathlib import PurePath
from typing import Final, Protocol, runtime_checkable

from daemon.status.model import DirState, Events, LogDirStatus, Worker
from storage.base.errors import ExitStatus, LogmendError, printable

_LONGEST_WAIT: Final = 3600.0


@runtime_checkable
class Beating(Protocol):
    """A worker whose work moves in ways that its status does not show."""

    def beat(self) -> Hashable:
        """Return a value that changes while the work moves; at once, from any thread."""


@runtime_checkable
class Interruptible(Protocol):
    """A worker whose start or steps may take long, and that can be told to cut them short."""

    def interrupt(self) -> None:
        """Cut long work short, at a place where a crash is harmless; returns at once, from any thread."""


class Runner:
    """Drives one worker. `failure` is the fault of ours that ended it, None without one."""

    def __init__(self, worker: Worker, events: Events) -> None:
        self.worker, self._events = worker, events
        self.failure: str | None = None
        self._turn = threading.Condition()
        self._is_stopping = self._is_woken = self._is_waiting = False
        self._steps = 0
        self._seen: Hashable = None
        names = ",".join(path.name for path in worker.log_dirs)
        self._thread = threading.Thread(target=self._run, name=f"worker {names}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self, paths: frozenset[PurePath]) -> None:
        """Pass changes to the worker, and call its next step at once."""
        self.worker.wake(paths)
        self._nudge(is_stopping=False)

    def request_stop(self) -> None:
        """End the thread after its present step."""
        self._nudge(is_stopping=True)
        if isinstance(self.worker, Interruptible):
            self.worker.interrupt()

    def command(self, name: str, argument: str) -> str:
        """Pass an order to the worker; its next step follows at once."""
        answer = self.worker.command(name, argument)
        self._nudge(is_stopping=False)
        return answer

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; tell whether it has."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def has_ended(self) -> bool:
        """The thread has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def status(self) -> tuple[LogDirStatus, ...]:
        """Return the status of the log directories; after a failure of the worker they are offline."""
        found = self.worker.status()
        if self.failure is None:
            return found
        return tuple(
            replace(each, state=DirState.OFFLINE, reason=self.failure, exit_status=ExitStatus.BUG) for each in found
        )

    def has_moved(self) -> bool:
        """Tell whether the work has moved since the last call, or waits for its next step. One thread calls."""
        shown = [
            (each.state, None if each.recovery is None else each.recovery.done_bytes,
             None if each.recovery is None else each.recovery.partitions_done,
             None if each.scrub is None else each.scrub.bytes_read)
            for each in self.worker.status()
        ]  # fmt: skip
        beat = self.worker.beat() if isinstance(self.worker, Beating) else None
        seen = (self._steps, beat, tuple(shown))
        before, self._seen = self._seen, seen
        return seen != before or self._is_waiting or self.has_ended

    def _nudge(self, *, is_stopping: bool) -> None:
        with self._turn:
            self._is_woken = True
            self._is_stopping = self._is_stopping or is_stopping
            self._turn.notify()

    def _run(self) -> None:
        try:
            try:
                self.worker.start()
                while not self._is_stopping:
                    self._wait(self.worker.step())
            finally:
                self.worker.stop()
        except LogmendError as error:
            self._fail(error, str(error))
        except Exception as error:  # noqa: BLE001 (a fault of ours in one worker must not stop the others)
            self._fail(error, f"{type(error).__name__}: {printable(error)}")

    def _wait(self, seconds: float) -> None:
        with self._turn:
            self._steps += 1
            if seconds > 0 and not self._is_woken:
                self._is_waiting = True
                self._turn.wait(min(seconds, _LONGEST_WAIT))
                self._is_waiting = False
            self._is_woken = self._is_stopping

    def _fail(self, error: Exception, reason: str) -> None:
        self.failure = f"a fault of logmend itself: {reason}"
        where = ", ".join(str(path) for path in self.worker.log_dirs)
        trace = "".join(traceback.format_exception(error))
        with contextlib.suppress(Exception):  # there is no other place to report it
            self._events.tell("worker_failed", log_dir=where, error=reason, traceback=trace)
