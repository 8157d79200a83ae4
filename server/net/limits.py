"""The limits of the listener: memory, files and time for one client, and for all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in ms. What is above a size closes its connection, before the bytes are kept."""

    frame: int = 100 * MIB
    """Of a Produce request, as a broker's `socket.request.max.bytes`."""
    other_frame: int = 4 * MIB
    """Of any other request: decoded, it may take thirty times its size."""
    frame_before_login: int = 512 << 10
    frames_together: int = 256 * MIB
    """All unprocessed large frames of all connections."""
    connections: int = 1000
    queued: int = 4
    """Requests that wait in one connection; above it nothing is read from there."""
    overlapping: int = 64
    """Produce requests of one connection that may wait together to be durable."""
    idle_ms: int = 600_000
    login_ms: int = 15_000
    """From the beginning of a connection to the end of TLS handshake and authentication."""
    frame_ms: int = 60_000
    """Within a frame, from one byte to the next."""
    sweep_ms: int = 1_000
    """Interval between checks of `idle_ms`, `login_ms` and `frame_ms`."""
    stop_ms: int = 5_000
    """For open requests when the listener stops."""
