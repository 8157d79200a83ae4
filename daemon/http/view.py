"""The latest state of the service, and the bodies that are made from it, once for all readers."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from daemon.events.events import EventLog, stamp
from daemon.status.model import ServiceStatus

STATUS_SECONDS: Final = 5.0
"""A service that does not return its status within this time is stuck."""
_MOST_EVENTS: Final = 50

Bodies = dict[str, "asyncio.Future[bytes]"]


class Stuck(Exception):
    """The service did not return its status."""


class View:
    """The state as it is shown. All methods belong to one event loop; a thread beside it makes the bodies."""

    def __init__(self, status: Callable[[], ServiceStatus], events: EventLog | None, refresh_seconds: float) -> None:
        self._ask, self._events, self._refresh = status, events, refresh_seconds
        self._thread = ThreadPoolExecutor(1, "http-view")
        self._turn = asyncio.Lock()
        self._latest: ServiceStatus | None = None
        self._taken = 0.0
        self._bodies: Bodies = {}

    async def status(self) -> ServiceStatus:
        """Return the state, no older than the refresh interval; raises `Stuck`."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._latest is None or loop.time() - self._taken >= self._refresh:
                answer = loop.run_in_executor(self._thread, self._ask)
                try:
                    self._latest = await asyncio.wait_for(answer, STATUS_SECONDS)
                except Exception as error:
                    raise Stuck(type(error).__name__) from error
                self._taken = loop.time()
                self._bodies = {}
            return self._latest

    async def body(self, name: str, make: Callable[[ServiceStatus], bytes], *, packed: bool) -> bytes:
        """Return what `make` makes of the state, gzipped if `packed`; made once for all concurrent requests."""
        status = await self.status()
        bodies = self._bodies
        plain = await self._once(bodies, name, make, status)
        return await self._once(bodies, f"{name}.gz", gzip.compress, plain, 5) if packed else plain

    async def _once(self, bodies: Bodies, name: str, make: Callable[..., bytes], *arguments: Any) -> bytes:
        """Return the body of a name; requests that come while it is being made wait for the same one."""
        if name not in bodies:
            bodies[name] = asyncio.get_running_loop().run_in_executor(self._thread, make, *arguments)
        return await asyncio.shield(bodies[name])  # a client that disconnects does not cancel it for the others

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def latest_events(self) -> list[list[str]]:
        """Return the latest events, the newest first, as time, level, name and fields."""
        entries = self._events.recent() if self._events is not None else ()
        return [
            [
                stamp(entry.at_ms),
                entry.level,
                entry.event,
                " ".join(f"{name}={_words(value)}" for name, value in entry.fields.items() if value is not None)[:300],
            ]
            for entry in reversed(entries[-_MOST_EVENTS:])
        ]


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
