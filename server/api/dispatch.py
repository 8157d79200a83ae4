"""Dispatch: which handler answers a request, what it is told, and what becomes of its answer.

A handler takes a `Call` and returns plain values in the field names of the newest version, or an awaitable of such, or
None where no answer is due (Produce with acks 0). All run in the thread of the listener's loop and must not block it.
It raises `CloseConnection` where the protocol has no other way to say no. Whatever else it raises is a fault of ours:
the connection is closed and the fault is told to `on_fault`; no client sees it as an unknown error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey, advertised, serves
from wire.messages import Header, Request, decode, encode, encode_as, read_header
from wire.segments import Segment, let_go

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """What the listener tells of itself: where clients shall connect, as which node of which cluster."""

    host: str
    port: int
    node_id: int = 1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One request and who sent it. `principal` is `ANONYMOUS` without authentication, else the user's name."""

    request: Request
    body: Any
    version: int
    client_id: str
    client_host: str
    principal: str
    now_ms: int
    info: ListenerInfo


Answer = Values | None
Handler = Callable[[Call], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Client:
    """Who is at the other end of a connection; `here`: where he has come to, if he is to be told to come there."""

    host: str
    principal: str = "ANONYMOUS"
    here: tuple[str, int] | None = None


def discard(answer: Answer) -> None:
    """Let go of the files of an answer that nobody waits for any more."""
    for topic in cast("Iterable[Any]", (answer or {}).get("responses", ())):
        for partition in topic.get("partitions", ()):
            let_go(list(partition.get("records") or ()))


class Dispatcher:
    """The handlers by key; ApiVersions shows exactly what is there, and is there itself."""

    def __init__(self, handlers: Mapping[int, Handler], info: ListenerInfo, now_ms: Callable[[], int]) -> None:
        self.handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: self._api_versions, **handlers}
        self.info, self._now_ms = info, now_ms
        self.ending: list[Callable[[], None]] = []
        """Called when the listener begins to stop: whoever waits for others is to be answered."""
        self.ended: list[Callable[[], Awaitable[None]]] = []
        """Called once nothing is asked any more."""
        self.trailing = 0
        """Requests with bytes behind them so far."""

    def decoded(self, frame: memoryview) -> Request | Header:
        """Return the request in a frame; the header alone of an ApiVersions request of an unknown version.

        Raises `CloseConnection` for a key or version that is not served, `MessageInvalid` for senseless bytes.
        """
        header = read_header(frame)
        if not serves(header.api_key, header.api_version) or header.api_key not in self.handlers:
            if header.api_key == ApiKey.API_VERSIONS:
                return header
            raise CloseConnection(f"request {header.api_key} of version {header.api_version} is not served")
        request = decode(frame, header)
        self.trailing += request.trailing > 0
        return request

    def call(self, request: Request, client: Client) -> Answer | Awaitable[Answer]:
        """Return what the handler returns."""
        info = self.info if client.here is None else replace(self.info, host=client.here[0], port=client.here[1])
        call = Call(
            request, request.body, request.api_version, request.client_id or "", client.host, client.principal,
            self._now_ms(), info,
        )  # fmt: skip
        return self.handlers[request.api_key](call)

    def refused_version(self, header: Header) -> list[Segment]:
        """Return what an ApiVersions request of an unknown version gets: version 0, with the range of itself."""
        values = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": advertised([ApiKey.API_VERSIONS])}
        return encode_as(ApiKey.API_VERSIONS, 0, header.correlation_id, values)

    def encoded(self, request: Request, values: Values) -> list[Segment]:
        """Return the response."""
        return encode(request, values)

    def _api_versions(self, call: Call) -> Values:
        del call
        return {"error_code": ErrorCode.NONE, "api_keys": advertised(self.handlers)}
