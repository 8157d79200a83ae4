"""Serves status, metrics, events and the page over HTTP, from a thread of its own with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable
from typing import Final

from aiohttp import web

from daemon.events.events import EventLog
from daemon.http.answers import Answers, Command, HttpOptions
from daemon.http.doors import MAX_FIELD, MAX_HEADERS, MAX_LINE, PATIENCE_SECONDS, Doors
from daemon.http.sockets import BoundSocket, Listen, parse_listen
from daemon.http.view import View
from daemon.status.model import ServiceStatus

_STOP_SECONDS: Final = 5.0
_SILENT: Final = logging.Logger("http", logging.CRITICAL + 1)
"""Errors of clients are not logged, so that a client cannot fill our log. Our own faults are events."""


class HttpServer:
    """Serves what `status` returns on one address.

    `start` binds it, so that a wrong address is raised at once (`ListenRefused`, `ConfigInvalid`), and returns when it
    is served; `stop` ends all connections. Threads of this server call `status` and `command`.
    """

    def __init__(
        self,
        listen: str,
        status: Callable[[], ServiceStatus],
        command: Command,
        *,
        events: EventLog | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        self._options = options or HttpOptions()
        self.listen = parse_listen(listen, allow_remote=self._options.allow_remote)
        self._status, self._command, self._events = status, command, events
        self._bound: BoundSocket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._answers: Answers | None = None
        self._has_turned = True

    @property
    def address(self) -> str:
        """The address, with the port that the system chose for port 0."""
        if self._bound is None or self.listen.path is not None:
            return str(self.listen)
        return str(Listen(host=self.listen.host, port=self._bound.port))

    def start(self) -> None:
        """Listen, and serve from a thread of its own."""
        self._bound = BoundSocket(self.listen)
        served = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(served,), name="http", daemon=True)
        self._thread.start()
        served.wait()
        if self._events is not None:
            self._events.tell("listening", listen=self.address)

    def beat(self) -> bool:
        """Tell whether the loop has turned since the last call."""
        has_turned, self._has_turned = self._has_turned, False
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._turned)
        return has_turned or self._loop is None or self._loop.is_closed()

    def _turned(self) -> None:
        self._has_turned = True

    def stop(self) -> None:
        """End every connection and release the address; waits a bounded time."""
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def _run(self, served: threading.Event) -> None:
        try:
            asyncio.run(self._serve(served))
        finally:
            served.set()

    async def _serve(self, served: threading.Event) -> None:
        assert self._bound is not None
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        view, doors = View(self._status, self._events, self._options.refresh_seconds), Doors()
        answers = self._answers = Answers(view, doors, self.listen, self._command, self._options)
        server = web.Server(
            functools.partial(answers.answer, events=self._events),
            access_log=None,
            logger=_SILENT,
            keepalive_timeout=PATIENCE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            lingering_time=1.0,
        )
        factory = doors.factory(server)
        if self.listen.path is None:
            site = await self._loop.create_server(factory, sock=self._bound.socket)
        else:
            site = await self._loop.create_unix_server(factory, sock=self._bound.socket)
        sweeper = asyncio.create_task(doors.sweep())
        served.set()
        await self._ended.wait()
        site.close()
        sweeper.cancel()
        answers.stop()
        await server.shutdown(0.1)
        view.close()
