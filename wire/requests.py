"""Reads requests by the schemas of kio, which are classes that describe themselves.

kio's own reader is faster, and held against this one in tests, but not for strangers: it takes memory for as many
elements as an array claims to have, and where that fails the process is gone. It also refuses tagged fields that it
does not know, which are to be skipped. Here every count and size is bounded by the bytes that are left.
Source: Apache Kafka 4.3.0, the generated messages; KIP-482.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from wire.reading import MessageInvalid, Reader

_Read = Callable[[Reader], Any]
_Convert = Callable[[Any], Any]
_Part = Callable[[Reader, dict[str, Any]], None]
"""Reads some fields into the values by name."""
_START: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@functools.cache
def request_reader(entity: Any) -> _Read:
    """Return what reads `entity`, a class of kio's; it raises `MessageInvalid`."""
    fields = dataclasses.fields(entity)
    parts = tuple(_parts([field for field in fields if "tag" not in field.metadata]))
    tagged = {field.metadata["tag"]: (field.name, _field(field)) for field in fields if "tag" in field.metadata}
    defaults = {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in fields
        if "tag" in field.metadata
    }
    is_flexible: bool = entity.__flexible__

    def read(reader: Reader) -> Any:
        values: dict[str, Any] = dict(defaults)
        for part in parts:
            part(reader, values)
        if is_flexible:
            for tag, size in reader.tags():
                end = reader.position + size
                if tag in tagged:
                    name, one = tagged[tag]
                    values[name] = one(reader)
                    if reader.position != end:
                        raise MessageInvalid(f"tagged field {tag} is not of its size")
                else:
                    reader.take(size)
        return entity(**values)

    return read


def _parts(fields: Sequence[dataclasses.Field[Any]]) -> Iterator[_Part]:
    """Yield what reads the fields in their order, those of a fixed size that stand together at once."""
    for is_fixed, together in groupby(fields, key=lambda field: _fixed(field) is not None):
        if is_fixed:
            yield _at_once([(field.name, *_ensured(_fixed(field))) for field in together])
        else:
            for field in together:
                yield _one(field.name, _field(field))


def _one(name: str, read: _Read) -> _Part:
    def part(reader: Reader, values: dict[str, Any]) -> None:
        values[name] = read(reader)

    return part


def _at_once(fields: Sequence[tuple[str, str, _Convert | None]]) -> _Part:
    names = tuple(name for name, _, _ in fields)
    layout = struct.Struct(">" + "".join(letter for _, letter, _ in fields))
    converts = tuple((name, convert) for name, _, convert in fields if convert is not None)

    def part(reader: Reader, values: dict[str, Any]) -> None:
        values.update(zip(names, reader.unpack(layout), strict=True))
        for name, convert in converts:
            values[name] = convert(values[name])

    return part


def _fixed(field: dataclasses.Field[Any]) -> tuple[str, _Convert | None] | None:
    """Return letter and conversion of a field that always has the same size, None for any other."""
    kind, _ = _without_none(field.type)
    if typing.get_origin(kind) is tuple or dataclasses.is_dataclass(kind):
        return None
    return _FIXED.get(field.metadata["kafka_type"])


def _ensured(found: tuple[str, _Convert | None] | None) -> tuple[str, _Convert | None]:
    assert found is not None, "it was asked before"
    return found


def _field(field: dataclasses.Field[Any]) -> _Read:
    kind, is_nullable = _without_none(field.type)
    if typing.get_origin(kind) is tuple:
        return _array(_element(field, typing.get_args(kind)[0]), is_nullable=is_nullable)
    if dataclasses.is_dataclass(kind):
        whole = request_reader(typing.cast("type", kind))
        if is_nullable and "tag" not in field.metadata:
            return lambda reader: None if reader.number(1) < 0 else whole(reader)
        return whole
    return _leaf(field, is_nullable=is_nullable)


def _element(field: dataclasses.Field[Any], kind: Any) -> _Read:
    inner, _ = _without_none(kind)
    if dataclasses.is_dataclass(inner):
        return request_reader(typing.cast("type", inner))
    return _leaf(field, is_nullable=False)


def _array(element: _Read, *, is_nullable: bool) -> _Read:
    def read(reader: Reader) -> tuple[Any, ...] | None:
        count = reader.size_of_array()
        if count < 0:
            return _refused_null() if not is_nullable else None
        return tuple([element(reader) for _ in range(count)])

    return read


def _leaf(field: dataclasses.Field[Any], *, is_nullable: bool) -> _Read:
    name = field.metadata["kafka_type"]
    fixed = _FIXED.get(name)
    if fixed is not None:
        letter, convert = fixed
        layout = struct.Struct(">" + letter)
        if convert is None:
            return lambda reader: reader.unpack(layout)[0]
        return lambda reader: convert(reader.unpack(layout)[0])
    read = _LEAVES[name]
    return read if is_nullable else lambda reader: _not_null(read(reader))


def _not_null(value: Any) -> Any:
    return _refused_null() if value is None else value


def _refused_null() -> Any:
    raise MessageInvalid("null where the schema has none")


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in typing.get_args(kind) if each is not types.NoneType), True
    return kind, False


def _bytes(reader: Reader) -> bytes | None:
    data = reader.data()
    return None if data is None else bytes(data)


def _id(data: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=data) if any(data) else None


def _duration(ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=ms)


def _time(ms: int) -> datetime.datetime | None:
    return None if ms < 0 else _START + datetime.timedelta(milliseconds=ms)


_FIXED: Final[Mapping[str, tuple[str, _Convert | None]]] = {
    "bool": ("?", None),
    "datetime_i64": ("q", _time),
    "error_code": ("h", ErrorCode),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint16": ("H", None),
    "timedelta_i32": ("i", _duration),
    "timedelta_i64": ("q", _duration),
    "uuid": ("16s", _id),
}
_LEAVES: Final[Mapping[str, _Read]] = {"bytes": _bytes, "records": _bytes, "string": lambda reader: reader.text()}
