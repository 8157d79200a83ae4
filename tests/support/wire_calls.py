"""Requests as handlers get them, and their answers as clients see them, without a socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from kio.index import load_request_schema

from server.api.dispatch import Call, Handler, ListenerInfo
from wire.building import build, builder
from wire.messages import Request

INFO = ListenerInfo("127.0.0.1", 9092)
NOW = 1_700_000_000_000


def call_of(api_key: int, version: int, *, now_ms: int = NOW, **fields: object) -> Call:
    """Return a request of this version; fields that it lacks are dropped, those not given take their defaults."""
    body = builder(load_request_schema(api_key, version))(fields)
    request = Request(api_key, version, 1, "test", body)
    return Call(request, body, version, "test", "127.0.0.1", "ANONYMOUS", now_ms, INFO)


async def answer_of(handlers: Mapping[int, Handler], api_key: int, version: int, **fields: object) -> Any:
    """Return the response entity of that version to a request with these fields."""
    answer = handlers[api_key](call_of(api_key, version, **fields))
    values = await answer if inspect.isawaitable(answer) else answer
    assert values is not None
    return build(api_key, version, values)


def answered(handlers: Mapping[int, Handler], api_key: int, version: int, **fields: object) -> Any:
    """Do the same in a loop of its own."""
    return asyncio.run(answer_of(handlers, api_key, version, **fields))
