"""Records as lines of text, in both directions: JSON with `append` and `read`, plain lines with `append`.

Bytes stand in JSON as text or as base64. As text, bytes that are no UTF-8 become lone surrogates, U+DC80 to U+DCFF, so
that what is read can be appended again, byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from engine.client.batching import NewRecord
from storage.base.errors import ConfigInvalid, printable
from storage.base.units import INT32_MAX, INT64_MAX, TopicPartition
from storage.batch.batch import TimestampType
from storage.batch.record import Header, Record


class Encoding(Enum):
    """How bytes stand in JSON."""

    TEXT = "text"
    BASE64 = "base64"


_KEYS: Final = frozenset({"key", "value", "headers", "timestamp", "partition"})
_OF_READ: Final = frozenset({"topic", "offset", "timestamp_type"})
"""What `read` tells besides: taken without a word, so that its output can be appended elsewhere."""


class BadLine(ConfigInvalid):
    """A line that is no record: its number and what is wrong."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")
        self.number = number


def parse_json(line: bytes, number: int, encoding: Encoding, now_ms: int) -> NewRecord:
    """Return the record in a line of JSON, the line of that number; without a timestamp it has the time `now_ms`.

    Raises `BadLine`.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(number, f"not JSON: {printable(error)}") from None
    if not isinstance(fields, dict):
        raise BadLine(number, "no JSON object")
    if unknown := sorted(fields.keys() - _KEYS - _OF_READ):
        raise BadLine(number, f"unknown key {printable(unknown[0])}; known are {', '.join(sorted(_KEYS))}")

    def whole(name: str, default: int | None, most: int) -> int | None:
        value = fields.get(name, default)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise BadLine(number, f"{name} is no whole number from 0 to {most}")
        return value

    timestamp = whole("timestamp", now_ms, INT64_MAX)
    assert timestamp is not None
    return NewRecord(
        _bytes(fields.get("key"), "key", number, encoding),
        _bytes(fields.get("value"), "value", number, encoding),
        timestamp,
        _headers(fields.get("headers"), number, encoding),
        whole("partition", None, INT32_MAX),
        number,
    )


def parse_plain(line: bytes, number: int, encoding: Encoding, now_ms: int) -> NewRecord:
    """Return the record whose value is the line. Raises `BadLine` for one that is no base64 where that is wanted."""
    value = line if encoding is Encoding.TEXT else _from_base64(line.decode("ascii", "replace"), "value", number)
    return NewRecord(None, value, now_ms, source=number)


Parse = Callable[[bytes, int, Encoding, int], NewRecord]
FORMATS: Final[dict[str, Parse]] = {"json": parse_json, "text": parse_plain}


def _bytes(value: object, name: str, number: int, encoding: Encoding) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadLine(number, f"{name} is no text; give JSON documents as text, with their quotes escaped")
    if encoding is Encoding.BASE64:
        return _from_base64(value, name, number)
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadLine(number, f"{name} holds half a character") from None


def _from_base64(text: str, name: str, number: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadLine(number, f"{name} is no base64") from None


def _headers(found: object, number: int, encoding: Encoding) -> tuple[Header, ...]:
    pairs = list(found.items()) if isinstance(found, dict) else found
    if pairs is None:
        return ()
    if not isinstance(pairs, list):
        raise BadLine(number, "headers are neither an object nor a list of pairs")
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadLine(number, "a header is no pair of a name and a value")
        _bytes(pair[0], "the name of a header", number, Encoding.TEXT)
        headers.append((pair[0], _bytes(pair[1], "the value of a header", number, encoding)))
    return tuple(headers)


_TYPES: Final = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE: "CreateTime",
    TimestampType.LOG_APPEND: "LogAppendTime",
}


def to_document(name: TopicPartition, record: Record, encoding: Encoding) -> dict[str, Any]:
    """Return a record as `read` writes it."""

    def told(data: bytes | None) -> str | None:
        if data is None:
            return None
        if encoding is Encoding.BASE64:
            return base64.b64encode(data).decode()
        return data.decode("utf-8", "surrogateescape")

    return {
        "topic": name.topic,
        "partition": name.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp,
        "timestamp_type": _TYPES[record.timestamp_type],
        "key": told(record.key),
        "value": told(record.value),
        "headers": [[header, told(value)] for header, value in record.headers],
    }
