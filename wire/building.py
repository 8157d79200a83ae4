"""Typed messages of kio, built from plain values: numbers, texts, bytes, lists and mappings.

Error codes are numbers, times and durations milliseconds, ids 16 bytes; a time below 0 and an id of zeros are none. A
name that this version of the message lacks is dropped, one that is missing takes the default of the schema: so a
handler need not know the version. A name that no version has is dropped as well.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

Values = Mapping[str, object]
_Convert = Callable[[Any], Any]
_START: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZERO_ID: Final = bytes(16)


def build(api_key: int, version: int, values: Values) -> Any:
    """Return kio's response entity; raises `TypeError` and `ValueError` for what fits no field."""
    return builder(load_response_schema(api_key, version))(values)


@functools.cache
def builder(entity: Any) -> Callable[[Values], Any]:
    """Return what makes `entity`, a class of kio's, out of values."""
    converts: dict[str, _Convert] = {}
    defaults: dict[str, object] = {}
    for field in dataclasses.fields(entity):
        converts[field.name], empty = _field(field)
        has_default = field.default is not dataclasses.MISSING
        defaults[field.name] = field.default if has_default else empty

    def made(values: Values) -> Any:
        given = {name: convert(values[name]) for name, convert in converts.items() if name in values}
        return entity(**(defaults | given))

    return made


def _field(field: dataclasses.Field[Any]) -> tuple[_Convert, object]:
    """Return what converts a value to the field's type, and the value of a field that is not given."""
    kind, is_nullable = _without_none(field.type)
    if typing.get_origin(kind) is tuple:
        inner, _ = _without_none(typing.get_args(kind)[0])
        element = (
            builder(typing.cast("type", inner))
            if dataclasses.is_dataclass(inner)
            else _leaf(field.metadata["kafka_type"])[0]
        )
        return _nullable(lambda values: tuple(map(element, _ensure_many(values)))), None if is_nullable else ()
    if dataclasses.is_dataclass(kind):
        made = builder(typing.cast("type", kind))
        return _nullable(made), None if is_nullable else made({})
    convert, empty = _leaf(field.metadata["kafka_type"])
    if convert is _time and not is_nullable:  # this type has no null
        return _any_time, _any_time(-1)
    return _nullable(convert), None if is_nullable else empty


def _ensure_many(values: object) -> Iterable[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"a list is wanted, not {type(values).__name__}")
    return values


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        left = [each for each in typing.get_args(kind) if each is not types.NoneType]
        return left[0], True
    return kind, False


def _nullable(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _id(value: bytes | uuid.UUID) -> uuid.UUID | None:
    data = value.bytes if isinstance(value, uuid.UUID) else bytes(value)
    return None if data == _ZERO_ID else uuid.UUID(bytes=data)


def _time(ms: int) -> datetime.datetime | None:
    return None if ms < 0 else _any_time(ms)


def _any_time(ms: int) -> datetime.datetime:
    return _START + datetime.timedelta(milliseconds=ms)


def _duration(ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=ms)


_LEAVES: Final[Mapping[str, tuple[_Convert, object]]] = {
    "bool": (bool, False),
    "bytes": (bytes, b""),
    "records": (bytes, b""),
    "datetime_i64": (_time, None),
    "error_code": (ErrorCode, ErrorCode.none),
    "float64": (float, 0.0),
    "string": (str, ""),
    "timedelta_i32": (_duration, datetime.timedelta()),
    "timedelta_i64": (_duration, datetime.timedelta()),
    "uuid": (_id, None),
}


def _leaf(kind: str) -> tuple[_Convert, object]:
    return _LEAVES.get(kind, (int, 0))
