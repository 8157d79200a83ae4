"""Numbers and sizes as text for people, the same in every message."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def short_size(size: int) -> str:
    """Return bytes in the unit that fits: `812 B`, `12.3 MiB`."""
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in _UNITS:  # noqa: B007 (the unit that it ends with is what counts)
        value /= 1024
        if value < 999.95:
            break
    return f"{value:.1f} {unit}"


def grouped(number: int) -> str:
    """Return a number with its digits in groups of three."""
    return f"{number:,}".replace(",", " ")


def full_size(size: int) -> str:
    """Return bytes in the unit that fits and exactly: `12.3 MiB (12 903 411 B)`."""
    return short_size(size) if size < 1024 else f"{short_size(size)} ({grouped(size)} B)"


def count(number: int, thing: str, things: str = "") -> str:
    """Return `1 file`, `2 files`."""
    return f"{grouped(number)} {thing if number == 1 else things or thing + 's'}"
