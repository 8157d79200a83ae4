"""Remembers when each segment was last verified, with which verdict, and what is wrong: SQLite in the state directory."""

from __future__ import annotations

from pathlib import PurePath

from daemon.snapshot import Clock, Events, OpenFinding


class Ledger:
    """The memory of all workers of one service; any thread may call. Closed by `close`.

    Raises `LogDirInUse` where another service has the state directory. Nothing else keeps it from opening: a corrupt
    file is set aside and a new one begun, and where nothing can be written it goes on in memory and says so (`trouble`).
    """

    def __init__(self, state_dir: PurePath, clock: Clock, events: Events, version: str) -> None:
        self.state_dir, self._clock, self._events, self.version = state_dir, clock, events, version

    @property
    def trouble(self) -> str:
        """Why nothing is written down at present; empty while all is well."""
        return ""

    def findings(self, log_dir: PurePath) -> tuple[OpenFinding, ...]:
        """Return what is wrong in a log directory and not dealt with, the worst first."""
        return ()

    def close(self) -> None:
        """Write what is left and let go of the state directory."""
