"""systemd's notifications: ready, status, signs of life. Silent wherever nobody has asked for them.

Source: systemd 252, sd_notify(3), sd_watchdog_enabled(3): datagrams of `NAME=value` lines to a Unix socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

_LONGEST_STATUS: Final = 1024
_EXTENSION_SECONDS: Final = 60.0
_SEND_SECONDS: Final = 1.0


class Systemd:
    """Whoever started us and wants to know how we are; without `address` nobody. Any thread may call; never raises.

    `watchdog_seconds`: within which a sign of life is expected again and again, None if none is.
    """

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Systemd:
        """Return what the environment says; a watchdog that was meant for another process is none."""
        address = environment.get("NOTIFY_SOCKET", "")
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        is_ours = pid in ("", str(os.getpid())) and usec.isascii() and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if address and is_ours else None)

    @property
    def is_there(self) -> bool:
        """Somebody listens."""
        return bool(self._address)

    def ready(self) -> None:
        """Say that the start, or a reload, is done."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Say in one line what goes on; `systemctl status` shows it. `text` must be printable."""
        self._send("STATUS=" + text.replace("\n", " ")[:_LONGEST_STATUS])

    def alive(self) -> None:
        """Give the sign of life that the watchdog waits for."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float = _EXTENSION_SECONDS) -> None:
        """Ask for so much time from now, however long the start or the stop has taken."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def _send(self, lines: str) -> None:
        if not self._address:
            return
        # A manager that is busy is waited for a little: nothing would follow a lost `ready`.
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_SECONDS)
            sender.sendto(lines.encode("utf-8", "backslashreplace"), self._address)
