"""Timers: the time and calls at a later time, so that coordinators can be tested with a clock of the test's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """A call that was put off."""

    def cancel(self) -> None:
        """Do not make it; harmless when it was made."""


class Timers(Protocol):
    """The clock of the listener. For the thread of its loop alone."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        """Have `callback` called after `delay_ms` milliseconds of steady time."""


class LoopTimers:
    """The timers of an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Handle:
        return self.loop.call_later(max(delay_ms, 0) / 1000, callback)
