"""Conversation: a connection without its socket. Frames in, responses out, in the order of the requests.

One request at a time is worked on, as a broker does; only Produce requests may begin while earlier ones wait to be
durable. No request begins while the peer does not take its responses. The transport reads on only while `wants_more`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from server.api.dispatch import Answer, Client, Dispatcher, discard, is_long
from server.api.errors import CloseConnection
from server.api.versions import ApiKey
from server.net.limits import Limits
from server.net.sasl import Login
from storage.base.errors import LogmendError, printable
from wire.frame import Frame
from wire.messages import Header, Request
from wire.segments import Segment, close_files

_LONG: Final = 16 << 10
"""Bytes of a request, other than Produce, above which it is not decoded in the loop's thread."""
_AT_A_TIME: Final = 16
"""Requests of one connection before the others have their turn."""
_GIVEN_UP: Final = frozenset((ApiKey.FETCH, ApiKey.JOIN_GROUP))
"""Requests that wait for what others do, and end with their connection."""


class Sink(Protocol):
    """Where responses go."""

    @property
    def is_congested(self) -> bool:
        """Whether the peer has not received what was sent before."""

    def send(self, segments: list[Segment]) -> None:
        """Send these bytes, now or when the peer takes them."""

    def close(self, reason: str) -> None:
        """End the connection at once."""

    def close_when_sent(self) -> None:
        """End the connection once the peer has what was sent."""

    def look(self) -> None:
        """Start or stop reading, as `wants_more` says now."""


class Tally:
    """Counts over all connections."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        """By api key."""
        self.closed: Counter[str] = Counter()
        """Connections that we ended, by kind of reason."""
        self.received = self.sent = self.accepted = 0
        self.report: Callable[[str, str], None] = lambda _kind, _reason: None
        """Receives why a connection was ended, by kind and in words."""


class _Slot:
    """A request that was begun, and its response once it is ready."""

    __slots__ = ("frame", "future", "is_done", "is_preparing", "key", "request", "segments")

    def __init__(self, frame: Frame, key: int) -> None:
        self.frame, self.key = frame, key
        self.request: Request | None = None
        self.segments: list[Segment] = []
        self.future: asyncio.Future[Answer] | None = None
        self.is_done = self.is_preparing = False


class Conversation:
    """The requests of one connection; for the thread of the loop."""

    def __init__(
        self, dispatcher: Dispatcher, sink: Sink, client: Client, limits: Limits, tally: Tally, login: Login | None
    ) -> None:
        self._dispatcher, self._sink, self._limits, self._tally = dispatcher, sink, limits, tally
        self._client = client
        self._login = login
        self._queue: deque[Frame] = deque()
        self._slots: deque[_Slot] = deque()
        self._is_pumping = self._is_over = self._is_ending = False
        self._loop = asyncio.get_running_loop()

    # ---- what the transport asks

    @property
    def is_logged_in(self) -> bool:
        """Whether the client is authenticated, or need not be."""
        return self._login is None

    @property
    def frame_limit(self) -> int:
        """Bytes of the largest frame that is accepted now."""
        return self._limits.frame if self._login is None else self._limits.frame_before_login

    @property
    def wants_more(self) -> bool:
        """Whether to read on."""
        return not self._is_ending and len(self._queue) <= self._limits.queued and not self._sink.is_congested

    @property
    def is_busy(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._slots or self._queue)

    def take(self, frames: Sequence[Frame]) -> None:
        """Take in requests."""
        if self._is_ending:
            for frame in frames:
                frame.release()
            return
        self._queue.extend(frames)
        self.pump()

    def end(self) -> None:
        """Take no more frames; requests that were begun are finished, the others dropped."""
        self._is_ending = True
        self._drop_queue()

    def over(self) -> None:
        """The connection is gone: drop its answers."""
        self._is_over = self._is_ending = True
        self._drop_queue()
        for slot in self._slots:
            slot.frame.release()
            close_files(slot.segments)
            if slot.future is not None and (slot.is_preparing or slot.key in _GIVEN_UP):  # others are finished
                slot.future.cancel()
        self._slots.clear()

    def _drop_queue(self) -> None:
        for frame in self._queue:
            frame.release()
        self._queue.clear()

    # ---- working on requests

    def pump(self) -> None:
        """Begin what may begin, and send what is ready."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            begun = 0
            while self._queue and not self._is_over and self._may_begin(self._queue[0]):
                if begun == _AT_A_TIME:
                    self._loop.call_soon(self.pump)
                    break
                begun += 1
                self._begin(self._queue.popleft())
                self._send_ready()
        finally:
            self._is_pumping = False
        if not self._is_over:
            self._sink.look()

    def _may_begin(self, frame: Frame) -> bool:
        if self._sink.is_congested:
            return False
        if not self._slots:
            return True
        if self._slots[-1].is_preparing:
            return False
        is_produce = _key(frame) == ApiKey.PRODUCE and self._slots[-1].key == ApiKey.PRODUCE
        return is_produce and len(self._slots) < self._limits.overlapping

    def _begin(self, frame: Frame) -> None:
        slot = _Slot(frame, _key(frame))
        self._slots.append(slot)
        if self._login is not None and self._login.takes_tokens:
            self._follow(slot, self._token(slot, self._login))
            return
        if self._login is None and slot.key != ApiKey.PRODUCE and _LONG < len(frame.data) <= self._limits.other_frame:
            slot.is_preparing = True
            self._follow(slot, self._call_long(slot))
            return
        try:
            if slot.key != ApiKey.PRODUCE and len(frame.data) > self._limits.other_frame:
                raise CloseConnection(f"request {slot.key} of {len(frame.data)} bytes")
            request = self._dispatcher.decoded(frame.data)
            self._tally.requests[request.api_key] += 1
            if isinstance(request, Header):
                slot.segments, slot.is_done = self._dispatcher.refused_version(request), True
                return
            slot.request = request
            prepared = None if self._login is not None else self._dispatcher.prepared(request)
            if isinstance(prepared, Awaitable):
                slot.is_preparing = True
                self._follow(slot, self._call_prepared(slot, request, prepared))
                return
            answer = self._call(request, prepared)
        except Exception as error:  # noqa: BLE001 (whatever it is, it ends this connection and no other)
            self._fail(error)
            return
        if isinstance(answer, Awaitable):
            self._follow(slot, answer)
        else:
            self._finish(slot, answer)

    def _follow(self, slot: _Slot, answer: Awaitable[Answer]) -> None:
        slot.future = asyncio.ensure_future(answer)
        slot.future.add_done_callback(lambda done: self._answered(slot, done))

    async def _call_long(self, slot: _Slot) -> Answer:
        """Answer a request that takes long to be decoded: others are served meanwhile."""
        request = await self._dispatcher.beside(lambda: self._dispatcher.decoded(slot.frame.data))
        self._tally.requests[request.api_key] += 1
        if isinstance(request, Header):
            raise CloseConnection(f"request {request.api_key} of {len(slot.frame.data)} bytes")
        slot.request = request
        ready: asyncio.Future[object] = self._loop.create_future()
        ready.set_result(None)
        return await self._call_prepared(slot, request, ready)

    async def _call_prepared(self, slot: _Slot, request: Request, prepared: Awaitable[object]) -> Answer:
        value = await prepared
        slot.is_preparing = False
        answer = self._call(request, value)
        self._loop.call_soon(self.pump)  # later requests have waited for it to begin
        return await answer if isinstance(answer, Awaitable) else answer

    def _call(self, request: Request, prepared: object = None) -> Answer | Awaitable[Answer]:
        if self._login is None:
            return self._dispatcher.call(request, self._client, prepared)
        if request.api_key == ApiKey.API_VERSIONS:
            return self._dispatcher.call(request, self._client)
        return self._login.answer(request)

    async def _token(self, slot: _Slot, login: Login) -> None:
        """Answer a token that has no request around it."""
        answer = await login.answer_token(bytes(slot.frame.data))
        slot.segments = [len(answer).to_bytes(4, "big") + answer]

    def _look_at_login(self) -> None:
        """See whether it is over."""
        login = self._login
        if login is not None and login.has_failed:
            self._note_refused(login)
            self.end()
            self._sink.close_when_sent()
        elif login is not None and login.principal is not None:
            self._client = replace(self._client, principal=login.principal)
            self._login = None

    def _note_refused(self, login: Login) -> None:
        self._tally.closed["login"] += 1
        user = "" if login.claimed is None else f" as {printable(login.claimed)}"
        self._tally.report("login", f"{printable(self._client.host)}: no login{user}")

    def _answered(self, slot: _Slot, answer: asyncio.Future[Answer]) -> None:
        if self._is_over:
            if not answer.cancelled() and answer.exception() is None:
                discard(answer.result())
            return
        if answer.cancelled():
            self._sink.close("a request was given up")
            return
        error = answer.exception()
        if error is not None:
            self._fail(error)
            return
        self._finish(slot, answer.result())
        self._send_ready()
        self.pump()

    def _finish(self, slot: _Slot, answer: Answer) -> None:
        request = slot.request
        if answer is not None:
            assert request is not None, "it was begun"
            if slot.key not in (ApiKey.PRODUCE, ApiKey.FETCH) and is_long(answer):
                slot.future = None
                encoding = self._dispatcher.beside(lambda: self._dispatcher.encoded(request, answer))
                encoding.add_done_callback(lambda done: self._encoded(slot, done))
                return
            try:
                slot.segments = self._dispatcher.encoded(request, answer)
            except Exception as error:  # noqa: BLE001 (as in _begin)
                self._fail(error)
                return
        slot.is_done = True
        slot.frame.release()

    def _encoded(self, slot: _Slot, done: asyncio.Future[list[Segment]]) -> None:
        if self._is_over:
            return
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._fail(error)
            return
        slot.segments, slot.is_done = done.result(), True
        slot.frame.release()
        self._send_ready()
        self.pump()

    def _send_ready(self) -> None:
        while self._slots and self._slots[0].is_done and not self._is_over:
            slot = self._slots.popleft()
            slot.frame.release()
            if slot.segments:
                self._sink.send(slot.segments)
            if self._login is not None:
                self._look_at_login()

    def _fail(self, error: BaseException) -> None:
        kind = "refused" if isinstance(error, LogmendError) else "fault"
        reason = str(error) if kind == "refused" else f"{type(error).__name__}: {error}"
        if self._login is not None and self._login.has_failed:
            self._note_refused(self._login)
        else:
            self._tally.closed[kind] += 1
            self._tally.report(kind, printable(reason))
        self._sink.close(reason)


def _key(frame: Frame) -> int:
    return int.from_bytes(frame.data[:2], "big", signed=True)
