"""Messages of kio with drawn values, and the same as plain values: kio is the oracle for what is written by hand."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TEXTS = ("", "orders", "Bestellungen-ÄÖÜ", "x" * 300)


def drawn(entity: Any, draw: random.Random) -> Any:
    """Return an entity of this class with values that its fields may have."""
    return entity(**{field.name: _value(field, draw) for field in dataclasses.fields(entity)})


def _value(field: dataclasses.Field[Any], draw: random.Random) -> Any:
    if draw.random() < 0.2 and field.default is not dataclasses.MISSING:
        return field.default
    kind, is_nullable = _without_none(field.type)
    if is_nullable and draw.random() < 0.2 and "tag" not in field.metadata:
        return None
    if typing.get_origin(kind) is tuple:
        inner, _ = _without_none(typing.get_args(kind)[0])
        count = draw.choice([0, 1, 3, 200]) if not dataclasses.is_dataclass(inner) else draw.choice([0, 1, 2, 5])
        return tuple(_one(inner, field.metadata, draw) for _ in range(count))
    return _one(kind, field.metadata, draw)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(kind) if each is not types.NoneType), True
    return kind, False


def _one(kind: Any, metadata: Any, draw: random.Random) -> Any:
    if dataclasses.is_dataclass(kind):
        return drawn(kind, draw)
    name = metadata["kafka_type"]
    if name.startswith(("int", "uint")):
        bits = int(name.lstrip("uint"))
        low, high = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return draw.choice([low, high, draw.randint(low, high), draw.randint(max(low, -3), 99)])
    draws: dict[str, Callable[[], Any]] = {
        "bool": lambda: draw.random() < 0.5,
        "string": lambda: draw.choice(TEXTS),
        "bytes": lambda: draw.randbytes(draw.choice([0, 5, 200])),
        "records": lambda: draw.randbytes(draw.choice([0, 70, 5000])),
        "error_code": lambda: draw.choice(list(ErrorCode)),
        "uuid": lambda: uuid.UUID(int=draw.getrandbits(127) + 1),
        "float64": draw.random,
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=draw.randint(0, 2**31 - 1)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=draw.randint(0, 2**40)),
        "datetime_i64": lambda: START + datetime.timedelta(milliseconds=draw.randint(0, 2**41)),
    }
    return draws[name]()


def plain(value: Any) -> Any:
    """Return an entity as the plain values that a handler gives."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, ErrorCode):
        return int(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.datetime):
        return (value - START) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return value


def request_frame(entity: Any, correlation_id: int = 7, client_id: str | None = "tests") -> bytes:
    """Return the frame of a request, without its size, as kio writes it."""
    header = entity.__header_schema__
    fields = {
        "request_api_key": entity.__api_key__,
        "request_api_version": entity.__version__,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    out = io.BytesIO()
    entity_writer(header)(out, header(**{f.name: fields[f.name] for f in dataclasses.fields(header)}))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def response_frame(entity: Any, correlation_id: int) -> bytes:
    """Return the frame of a response, with its size, as kio writes it."""
    out = io.BytesIO()
    header = entity.__header_schema__
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(type(entity))(out, entity)
    data = out.getvalue()
    return len(data).to_bytes(4, "big") + data


def request_of(api_key: int, version: int, draw: random.Random) -> Any:
    """Return a drawn request."""
    return drawn(load_request_schema(api_key, version), draw)
