"""The headers of every answer, and answers of a few kinds."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from daemon.events.safe_json import dumps

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "logmend",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
CHUNK: Final = 64 * 1024
"""Bytes of a body that are written at once, so that a slow reader holds no copy of all of it."""


async def send(request: web.BaseRequest, body: bytes, content_type: str, **headers: str) -> web.StreamResponse:
    """Send a body that other answers share, in pieces."""
    response = web.StreamResponse(headers={**HEADERS, "Content-Type": content_type, **headers})
    response.content_length = len(body)
    await response.prepare(request)
    if request.method != "HEAD":
        for start in range(0, len(body), CHUNK):
            await response.write(body[start : start + CHUNK])
    await response.write_eof()
    return response


def text_response(status: int, text: str, *, close: bool = False, **headers: str) -> web.Response:
    """Return an answer in plain text; with `close` it is the last one of its connection."""
    response = web.Response(status=status, text=text, headers={**HEADERS, **headers})
    if close:
        response.force_close()
    return response


def json_response(status: int, document: dict[str, Any]) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(status=status, text=dumps(document) + "\n", headers=HEADERS, content_type="application/json")
