"""From what the listener notices to events of the service."""

from __future__ import annotations

from collections.abc import Callable

from daemon.status.model import Events


def teller(events: Events) -> Callable[[str, str], None]:
    """Return what tells an event, by the kind of what was noticed and the reason in words."""

    def tell(kind: str, reason: str) -> None:
        if kind == "fault":
            events.tell("client_failed", reason=reason)
        elif kind == "coordinator":
            events.tell("coordinator_failed", reason=reason)
        elif kind == "full":
            events.tell("append_refused", reason=reason)
        else:
            events.tell("client_refused", kind=kind, reason=reason)

    return tell
