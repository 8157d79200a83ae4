"""Requests of every kind that is served, as large as a client may make them, or drawn and changed."""

from __future__ import annotations

import dataclasses
import datetime
import random
import types
import typing
import uuid
from typing import Any, Final

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from support.kio_messages import request_frame, request_of

from server.api.versions import VERSIONS, ApiKey

SERVED: Final = tuple(key for key in ApiKey if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""The kinds that a listener without users serves."""
SHAPES: Final = ("repeated", "unknown", "repeated within one", "unknown within one")
_NAMES: Final = {"group": "group", "member": "member", "protocol": "consumer", "client": "client"}


def large(key: int, shape: str, count: int, topic: str) -> bytes:
    """Return a request of the newest version with arrays of `count` elements; no records."""
    entity = load_request_schema(key, VERSIONS[key].highest)
    return request_frame(_Filled(count, topic, shape).entity(entity, 0))


class _Filled:
    """Fills entities: the outermost arrays, or those within them, have many elements."""

    def __init__(self, count: int, topic: str, shape: str) -> None:
        self._count, self._topic = count, topic
        self._is_within, self._is_unknown = shape.endswith("within one"), shape.startswith("unknown")
        self._number = 0

    def entity(self, kind: Any, depth: int) -> Any:
        """Return an entity of this class."""
        return kind(**{field.name: self._value(field, depth) for field in dataclasses.fields(kind)})

    def _value(self, field: dataclasses.Field[Any], depth: int) -> Any:
        kind = _without_none(field.type)
        if typing.get_origin(kind) is tuple:
            inner = _without_none(typing.get_args(kind)[0])
            is_many = not _has_arrays(inner) if self._is_within else depth == 0
            return tuple(self._one(inner, field, depth + 1) for _ in range(self._count if is_many else 1))
        return self._one(kind, field, depth)

    def _one(self, kind: Any, field: dataclasses.Field[Any], depth: int) -> Any:
        if dataclasses.is_dataclass(kind):
            return self.entity(kind, depth)
        name = field.metadata["kafka_type"]
        if self._is_unknown:
            self._number += 1
        if name == "string":
            known = next((text for part, text in _NAMES.items() if part in field.name), self._topic)
            return f"{known}{self._number or ''}"
        if name.startswith(("int", "uint")):
            return 2 if "type" in field.name else self._number % 100
        return {
            "bool": False,
            "bytes": b"",
            "records": None,
            "error_code": ErrorCode.none,
            "uuid": uuid.UUID(int=self._number + 1),
            "timedelta_i32": datetime.timedelta(milliseconds=100),
            "timedelta_i64": datetime.timedelta(milliseconds=100),
            "datetime_i64": None,
        }[name]


def _has_arrays(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and any(
        typing.get_origin(_without_none(field.type)) is tuple for field in dataclasses.fields(kind)
    )


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(kind) if each is not types.NoneType)
    return kind


def drawn(draw: random.Random) -> tuple[str, bytes]:
    """Return a request that is valid by its schema, or has a few bytes changed, and its name."""
    key = draw.choice(SERVED)
    version = draw.randint(VERSIONS[key].lowest, VERSIONS[key].highest)
    frame = bytearray(request_frame(request_of(key, version, draw)))
    changes = draw.choice((0, 0, 1, 3))
    for _ in range(changes):
        frame[draw.randrange(min(len(frame) - 1, 8), len(frame))] = draw.choice((0, 1, 127, 255, draw.randrange(256)))
    return f"{ApiKey(key).name} {version}, {changes} changes: {bytes(frame[:400]).hex()}", bytes(frame)
