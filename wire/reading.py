"""Reader: takes the primitives of the protocol out of a frame, each bounded by the bytes that are there.

For the few places where messages are read here and not by kio: headers, and Produce, of which nothing is copied.
Source: Apache Kafka 4.3.0, ByteBufferAccessor and the generated message classes; KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from storage.base.errors import ExitStatus, LogmendError

_NUMBERS: Final = {size: struct.Struct(">" + letter) for size, letter in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))}


MOST_ELEMENTS: Final = 1 << 16
"""Of arrays and tagged fields of a message together: reading them takes time in which no other client is served."""


class MessageInvalid(LogmendError):
    """Bytes that are no message of their kind and version."""

    status = ExitStatus.USAGE


class Reader:
    """A place in a frame that moves on. Every method raises `MessageInvalid` where bytes are missing or senseless."""

    __slots__ = ("_data", "_elements", "_is_flexible", "position")

    def __init__(self, data: memoryview, position: int = 0, *, is_flexible: bool = False) -> None:
        self._data, self.position, self._is_flexible = data, position, is_flexible
        self._elements = 0

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self._data) - self.position

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes, without copying them."""
        start = self.position
        if not 0 <= size <= len(self._data) - start:
            raise MessageInvalid(f"{size} bytes wanted at {start}, {self.left} are left")
        self.position = start + size
        return self._data[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return what stands there by a layout."""
        start = self.position
        end = self.position = start + layout.size
        if end > len(self._data):
            raise MessageInvalid(f"{layout.size} bytes wanted at {start}, {len(self._data) - start} are left")
        return layout.unpack_from(self._data, start)

    def number(self, size: int) -> int:
        """Return a signed number of `size` bytes: 1, 2, 4 or 8."""
        start = self.position
        if start + size > len(self._data):
            raise MessageInvalid(f"{size} bytes wanted at {start}, {self.left} are left")
        self.position = start + size
        number: int = _NUMBERS[size].unpack_from(self._data, start)[0]
        return number

    def varint(self) -> int:
        """Return an unsigned number of one to five bytes."""
        position = self.position
        if position < len(self._data) and (byte := self._data[position]) < 0x80:  # as nearly always
            self.position = position + 1
            return byte
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MessageInvalid(f"a number of more than five bytes before {self.position}")

    def text(self) -> str | None:
        """Return a nullable text."""
        size = self.varint() - 1 if self._is_flexible else self.number(2)
        return None if size == -1 else self._decoded(self.take(size))

    def legacy_text(self) -> str | None:
        """Return a nullable text as it stands in request headers of every version."""
        size = self.number(2)
        return None if size == -1 else self._decoded(self.take(size))

    def data(self) -> memoryview | None:
        """Return nullable bytes, without copying them."""
        size = self.varint() - 1 if self._is_flexible else self.number(4)
        return None if size == -1 else self.take(size)

    def size_of_array(self) -> int:
        """Return how many elements an array has, -1 for a null one; each takes a byte at least."""
        count = self.varint() - 1 if self._is_flexible else self.number(4)
        if count < -1 or count > self.left:
            raise MessageInvalid(f"an array of {count} elements, {self.left} bytes are left")
        self._count(max(count, 0))
        return count

    def _count(self, elements: int) -> None:
        self._elements += elements
        if self._elements > MOST_ELEMENTS:
            raise MessageInvalid(f"more than {MOST_ELEMENTS} elements")

    def count(self) -> int:
        """Return how many elements an array has, 0 for a null one."""
        return max(self.size_of_array(), 0)

    def tags(self) -> Iterator[tuple[int, int]]:
        """Yield tag and size of each tagged field, of a flexible version; the caller takes so many bytes."""
        count = self.varint()
        self._count(count)
        for _ in range(count):
            tag, size = self.varint(), self.varint()
            if size > self.left:
                raise MessageInvalid(f"a tagged field of {size} bytes, {self.left} are left")
            yield tag, size

    def skip_tags(self) -> None:
        """Pass over tagged fields, where there are any in this version."""
        if self._is_flexible:
            if self.position < len(self._data) and not self._data[self.position]:  # as nearly always
                self.position += 1
                return
            for _, size in self.tags():
                self.take(size)

    @staticmethod
    def _decoded(data: memoryview) -> str:
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise MessageInvalid(f"a text that is not UTF-8: {error.reason}") from None
