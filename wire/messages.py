"""Requests out of frames, responses into segments: the one door to kio, which has every message of Kafka.

Bytes behind a request are counted and let be: librdkafka leaves some behind Metadata. A response carries its size and
header. Source: Apache Kafka 4.3.0, RequestHeader, ResponseHeader; KIP-482, KIP-511.
"""

from __future__ import annotations

import datetime
import functools
import io
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema
from kio.serial import entity_writer

from wire.building import Values, build
from wire.fetch import read_fetch, write_fetch
from wire.produce import is_plain, read_produce, write_produce
from wire.reading import MessageInvalid, Reader
from wire.requests import request_reader
from wire.segments import Segment

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = 18
_HEADER: Final = struct.Struct(">hhi")


class Header(NamedTuple):
    """What every request begins with; the body begins at `body_position`, behind tagged fields if there are any."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


class Request(NamedTuple):
    """A request. `body`: kio's entity of that version, or a `ProduceBody` or `FetchBody`; `trailing` bytes."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Any
    trailing: int = 0


def read_header(frame: memoryview) -> Header:
    """Return the header of a request of any key and version; raises `MessageInvalid`."""
    if len(frame) < _HEADER.size:
        raise MessageInvalid(f"a request of {len(frame)} bytes")
    key, version, correlation_id = _HEADER.unpack_from(frame)
    if len(frame) == _HEADER.size:  # header version 0, which no client sends any more
        return Header(key, version, correlation_id, None, _HEADER.size)
    reader = Reader(frame, _HEADER.size)
    client_id = reader.legacy_text()
    return Header(key, version, correlation_id, client_id, reader.position)


def decode(frame: memoryview, header: Header | None = None) -> Request:
    """Return the request in a frame; its records stay views of the frame.

    Raises `MessageInvalid` for bytes that are no such request, and for a key or version that kio does not know.
    """
    head = header or read_header(frame)
    read, is_flexible = _request_reader(head.api_key, head.api_version)
    reader = Reader(frame, head.body_position, is_flexible=is_flexible)
    reader.skip_tags()
    body, end = read(frame, reader.position)
    return Request(head.api_key, head.api_version, head.correlation_id, head.client_id, body, len(frame) - end)


@functools.cache
def _request_reader(api_key: int, version: int) -> tuple[Callable[[memoryview, int], tuple[Any, int]], bool]:
    if api_key == PRODUCE:
        return (lambda frame, position: read_produce(frame, position, version)), version >= 9
    if api_key == FETCH:
        return (lambda frame, position: read_fetch(frame, position, version)), version >= 12
    try:
        schema = load_request_schema(api_key, version)
    except RuntimeError as error:
        raise MessageInvalid(f"no request {api_key} of version {version}") from error
    whole, is_flexible = request_reader(schema), bool(schema.__flexible__)

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        reader = Reader(frame, position, is_flexible=is_flexible)
        try:
            return whole(reader), reader.position
        except (ValueError, OverflowError) as error:  # a duration, or a code, that is none
            raise MessageInvalid(f"request {api_key} of version {version}: {error}") from error

    return read, is_flexible


def decode_response(frame: bytes, schema: Any) -> tuple[int, Any]:
    """Return correlation id and entity of a response of this class of kio's; raises `MessageInvalid`."""
    header, view = schema.__header_schema__, memoryview(frame)
    reader = Reader(view, is_flexible=header.__flexible__)
    correlation_id = reader.number(4)
    reader.skip_tags()
    body = Reader(view, reader.position, is_flexible=schema.__flexible__)
    try:
        return correlation_id, request_reader(schema)(body)
    except (ValueError, OverflowError) as error:
        raise MessageInvalid(f"response {schema.__name__}: {error}") from error


def encode(request: Request | Header, values: Values) -> list[Segment]:
    """Return the response with these values, size and header included; raises what `build` does.

    The records of a Fetch response are lists of segments.
    """
    if request.api_key == FETCH:
        return write_fetch(request.api_version, request.correlation_id, values)
    if request.api_key == PRODUCE and is_plain(values):
        return write_produce(request.api_version, request.correlation_id, values)
    return encode_as(request.api_key, request.api_version, request.correlation_id, values)


def encode_as(api_key: int, version: int, correlation_id: int, values: Values) -> list[Segment]:
    """Return the response of this key and version."""
    entity = build(api_key, version, values)
    out = io.BytesIO()
    out.write(bytes(4))
    out.write(correlation_id.to_bytes(4, "big", signed=True))
    if entity.__flexible__ and api_key != API_VERSIONS:
        out.write(b"\0")
    entity_writer(type(entity))(out, entity)
    data = out.getbuffer()
    data[:4] = (len(data) - 4).to_bytes(4, "big")
    return [data]


def get(body: Any, name: str, default: Any) -> Any:
    """Return an attribute of a request's body that older versions lack, `default` where it is lacking."""
    return getattr(body, name, default)


def milliseconds(value: datetime.timedelta | int) -> int:
    """Return a duration of a request's body in ms."""
    return value if isinstance(value, int) else round(value.total_seconds() * 1000)
