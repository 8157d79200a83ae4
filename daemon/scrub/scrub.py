"""Reads every closed segment of a log directory again within a promised time, least recently verified first.

Also the flushed part of each active segment, which may stay active for ever where nobody writes. One segment at a time,
piece by piece. What is sound is noted in the ledger; what is not rests a moment and is read again before anybody hears
of it, because a broker may be renaming, truncating or compacting the very files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from daemon.ledger.disk import Disk, draw_fraction, read_pressure
from daemon.ledger.ledger import Ledger
from daemon.ledger.page import Page
from daemon.scrub.board import Board
from daemon.scrub.census import Census
from daemon.scrub.device_health import DeviceHealth
from daemon.scrub.open_findings import OpenFindings
from daemon.scrub.pace import Need, Pace
from daemon.scrub.reading import Bench, SegmentReadings
from daemon.scrub.stored_plans import StoredPlans
from daemon.scrub.verdicts import Verdicts
from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import Clock, Events, OpenFinding, PartitionCell, ScrubState, ScrubStatus
from storage.base.errors import ReadFault
from storage.base.units import TopicPartition

FlushedUpTo = Callable[[TopicPartition], int | None]
"""The recovery point of a partition: below it everything is flushed. None where it is not known."""
COMMANDS: Final = ("scrub-now", "scrub-pause", "scrub-resume")
_LONGEST_REST: Final = 5.0
_NEED_SECONDS: Final = 600.0
_JUMP_MS: Final = 60_000
_COMMIT_SECONDS: Final = 2.0
_MANY_EMPTY: Final = 1000


class Scrubber:
    """Scrubs one log directory, guarded or owned. `start`, `step` and `close` on one thread, the rest on any.

    `draw` returns a random number from 0 up to below 1; `pressure` the percent of time in which something waited for
    a disk, None where the system does not say; `health` is shared by all that read the same devices. No fault of a disk
    leaves it.
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
        self.log_dir, self._ledger, self._clock, self._events = log_dir, ledger, clock, events
        self.options, self._flushed = options, flushed
        self.disk = disk or Disk()
        self._health = health or DeviceHealth(clock, options.sick_errors, options.sick_seconds)
        self.pace = Pace(options, clock, draw or draw_fraction, pressure or read_pressure)
        self.open_findings = OpenFindings(log_dir, ledger, clock, events)
        self._plans = StoredPlans(ledger.state_dir, log_dir, events, ledger.version)
        self._orders: deque[tuple[str, str]] = deque()
        self._adjusted: deque[ScrubOptions] = deque()
        self._generation = 0
        self._asked: list[str] = []
        """Topics that were asked for and are not read yet: a ledger that begins anew would forget them."""
        self.board = Board(clock, self.open_findings, options)
        self._started = False
        self._empty = 0
        """Segments one behind another of which nothing was to be read."""
        self._reset_times()

    def _reset_times(self) -> None:
        now = self._clock.monotonic()
        self._census_at = self._need_at = self._commit_at = self._rest_until = now
        self._jump = self._clock.now_ms() - int(now * 1000)
        self._verified_since_need = True
        self._need = Need(0.0, 0.0)

    # ---- beginning and end

    def start(self) -> None:
        """Take up where the ledger says the last one stopped; quick, whatever the size of the directory."""
        self._open()
        self._reset_times()
        totals = self.page.totals(0)
        if self.options.enabled:
            self._events.tell("scrub_started", log_dir=self.log_dir, segments=totals.segments, bytes=totals.bytes)
        self._started = True
        self._publish(None)

    def _open(self) -> None:
        self._generation += 1
        self.page = Page(self._ledger, self.log_dir)
        try:
            device = self.disk.stat(self.log_dir).device
            if device != self.page.device:
                self.page.set_device(device)
        except ReadFault:
            pass  # it is not there; whoever owns us looks for it
        self.census = Census(
            self.page, self.disk, self._clock, self._events, self.open_findings, self.pace.first_due_ms
        )
        self.verdicts = Verdicts(
            self.disk, self.page, self.census, self.open_findings, self._plans, self._health, self._events,
            lambda: self.options,
        )  # fmt: skip
        self.readings = SegmentReadings(
            Bench(
                self.disk, self.page, self.census, self.verdicts, self.pace, self._clock, self._events,
                lambda partition: self._flushed(partition.name), lambda: self.options,
            )
        )  # fmt: skip
        self._is_asked, self._size = False, 0
        self._behind_told = False

    def close(self) -> None:
        """Write down what is known."""
        if self._started:
            self.readings.drop()
            self._ledger.commit()

    # ---- from other threads

    def command(self, name: str, argument: str = "") -> str:
        """Take one of `COMMANDS`, answer in a sentence; `ValueError` for any other.

        The argument of `scrub-now` is a topic, empty for all of them.
        """
        if name not in COMMANDS:
            raise ValueError(name)
        self._orders.append((name, argument))
        if name == "scrub-pause":
            return f"{self.log_dir}: the scrubber pauses, also after a restart, until scrub-resume"
        if name == "scrub-resume":
            return f"{self.log_dir}: the scrubber goes on"
        what = f"topic {argument}" if argument else "everything"
        return f"{self.log_dir}: {what} is read now, at {self.options.max_bytes_per_second} bytes a second at most"

    def status(self) -> ScrubStatus:
        """Return where it is, at once."""
        return self.board.status

    def cells(self) -> tuple[PartitionCell, ...]:
        """Return what is known of each partition, at once."""
        return self.board.cells

    def findings(self) -> tuple[OpenFinding, ...]:
        """Return the open findings of this log directory, at once."""
        return self.open_findings.open()

    def size_bytes(self) -> int:
        """Return the bytes of all `.log` files as they were last listed."""
        return self.board.status.bytes_total

    def directories_changed(self) -> None:
        """Hear that partitions may have come or gone; they are listed with the next step."""
        self._census_at = self._clock.monotonic()

    # ---- on its own thread

    def adjust(self, options: ScrubOptions) -> None:
        """Go on with other options; from any thread."""
        self._adjusted.append(options)

    @property
    def generation(self) -> int:
        """Rises when the ledger, and with it the list of partitions, begins anew."""
        return self._generation

    def suspect(self, directory: str, base_offset: int) -> None:
        """Put a segment first in line."""
        row = self.census.partitions.get(directory)
        if row is not None:
            self.page.set_suspect(row.id, [base_offset])

    def pause_reading(self) -> None:
        """Let go of what is open: the directory is away."""
        self.readings.drop()

    def restart(self) -> None:
        """List everything anew: the directory was away, or the ledger."""
        self.readings.drop()
        self._open()
        self._census_at = self._clock.monotonic()

    def step(self) -> float:
        """Read a piece, or look for changed directories, less than a second; return the seconds to the next call.

        Only the second look at a segment that seemed bad may take longer: it reads that segment at one go.
        """
        if self._ledger.generation != self.page.generation:
            self._orders.extendleft(("scrub-now", topic) for topic in self._asked)
            self.restart()
        self._take_orders()
        self._mind_the_clock()
        now = self._clock.monotonic()
        census_wait = self._census_step(now)
        held, wait = self._scrub_step(now)
        if now >= self._commit_at:
            self._ledger.commit()
            self._commit_at = now + _COMMIT_SECONDS
        self._publish(held)
        return max(min(wait, census_wait, _LONGEST_REST), 0.0)

    def _take_orders(self) -> None:
        while self._adjusted:
            self.options = self.board.options = self._adjusted.popleft()
            self.pace.adjust(self.options)
            self._health.adjust(self.options.sick_errors, self.options.sick_seconds)
            self._need_at, self._verified_since_need = self._clock.monotonic(), True
        while self._orders:
            name, argument = self._orders[0]
            if name == "scrub-now" and not self.census.is_complete:
                return  # what is to be read is not known yet
            self._orders.popleft()
            if name == "scrub-now":
                self.page.ask_for_all(argument or None)
                self._asked.append(argument)
                self._events.tell("scrub_requested", log_dir=self.log_dir)
            else:
                self.page.set_paused(paused=name == "scrub-pause")
                event = "scrub_paused" if self.page.is_paused else "scrub_resumed"
                self._events.tell(event, log_dir=self.log_dir)
                if not self.page.is_paused and self.page.device is not None:
                    self._health.clear(self.page.device)

    def _mind_the_clock(self) -> None:
        """Due times are wall clock. One that was set back would put them off for as long as it was set back."""
        jump = self._clock.now_ms() - int(self._clock.monotonic() * 1000)
        if jump < self._jump - _JUMP_MS:
            self.page.not_after(self.pace.latest_due_ms())
        self._jump = jump

    def _census_step(self, now: float) -> float:
        try:
            if self.census.is_idle and now >= self._census_at:
                self._census_at = now + self.options.census_seconds
                self.census.begin_round()
            if not self.census.is_idle:
                was_complete = self.census.is_complete
                self.census.work()
                self._verified_since_need |= self.census.has_news
                self.census.has_news = False
                if self.census.is_complete and not was_complete:
                    self._need_at = now
                return 0.0 if not self.census.is_complete else 0.05
        except ReadFault:
            self._census_at = now + _LONGEST_REST
        return self._census_at - now

    # ---- reading

    def hold(self) -> tuple[ScrubState, str, float] | None:
        """Return why nothing is read now, in words, and for how long at least; None if it is."""
        if not self.options.enabled or self.options.cycle_seconds <= 0:
            return ScrubState.OFF, "switched off", _LONGEST_REST
        if self.page.is_paused:
            return ScrubState.PAUSED, "paused until scrub-resume", _LONGEST_REST
        if self.page.device is not None and self._health.is_sick(self.page.device):
            reason = (
                f"{self.options.sick_errors} bad files within {self.options.sick_seconds:.0f} s: "
                "the device is left alone until scrub-resume"
            )
            return ScrubState.SICK_DEVICE, reason, _LONGEST_REST
        return self.pace.hold()

    def _scrub_step(self, now: float) -> tuple[tuple[ScrubState, str, float] | None, float]:
        held = self.hold()
        if held is not None:
            if held[0] is ScrubState.YIELDING and self.board.status.state is not ScrubState.YIELDING:
                self._events.tell("scrub_yielded", log_dir=self.log_dir, pressure=self.pace.pressure)
            return held, min(held[2], _LONGEST_REST)
        if now < self._rest_until:  # whoever woke us: it is no reason to read faster
            return None, self._rest_until - now
        if self.readings.look_again():
            return None, 0.0
        if self.readings.is_reading:
            return None, self._read_on()
        self._renew_need(now)
        return self._begin_next()

    def _begin_next(self) -> tuple[tuple[ScrubState, str, float] | None, float]:
        row = self.page.next_due()
        if row is None:
            return (ScrubState.WAITING, "there is nothing to read yet", _LONGEST_REST), _LONGEST_REST
        if not row.suspect:
            self._asked.clear()
        wait = 0.0 if row.suspect else self.pace.wait_seconds()
        if wait > 0:
            return (ScrubState.WAITING, "ahead of its pace", wait), wait
        partition = self.census.partitions.get(row.directory)
        if partition is None or partition.id != row.partition_id:
            self.page.forget_partition(row.partition_id)
            return None, 0.0
        self._is_asked, self._size = bool(row.suspect), 0
        self.readings.begin(partition, row)
        self._verified_since_need = True
        if self.readings.is_reading or row.suspect:
            self._empty = 0
            return None, 0.0
        # Nothing of it is flushed. What costs nothing has no pace: where there is nothing else, it would never rest.
        self._empty += 1
        is_all_there_is = row.verified_ms is not None or self._empty > _MANY_EMPTY
        return None, _LONGEST_REST if is_all_there_is else 0.0

    def _read_on(self) -> float:
        size, is_over = self.readings.advance()
        self.board.bytes_read += size
        self._size += size
        if is_over and not self._is_asked:
            self.pace.spend(self._size)
        rest = self.pace.piece_seconds(size)
        self._rest_until = self._clock.monotonic() + rest
        return rest

    def _renew_need(self, now: float) -> None:
        """Work out anew how fast it has to be, now and then, and tell where the promise cannot be kept."""
        if now < self._need_at or not self._verified_since_need:
            return
        # The more there is, the longer the sums take and the less a single segment changes them.
        self._need_at = now + min(_NEED_SECONDS, max(self.options.cycle_seconds / 2000, 0.2))
        self._verified_since_need = False
        bucket_ms = max(int(self.options.cycle_seconds * 1000 / 64), 1)
        self._need = self.pace.need(self.page.demand(self._clock.now_ms(), bucket_ms))
        self.pace.set_rate(self._need.rate)
        is_behind = self._need.behind_seconds > 0
        if is_behind and not self._behind_told:
            self._events.tell("scrub_behind", log_dir=self.log_dir, behind_seconds=int(self._need.behind_seconds))
        self._behind_told = is_behind
        self._end_pass()

    def _end_pass(self) -> None:
        started, now_ms = self.page.pass_started_ms, self._clock.now_ms()
        if not self.census.is_complete:
            return
        if started is None:
            self.page.begin_pass(now_ms)
            return
        if self.page.left_since(started):
            return
        totals = self.page.totals(started)
        if totals.segments:
            self._events.tell(
                "scrub_pass_finished", log_dir=self.log_dir, segments=totals.segments, bytes=totals.bytes,
                seconds=(now_ms - started) // 1000, findings=len(self.findings()),
            )  # fmt: skip
        self.page.begin_pass(now_ms + 1)

    def _publish(self, held: tuple[ScrubState, str, float] | None) -> None:
        changed, self.census.changed = self.census.changed, set()
        self.board.suspects = self.readings.suspects
        self.board.renew(self.page, self.census, changed, held, self._need.behind_seconds)
