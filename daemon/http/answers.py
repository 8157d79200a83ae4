"""The answers of the HTTP server: a few fixed paths, made from the state of the service alone.

Orders are accepted on a Unix socket only, which belongs to its owner; on a port there is only `GET`.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from daemon.events.events import EventLog
from daemon.events.names import EVENTS
from daemon.events.safe_json import dumps
from daemon.http.doors import ANSWER_SECONDS, MAX_BODY, Doors
from daemon.http.feed import Feed
from daemon.http.metrics import CONTENT_TYPE, exposition
from daemon.http.page_file import load_page, load_runbooks
from daemon.http.responses import json_response, send, text_response
from daemon.http.sockets import Listen, is_loopback
from daemon.http.view import Stuck, View
from daemon.status.document import broker_state, to_document
from daemon.status.model import DirState, ServiceStatus
from storage.base.errors import printable

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Command = Callable[[str, str, str], str]
"""Carries out an order (`scrub-now`, …) with its argument for a log directory, empty for all; returns a sentence;
`ValueError` where the order, or the directory, is unknown."""
_ACTIONS: Final = ("now", "pause", "resume")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Settings of the server. Metrics name partitions only with `partition_labels`."""

    hosts: tuple[str, ...] = ()
    """Names that a `Host` header may give a port, beside its own address and those of loopback."""
    allow_remote: bool = False
    partition_labels: bool = False
    kafka_names: bool = False
    """Adds Kafka's own gauges of a recovery."""
    refresh_seconds: float = 1.0
    """Interval between two looks at the state, however many clients ask."""


class Answers:
    """Answers the requests of one server. Belongs to its event loop."""

    def __init__(self, view: View, doors: Doors, listen: Listen, command: Command, options: HttpOptions) -> None:
        self._view, self._doors, self._command = view, doors, command
        self._is_local = listen.path is not None
        self._hosts = frozenset(host.lower() for host in (*options.hosts, listen.host) if host)
        self._page = load_page()
        self._feed = Feed(view, options.refresh_seconds)
        metrics = functools.partial(
            exposition,
            events=tuple(EVENTS),
            partition_labels=options.partition_labels,
            kafka_names=options.kafka_names,
        )
        self._routes: dict[str, Handler] = {
            "/": self._home,
            "/status": self._from_state("status", "application/json", _status_body),
            "/metrics": self._from_state("metrics", CONTENT_TYPE, metrics),
            "/v1/broker-state": self._from_state("broker", "application/json", _broker_body),
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/events": self._feed.answer,
        }
        self._runbooks = {f"/runbooks/{name}": self._runbook(body) for name, body in load_runbooks().items()}

    def stop(self) -> None:
        """End the stream of states."""
        self._feed.stop()

    async def answer(self, request: web.BaseRequest, events: EventLog | None) -> web.StreamResponse:
        """Answer one request; a fault of ours is told to `events`."""
        self._doors.begun(request, None if request.path == "/events" else ANSWER_SECONDS)
        try:
            return await self._route(request)
        except Stuck as error:
            return text_response(503, f"the service does not return its status: {error}\n")
        except (ConnectionError, TimeoutError):
            raise  # the client has gone
        except Exception as error:  # noqa: BLE001 (one answer must not end the server, nor pass unseen)
            if events is not None:
                events.tell("answer_failed", path=request.path, error=f"{type(error).__name__}: {error}")
            return text_response(500, "a fault of logmend itself\n", close=True)
        finally:
            self._doors.ended(request)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        """Check the host, the path and the method, in this order, before anything else."""
        if not self._is_local and not is_host_known(request.headers.get("Host"), self._hosts):
            return text_response(421, "this server does not go by that name\n", close=True)
        if self._is_local and request.path == "/v1/scrub":
            return await self._scrub(request)
        handler = self._routes.get(request.path) or self._runbooks.get(request.path)
        if handler is None:
            return text_response(404, "not here; there are: " + " ".join(self._routes) + "\n")
        if request.method not in ("GET", "HEAD"):
            return text_response(405, "only GET\n", close=True, Allow="GET, HEAD")
        return await handler(request)

    async def _home(self, request: web.BaseRequest) -> web.StreamResponse:
        policy = {"Content-Security-Policy": self._page.policy}
        return await send(request, self._page.body, "text/html; charset=utf-8", **policy)

    @staticmethod
    def _runbook(body: bytes) -> Handler:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return await send(request, body, "text/plain; charset=utf-8")

        return answer

    def _from_state(self, name: str, content_type: str, make: Callable[[ServiceStatus], bytes]) -> Handler:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            packed = "gzip" in request.headers.get("Accept-Encoding", "")
            body = await self._view.body(name, make, packed=packed)
            encoding = {"Content-Encoding": "gzip"} if packed else {}
            return await send(request, body, content_type, Vary="Accept-Encoding", **encoding)

        return answer

    async def _health(self, _request: web.BaseRequest) -> web.StreamResponse:
        """Alive: the service returns its status, whatever that is."""
        await self._view.status()
        return text_response(200, "ok\n")

    async def _readiness(self, _request: web.BaseRequest) -> web.StreamResponse:
        status = await self._view.status()
        if status.ready and not status.stopping:
            return text_response(200, "ready\n")
        waits = [
            f"{printable(each.path)}: {each.state.value}{': ' if each.reason else ''}{printable(each.reason)}\n"
            for each in status.log_dirs
            if each.state not in (DirState.GUARDING, DirState.SERVING)
        ]
        return text_response(503, "".join(["stopping\n" if status.stopping else "not ready\n", *waits]))

    async def _scrub(self, request: web.BaseRequest) -> web.StreamResponse:
        """Carry out an order for the scrubber: `{"action": "now", "log_dir": "/…"}`."""
        if request.method != "POST":
            return text_response(405, "only POST\n", close=True, Allow="POST")
        if (request.content_length or 0) > MAX_BODY or request.content_length is None:
            return text_response(413, "a short body of a known length\n", close=True)
        try:
            order = json.loads(await request.content.read(MAX_BODY + 1))
            action, log_dir = order["action"], order.get("log_dir", "")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            error = 'the body must be {"action": "now"}, with "log_dir" if it is for one alone'
            return json_response(400, {"error": error})
        if action not in _ACTIONS or not isinstance(log_dir, str):
            return json_response(400, {"error": f"the action must be one of {', '.join(_ACTIONS)}"})
        try:
            answer = await asyncio.to_thread(self._command, f"scrub-{action}", "", log_dir)
        except ValueError as fault:
            return json_response(400, {"error": printable(fault)})
        return json_response(200, {"answer": answer})


def is_host_known(header: str | None, names: frozenset[str]) -> bool:
    """Tell whether a `Host` header names this server by its own address or by a configured name.

    A page on another site can make a browser use a name that its owner lets point here (DNS rebinding): such a name is
    not known.
    """
    if header is None:
        return False
    host, _, port = header.rpartition(":")
    if not host or not port.isdigit() or header.endswith("]"):
        host = header
    host = host.removeprefix("[").removesuffix("]").lower()
    return is_loopback(host) or host in names


def _status_body(status: ServiceStatus) -> bytes:
    return (dumps(to_document(status)) + "\n").encode("ascii")


def _broker_body(status: ServiceStatus) -> bytes:
    return (dumps(broker_state(status)) + "\n").encode("ascii")
