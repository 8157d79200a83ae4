"""Reads every closed segment of a log directory again within a promised time, least recently verified first.

Also the flushed part of each active segment, which stays active for ever where no producer writes. A sound segment is
noted in the ledger. A bad one rests a moment and is read again before the scrubber reports it, because a broker may be
renaming, truncating or compacting the very files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from daemon.ledger.disk import Disk, draw_fraction, read_pressure
from daemon.ledger.ledger import Ledger
from daemon.scrub.board import Board
from daemon.scrub.generation import Generation
from daemon.scrub.orders import Orders
from daemon.scrub.pace import LONGEST_REST, Hold, Pace
from daemon.scrub.promise import Promise
from daemon.scrub.segment_queue import SegmentQueue
from daemon.status.model import Clock, Events, ScrubState
from daemon.verify.context import FlushedUpTo, ScrubContext
from daemon.verify.device_health import DeviceHealth
from daemon.verify.open_findings import OpenFindings
from daemon.verify.options import ScrubOptions
from storage.base.errors import ReadFault

_COMMIT_SECONDS: Final = 2.0


class Scrubber:
    """Scrubs one log directory, guarded or owned, in steps of less than a second.

    One thread calls `start`, `step`, `restart` and `close`; any thread may call `command` and `adjust` and read
    `board`. `draw` returns a random number from 0 up to below 1; `pressure` the percent of time in which work waited
    for a disk, None where the system does not report it; `health` is shared by all scrubbers of the same devices. A
    fault of a disk never leaves the scrubber.
    """

    def __init__(  # noqa: PLR0913 (what it works on, and what stands for the machine)
        self,
        log_dir: PurePath,
        ledger: Ledger,
        clock: Clock,
        events: Events,
        options: ScrubOptions,
        *,
        flushed: FlushedUpTo,
        disk: Disk | None = None,
        draw: Callable[[], float] | None = None,
        pressure: Callable[[], float | None] | None = None,
        health: DeviceHealth | None = None,
    ) -> None:
        findings = OpenFindings(log_dir, ledger, clock, events, options.flags)
        health = health or DeviceHealth(clock, options.sick_errors, options.sick_seconds)
        self.context = ScrubContext(
            log_dir, ledger, disk or Disk(), clock, events, findings, health, flushed, options
        )  # fmt: skip
        self._pace = Pace(self.context, draw or draw_fraction, pressure or read_pressure)
        self._promise = Promise(self.context, self._pace)
        self._orders = Orders(self.context)
        self.board = Board(self.context)
        self._queue = SegmentQueue(self.context, self._pace, self._promise, self._orders, self.board.throughput)
        self._generation: Generation | None = None
        self._census_at = self._commit_at = clock.monotonic()

    @property
    def generation(self) -> Generation:
        """What hangs on the present generation of the ledger; after `start`."""
        assert self._generation is not None
        return self._generation

    # ---- from any thread

    def command(self, name: str, argument: str = "") -> str:
        """Accept one of `COMMANDS` and answer in a sentence; `ValueError` for any other.

        The argument of `scrub-now` is a topic, empty for all of them.
        """
        return self._orders.command(name, argument)

    def adjust(self, options: ScrubOptions) -> None:
        """Scrub by other options from the next step on."""
        self._orders.adjust(options)

    # ---- beginning and end

    def start(self) -> None:
        """Take up where the ledger says the last scrubber stopped; quick, whatever the size of the directory."""
        generation = self._generation = Generation.begin(self.context, self._pace)
        self._pace.start()
        self._promise.start()
        self._census_at = self._commit_at = self.context.clock.monotonic()
        if self.context.options.enabled:
            totals = generation.page.totals(0)
            self.context.tell("scrub_started", segments=totals.segments, bytes=totals.bytes)
        self._show(None)

    def pause_reading(self) -> None:
        """Close the segment that is being read: the directory is away."""
        self.generation.readings.drop()

    def restart(self) -> None:
        """List the directory again from its ledger: one of the two was away."""
        self.generation.readings.drop()
        self._generation = Generation.begin(self.context, self._pace)
        self._promise.restart()
        self._census_at = self.context.clock.monotonic()

    def close(self) -> None:
        """Commit the ledger."""
        if self._generation is not None:
            self._generation.readings.drop()
            self.context.ledger.commit()

    # ---- a step

    def step(self) -> float:
        """Read a piece, or list changed directories, in less than a second; return the seconds to the next call.

        Only the second look at a bad segment may take longer: it reads that segment in one go.
        """
        if self.context.ledger.generation != self.generation.page.generation:
            self._orders.repeat_unread()
            self.restart()
        generation = self.generation
        if self._orders.take_options():
            self._promise.note_change()
            self._promise.renew_now()
        self._orders.carry_out(generation.page, is_listed=generation.census.is_complete)
        self._promise.follow_clock(generation.page)
        now = self.context.clock.monotonic()
        census_wait = self._list(generation, now)
        hold, wait = self._queue.step(generation)
        if now >= self._commit_at:
            self.context.ledger.commit()
            self._commit_at = now + _COMMIT_SECONDS
        self._show(hold)
        return max(min(wait, census_wait, LONGEST_REST), 0.0)

    def _list(self, generation: Generation, now: float) -> float:
        """List some of the directories that have changed; return the seconds until there are more."""
        census = generation.census
        try:
            if census.is_idle and now >= self._census_at:
                self._census_at = now + self.context.options.census_seconds
                census.begin_round()
            if not census.is_idle:
                was_complete = census.is_complete
                if census.work():
                    self._promise.note_change()
                if census.is_complete and not was_complete:
                    self._promise.renew_now()
                return 0.05 if census.is_complete else 0.0
        except ReadFault:
            self._census_at = now + LONGEST_REST
        return self._census_at - now

    def _show(self, hold: Hold | None) -> None:
        state = hold.state if hold else ScrubState.RUNNING
        if state is ScrubState.YIELDING and self.board.status.state is not ScrubState.YIELDING:
            self.context.tell("scrub_yielded", pressure=self._pace.pressure)
        self.board.renew(self.generation, hold, self._promise.behind_seconds)
