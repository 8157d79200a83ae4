"""Fixed layouts of bytes: one list of fields gives the struct that reads them and the table that documents them.

Every module-level `Layout` of `storage` and `checkpoint` has a table in docs/formats, named by a comment above it; a
test compares the two row by row, so that a second, differing statement of a format fails.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_TYPES: Final = {
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "B": "u8",
    "H": "u16",
    "I": "u32",
    "Q": "u64",
}


class LayoutRow(NamedTuple):
    """One line of a field table: position and size in bytes, `int64` or the like, the field's name."""

    position: int
    size: int
    type: str
    field: str


class Layout:
    """Big-endian fields without padding, each given as (letter of the `struct` module, name).

    `size` is their number of bytes. `pack`, `unpack`, `unpack_from` and `iter_unpack` are those of one `struct.Struct`.
    """

    __slots__ = ("fields", "iter_unpack", "pack", "size", "unpack", "unpack_from")

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.fields = fields
        compiled = struct.Struct(">" + "".join(letter for letter, _ in fields))
        self.size = compiled.size
        self.pack, self.unpack = compiled.pack, compiled.unpack
        self.unpack_from, self.iter_unpack = compiled.unpack_from, compiled.iter_unpack

    def rows(self) -> list[LayoutRow]:
        """Return one row a field, in their order in the bytes."""
        rows, position = [], 0
        for letter, field in self.fields:
            size = struct.calcsize(">" + letter)
            rows.append(LayoutRow(position, size, _TYPES[letter], field))
            position += size
        return rows
