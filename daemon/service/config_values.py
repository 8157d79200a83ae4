"""How values of the configuration are written: spans, sizes, hours of the day, places to listen at.

Each reader takes what stood in the file and returns what it means; `ValueError` says what would be allowed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

from storage.base.quantities import ADDRESSES, SIZES, SPANS, parse_address, parse_size, parse_span

Reader = Callable[[object], Any]

_HOURS: Final = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")


def span(low: str, high: str) -> Reader:
    """Return the reader of a span of time, in seconds."""
    return _within(parse_span, low, high, SPANS)


def size(low: str, high: str) -> Reader:
    """Return the reader of a number of bytes."""
    return _within(parse_size, low, high, SIZES)


def _within(parse: Callable[[str], float], low: str, high: str, wanted: str) -> Reader:
    least, most = parse(low), parse(high)

    def read(raw: object) -> float:
        with contextlib.suppress(ValueError):
            if isinstance(raw, str) and least <= (quantity := parse(raw)) <= most:
                return quantity
        raise ValueError(f"{wanted}, from {low} to {high}")

    return read


def whole(low: int, high: int) -> Reader:
    """Return the reader of a whole number."""

    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return raw

    return read


def choice(*allowed: str) -> Reader:
    """Return the reader of one of several words."""

    def read(raw: object) -> str:
        if not isinstance(raw, str) or raw not in allowed:
            raise ValueError("one of " + ", ".join(f'"{word}"' for word in allowed))
        return raw

    return read


def directory(raw: object) -> str:
    """Return an absolute path: a service has no directory of its own that others could be relative to."""
    if not isinstance(raw, str) or not raw.startswith("/") or "\0" in raw:
        raise ValueError("an absolute path")
    return raw


def state_directory(raw: object) -> str:
    """Return an absolute path, or nothing for the default."""
    return "" if raw == "" else directory(raw)


def command(raw: object) -> tuple[str, ...]:
    """Return a command as a list of words; the first is the absolute path of a program. An empty list is none."""
    words = raw if isinstance(raw, list) else None
    if words is None or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError('a list of words, such as ["/usr/local/bin/page-me", "--kafka"]')
    if words and not words[0].startswith("/"):
        raise ValueError("a list whose first word is the absolute path of a program")
    return tuple(words)


def yes_or_no(raw: object) -> bool:
    """Return a truth value."""
    if not isinstance(raw, bool):
        raise ValueError("true or false")
    return raw


def names(raw: object) -> tuple[str, ...]:
    """Return a list of names."""
    if not isinstance(raw, list) or not all(isinstance(each, str) and each.isprintable() and each for each in raw):
        raise ValueError("a list of names")
    return tuple(raw)


def percent(raw: object) -> float:
    """Return a number from 0 to 100."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw <= 100:
        raise ValueError("a number from 0 to 100")
    return float(raw)


def hours(raw: object) -> frozenset[int] | None:
    """Return the hours of the day, 0 to 23, in which something is allowed; None: always."""
    parts = raw if isinstance(raw, list) else None
    found = None if parts is None else [_hours(part) for part in parts]
    if found is None or None in found:
        raise ValueError('a list of parts of the day in whole hours, such as ["22-6"] or ["0-7", "20-24"]')
    return frozenset[int]().union(*(part for part in found if part is not None)) or None


def _hours(part: object) -> frozenset[int] | None:
    match = _HOURS.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        return None
    begin, end = int(match[1]), int(match[2])
    if begin > 23 or end > 24 or begin == end:
        return None
    return frozenset(range(begin, end)) if begin < end else frozenset((*range(begin, 24), *range(end)))


def file(raw: object) -> str:
    """Return an absolute path of a file, or nothing."""
    return "" if raw == "" else directory(raw)


def address(raw: object) -> str:
    """Return a host and a port, or nothing."""
    if not isinstance(raw, str):
        raise ValueError(ADDRESSES)
    return raw and str(parse_address(raw))


def listen(raw: object) -> tuple[str, ...]:
    """Return where to listen: `unix` for the socket in the run-time directory, or what `daemon.http.sockets` takes."""
    places = raw if isinstance(raw, list) else None
    if places is None or not all(isinstance(place, str) for place in places):
        raise ValueError('a list of "unix", "unix:/absolute/path", "127.0.0.1:9645" or "[::1]:9645"')
    return tuple(places)
