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
    """All unprocessed frames of all connections; one large frame may come on top."""
    frames_of_address: int = 128 * MIB
    """The same for the connections of one address."""
    frames_reserve: int = 32 * MIB
    """Of either: what large frames leave to small ones."""
    frames_before_login: int = 8 * MIB
    """All unprocessed frames of clients that have not logged in yet."""
    connections: int = 1000
    connections_of_address: int = 1000
    """Open connections of one address, as a broker's `max.connections.per.ip`."""
    connections_before_login: int = 100
    """Connections that have not logged in yet; for one more, the oldest of the address with the most is closed."""
    queued: int = 4
    """Requests that wait in one connection; above it nothing is read from there."""
    overlapping: int = 64
    """Produce requests of one connection that may wait together to be durable."""
    idle_ms: int = 600_000
    login_ms: int = 15_000
    """From the beginning of a connection to the end of TLS handshake and authentication."""
    frame_ms: int = 60_000
    """From the first byte of a frame to its last, and a second more for each `frame_rate` bytes that have come."""
    frame_pressed_ms: int = 2_000
    """The same while other connections wait for room."""
    frame_rate: int = 256 << 10
    sweep_ms: int = 1_000
    """Interval between checks of `idle_ms`, `login_ms` and the time of frames."""
    stop_ms: int = 5_000
    """For open requests when the listener stops."""
