"""Service: gives each worker a thread, hands changes to them, says how they are, and ends them in good order.

`run` belongs to the main thread and returns when the service has ended; `snapshot`, `command`, `request_stop`,
`request_reload` and `changed` may be called from any thread, the requests from a signal handler as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from daemon.snapshot import Clock, Events, ServiceStatus, Worker
from storage.errors import ExitStatus


class Part(Protocol):
    """What runs beside the workers with threads of its own: the watcher, the HTTP server, a listener of clients.

    It is handed what it needs when it is made; `start` and `stop` are called by the main thread.
    """

    def start(self) -> None:
        """Begin; returns at once. What goes wrong is told as an event, and the service goes on without it."""

    def beat(self) -> int:
        """Return a number that changes as long as its threads are alive; always the same where it has none."""

    def stop(self) -> None:
        """End, within a second or two."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a service is given besides its workers."""

    version: str
    kernel: str
    events: Events
    clock: Clock
    state_dir: PurePath | None = None
    """For `status.json`; None: it is not written."""
    reload: Callable[[], Sequence[str]] = lambda: ()
    """Reads the configuration again and puts in force what can change; returns what changed and what did not."""
    counters: Callable[[], dict[str, int]] = dict


class Service:
    """See the module."""

    def __init__(self, workers: Sequence[Worker], setup: Setup) -> None:
        raise NotImplementedError

    def add(self, part: Part) -> None:
        """Take in a part; before `run`. Parts start before the workers and stop after them."""

    def changed(self, paths: Iterable[PurePath]) -> None:
        """Hear that these paths changed: each worker is woken with those that lie in its log directories."""

    def snapshot(self) -> ServiceStatus:
        """Return how the service is, at once."""
        raise NotImplementedError

    def command(self, name: str, argument: str = "", log_dir: PurePath | None = None) -> str:
        """Give an order to the worker of a log directory, or to every one; `ValueError` if nobody takes it."""
        raise NotImplementedError

    def request_stop(self, reason: str = "") -> None:
        """Ask for the end; returns at once."""

    def request_reload(self) -> None:
        """Ask for the configuration to be read again; returns at once."""

    def run(self) -> ExitStatus:
        """Work until asked to stop; return the worst status of the log directories."""
        raise NotImplementedError
