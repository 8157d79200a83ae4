"""The stream of states at `/events`: whole first, then what changes from one second to the next.

A reader that falls behind gets the whole state again instead of the changes that it missed, so that a slow reader costs
no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from aiohttp import web

from daemon.events.safe_json import dumps
from daemon.http.page_document import difference, page_document
from daemon.http.responses import CHUNK, HEADERS, text_response
from daemon.http.view import Stuck, View

_MOST_STREAMS: Final = 16
_STALLED_SECONDS: Final = 20.0
_HEARTBEAT_SECONDS: Final = 10.0


class Feed:
    """One task takes the states while a reader follows; each reader takes as many as it can. For one event loop."""

    def __init__(self, view: View, interval_seconds: float) -> None:
        self._view, self._interval = view, interval_seconds
        self._news = asyncio.Condition()
        self._version = 0
        self._now: dict[str, Any] | None = None
        self._delta: bytes = b""
        self._readers = 0
        self._task: asyncio.Task[None] | None = None

    # ---- readers

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Stream to one reader until it goes away, or stalls."""
        if request.method == "HEAD":
            return text_response(200, "")
        if self._readers >= _MOST_STREAMS:
            text = f"{_MOST_STREAMS} readers follow already\n"
            return text_response(503, text, close=True, **{"Retry-After": "15"})
        self._readers += 1
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await response.prepare(request)
            await _write(request, response, b"retry: 2000\n\n")
            await self._stream(request, response)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._readers -= 1
            if not self._readers:
                self.stop()
        return response

    async def _stream(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        frames = self._frames()
        waiting: asyncio.Task[bytes] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(frames))
                done, _ = await asyncio.wait({waiting}, timeout=_HEARTBEAT_SECONDS)
                frame = b": still here\n\n" if not done else waiting.result()
                waiting = None if done else waiting
                await _write(request, response, frame)
        finally:
            if waiting is not None:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
            await frames.aclose()  # type: ignore[attr-defined]

    async def _frames(self) -> AsyncIterator[bytes]:
        """Yield a whole state, then changes; the whole state again where changes were missed."""
        if self._task is None:
            self._now = None
            self._task = asyncio.create_task(self._take_states())
        seen = -1
        while True:
            async with self._news:
                while self._now is None or self._version == seen:
                    await self._news.wait()
            frame = self._delta if seen == self._version - 1 and self._delta else self._whole()
            seen = self._version
            yield frame

    def _whole(self) -> bytes:
        assert self._now is not None
        return _frame("full", self._version, self._now)

    # ---- states

    def stop(self) -> None:
        """Take no more states."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _take_states(self) -> None:
        while True:
            with contextlib.suppress(Stuck):
                status = await self._view.status()
                new = await asyncio.to_thread(page_document, status, self._view.latest_events())
                old, self._now = self._now, new
                delta = None if old is None else difference(old, new)
                self._version += 1
                self._delta = b"" if delta is None else _frame("delta", self._version, delta)
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(self._interval)


def _frame(event: str, number: int, document: dict[str, Any]) -> bytes:
    return f"event: {event}\nid: {number}\ndata: {dumps(document)}\n\n".encode("ascii")


async def _write(request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
    """Write piece by piece; a reader that accepts nothing for too long is cut off."""
    for start in range(0, len(data), CHUNK):
        await asyncio.wait_for(response.write(data[start : start + CHUNK]), _STALLED_SECONDS)
        if request.transport is None:
            raise ConnectionResetError
