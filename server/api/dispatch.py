"""Dispatch: the handler of each request, what it receives, and how its answer is sent.

A handler takes a `Call` and returns plain values in the field names of the newest version, or an awaitable of such, or
None where no answer is due (Produce with acks 0). All run in the thread of the listener's loop and must not block it.
It raises `CloseConnection` where the protocol has no error code. Any other exception is a fault of ours: the connection
is closed and the fault reported; no client sees it as an unknown error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey, advertised, serves
from wire.messages import Header, Request, decode, encode, encode_as, read_header
from wire.segments import Segment, close_files

T = TypeVar("T")
Values = Mapping[str, object]
_MANY: Final = 500


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """The listener as clients see it: the address to connect to, node and cluster."""

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
    prepared: Any = None
    """What a preparation has made of the request."""


Answer = Values | None
Handler = Callable[[Call], Answer | Awaitable[Answer]]
Preparation = Callable[[Request], object]
"""Looks at a request before it is handled; an awaitable result is awaited, and later requests wait, too."""


@dataclass(frozen=True, slots=True)
class Client:
    """The peer of a connection; `here`: the address it connected to, if it is to connect there again."""

    host: str
    principal: str = "ANONYMOUS"
    here: tuple[str, int] | None = None


def discard(answer: Answer) -> None:
    """Close the files of an answer whose client is gone."""
    for topic in cast("Iterable[Any]", (answer or {}).get("responses", ())):
        for partition in topic.get("partitions", ()):
            close_files(list(partition.get("records") or ()))


def is_long(answer: Values) -> bool:
    """Return whether so much is to be encoded that other clients would wait for it."""
    left = _MANY
    for value in answer.values():
        if isinstance(value, list | tuple):
            left -= len(value)
            for element in value if left >= 0 else ():
                if isinstance(element, Mapping):
                    left -= sum(len(inner) for inner in element.values() if isinstance(inner, list | tuple))
    return left < 0


class Dispatcher:
    """The handlers by key; ApiVersions lists exactly these, and itself."""

    def __init__(self, handlers: Mapping[int, Handler], info: ListenerInfo, now_ms: Callable[[], int]) -> None:
        self.handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: self._api_versions, **handlers}
        self.info, self._now_ms = info, now_ms
        self.ending: list[Callable[[], None]] = []
        """Called when the listener begins to stop, to answer clients that wait for others."""
        self.ended: list[Callable[[], Awaitable[None]]] = []
        """Awaited once no request is left."""
        self.preparing: dict[int, Preparation] = {}
        """By key, where there is one."""
        self._beside = ThreadPoolExecutor(1, "coder")
        self.trailing = 0
        """Requests so far that had bytes behind them."""

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

    def prepared(self, request: Request) -> object:
        """Return what the preparation of this request returns, None where there is none."""
        prepare = self.preparing.get(request.api_key)
        return None if prepare is None else prepare(request)

    def call(self, request: Request, client: Client, prepared: object = None) -> Answer | Awaitable[Answer]:
        """Return what the handler returns."""
        info = self.info if client.here is None else replace(self.info, host=client.here[0], port=client.here[1])
        call = Call(
            request, request.body, request.api_version, request.client_id or "", client.host, client.principal,
            self._now_ms(), info, prepared,
        )  # fmt: skip
        return self.handlers[request.api_key](call)

    def refused_version(self, header: Header) -> list[Segment]:
        """Return the answer to ApiVersions of an unknown version: version 0, with the versions that are served."""
        values = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": advertised([ApiKey.API_VERSIONS])}
        return encode_as(ApiKey.API_VERSIONS, 0, header.correlation_id, values)

    def beside(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have `call` made by a thread for what takes long, one call after another."""
        return asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._beside, call))

    def encoded(self, request: Request, values: Values) -> list[Segment]:
        """Return the response."""
        return encode(request, values)

    def _api_versions(self, call: Call) -> Values:
        del call
        return {"error_code": ErrorCode.NONE, "api_keys": advertised(self.handlers)}
