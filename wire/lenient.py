"""Reads what kio refuses: requests with tagged fields that the schema does not know, which are to be skipped (KIP-482).

Slower than kio, and only asked where kio has found such a field. Source: Apache Kafka 4.3.0, the generated messages.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from wire.reading import MessageInvalid, Reader

_Read = Callable[[Reader], Any]
_START: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@functools.cache
def lenient_reader(entity: Any) -> _Read:
    """Return what reads `entity`, a class of kio's, without unknown tagged fields; it raises `MessageInvalid`."""
    plain: dict[str, _Read] = {}
    tagged: dict[int, tuple[str, _Read]] = {}
    defaults: dict[str, object] = {}
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = field.name, _field(field, is_tagged=True)
            defaults[field.name] = None if field.default is dataclasses.MISSING else field.default
        else:
            plain[field.name] = _field(field, is_tagged=False)

    def read(reader: Reader) -> Any:
        values: dict[str, object] = {name: part(reader) for name, part in plain.items()}
        if entity.__flexible__:
            values |= defaults
            for tag, size in reader.tags():
                end = reader.position + size
                if tag in tagged:
                    name, part = tagged[tag]
                    values[name] = part(reader)
                    if reader.position != end:
                        raise MessageInvalid(f"tagged field {tag} is not of its size")
                else:
                    reader.take(size)
        return entity(**values)

    return read


def _field(field: dataclasses.Field[Any], *, is_tagged: bool) -> _Read:
    kind, is_nullable = _without_none(field.type)
    if typing.get_origin(kind) is tuple:
        inner, _ = _without_none(typing.get_args(kind)[0])
        element = lenient_reader(typing.cast("type", inner)) if dataclasses.is_dataclass(inner) else _leaf(field)
        return lambda reader: None if (count := reader.size_of_array()) < 0 else _many(reader, element, count)
    if dataclasses.is_dataclass(kind):
        whole = lenient_reader(typing.cast("type", kind))
        if is_nullable and not is_tagged:
            return lambda reader: None if reader.number(1) < 0 else whole(reader)
        return whole
    return _leaf(field)


def _many(reader: Reader, element: _Read, count: int) -> tuple[Any, ...]:
    return tuple(element(reader) for _ in range(count))


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(kind) if each is not types.NoneType), True
    return kind, False


def _leaf(field: dataclasses.Field[Any]) -> _Read:
    return _LEAVES[field.metadata["kafka_type"]]


def _bytes(reader: Reader) -> bytes | None:
    data = reader.data()
    return None if data is None else bytes(data)


def _id(reader: Reader) -> uuid.UUID | None:
    data = bytes(reader.take(16))
    return uuid.UUID(bytes=data) if any(data) else None


def _duration(size: int) -> _Read:
    return lambda reader: datetime.timedelta(milliseconds=reader.number(size))


def _time(reader: Reader) -> datetime.datetime | None:
    ms = reader.number(8)
    return None if ms < 0 else _START + datetime.timedelta(milliseconds=ms)


_LEAVES: Final[Mapping[str, _Read]] = {
    "bool": lambda reader: reader.number(1) != 0,
    "bytes": _bytes,
    "records": _bytes,
    "datetime_i64": _time,
    "error_code": lambda reader: ErrorCode(reader.number(2)),
    "int8": lambda reader: reader.number(1),
    "int16": lambda reader: reader.number(2),
    "int32": lambda reader: reader.number(4),
    "int64": lambda reader: reader.number(8),
    "uint16": lambda reader: reader.number(2) & 0xFFFF,
    "string": lambda reader: reader.text(),
    "timedelta_i32": _duration(4),
    "timedelta_i64": _duration(8),
    "uuid": _id,
}
