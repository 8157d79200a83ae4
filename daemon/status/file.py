"""status.json in the state directory: the last status, for when the service does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from daemon.status.model import Clock, Events, ServiceStatus
from storage.base.errors import EnvironmentFault, FileVanished
from storage.disk.fs import Fs, temporary_name

FILE_NAME: Final = "status.json"
_EVERY_SECONDS: Final = 5.0
_AT_LEAST_SECONDS: Final = 60.0
"""Written without a change as well, so that its time tells an idle service from a dead one."""


class StatusFile:
    """Written whole or not at all, but not synced: it is useless after a power cut. For the main thread."""

    def __init__(
        self, fs: Fs, state_dir: PurePath, encode: Callable[[ServiceStatus], bytes], clock: Clock, events: Events
    ) -> None:
        self._fs, self._path, self._encode = fs, state_dir / FILE_NAME, encode
        self._clock, self._events = clock, events
        self._shown: ServiceStatus | None = None
        self._tried = self._written = float("-inf")
        self._has_failed = False

    def write(self, status: ServiceStatus, *, is_last: bool = False) -> None:
        """Write a status that has changed, but not too often; the last one always."""
        now = self._clock.monotonic()
        if not is_last:
            if now - self._tried < _EVERY_SECONDS:
                return
            self._tried = now
            still = replace(status, now_ms=0, counters={})
            if still == self._shown and now - self._written < _AT_LEAST_SECONDS:
                return
            self._shown = still
        try:
            self._replace(self._encode(status))
        except EnvironmentFault as fault:
            self._shown = None
            if not self._has_failed:
                self._events.tell("status_not_written", path=self._path, reason=str(fault))
            self._has_failed = True
        else:
            self._written, self._has_failed = now, False

    def _replace(self, data: bytes) -> None:
        temporary = temporary_name(self._path)
        with contextlib.suppress(FileVanished):
            self._fs.remove(temporary)
        with self._fs.create(temporary) as file:
            file.append(data)
        self._fs.rename(temporary, self._path)
