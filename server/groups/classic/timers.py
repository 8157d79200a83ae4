"""The timers of a group: sessions of members, reserved member ids, and the wait for members that have not synced."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from server.api.clock import Handle, Timers
from server.groups.classic.member import Member
from server.groups.classic.world import World


class Timer:
    """At most one call that is due later."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._handle: Handle | None = None

    def restart(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Make `call` after a delay, and not the one that was due until now."""
        self.cancel()
        self._handle = self._timers.call_later(delay_ms, call)

    def cancel(self) -> None:
        """Make no call."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


class Sessions:
    """The sessions of members, and ids that were given to clients and are not members' yet.

    `session_ended` gets the member; `reservation_ended` is called for an id with which no client came back in time.
    """

    def __init__(
        self, world: World, session_ended: Callable[[Member], None], reservation_ended: Callable[[], None]
    ) -> None:
        self._world, self._session_ended, self._reservation_ended = world, session_ended, reservation_ended
        self._reserved: dict[str, Handle] = {}

    @property
    def has_reserved(self) -> bool:
        """Whether a client has an id and has not joined with it."""
        return bool(self._reserved)

    def extend(self, member: Member, timeout_ms: int | None = None) -> None:
        """Begin the session of a member again; `timeout_ms` replaces its own timeout this time."""
        member.stop_timer()
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.timer = self._world.call_later(delay_ms, lambda: self._session_ended(member))

    def reserve(self, member_id: str, timeout_ms: int) -> None:
        """Keep an id for the client that received it."""
        self._reserved[member_id] = self._world.call_later(timeout_ms, lambda: self._expire(member_id))
        self._world.kept.reserve(member_id)

    def is_reserved(self, member_id: str) -> bool:
        """Return whether an id is kept for a client."""
        return member_id in self._reserved

    def release(self, member_id: str) -> None:
        """Keep an id no longer."""
        if (handle := self._reserved.pop(member_id, None)) is not None:
            handle.cancel()
            self._world.kept.forget(member_id)

    def release_all(self) -> None:
        """Keep no id any longer."""
        for member_id in tuple(self._reserved):
            self.release(member_id)

    def _expire(self, member_id: str) -> None:
        if member_id in self._reserved:
            self.release(member_id)
            self._reservation_ended()


class SyncPhase:
    """The members of a generation that have not asked for their assignment yet, and how long they may take."""

    def __init__(self, timers: Timers) -> None:
        self._timer = Timer(timers)
        self.missing: set[str] = set()

    def begin(self, member_ids: Iterable[str]) -> None:
        """Expect these members."""
        self.missing = set(member_ids)

    def limit(self, timeout_ms: int, expired: Callable[[], None]) -> None:
        """Call `expired` after so long, unless the phase ends before."""
        self._timer.restart(timeout_ms, expired)

    def synced(self, member_id: str) -> None:
        """Note that a member has asked; the phase ends with the last one."""
        self.missing.discard(member_id)
        if not self.missing:
            self.end()

    def end(self) -> None:
        """Expect no member."""
        self.missing.clear()
        self._timer.cancel()
