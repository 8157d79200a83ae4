"""The scrubbers of own log directories. They read without the turn: flushed segments do not change any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import PurePath

from daemon.own.engine import Engine
from daemon.scrub.context import FlushedUpTo
from daemon.scrub.orders import COMMANDS
from daemon.scrub.scrub import Scrubber
from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import Clock
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition

MakeScrubber = Callable[[PurePath, FlushedUpTo], Scrubber]
"""Makes the scrubber of a log directory, which asks for recovery points."""


class OwnScrubbers:
    """One scrubber for each open log directory, none where `make` is None."""

    def __init__(self, make: MakeScrubber | None, clock: Clock, engine: Engine) -> None:
        self._make, self._clock, self._engine = make, clock, engine
        self._running: dict[PurePath, Scrubber] = {}
        self._due: dict[PurePath, float] = {}

    # ---- on the worker's thread

    def begin(self, path: PurePath) -> Scrubber | None:
        """Scrub a log directory from now on."""
        if self._make is None:
            return None
        scrubber = self._running[path] = self._make(path, self._recovery_point)
        scrubber.start()
        self._due[path] = float("-inf")
        return scrubber

    def end(self, path: PurePath) -> None:
        """Close the scrubber of a log directory, if it has one."""
        scrubber = self._running.pop(path, None)
        if scrubber is not None:
            scrubber.close()

    def end_all(self) -> None:
        """Close all scrubbers."""
        for path in tuple(self._running):
            self.end(path)

    def step(self, now: float, longest: float) -> float:
        """Step the scrubber that has waited longest; return the seconds until the next one is due."""
        due = sorted((self._due[path], str(path), path) for path in self._running)
        if not due:
            return longest
        at, _, path = due[0]
        if at > now:
            return at - now
        self._due[path] = self._clock.monotonic() + self._running[path].step()
        return max(min(self._due[path] for path in self._running) - self._clock.monotonic(), 0.0)

    def _recovery_point(self, partition: TopicPartition) -> int | None:
        with contextlib.suppress(LogmendError):
            return self._engine.run(lambda manager: int(manager.log(partition).recovery_point))
        return None

    # ---- from any thread

    def command(self, name: str, argument: str) -> str:
        """Give an order to every scrubber; `ValueError` for an unknown one."""
        if name not in COMMANDS:
            raise ValueError(f"unknown order {name}")
        answers = [scrubber.command(name, argument) for scrubber in tuple(self._running.values())]
        return "\n".join(dict.fromkeys(answers)) or "no own log directory is open"

    def adjust(self, options: ScrubOptions) -> None:
        """Scrub by other options from the next step on."""
        for scrubber in tuple(self._running.values()):
            scrubber.adjust(options)
