"""Follows one log directory that a broker owns: verifies what was flushed, scrubs what is old, changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from daemon.disk import Disk
from daemon.ledger import Ledger
from daemon.snapshot import Clock, DirState, Events, LogDirStatus, Mode
from daemon.verify_options import GuardOptions


class GuardWorker:
    """A `Worker` for one log directory. It never takes the lock and never writes below the directory."""

    def __init__(
        self,
        log_dir: PurePath,
        ledger: Ledger,
        clock: Clock,
        events: Events,
        options: GuardOptions,
        *,
        disk: Disk | None = None,
        draw: Callable[[], float] | None = None,
        pressure: Callable[[], float | None] | None = None,
    ) -> None:
        self._log_dir, self._ledger, self._clock, self._events, self._options = log_dir, ledger, clock, events, options

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return (self._log_dir,)

    def start(self) -> None: ...

    def step(self) -> float:
        return 1.0

    def wake(self, paths: frozenset[PurePath]) -> None: ...

    def command(self, name: str, argument: str = "") -> str:
        raise ValueError(name)

    def status(self) -> tuple[LogDirStatus, ...]:
        return (LogDirStatus(self._log_dir, Mode.GUARD, DirState.STARTING, "", 0),)

    def stop(self) -> None: ...
