"""When the scrubber may read, and how fast, so that it keeps its promise and is in nobody's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import Clock, ScrubState

EARLY: Final = 0.9
"""Share of a cycle after which a segment is due again; the rest is for hours that are not allowed and busy disks."""
_JITTER: Final = 0.05
_HURRY: Final = 0.02
"""Share of a cycle within which what is overdue is to be read."""
_PRESSURE_SECONDS: Final = 5.0
_SLOWEST: Final = 0.05
_HOURS: Final = 24


class Need(NamedTuple):
    """How fast it has to be to keep the promise, and by how much it will break it because it must not be that fast."""

    rate: float
    behind_seconds: float


class Pace:
    """See the module. Due times are wall clock, so that they survive restarts; waits are not. One thread.

    The rate follows from what is due when: the largest, over all times to come, of the bytes that are due until then
    by the time left. So it is steady where due times are spread, and they are: the first by a random draw over the
    whole cycle, which also keeps the replicas of a partition from being read in step on all brokers.
    """

    def __init__(
        self, options: ScrubOptions, clock: Clock, draw: Callable[[], float], pressure: Callable[[], float | None]
    ) -> None:
        self._options, self._clock, self._draw, self._pressure = options, clock, draw, pressure
        self._cycle_ms = int(options.cycle_seconds * 1000)
        self.rate = 0.0
        self._debt = 0.0
        self._paid_at = clock.monotonic()
        self._pressure_now = 0.0
        self._pressure_at: float | None = None

    def adjust(self, options: ScrubOptions) -> None:
        """Go on with other options."""
        self._options, self._cycle_ms = options, int(options.cycle_seconds * 1000)

    # ---- due times

    def first_due_ms(self) -> int:
        """Return when a segment that was never verified is due: at some time of the cycle."""
        return self._clock.now_ms() + int(self._draw() * EARLY * self._cycle_ms)

    def next_due_ms(self) -> int:
        """Return when a segment that was verified just now is due again."""
        return self._clock.now_ms() + int((EARLY - _JITTER * self._draw()) * self._cycle_ms)

    def latest_due_ms(self) -> int:
        """Return the time behind which nothing can be due, unless the clock was set back."""
        return self._clock.now_ms() + self._cycle_ms

    # ---- rate

    def need(self, demand: Sequence[tuple[int, int]]) -> Need:
        """Return what the promise asks for. `demand`: (ms from now, bytes due by then and not before), rising."""
        share = self._share_of_day()
        fastest = self._options.max_bytes_per_second * share
        cycle = self._options.cycle_seconds
        rate = behind = 0.0
        due = 0
        for ahead_ms, size in demand:
            due += size
            left = max(ahead_ms / 1000, _HURRY * cycle)
            rate = max(rate, due / left)
            behind = max(behind, due / fastest - (ahead_ms / 1000 + (1 - EARLY) * cycle))
        return Need(rate / share, behind)

    def _share_of_day(self) -> float:
        hours = self._options.hours
        return 1.0 if hours is None else max(len(hours), 1) / _HOURS

    def set_rate(self, rate: float) -> None:
        """Go on at this rate, bytes a second; what was read before is paid at the old one."""
        self._pay()
        self.rate = min(max(rate, 1.0), self._options.max_bytes_per_second)

    def spend(self, size: int) -> None:
        """Note that a segment of this size was read."""
        self._pay()
        self._debt += size

    def _pay(self) -> None:
        now = self._clock.monotonic()
        self._debt = max(self._debt - (now - self._paid_at) * self.rate, 0.0)
        self._paid_at = now

    def wait_seconds(self) -> float:
        """Return how long it is ahead of its pace."""
        self._pay()
        return self._debt / self.rate if self._debt and self.rate else 0.0

    def piece_seconds(self, size: int) -> float:
        """Return how long to rest after reading so many bytes, not to be faster than ever allowed."""
        low, high = self._options.pressure_low, self._options.pressure_high
        calm = 1.0 if self._pressure_now <= low else (high - self._pressure_now) / max(high - low, 1.0)
        return size / self._options.max_bytes_per_second / min(max(calm, _SLOWEST), 1.0)

    # ---- not now

    def hold(self) -> tuple[ScrubState, str, float] | None:
        """Return why nothing may be read now, in words, and for how many seconds at least; None if it may."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).astimezone()
        if self._options.hours is not None and now.hour not in self._options.hours:
            left = 3600.0 - now.minute * 60 - now.second
            return ScrubState.OUTSIDE_HOURS, "outside the hours in which it may read", left
        self._look_at_pressure()
        if self._pressure_now >= self._options.pressure_high:
            reason = f"work waits for the disks {self._pressure_now:.0f} % of the time"
            return ScrubState.YIELDING, reason, _PRESSURE_SECONDS
        return None

    @property
    def pressure(self) -> float:
        """Percent of the time in which work waited for a disk, when it was last asked."""
        return self._pressure_now

    def _look_at_pressure(self) -> None:
        now = self._clock.monotonic()
        if self._pressure_at is None or now - self._pressure_at >= _PRESSURE_SECONDS:
            self._pressure_at, self._pressure_now = now, self._pressure() or 0.0
