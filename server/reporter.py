"""What the listener reports, as events of the service."""

from __future__ import annotations

from collections.abc import Callable

from daemon.status.model import Events


def reporter_to(events: Events) -> Callable[[str, str], None]:
    """Return a function that makes an event of each report: its kind, and the reason in words."""

    def report(kind: str, reason: str) -> None:
        if kind == "fault":
            events.tell("client_failed", reason=reason)
        elif kind == "coordinator":
            events.tell("coordinator_failed", reason=reason)
        elif kind == "full":
            events.tell("append_refused", reason=reason)
        else:
            events.tell("client_refused", kind=kind, reason=reason)

    return report
