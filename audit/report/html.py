"""HTML by construction: text is escaped unless it is markup that was made here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from storage.base.errors import printable

CELL: Final = 400
"""Characters of one text, at most: names and evidence come from disks and may be long."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> str:
    """Return text that a page shows as it is, whatever is in it; too long, it is cut."""
    plain = printable(text)
    return escape(plain if len(plain) <= CELL else f"{plain[:CELL]}…", quote=True)


def tag(name: str, *inside: object, **attributes: object) -> Markup:
    """Return an element; an attribute that is None is left out, `_` stands for `-`, and a last `_` for nothing."""
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    told = "".join(f' {key}="{escaped(value)}"' for key, value in named)
    return Markup(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return parts one after another, those that are no markup escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escaped(part) for part in parts))
