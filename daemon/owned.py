"""OwnWorker: the log directories that are ours. Locked, recovered, opened; then the engine's schedules; then closed.

Its thread drives the schedules of one `LogManager` over all of them. Whoever serves clients is a `Listener`: it is
started once the logs are open and stopped, drained, before they are closed. A listener's threads reach the manager by
`OwnWorker.run` alone, which keeps the thread rule of the manager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Protocol, TypeVar

from daemon.manager import LogManager
from daemon.options import ManagerOptions
from daemon.snapshot import Clock, Events, LogDirStatus, Worker
from storage.fs import Fs

T = TypeVar("T")


class Engine(Protocol):
    """What a listener is given: the way to the log manager."""

    def run(self, call: Callable[[LogManager], T]) -> T:
        """Return what `call` returns, or raise what it raises, while nobody else is at the manager.

        Raises `NotServing` before the logs are open and once they are being closed.
        """


class Listener(Protocol):
    """Serves clients. All three are called by the worker's thread."""

    def start(self, engine: Engine) -> None:
        """Begin to serve; returns at once, its work is done by threads of its own."""

    def status(self) -> Mapping[str, object]:
        """Return what there is to show, at once."""

    def stop(self) -> None:
        """Take no more, finish what was begun within a bounded time, and let go."""


class OwnWorker(Worker):
    """See the module."""

    def __init__(
        self,
        fs: Fs,
        paths: Sequence[PurePath],
        options: ManagerOptions,
        *,
        events: Events,
        clock: Clock,
        listeners: Sequence[Listener] = (),
    ) -> None:
        raise NotImplementedError

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        raise NotImplementedError

    def run(self, call: Callable[[LogManager], T]) -> T:
        """See `Engine`."""
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def step(self) -> float:
        raise NotImplementedError

    def wake(self, paths: frozenset[PurePath]) -> None: ...

    def command(self, name: str, argument: str = "") -> str:
        raise NotImplementedError

    def status(self) -> tuple[LogDirStatus, ...]:
        raise NotImplementedError

    def stop(self) -> None: ...
