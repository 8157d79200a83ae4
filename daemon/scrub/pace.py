"""When the scrubber may read, and how fast, to keep its promise without disturbing the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from daemon.status.model import Clock, ScrubState
from daemon.verify.context import ScrubContext

LONGEST_REST: Final = 5.0
"""Seconds until the scrubber looks for orders again, whatever it waits for."""
EARLY: Final = 0.9
"""Share of a cycle after which a segment is due again; the rest is for hours that are not allowed and busy disks."""
_JITTER: Final = 0.05
_HURRY: Final = 0.02
"""Share of a cycle within which overdue segments are to be read."""
_PRESSURE_SECONDS: Final = 5.0
_SLOWEST: Final = 0.05
_HOURS: Final = 24


class Hold(NamedTuple):
    """Why nothing is read now, in words, and for how many seconds at least."""

    state: ScrubState
    reason: str
    seconds: float


class Need(NamedTuple):
    """How fast the scrubber has to be to keep the promise, and how late it will be at the fastest rate allowed."""

    rate: float
    behind_seconds: float


class Pace:
    """Due times, rate and rests of one scrubber. Due times are wall clock, to survive restarts. One thread.

    The rate follows from the due times: it is the maximum, over all future times, of the bytes due until then by the
    time left. It is steady where due times are spread, and they are: the first by a random draw over the whole cycle,
    which also keeps the replicas of a partition from being read at the same time on all brokers.
    """

    def __init__(self, context: ScrubContext, draw: Callable[[], float], pressure: Callable[[], float | None]) -> None:
        self._context, self._clock, self._draw = context, context.clock, draw
        self._pressure = Pressure(context.clock, pressure)
        self.rate = 0.0
        self._debt = 0.0
        self._paid_at = self._rest_until = context.clock.monotonic()

    def start(self) -> None:
        """Forget a rest: it was one of an earlier run."""
        self._rest_until = self._clock.monotonic()

    @property
    def _cycle_ms(self) -> int:
        return int(self._context.options.cycle_seconds * 1000)

    # ---- due times

    def first_due_ms(self) -> int:
        """Return when a segment that was never verified is due: at a random time of the cycle."""
        return self._clock.now_ms() + int(self._draw() * EARLY * self._cycle_ms)

    def next_due_ms(self) -> int:
        """Return when a segment that was verified just now is due again."""
        return self._clock.now_ms() + int((EARLY - _JITTER * self._draw()) * self._cycle_ms)

    def latest_due_ms(self) -> int:
        """Return the latest time at which a segment can be due, unless the clock was set back."""
        return self._clock.now_ms() + self._cycle_ms

    # ---- rate

    def need(self, demand: Sequence[tuple[int, int]]) -> Need:
        """Return the rate that the promise needs. `demand`: (ms from now, bytes due by then and not before), rising."""
        share = self._share_of_day()
        fastest = self._context.options.max_bytes_per_second * share
        cycle = self._context.options.cycle_seconds
        rate = behind = 0.0
        due = 0
        for ahead_ms, size in demand:
            due += size
            left = max(ahead_ms / 1000, _HURRY * cycle)
            rate = max(rate, due / left)
            behind = max(behind, due / fastest - (ahead_ms / 1000 + (1 - EARLY) * cycle))
        return Need(rate / share, behind)

    def _share_of_day(self) -> float:
        hours = self._context.options.hours
        return 1.0 if hours is None else max(len(hours), 1) / _HOURS

    def set_rate(self, rate: float) -> None:
        """Read at this rate from now on, bytes a second; earlier reads are paid at the old one."""
        self._pay()
        self.rate = min(max(rate, 1.0), self._context.options.max_bytes_per_second)

    def spend(self, size: int) -> None:
        """Note that a segment of this size was read."""
        self._pay()
        self._debt += size

    def _pay(self) -> None:
        now = self._clock.monotonic()
        self._debt = max(self._debt - (now - self._paid_at) * self.rate, 0.0)
        self._paid_at = now

    def wait_seconds(self) -> float:
        """Return how long the scrubber is ahead of its pace."""
        self._pay()
        return self._debt / self.rate if self._debt and self.rate else 0.0

    # ---- rests

    def rest_after(self, size: int) -> float:
        """Begin and return the rest after a piece of `size` bytes: no faster than allowed, slower under pressure."""
        options, pressure = self._context.options, self._pressure.percent
        low, high = options.pressure_low, options.pressure_high
        calm = 1.0 if pressure <= low else (high - pressure) / max(high - low, 1.0)
        rest = size / options.max_bytes_per_second / min(max(calm, _SLOWEST), 1.0)
        self._rest_until = self._clock.monotonic() + rest
        return rest

    def rest_seconds(self) -> float:
        """Return how much of the rest is left."""
        return max(self._rest_until - self._clock.monotonic(), 0.0)

    def hold(self) -> Hold | None:
        """Return why nothing may be read now; None if it may."""
        options = self._context.options
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).astimezone()
        if options.hours is not None and now.hour not in options.hours:
            left = 3600.0 - now.minute * 60 - now.second
            return Hold(ScrubState.OUTSIDE_HOURS, "outside the hours in which it may read", left)
        self._pressure.renew()
        if self._pressure.percent >= options.pressure_high:
            reason = f"work waits for the disks {self._pressure.percent:.0f} % of the time"
            return Hold(ScrubState.YIELDING, reason, _PRESSURE_SECONDS)
        return None

    @property
    def pressure(self) -> float:
        """Percent of the time in which work waited for a disk, when it was last read."""
        return self._pressure.percent


class Pressure:
    """The pressure on the disks, read every few seconds."""

    def __init__(self, clock: Clock, read: Callable[[], float | None]) -> None:
        self._clock, self._read = clock, read
        self.percent = 0.0
        self._read_at: float | None = None

    def renew(self) -> None:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= _PRESSURE_SECONDS:
            self._read_at, self.percent = now, self._read() or 0.0
