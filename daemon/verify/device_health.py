"""Counts bad files by device: with too many in a short time, reading on would only wear the device out."""

from __future__ import annotations

import threading
from collections import deque

from daemon.status.model import Clock


class DeviceHealth:
    """Counts bad files by device, for all log directories on it. Any thread may call.

    `errors` distinct files within `seconds` make a device sick; it stays so until `clear`.
    """

    def __init__(self, clock: Clock, errors: int, seconds: float) -> None:
        self._clock, self._errors, self._seconds = clock, errors, seconds
        self._seen: dict[int, deque[tuple[float, str]]] = {}
        self._sick: set[int] = set()
        self._turn = threading.Lock()

    def adjust(self, errors: int, seconds: float) -> None:
        """Change the limits."""
        with self._turn:
            if errors != self._errors:
                self._seen = {device: deque(seen, maxlen=errors) for device, seen in self._seen.items()}
            self._errors, self._seconds = errors, seconds

    def note(self, device: int, file: str) -> bool:
        """Count a bad file; return whether it made the device sick."""
        now = self._clock.monotonic()
        with self._turn:
            seen = self._seen.setdefault(device, deque(maxlen=self._errors))
            while seen and now - seen[0][0] > self._seconds:
                seen.popleft()
            if all(name != file for _, name in seen):
                seen.append((now, file))
            if device in self._sick or len(seen) < self._errors:
                return False
            self._sick.add(device)
            return True

    def is_sick(self, device: int) -> bool:
        """Tell whether a device is sick."""
        with self._turn:
            return device in self._sick

    def clear(self, device: int) -> None:
        """Trust a device again."""
        with self._turn:
            self._sick.discard(device)
            self._seen.pop(device, None)
