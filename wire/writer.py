"""Writer: puts the primitives of the protocol behind one another, for the responses that are not left to kio.

Source: Apache Kafka 4.3.0, ByteBufferAccessor and the generated message classes; KIP-482.
"""

from __future__ import annotations

from collections.abc import Iterable

from wire.segments import FileRange, Segment, size_of


class Writer:
    """A response that grows. Bytes in memory are gathered; records and ranges of files stay as they are."""

    def __init__(self, correlation_id: int, *, is_flexible: bool) -> None:
        """Begin with the size, to be known at the end, and the header."""
        self._is_flexible = is_flexible
        self._out = bytearray(4) + correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if is_flexible else b"")
        self._segments: list[Segment] = []

    def raw(self, data: bytes) -> None:
        """Add bytes that are written already."""
        self._out += data

    def count(self, count: int) -> None:
        """Begin an array; -1 for a null one."""
        self._out += _varint(count + 1) if self._is_flexible else count.to_bytes(4, "big", signed=True)

    def text(self, value: str | None) -> None:
        """Add a nullable text."""
        data = b"" if value is None else value.encode()
        size = -1 if value is None else len(data)
        self._out += _varint(size + 1) if self._is_flexible else size.to_bytes(2, "big", signed=True)
        self._out += data

    def records(self, pieces: Iterable[Segment]) -> None:
        """Add records that consist of these pieces, without copying them."""
        pieces = tuple(pieces)
        self.count(sum(map(size_of, pieces)))
        for piece in pieces:
            if isinstance(piece, FileRange) or len(piece) > _COPIED:
                self._segments += (self._out, piece)
                self._out = bytearray()
            else:
                self._out += piece

    def tags(self, fields: Iterable[tuple[int, bytes]] = ()) -> None:
        """End a structure with these tagged fields, in rising order, where this version has any."""
        if self._is_flexible:
            fields = tuple(fields)
            self._out += _varint(len(fields))
            for tag, data in fields:
                self._out += _varint(tag) + _varint(len(data)) + data

    def finished(self) -> list[Segment]:
        """Return the response, with its size; the writer is of no use afterwards."""
        if self._out or not self._segments:
            self._segments.append(self._out)
        first = self._segments[0]
        assert isinstance(first, bytearray), "it begins with the header"
        first[:4] = (sum(map(size_of, self._segments)) - 4).to_bytes(4, "big")
        return self._segments


_COPIED = 4096
"""Bytes up to which a copy is cheaper than one more buffer to send."""


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
