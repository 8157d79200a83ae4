"""Limits on the connections of the HTTP server: how many, how large their requests, how long they may take.

Whatever a client does, or leaves undone, costs a bounded amount of memory and delays no other client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web

MAX_CONNECTIONS: Final = 64
"""At the same time; another one takes the place of the one whose client has kept us waiting longest."""
PATIENCE_SECONDS: Final = 10.0
"""For a client to send a whole request, or the next one."""
ANSWER_SECONDS: Final = 60.0
"""For a client to take an answer that ends."""
_PRESSED_SECONDS: Final = 5.0
"""For the same, while others wait for a place."""
MAX_LINE: Final = 2048
MAX_FIELD: Final = 4096
MAX_HEADERS: Final = 48
MAX_BODY: Final = 1024
MAX_REQUEST: Final = 32 * 1024
"""Bytes of one request in all; a client that sends more is cut off before parsing."""
_SWEEP_SECONDS: Final = 1.0


class Door(asyncio.Protocol):
    """One connection with a time limit; passes its bytes to the protocol behind it."""

    def __init__(self, behind: asyncio.Protocol, doors: Doors) -> None:
        self._behind, self._doors = behind, doors
        self.transport: asyncio.Transport | None = None
        self.since = doors.time()
        """When what its client has to do began: to send a request, or to take an answer."""
        self.deadline: float | None = self.since + PATIENCE_SECONDS
        self.is_answered = self.is_leaving = False
        self.received = 0
        """Bytes since the last request was answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if not self._doors.take(self):
            self.transport.abort()
            return
        self._behind.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._doors.drop(self):
            self._behind.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.received > MAX_REQUEST and self.transport is not None:
            self.transport.abort()
        elif self._doors.has(self):
            self._behind.data_received(data)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received() if self._doors.has(self) else None

    def pause_writing(self) -> None:
        if self._doors.has(self):
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        if self._doors.has(self):
            self._behind.resume_writing()


class Doors:
    """All connections of a server. Belongs to the thread of its event loop."""

    def __init__(self, limit: int = MAX_CONNECTIONS) -> None:
        self._limit = limit
        self._open: dict[asyncio.BaseTransport, Door] = {}
        self.refused = 0

    @staticmethod
    def time() -> float:
        """Return the time of the event loop."""
        return asyncio.get_running_loop().time()

    def factory(self, server: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """Return what makes the protocol of a new connection."""
        return lambda: Door(cast("asyncio.Protocol", server()), self)

    def take(self, door: Door) -> bool:
        """Count a connection in; False if there are too many, and each of them is being answered."""
        is_full = sum(not other.is_leaving for other in self._open.values()) >= self._limit
        if door.transport is None or (is_full and not self._make_room()):
            self.refused += 1
            return False
        self._open[door.transport] = door
        return True

    def _make_room(self) -> bool:
        """Close the connection whose client has kept us waiting longest; return False if there is none.

        An honest client has sent its request long before so many others have come.
        """
        now = self.time()
        slow = [
            door
            for door in self._open.values()
            if not door.is_leaving and door.deadline is not None
            if not door.is_answered or now - door.since > _PRESSED_SECONDS
        ]
        if not slow:
            return False
        slowest = min(slow, key=lambda door: (door.is_answered, door.since))
        slowest.is_leaving = True
        assert slowest.transport is not None, "it was counted in"
        slowest.transport.abort()
        return True

    def drop(self, door: Door) -> bool:
        """Count a connection out; False if it had not been counted in."""
        return door.transport is not None and self._open.pop(door.transport, None) is not None

    def has(self, door: Door) -> bool:
        """Tell whether a connection is counted in."""
        return door.transport is not None and door.transport in self._open

    def begun(self, request: web.BaseRequest, seconds: float | None) -> None:
        """Limit the time of the answer to a request; None for one that never ends."""
        self._set(request, seconds, is_answered=True)

    def ended(self, request: web.BaseRequest) -> None:
        """Limit the time until the next request on this connection."""
        self._set(request, PATIENCE_SECONDS, is_answered=False)
        door = self._open.get(request.transport) if request.transport is not None else None
        if door is not None:
            door.received = 0

    def _set(self, request: web.BaseRequest, seconds: float | None, *, is_answered: bool) -> None:
        door = self._open.get(request.transport) if request.transport is not None else None
        if door is not None:
            door.since, door.is_answered = self.time(), is_answered
            door.deadline = None if seconds is None else door.since + seconds

    async def sweep(self) -> None:
        """Close the connections whose time is over, for ever."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self.time()
            for transport, door in list(self._open.items()):
                if door.deadline is not None and now > door.deadline:
                    cast("asyncio.Transport", transport).abort()
