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


def path_or_nothing(raw: object) -> str:
    """Return an absolute path, or nothing for the default."""
    return "" if raw == "" else directory(raw)


def command(raw: object) -> tuple[str, ...]:
    """Return a command as a list of words; the first is the absolute path of a program. An empty list is none."""
    words = _texts(raw, 'a list of words, such as ["/usr/local/bin/page-me", "--kafka"]', lambda word: "\0" not in word)
    if words and not words[0].startswith("/"):
        raise ValueError("a list whose first word is the absolute path of a program")
    return words


def yes_or_no(raw: object) -> bool:
    """Return a truth value."""
    if not isinstance(raw, bool):
        raise ValueError("true or false")
    return raw


def names(raw: object) -> tuple[str, ...]:
    """Return a list of names."""
    return _texts(raw, "a list of names", lambda name: name != "" and name.isprintable())


def _texts(raw: object, wanted: str, is_fine: Callable[[str], bool] = lambda _: True) -> tuple[str, ...]:
    """Return a list of strings, each of them fine; `wanted` says what would be allowed."""
    if not isinstance(raw, list) or not all(isinstance(text, str) and is_fine(text) for text in raw):
        raise ValueError(wanted)
    return tuple(raw)


def percent(raw: object) -> float:
    """Return a number from 0 to 100."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw <= 100:
        raise ValueError("a number from 0 to 100")
    return float(raw)


def hours(raw: object) -> frozenset[int] | None:
    """Return the hours of the day, 0 to 23, in which something is allowed; None: always."""
    wanted = 'a list of parts of the day in whole hours, such as ["22-6"] or ["0-7", "20-24"]'
    parts = [_hours(part) for part in _texts(raw, wanted)]
    if not all(parts):
        raise ValueError(wanted)
    return frozenset[int]().union(*parts) or None


def _hours(part: str) -> frozenset[int]:
    """Return the hours of one part of the day; none if it is not written as one."""
    match = _HOURS.fullmatch(part)
    begin, end = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    if begin > 23 or end > 24 or begin == end:
        return frozenset()
    return frozenset(range(begin, end)) if begin < end else frozenset((*range(begin, 24), *range(end)))


def address(raw: object) -> str:
    """Return a host and a port, or nothing."""
    if not isinstance(raw, str):
        raise ValueError(ADDRESSES)
    return raw and str(parse_address(raw))


def listen(raw: object) -> tuple[str, ...]:
    """Return where to listen: `unix` for the socket in the run-time directory, or what `daemon.http.sockets` takes."""
    return _texts(raw, 'a list of "unix", "unix:/absolute/path", "127.0.0.1:9645" or "[::1]:9645"')
