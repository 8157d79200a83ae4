"""The progress of an audit on a terminal: which phase, and while logs are read bytes, rate, time left and tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from cli.console import Console
from cli.progress import Mode, TerminalLine
from recovery.plan.words import count
from recovery.report.meter import Meter

_LINE_SECONDS: Final = 5.0


class TerminalProgress:
    """Draws one line again and again on a terminal, prints whole lines elsewhere; a context."""

    def __init__(self, console: Console, mode: Mode, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._mode, self._clock = console, mode, clock
        self._meter = Meter(clock)
        self._turn = threading.Lock()
        self._line = TerminalLine(console)
        self._shown = -_LINE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._turn:
            self._line.wipe()

    def phase(self, name: str) -> None:
        """Show what is done from now on."""
        with self._turn:
            self._meter.start(name, 0, 0)
            if self._console.jsonl and name:
                self._console.event({"event": "audit_phase", "phase": name})
            elif self._mode is Mode.TERMINAL:
                self._line.draw(name)
            elif self._mode is Mode.PLAIN and name:
                self._console.complain(name)

    def verified(self, done_bytes: int, total_bytes: int, done_tasks: int, total_tasks: int) -> None:
        """Show how much of the logs has been read."""
        with self._turn:
            self._meter.total = total_bytes
            self._meter.add(done_bytes - self._meter.done)
            line = f"{self._meter.line().rpartition(', ')[0]}, {done_tasks} of {count(total_tasks, 'task')}"
            if self._console.jsonl:
                told = {"done_bytes": done_bytes, "total_bytes": total_bytes}
                tasks = {"done_tasks": done_tasks, "total_tasks": total_tasks}
                self._console.event({"event": "audit_progress", **told, **tasks})
            elif self._mode is Mode.TERMINAL:
                self._line.draw(line)
            elif self._mode is Mode.PLAIN and self._clock() - self._shown >= _LINE_SECONDS:
                self._shown = self._clock()
                self._console.complain(line)
