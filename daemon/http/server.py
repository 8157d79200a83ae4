"""Status, metrics and the page over HTTP, on a Unix socket or a port of this machine, in a thread of its own.

Answers are made from the snapshot alone, a few fixed paths lead to them, and no path of a request goes anywhere else.
Orders are taken on a Unix socket only, which is its owner's; on a port there is only `GET`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from daemon.events.events import EventLog
from daemon.events.names import EVENTS
from daemon.events.safe_json import dumps
from daemon.http.doors import (
    ANSWER_SECONDS,
    HEADERS,
    MAX_BODY,
    MAX_FIELD,
    MAX_HEADERS,
    MAX_LINE,
    PATIENCE_SECONDS,
    Doors,
    is_host_known,
)
from daemon.http.metrics import CONTENT_TYPE, exposition
from daemon.http.page_file import load_page
from daemon.http.sockets import BoundSocket, Listen, ListenRefused, parse_listen
from daemon.http.view import Feed, Stuck, View
from daemon.status.document import broker_state, to_document
from daemon.status.model import DirState, ServiceStatus
from storage.base.errors import printable

__all__ = ["HttpOptions", "HttpServer", "ListenRefused"]

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Command = Callable[[str, str, str], str]
"""Takes an order (`scrub-now`, …), its argument, and the log directory that it is for, empty for all; answers in a
sentence; `ValueError` where the order, or the directory, is unknown."""

_CHUNK: Final = 64 * 1024
_PACK_FROM: Final = 2048
_MOST_STREAMS: Final = 16
_STALLED_SECONDS: Final = 20.0
_HEARTBEAT_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 5.0
_SILENT: Final = logging.Logger("http", logging.CRITICAL + 1)
"""What clients do wrong is theirs to know: nobody can fill our log with it. Our own faults are events."""
_ACTIONS: Final = ("now", "pause", "resume")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What may be set. Names of partitions stand in metrics only with `partition_labels`."""

    hosts: tuple[str, ...] = ()
    """Names that a `Host` header may give a port, beside its own address and those of loopback."""
    allow_remote: bool = False
    partition_labels: bool = False
    kafka_names: bool = False
    """Adds Kafka's own gauges of a recovery."""
    refresh_seconds: float = 1.0
    """Between two looks at the state, however many ask."""


class HttpServer:
    """Serves what `snapshot` returns on one place.

    `start` binds it, so that what is wrong is raised at once (`ListenRefused`, `ConfigInvalid`), and returns when it is
    served; `stop` ends all connections. `snapshot` and `command` are called from threads of this server.
    """

    def __init__(
        self,
        listen: str,
        snapshot: Callable[[], ServiceStatus],
        command: Command,
        *,
        events: EventLog | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        options = options or HttpOptions()
        self.listen = parse_listen(listen, allow_remote=options.allow_remote)
        self._snapshot, self._command, self._events = snapshot, command, events
        self._hosts = frozenset(host.lower() for host in (*options.hosts, self.listen.host) if host)
        self._metrics = functools.partial(
            exposition,
            events=tuple(EVENTS),
            partition_labels=options.partition_labels,
            kafka_names=options.kafka_names,
        )
        self._refresh = options.refresh_seconds
        self._page = load_page()
        self._bound: BoundSocket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._has_turned = True

    @property
    def address(self) -> str:
        """Where it listens, with the port that the system chose where 0 was asked for."""
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
        """Tell whether the loop has turned since this was last asked."""
        has_turned, self._has_turned = self._has_turned, False
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._turned)
        return has_turned or self._loop is None or self._loop.is_closed()

    def _turned(self) -> None:
        self._has_turned = True

    def stop(self) -> None:
        """End every connection and give the place free; waits a bounded time."""
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
        self._view = View(self._snapshot, self._events, self._refresh)
        self._feed = Feed(self._view, self._refresh)
        self._streams = 0
        self._doors = Doors()
        self._routes = self._make_routes()
        server = web.Server(
            self._answer,
            access_log=None,
            logger=_SILENT,
            keepalive_timeout=PATIENCE_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            lingering_time=1.0,
        )
        factory = self._doors.factory(server)
        if self.listen.path is None:
            site = await self._loop.create_server(factory, sock=self._bound.socket)
        else:
            site = await self._loop.create_unix_server(factory, sock=self._bound.socket)
        sweeper = asyncio.create_task(self._doors.sweep())
        served.set()
        await self._ended.wait()
        site.close()
        sweeper.cancel()
        self._feed.stop()
        await server.shutdown(0.1)
        self._view.close()

    def _make_routes(self) -> dict[str, Handler]:
        return {
            "/": self._home,
            "/status": self._made("status", "application/json", _status_body),
            "/metrics": self._made("metrics", CONTENT_TYPE, self._metrics),
            "/v1/broker-state": self._made("broker", "application/json", _broker_body),
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/events": self._stream,
        }

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request: who asks, what for, and in which way are looked at before anything else."""
        is_local = self.listen.path is not None
        self._doors.begun(request, None if request.path == "/events" else ANSWER_SECONDS)
        try:
            if not is_local and not is_host_known(request.headers.get("Host"), self._hosts):
                return _text(421, "this server does not go by that name\n", close=True)
            if is_local and request.path == "/v1/scrub":
                return await self._scrub(request)
            handler = self._routes.get(request.path)
            if handler is None:
                return _text(404, "not here; there are: " + " ".join(self._routes) + "\n")
            if request.method not in ("GET", "HEAD"):
                return _text(405, "only GET\n", close=True, Allow="GET, HEAD")
            return await handler(request)
        except Stuck as error:
            return _text(503, f"the service does not say how it is: {error}\n")
        except (ConnectionError, TimeoutError):
            raise  # the client has gone
        except Exception as error:  # noqa: BLE001 (one answer must not end the server, nor pass unseen)
            if self._events is not None:
                self._events.tell("answer_failed", path=request.path, error=f"{type(error).__name__}: {error}")
            return _text(500, "a fault of logmend itself\n", close=True)
        finally:
            self._doors.ended(request)

    async def _home(self, request: web.BaseRequest) -> web.StreamResponse:
        policy = {"Content-Security-Policy": self._page.policy}
        return await _send(request, self._page.body, "text/html; charset=utf-8", **policy)

    def _made(self, name: str, content_type: str, make: Callable[[ServiceStatus], bytes]) -> Handler:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            packed = "gzip" in request.headers.get("Accept-Encoding", "")
            body = await self._view.body(name, make, packed=packed)
            encoding = {"Content-Encoding": "gzip"} if packed else {}
            return await _send(request, body, content_type, Vary="Accept-Encoding", **encoding)

        return answer

    async def _health(self, _request: web.BaseRequest) -> web.StreamResponse:
        """Alive: the service says how it is, whatever that is."""
        await self._view.status()
        return _text(200, "ok\n")

    async def _readiness(self, _request: web.BaseRequest) -> web.StreamResponse:
        status = await self._view.status()
        if status.ready and not status.stopping:
            return _text(200, "ready\n")
        waits = [
            f"{printable(each.path)}: {each.state.value}{': ' if each.reason else ''}{printable(each.reason)}\n"
            for each in status.log_dirs
            if each.state not in (DirState.GUARDING, DirState.SERVING)
        ]
        return _text(503, "".join(["stopping\n" if status.stopping else "not ready\n", *waits]))

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "HEAD":
            return _text(200, "")
        if self._streams >= _MOST_STREAMS:
            return _text(503, f"{_MOST_STREAMS} follow already\n", close=True, **{"Retry-After": "15"})
        self._streams += 1
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await response.prepare(request)
            await self._write(request, response, b"retry: 2000\n\n")
            await self._follow(request, response)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams -= 1
        return response

    async def _follow(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        frames = self._feed.follow()
        waiting: asyncio.Task[bytes] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(frames))
                done, _ = await asyncio.wait({waiting}, timeout=_HEARTBEAT_SECONDS)
                frame = b": still here\n\n" if not done else waiting.result()
                waiting = None if done else waiting
                await self._write(request, response, frame)
        finally:
            if waiting is not None:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
            await frames.aclose()  # type: ignore[attr-defined]

    @staticmethod
    async def _write(request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
        """Write, piece by piece; a reader that takes nothing for too long is cut off."""
        for start in range(0, len(data), _CHUNK):
            await asyncio.wait_for(response.write(data[start : start + _CHUNK]), _STALLED_SECONDS)
            if request.transport is None:
                raise ConnectionResetError

    async def _scrub(self, request: web.BaseRequest) -> web.StreamResponse:
        """Take an order for the scrubber: `{"action": "now", "log_dir": "/…"}`."""
        if request.method != "POST":
            return _text(405, "only POST\n", close=True, Allow="POST")
        if (request.content_length or 0) > MAX_BODY or request.content_length is None:
            return _text(413, "a short body of a known length\n", close=True)
        try:
            told = json.loads(await request.content.read(MAX_BODY + 1))
            action, log_dir = told["action"], told.get("log_dir", "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return _json(400, {"error": 'the body must be {"action": "now"}, with "log_dir" if it is for one alone'})
        if action not in _ACTIONS or not isinstance(log_dir, str):
            return _json(400, {"error": f"the action must be one of {', '.join(_ACTIONS)}"})
        try:
            answer = await asyncio.to_thread(self._command, f"scrub-{action}", "", log_dir)
        except ValueError as error:
            return _json(400, {"error": printable(error)})
        return _json(200, {"answer": answer})


async def _send(request: web.BaseRequest, body: bytes, content_type: str, **headers: str) -> web.StreamResponse:
    """Send a body that is shared with others in pieces, so that a slow reader holds no copy of all of it."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": content_type, **headers})
    response.content_length = len(body)
    await response.prepare(request)
    if request.method != "HEAD":
        for start in range(0, len(body), _CHUNK):
            await response.write(body[start : start + _CHUNK])
    await response.write_eof()
    return response


def _text(status: int, text: str, *, close: bool = False, **headers: str) -> web.Response:
    response = web.Response(status=status, text=text, headers={**HEADERS, **headers})
    if close:
        response.force_close()
    return response


def _json(status: int, told: dict[str, Any]) -> web.Response:
    return web.Response(status=status, text=dumps(told) + "\n", headers=HEADERS, content_type="application/json")


def _status_body(status: ServiceStatus) -> bytes:
    return (dumps(to_document(status)) + "\n").encode("ascii")


def _broker_body(status: ServiceStatus) -> bytes:
    return (dumps(broker_state(status)) + "\n").encode("ascii")
