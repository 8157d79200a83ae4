"""Notifications to systemd: ready, status, signs of life. Silent without a manager that listens.

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
    """The service manager at `address`; without one, nothing is sent. Any thread may call; never raises.

    `watchdog_seconds`: longest time between two signs of life; None without a watchdog.
    """

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Systemd:
        """Return the manager of the environment; a watchdog for another process is ignored."""
        address = environment.get("NOTIFY_SOCKET", "")
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        is_ours = pid in ("", str(os.getpid())) and usec.isascii() and usec.isdecimal() and int(usec) > 0
        return cls(address, int(usec) / 1e6 if address and is_ours else None)

    @property
    def is_listening(self) -> bool:
        """A service manager listens."""
        return bool(self._address)

    def ready(self) -> None:
        """Report that the start, or a reload, is complete."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """Send the line that `systemctl status` shows. `text` must be printable."""
        self._send("STATUS=" + text.replace("\n", " ")[:_LONGEST_STATUS])

    def alive(self) -> None:
        """Send the sign of life that the watchdog expects."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float = _EXTENSION_SECONDS) -> None:
        """Request more time from now on, however long the start or the stop has taken."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Report that the configuration is read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def _send(self, lines: str) -> None:
        if not self._address:
            return
        # Wait a little for a busy manager: a lost `ready` is never repeated.
        with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_SECONDS)
            sender.sendto(lines.encode("utf-8", "backslashreplace"), self._address)
