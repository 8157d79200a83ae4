"""Signals that wait: SIGINT and SIGTERM must not tear a write in two and let what follows call the log clean.

Between opening and closing a log manager they are noted, and take effect where the work says that it only waits or
reads, or at the end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Deferral:
    """Tells where a signal may end the work; see `deferred`."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._pending: int | None = None
        self._is_open = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal, or let it take effect where that is allowed."""
        self._pending = number
        if self._is_open:
            self.act(frame)

    def act(self, frame: FrameType | None = None) -> None:
        """Let a signal that was noted take effect now: whatever its handler raises is raised here."""
        number, self._pending = self._pending, None
        if number is not None and callable(handler := self._before.get(number)):
            handler(number, frame)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let signals take effect in here, those that came before at once."""
        self._is_open = True
        try:
            self.act()
            yield
        finally:
            self._is_open = False


@contextlib.contextmanager
def deferred() -> Iterator[Deferral]:
    """Hold signals back until the context ends; in another thread than the main one nothing is changed."""
    deferral = Deferral()
    if threading.current_thread() is not threading.main_thread():
        yield deferral
        return
    deferral._before = {number: signal.signal(number, deferral.note) for number in _SIGNALS}  # noqa: SLF001 (its maker)
    try:
        yield deferral
    finally:
        for number, handler in deferral._before.items():  # noqa: SLF001
            signal.signal(number, handler)
        deferral.act()
