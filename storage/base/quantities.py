"""Sizes, spans of time and addresses as people write them: one grammar for every flag and every file of settings."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(?:([KMGT])(?:IB)?|B)?", re.IGNORECASE)
_SHIFTS: Final = {"K": 10, "M": 20, "G": 30, "T": 40}
_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(ms|s|min|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

SIZES: Final = 'a size such as "512KiB", "50MiB" or "2GiB"'
SPANS: Final = 'a span such as "90s", "15min", "36h" or "14d"'
ADDRESSES: Final = 'a host and a port, such as "127.0.0.1:9092", "[::1]:9092" or "kafka.example.org:9092"'


def parse_size(text: str) -> int:
    """Return the bytes that `512KiB`, its short form `512K`, or `1024` stand for; units are powers of 1024.

    `MB` is refused: it is a million bytes to some and 1024 KiB to others. Raises `ValueError`.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(SIZES)
    return int(match[1]) << _SHIFTS.get((match[2] or "").upper(), 0)


def parse_span(text: str) -> float:
    """Return the seconds that `90s`, `1.5min`, `36h` or `14d` stand for. Raises `ValueError`."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(SPANS)
    return float(match[1]) * _SECONDS[match[2]]


class Address(NamedTuple):
    """A host and a port; a version 6 address has brackets in text only."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return what `host:port` or `[version 6 address]:port` names. Raises `ValueError`.

    A version 6 address needs its brackets: without them nothing tells where it ends and the port begins.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_host = bool(host) and host.isprintable() and not set(host) & set(" /[]") and (is_bracketed or ":" not in host)
    if not (is_host and port.isascii() and port.isdecimal() and len(port) <= 9 and int(port) <= 65535):
        raise ValueError(ADDRESSES)
    return Address(host, int(port))
