"""Engine: how the listeners reach the log manager of the service, one thread at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from daemon.own.turn import Turn
from daemon.status.model import ListenerStatus
from engine.manager.manager import LogManager
from storage.base.errors import ExitStatus, LogmendError

T = TypeVar("T")


class NotServing(LogmendError):
    """The logs are not open yet, or no more."""

    status = ExitStatus.ENVIRONMENT


class Engine(Protocol):
    """What a listener gets: the way to the log manager."""

    def run(self, call: Callable[[LogManager], T]) -> T:
        """Return what `call` returns, or raise what it raises, while no other thread uses the manager.

        Raises `NotServing` before the logs are open and once they are being closed.
        """

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        """Do as `run` does, but never wait: return None, with nothing done, while another thread uses the manager."""


class Listener(Protocol):
    """Serves clients. The worker's thread calls `start` and `stop`, any thread `status`."""

    def start(self, engine: Engine) -> None:
        """Begin to serve; returns at once, its work is done by threads of its own."""

    def status(self) -> ListenerStatus:
        """Return what the listener shows, at once."""

    def stop(self) -> None:
        """Accept nothing more, finish what was begun within a bounded time, and release the engine."""


class SharedManager:
    """The `Engine` over the log manager of one worker, which opens and closes it. From any thread."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._scheduler: int | None = None
        """The thread that runs the schedules, while they run."""
        self._manager: LogManager | None = None

    @property
    def manager(self) -> LogManager | None:
        """The manager while the logs are open."""
        return self._manager

    def open(self, manager: LogManager) -> None:
        """Let the listeners use a manager."""
        with self._turn.taken():
            self._manager = manager

    @contextlib.contextmanager
    def closed(self) -> Iterator[LogManager | None]:
        """Take the manager from the listeners, and keep their threads waiting within the context."""
        with self._turn.taken():
            manager, self._manager = self._manager, None
            yield manager

    def run(self, call: Callable[[LogManager], T]) -> T:
        """See `Engine`."""
        with self._turn.taken():
            return call(self._open_manager())

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        """See `Engine`."""
        if not self._turn.take_if_free():
            return None
        try:
            return call(self._open_manager())
        finally:
            self._turn.give_back()

    def _open_manager(self) -> LogManager:
        if self._manager is None:
            raise NotServing("the logs are not open")
        return self._manager

    def run_due(self, now_ms: int) -> list[LogmendError]:
        """Run the schedules that are due; return the faults."""

        def due(manager: LogManager) -> list[LogmendError]:
            self._scheduler = threading.get_ident()
            try:
                return list(manager.run_due(now_ms))
            finally:
                self._scheduler = None

        return self.run(due)

    def pause(self, rest: Callable[[], None]) -> None:
        """Call `rest`; in the middle of a schedule the listeners have their turn meanwhile."""
        if self._scheduler == threading.get_ident():
            with self._turn.passed_on():
                rest()
        else:  # a client requested the compaction
            rest()
