"""A week of the whole service in seconds: both ways to run, what is due in time, and nothing that grows.

Time passes when every worker waits for it: the clock then goes to when the first of them is to go on. LOGMEND_WEEK_STEP
is the least that a worker waits, in seconds: an overslept machine, so that a week has some thousand steps.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.guarding import DAY, START_MS, FakeClock, Place, batches
from support.managers import batch, options
from support.waiting import until

from daemon.events.events import EventLog
from daemon.events.notify import Notifier
from daemon.ledger.ledger import Ledger
from daemon.own.owned import OwnWorker
from daemon.service.assembly import Surroundings, assemble
from daemon.service.config import DirConfig, ServiceConfig
from daemon.service.runner import Runner
from daemon.service.service import Service
from daemon.service.systemd import Systemd
from daemon.status.model import LogDirStatus, Mode
from daemon.verify.options import ScrubOptions
from storage.base.errors import ExitStatus
from storage.base.units import TopicPartition
from storage.disk.fs import lock_log_dir

pytestmark = pytest.mark.slow

STEP = float(os.environ.get("LOGMEND_WEEK_STEP", "300"))
STEP_TAKES = 0.01
"""Seconds that a step takes which is followed by another one at once."""
HOUR = 3600.0
CYCLE = 2 * DAY
FLUSHED = TopicPartition("kept", 0)
COMPACTED = TopicPartition("latest", 0)
SMALL = {"internal.segment.bytes": "1000"}


class Simulated:
    """Lets the runners of a service sleep by a clock that it moves itself."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._asleep: dict[Runner, float] = {}
        self._changed = threading.Condition()

    def wait(self, runner: Runner, seconds: float) -> None:
        """Stand in for `Runner._wait`."""
        end = self.clock.monotonic() + max(seconds, STEP)
        with runner._turn:
            runner._steps += 1
            if seconds > 0:
                runner._is_waiting = True
                self._note(lambda: self._asleep.update({runner: end}))
                while self.clock.monotonic() < end and not runner._is_woken:
                    runner._turn.wait(30)
                self._note(lambda: self._asleep.pop(runner))
                runner._is_waiting = False
            else:
                self.clock.pass_(STEP_TAKES)
            runner._is_woken = runner._is_stopping

    def _note(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def pass_(self, runners: list[Runner], seconds: float) -> None:
        """Let so much time go by; returns while all sleep."""
        end = self.clock.monotonic() + seconds
        while True:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self._asleep) == len(runners), 60), "a worker is stuck"
                now = self.clock.monotonic()
                due = [runner for runner, at in self._asleep.items() if at <= now]
                if not due:
                    if now >= end:
                        return
                    self.clock.pass_(max(min(*self._asleep.values(), end) - now, 0.001))
                    continue
            for runner in due:
                with runner._turn:
                    runner._turn.notify()
                self._await_awake(runner, now)

    def _await_awake(self, runner: Runner, now: float) -> None:
        """Return once a runner that was due at `now` sleeps no more, or sleeps again."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._asleep.get(runner, now + 1) > now, 60)


class Week:
    """A service that guards one directory and owns another, and what goes on around it."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.time = Simulated(self.clock)
        monkeypatch.setattr(Runner, "_wait", lambda runner, seconds: self.time.wait(runner, seconds))  # noqa: PLW0108 (a method)
        self.place, self.own, self.state = Place(tmp_path / "guarded"), tmp_path / "own", tmp_path / "state"
        self.state.mkdir()
        for number in range(3):
            self.place.make(f"orders-{number}", 6)
        self.log = io.StringIO()
        notifier = Notifier((), "damage", 30.0, lambda **_: None)
        self.events = EventLog("json", "info", notifier, stream=self.log)
        self.ledger = Ledger(PurePath(self.state), self.clock, self.events, "test")
        scrub = ScrubOptions(cycle_seconds=CYCLE, pressure_low=1000, pressure_high=1000)
        self.config = ServiceConfig(
            (DirConfig(PurePath(self.place.path)), DirConfig(PurePath(self.own), Mode.OWN)), scrub=scrub
        )
        self.config = replace(
            self.config, guard=replace(self.config.guard, scrub=scrub, verify_within_seconds=3 * STEP)
        )
        self.service = self._assembled(notifier)
        self.ended: list[ExitStatus] = []
        self._thread = threading.Thread(target=lambda: self.ended.append(self.service.run()))
        self._next_base, self._appended = 600, 0

    def _assembled(self, notifier: Notifier) -> Service:
        return assemble(
            self.config,
            Surroundings(
                version="test", kernel="c", clock=self.clock, events=self.events, notifier=notifier,
                ledger=self.ledger, systemd=Systemd(), state_dir=PurePath(self.state), run_dir=PurePath(self.state),
                manager_options=replace(options(), lock=lock_log_dir), read_config=lambda: self.config,
            ),
        )  # fmt: skip

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            self.pass_(STEP)
            now = self.clock.now_ms()
            day = str(int(DAY * 1000))
            compacts = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
            self.manager(lambda m: m.topics.create("kept", 1, {**SMALL, "retention.ms": day}, now))
            self.manager(lambda m: m.topics.create("latest", 1, compacts, now))
            yield
        finally:
            self.service.request_stop("the week is over")
            self._thread.join(60)
            self.ledger.close()
            self.events.close()
        assert not self._thread.is_alive()

    @property
    def _worker(self) -> OwnWorker:
        (found,) = (r.worker for r in self.service._runners if isinstance(r.worker, OwnWorker))
        return found

    def manager(self, call: Callable[[Any], Any]) -> Any:
        return self._worker.engine.run(call)

    def pass_(self, seconds: float) -> None:
        self.time.pass_(self.service._runners, seconds)

    def live_an_hour(self, hour: int) -> None:
        """Let clients append to what is ours, and twice a day the broker roll and flush what is its own."""
        now = self.clock.now_ms()
        for number in range(4):
            made = batch(f"value {hour}", key=f"k{number}".encode(), timestamp=now)
            self.append(made, now)
        if hour % 12 == 0:
            self.place.segment("orders-0", self._next_base, batches(self._next_base, 10))
            self.place.flush("orders-0", self._next_base)
            self._next_base += 100
            self.service.changed([PurePath(self.place.path) / "recovery-point-offset-checkpoint"])
        self.pass_(HOUR)

    def append(self, made: bytes, now_ms: int) -> None:
        for each in (FLUSHED, COMPACTED):
            self.manager(lambda m, each=each: m.append(each, made, now_ms))  # type: ignore[misc]

    @property
    def status(self) -> tuple[LogDirStatus, LogDirStatus]:
        guarded, own = self.service.status().log_dirs
        return guarded, own

    def told(self, event: str) -> int:
        return self.events.counters().get(event, 0)

    def ledger_rows(self) -> int:
        tables = ("partitions", "segments", "findings")
        return sum(self.ledger.read(f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables)


def test_in_a_week_all_is_done_in_time_and_nothing_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    week = Week(tmp_path, monkeypatch)
    threads, sizes = [], []
    with week.running():
        for hour in range(7 * 24):
            week.live_an_hour(hour)
            if hour % 24 == 23:
                threads.append(threading.active_count())
                sizes.append(sum(path.stat().st_size for path in week.state.glob("ledger*")))
                if hour // 24 >= 2:
                    keeps_its_promise(week)
        our_logs_are_kept(week)
        guarded, own = week.status
        assert (guarded.findings, own.findings) == ((), ())
        assert guarded.lag is not None
        assert (guarded.lag.partitions, guarded.lag.seconds) == (0, 0.0), "all that the broker flushed has been read"
        now = week.clock.now_ms()
        until(lambda: now - json.loads((week.state / "status.json").read_text())["now_ms"] < 120_000)
    assert now - START_MS >= 7 * DAY * 1000
    assert week.ended == [ExitStatus.CLEAN]
    assert (tmp_path / "own" / ".kafka_cleanshutdown").exists()
    assert len(set(threads)) == 1, threads
    assert threading.active_count() <= before
    assert sizes[-1] <= max(sizes[:3]) * 1.25, sizes
    bad = ("worker_failed", "schedule_failed", "verification_behind", "log_dir_offline", "finding_opened",
           "ledger_rebuilt", "status_not_written", "recovery_point_regressed")  # fmt: skip
    assert {event: week.told(event) for event in bad} == dict.fromkeys(bad, 0)
    assert week.told("range_verified") + week.told("segment_verified") > 0


def keeps_its_promise(week: Week) -> None:
    """Both scrubbers are on time: nothing waits longer than the cycle, be it since it was read or since it is there."""
    since = week.clock.now_ms() - int(CYCLE * 1000)
    late = week.ledger.read(
        "SELECT directory, base, verified_ms FROM segments JOIN partitions ON partitions.id = segments.partition "
        "WHERE COALESCE(verified_ms, first_seen_ms) < ?", since,
    )  # fmt: skip
    assert late == []
    for each in week.status:
        assert each.scrub is not None
        assert each.scrub.segments_total > 0
        assert each.scrub.behind_seconds == 0
        oldest = each.scrub.oldest_verified_ms
        assert oldest is None or oldest >= since, "none: a new segment waits for its first turn"


def our_logs_are_kept(week: Week) -> None:
    """Retention, compaction, flushes and checkpoints were done when they were due."""
    kept, latest = week.manager(lambda m: (m.log(FLUSHED), m.log(COMPACTED)))
    week_of_records = 7 * 24 * 4
    assert kept.log_end == latest.log_end == week_of_records
    assert week_of_records - kept.log_start <= 2 * 24 * 4, "a day is kept, and what shares a segment with it"
    assert len(latest.segments.all) < 8, "a week of one value an hour for each key became one for each"
    points = (week.own / "recovery-point-offset-checkpoint").read_text().splitlines()
    point = next(int(line.split()[2]) for line in points if line.startswith("kept "))
    assert week_of_records - point < 2 * 24 * 4
