"""The text form that all of Kafka's checkpoint files share: a version, a count, and one entry a line.

Read as a broker reads it: what it accepts is accepted and what it refuses is `CheckpointCorrupt`. The one exception is
white space before the first field, which a broker takes for an empty first field: that is corrupt here.
Source: Apache Kafka 4.3.0, CheckpointFile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Final, TypeVar

from storage.base.errors import CheckpointCorrupt, CorruptData, UnsupportedFormat, printable
from storage.base.numerals import parse_int32, parse_int64
from storage.disk.fs import ReadFs, read_all

_VERSION: Final = 0
_HEAD_LINES: Final = 2
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_WHITE_SPACE: Final = re.compile(r"[ \t\n\v\f\r]+")
_QUOTED: Final = 60

T = TypeVar("T")
Parse = Callable[[bytes], T]


def decode_text(data: bytes) -> str:
    """Return the text; `CheckpointCorrupt` with the position of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt("not UTF-8", position=error.start) from None


def split_lines(text: str) -> list[str]:
    """Return the lines as Java's BufferedReader does: any of CR LF, LF and CR ends one, the last end may be missing."""
    lines = text.split("\n") if "\r" not in text else _LINE_END.split(text)
    if lines[-1] == "":
        del lines[-1]
    return lines


def decode(data: bytes, width: int) -> list[list[str]]:
    """Return the entries, each of exactly `width` fields, unparsed.

    No bytes, or a version alone, are no entries. Raises `UnsupportedFormat` for a version above 0, `CheckpointCorrupt`
    for everything else a broker refuses. Nothing is allocated by the count that the file claims.
    """
    lines = split_lines(decode_text(data))
    if not lines:
        return []
    version = parse_int32(lines[0])
    if version is None or version < _VERSION:
        raise _malformed("version", 1, lines[0])
    if version > _VERSION:
        raise UnsupportedFormat(f"checkpoint of version {version}; {_VERSION} is known", position=0)
    if len(lines) == 1:
        return []
    count = parse_int32(lines[1])
    if count is None or count < 0:
        raise _malformed("number of entries", 2, lines[1])
    entries = [_fields(line, number, width) for number, line in enumerate(lines[2:], 3)]
    if len(entries) != count:
        raise CheckpointCorrupt(f"{count} entries are announced, {len(entries)} are there")
    return entries


def decode_leading(data: bytes, width: int) -> tuple[list[list[str]], bool]:
    """Return the entries of the leading lines that are whole, and whether these are all that the file announces.

    A line without its end may be cut short within a number, though a broker reads it: it is not whole.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data[: error.start].decode("utf-8")
    lines = _LINE_END.split(text)
    rest = lines.pop()
    if len(lines) < _HEAD_LINES or parse_int32(lines[0]) != _VERSION:
        return [], False
    entries: list[list[str]] = []
    for number, line in enumerate(lines[_HEAD_LINES:], _HEAD_LINES + 1):
        try:
            entries.append(_fields(line, number, width))
        except CheckpointCorrupt:
            return entries, False
    return entries, rest == "" and len(text.encode()) == len(data) and parse_int32(lines[1]) == len(entries)


def _fields(line: str, number: int, width: int) -> list[str]:
    fields = _WHITE_SPACE.split(line)
    while fields and fields[-1] == "":  # as Java's split does; white space may trail, but not lead
        fields.pop()
    if len(fields) != width or fields[0] == "":
        raise _malformed(f"entry of {width} fields", number, line)
    return fields


def encode(entries: Iterable[Sequence[object]]) -> bytes:
    """Return the file that holds the entries, in the order given.

    Raises `ValueError` for a field that would not be read back: empty, with white space in it, or not UTF-8.
    """
    lines = []
    for entry in entries:
        fields = [str(field) for field in entry]
        if not all(fields) or any(map(_WHITE_SPACE.search, fields)):
            raise ValueError(f"cannot stand in a checkpoint: {printable(fields)}")
        lines.append(" ".join(fields) + "\n")
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def int32_field(text: str) -> int:
    """Return a field's number; `CheckpointCorrupt` unless Java would take it for an int."""
    return _number(parse_int32(text), text)


def int64_field(text: str) -> int:
    """Return a field's number; `CheckpointCorrupt` unless Java would take it for a long."""
    return _number(parse_int64(text), text)


def _number(number: int | None, text: str) -> int:
    if number is None:
        raise CheckpointCorrupt(f"{quoted(text)} is no number, or out of range")
    return number


def read(fs: ReadFs, path: PurePath, limit: int, parse: Parse[T]) -> T:
    """Return what `parse` makes of a file of at most `limit` bytes; what it raises is given the path.

    Raises `FileVanished` if there is no such file, `ReadFault` if it cannot be read or is larger.
    """
    data = read_all(fs, path, limit)
    try:
        return parse(data)
    except CorruptData as error:
        error.path = path
        raise


def quoted(text: str) -> str:
    """Return a piece of hostile text fit for a message: printable, and short."""
    return repr(printable(text if len(text) <= _QUOTED else text[:_QUOTED] + "…"))


def _malformed(what: str, number: int, line: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(f"line {number} is no {what}: {quoted(line)}")
