"""Progress: how much is read and to be read, how fast, how long still, and where it is just now.

One line that is drawn again and again on a terminal; whole lines every few seconds elsewhere (a journal); lines of JSON
with --jsonl. SIGUSR1 prints one line in every mode. Nothing is shown before half a second has passed: a hook that finds
nothing to do says nothing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from cli.console import Console
from recovery.plan.plan import Action, to_plain
from recovery.plan.words import short_size
from recovery.report.meter import Clock, Meter, duration
from storage.base.errors import printable

_QUIET_SECONDS: Final = 0.5
_REDRAW_SECONDS: Final = 0.1
_LINE_SECONDS: Final = 5.0
_TELL_SECONDS: Final = 1.0

Show = Callable[[str], None]
"""Takes the state in one line, about once a second while something moves."""


class Stopped(BaseException):
    """Raised in the threads of the work once it has been told to stop."""


class Mode(Enum):
    """How progress is shown."""

    TERMINAL = "terminal"
    PLAIN = "plain"
    NONE = "none"


class TerminalLine:
    """One line on a terminal, drawn over itself again and again."""

    def __init__(self, console: Console) -> None:
        self._console, self._width = console, 0

    def draw(self, line: str) -> None:
        """Show a line in place of the one before, cut to the width of the terminal."""
        line = line[: shutil.get_terminal_size().columns - 1]
        self._console.show("\r" + line.ljust(self._width))
        self._width = len(line)

    def wipe(self) -> None:
        """Take the line off the terminal."""
        if self._width:
            self._console.show("\r" + " " * self._width + "\r")
            self._width = 0


class ProgressReporter:
    """The `Reporter` of the command line. Its methods may be called from several threads."""

    def __init__(self, console: Console, mode: Mode, clock: Clock = time.monotonic, show: Show | None = None) -> None:
        self._console, self._mode, self._clock, self._show = console, mode, clock, show
        self._told = clock()
        self._meter = Meter(clock)
        # SIGUSR1 is handled in the main thread, perhaps while that holds the lock: it must not wait for itself.
        self._turn = threading.RLock()
        self._shown = 0.0
        self._line = TerminalLine(console)
        self._is_stopped = False
        self._running: set[str] = set()
        self._ended = 0

    def stop(self) -> None:
        """Make the threads of the work give up at their next call; needs no lock, so a signal handler may do it."""
        self._is_stopped = True

    def begin(self, what: str, total_bytes: int, partitions: int) -> None:
        with self._turn:
            if not self._running:
                self._meter.start(printable(what), total_bytes, partitions)
                self._shown = self._clock()
            elif what not in self._running:
                self._meter.join(printable(what), total_bytes, partitions)
            else:
                self._meter.expect(total_bytes)  # the same one is read once more
            self._meter.expect_lists(partitions)
            self._running.add(what)
            self._tell_supervisor()
            self._event("scan_started", what=what, total_bytes=total_bytes, partitions=partitions)

    def scanned(self, partition: str, size: int) -> None:
        if self._is_stopped:
            raise Stopped
        with self._turn:
            self._meter.add(size)
            self._meter.current = printable(partition)
            self._tick()

    def listed(self, partition: str, total_bytes: int, segments: int) -> None:  # noqa: ARG002 (it is a `Reporter`)
        with self._turn:
            self._meter.listed(total_bytes, segments)
            if not self._meter.unlisted:
                self._event("listing_finished", total_bytes=self._meter.total, segments=self._meter.segments)
            self._tick()

    def segment_done(self, partition: str) -> None:  # noqa: ARG002 (it is a `Reporter`)
        with self._turn:
            self._meter.segments_done += 1

    def partition_done(self, partition: str, findings: int) -> None:
        with self._turn:
            self._meter.partitions_done += 1
            self._meter.findings += findings
            self._event("partition_verified", partition=partition, findings=findings)
            self._tick()

    def applying(self, action: Action) -> None:
        with self._turn:
            self._meter.actions += 1
            self._meter.current = f"{printable(action.path.parent.name)}/{printable(action.path.name)}"
            self._event("action_started", action=action)
            self._tick()

    def end(self) -> None:
        with self._turn:
            self._ended += 1
            if self._ended < len(self._running):
                return
            self._running.clear()
            self._ended = 0
            self._line.wipe()
            meter = self._meter
            seconds = self._clock() - meter.began
            if self._mode is Mode.PLAIN and seconds >= _LINE_SECONDS:
                self._console.complain(f"{meter.what}: {short_size(meter.done)} in {duration(seconds)}")
            self._event("scan_finished", what=meter.what, bytes=meter.done, seconds=round(seconds, 3))

    def clear(self) -> None:
        """Take the line off the terminal."""
        with self._turn:
            self._line.wipe()

    def print_line(self) -> None:
        """Print the state now, whatever the mode."""
        with self._turn:
            self._line.wipe()
            self._console.complain(self._meter.line())

    def _tick(self) -> None:
        now = self._clock()
        if now - self._told >= _TELL_SECONDS:
            self._tell_supervisor()
        waited = now - self._shown
        if self._mode is Mode.PLAIN and waited >= _LINE_SECONDS:
            self._shown = now
            self._console.complain(self._meter.line())
        elif self._mode is Mode.TERMINAL and waited >= _REDRAW_SECONDS and now - self._meter.began >= _QUIET_SECONDS:
            self._shown = now
            self._line.draw(self._meter.line())

    def _tell_supervisor(self) -> None:
        self._told = self._clock()
        if self._show is not None:
            self._show(self._meter.line())

    def _event(self, event: str, **fields: Any) -> None:
        if self._console.jsonl:
            self._console.event({"event": event, **{name: to_plain(value) for name, value in fields.items()}})


def choose_mode(wanted: str, *, is_terminal: bool) -> Mode:
    """Return the mode for `auto`, `plain` or `none`."""
    if wanted == "auto":
        return Mode.TERMINAL if is_terminal else Mode.PLAIN
    return Mode(wanted)
