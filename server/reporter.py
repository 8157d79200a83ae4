"""What the listener reports, as events of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from daemon.status.model import Events

_MOST: Final = 20
_PERIOD_S: Final = 60.0


def reporter_to(events: Events, clock: Callable[[], float] | None = None) -> Callable[[str, str], None]:
    """Return a function that makes an event of each report: its kind, and the reason in words.

    Of clients that were refused the first 20 of a minute are told one by one, the others by their number: strangers
    shall not fill the log. The function is for the thread of one loop; `clock` is
    that loop's by default.
    """
    refusals = _Refusals(events, clock or (lambda: asyncio.get_running_loop().time()))

    def report(kind: str, reason: str) -> None:
        if kind == "fault":
            events.tell("client_failed", reason=reason)
        elif kind == "coordinator":
            events.tell("coordinator_failed", reason=reason)
        elif kind == "full":
            events.tell("append_refused", reason=reason)
        else:
            refusals.tell(kind, reason)

    return report


class _Refusals:
    """The clients that were refused within a minute."""

    def __init__(self, events: Events, clock: Callable[[], float]) -> None:
        self._events, self._clock = events, clock
        self._since, self._count = -_PERIOD_S, 0

    def tell(self, kind: str, reason: str) -> None:
        now = self._clock()
        if now - self._since > _PERIOD_S:
            untold = self._count - _MOST
            self._since, self._count = now, 0
            if untold > 0:
                self._events.tell("client_refused", kind="more", reason=f"{untold} more clients since the last event")
        self._count += 1
        if self._count <= _MOST:
            self._events.tell("client_refused", kind=kind, reason=reason)
