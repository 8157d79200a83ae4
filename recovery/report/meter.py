"""How much of a piece of work is done, how fast it goes, and how long it will still take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from recovery.plan.words import count, short_size

Clock = Callable[[], float]
"""Returns seconds that never jump."""

_RATE_SECONDS: Final = 10.0
_SAMPLE_SECONDS: Final = 0.5


class Meter:
    """Bytes over time. Counts; knows rate and time left; not safe between threads by itself.

    While partitions are `unlisted`, `total` is what is known so far, and no share and no time left is told of it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.start("", 0, 0)

    def start(self, what: str, total_bytes: int, partitions: int) -> None:
        """Begin a new phase of work: what it is, bytes to read, partitions to visit."""
        self.what, self.total, self.partitions = what, total_bytes, partitions
        self.done = self.partitions_done = self.findings = self.actions = 0
        self.unlisted = self.segments = self.segments_done = 0
        self.current = ""
        self.began = self._clock()
        self._samples: deque[tuple[float, int]] = deque([(self.began, 0)])

    def join(self, what: str, total_bytes: int, partitions: int) -> None:
        """Count another log directory in, which is read at the same time."""
        self.what = f"{self.what}, {what}"
        self.total += total_bytes
        self.partitions += partitions

    def expect(self, size: int) -> None:
        """Count bytes that will have to be read as well."""
        self.total += size

    def expect_lists(self, partitions: int) -> None:
        """Count partitions of which is not known yet how much is to be read."""
        self.unlisted += partitions

    def listed(self, size: int, segments: int) -> None:
        """Count what is to be read of a partition."""
        self.unlisted = max(self.unlisted - 1, 0)
        self.total += size
        self.segments += segments

    def add(self, size: int) -> None:
        """Count bytes that were read."""
        self.done += size
        now = self._clock()
        if now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, self.done))
        while len(self._samples) > 1 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()

    @property
    def segments_left(self) -> int:
        """Segments that are known to be left."""
        return max(self.segments - self.segments_done, 0)

    @property
    def rate(self) -> float:
        """Bytes a second over the last ten seconds; 0 while it cannot be known."""
        at, done = self._samples[0]
        seconds = self._clock() - at
        return (self.done - done) / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all is read at this rate, None while nothing moves or not all is known."""
        rate = self.rate
        return max(self.total - self.done, 0) / rate if rate > 0 and self.total and not self.unlisted else None

    def line(self) -> str:
        """Return the state in one line."""
        parts = [f"{short_size(self.done)} of {'at least ' if self.unlisted else ''}{short_size(self.total)}"]
        if self.total and not self.unlisted:
            parts.append(f"{min(self.done * 100 // self.total, 100)} %")
        if self.rate > 0:
            parts.append(f"{short_size(int(self.rate))}/s")
        if self.seconds_left is not None:
            parts.append(f"ETA {duration(self.seconds_left)}")
        parts.append(f"{self.partitions_done} of {count(self.partitions, 'partition')}")
        if self.findings:
            parts.append(count(self.findings, "finding"))
        if self.actions:
            parts.append(count(self.actions, "action"))
        return f"{self.what}: {', '.join(parts)}" + (f", {self.current}" if self.current else "")


def duration(seconds: float) -> str:
    """Return seconds as `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
