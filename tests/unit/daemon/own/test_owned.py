"""Directories of ours: recovered, served, scrubbed, closed; one that fails is left aside alone."""

from __future__ import annotations

import contextlib
import errno
import re
import threading
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Self

import pytest
from support.batches import batch_v2
from support.command import RECOVERY_POINTS, make_log_dir
from support.managers import FailingFs, batch, options
from support.service_parts import MovedClock, Told

from daemon.ledger.ledger import Ledger
from daemon.own.engine import Engine, NotServing
from daemon.own.known_dirs import FILE_NAME
from daemon.own.owned import OwnSetup, OwnWorker
from daemon.scrub.scrub import Scrubber
from daemon.status.document import broker_state
from daemon.status.model import DirState, ListenerStatus, LogDirStatus, RecoveryProgress, ServiceStatus
from daemon.verify.context import FlushedUpTo
from daemon.verify.options import ScrubOptions
from engine.manager.manager import LogManager
from storage.base.errors import ExitStatus
from storage.base.units import TopicPartition
from storage.disk.fs import Fs, OsFs, lock_log_dir

P0 = TopicPartition("orders", 0)
MARKER = ".kafka_cleanshutdown"
TORN = batch_v2(0, 2) + batch_v2(2, 2)[:-5]


def make(directory: Path, log: bytes, *, recovery_point: int = 0, partition: str = "orders-0") -> Path:
    """Make a log directory with one partition as a crash leaves it; return its `.log`."""
    path = make_log_dir(directory, log, recovery_point=recovery_point, partition=partition)
    (path.parent / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    return path


class Own:
    """A worker, what it tells, and what is around it."""

    def __init__(self, *paths: Path, fs: Fs | None = None, state_dir: Path | None = None, **more: Any) -> None:
        self.events, self.clock = Told(), MovedClock()
        setup = OwnSetup(self.events, self.clock, state_dir=None if state_dir is None else PurePath(state_dir), **more)
        real = replace(options(), lock=lock_log_dir)
        self.worker = OwnWorker(fs or OsFs(), [PurePath(path) for path in paths], real, setup)

    def __enter__(self) -> Self:
        self.worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()

    @property
    def states(self) -> list[DirState]:
        return [each.state for each in self.worker.status()]

    def status(self, number: int = 0) -> LogDirStatus:
        return self.worker.status()[number]

    def create(self, topic: str = "orders", partitions: int = 1) -> None:
        self.worker.engine.run(lambda m: m.topics.create(topic, partitions, {}, self.clock.now_ms()))

    def append(self, text: str = "a") -> None:
        self.worker.engine.run(lambda m: m.append(P0, batch(text, timestamp=self.clock.now_ms()), self.clock.now_ms()))


def test_a_damaged_directory_is_recovered_opened_run_and_closed_with_its_marker(tmp_path: Path) -> None:
    log = make(tmp_path / "a", TORN)
    with Own(tmp_path / "a") as own:
        assert own.states == [DirState.SERVING]
        assert log.stat().st_size == len(batch_v2(0, 2))
        progress = own.status().recovery
        assert progress is not None
        assert (progress.result, progress.partitions_done, progress.finished_ms) == (
            "6 actions, 1 cut",
            1,
            own.clock.now_ms(),
        )
        assert own.worker.engine.run(lambda m: m.log(P0).log_end) == 2
        own.append()
        for _ in range(70):
            own.clock.advance(1)
            own.worker.step()
        assert (tmp_path / "a" / RECOVERY_POINTS).exists()
        assert not (tmp_path / "a" / MARKER).exists()
    assert own.states == [DirState.STOPPED]
    assert (tmp_path / "a" / MARKER).exists()
    assert "orders 0 3" in (tmp_path / "a" / RECOVERY_POINTS).read_text()
    assert [name for name in own.events.names if name.startswith(("recovery", "log_dir"))] == [
        "recovery_started",
        "recovery_planned",
        "recovery_finished",
        "log_dir_opened",
        "log_dir_closed",
    ]
    (cut,) = own.events.of("log_truncated")
    assert (cut["topic"], cut["partition"], cut["size"]) == ("orders", 0, len(TORN) - len(batch_v2(0, 2)))
    assert own.status().exit_status == 0


def test_what_a_recovery_kept_is_counted_and_no_lag_is_claimed(tmp_path: Path) -> None:
    make(tmp_path / "a", TORN)
    events, clock = Told(), MovedClock()
    ledger = Ledger(PurePath(tmp_path), clock, events, "test")

    def scrubber(path: PurePath, flushed: FlushedUpTo) -> Scrubber:
        return Scrubber(path, ledger, clock, events, ScrubOptions(), flushed=flushed, pressure=lambda: None)

    with Own(tmp_path / "a", make_scrubber=scrubber) as own:
        for _ in range(70):
            own.clock.advance(1)
            clock.advance(1)
            own.worker.step()
        kept = own.status().quarantine
        assert kept is not None
        cut = len(TORN) - len(batch_v2(0, 2))
        assert (kept.items > 0, kept.bytes >= cut, kept.oldest_ms is not None) == (True, True, True)
        assert own.status().lag is None
    ledger.close()


def test_a_scrubber_of_what_was_never_flushed_comes_to_rest(tmp_path: Path) -> None:
    events, clock = Told(), MovedClock()
    ledger = Ledger(PurePath(tmp_path), clock, events, "test")

    def scrubber(path: PurePath, flushed: FlushedUpTo) -> Scrubber:
        return Scrubber(path, ledger, clock, events, ScrubOptions(), flushed=flushed, pressure=lambda: None)

    with Own(tmp_path / "a", make_scrubber=scrubber) as own:
        own.create(partitions=3)
        own.append()
        clock.advance(120)
        waits = [own.worker.step() for _ in range(60)]
        assert own.status().partitions, "they are known"
        assert waits[-1] > 0
    ledger.close()


def test_a_clean_directory_has_no_recovery_to_show(tmp_path: Path) -> None:
    with Own(tmp_path / "a") as own:
        own.create()
    with Own(tmp_path / "a") as own:
        assert own.status().recovery is None
        assert own.events.names == ["log_dir_opened"]


def hold(path: Path) -> None:
    """Make a directory whose flushed data is damaged, so that its repair waits for a person."""
    data = bytearray(batch_v2(0, 2) + batch_v2(2, 2))
    data[100] ^= 1
    make(path, bytes(data), recovery_point=4)


@pytest.mark.parametrize("kind", ["held", "in use", "unreadable"])
def test_a_directory_that_is_refused_is_left_aside_alone_with_its_reason(tmp_path: Path, kind: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    fs: Fs = OsFs()
    status, told = ExitStatus.HELD, "what is held"
    with contextlib.ExitStack() as stack:
        if kind == "held":
            hold(bad)
        elif kind == "in use":
            stack.enter_context(lock_log_dir(PurePath(bad)))
            status, told = ExitStatus.IN_USE, "in use"
        else:
            fs = FailingFs(OsFs(), errno.EIO, lambda call: call.path.is_relative_to(bad), is_broken=True)
            status, told = ExitStatus.ENVIRONMENT, "Input/output error"
        with Own(good, bad, fs=fs) as own:
            assert own.states == [DirState.SERVING, DirState.OFFLINE]
            assert told in own.status(1).reason
            assert own.status(1).exit_status == status
            own.create()
            own.append()
            own.worker.step()
            (event,) = own.events.of("log_dir_offline")
            assert event["log_dir"] == PurePath(bad)
    assert (good / MARKER).exists()
    assert not (bad / MARKER).exists()


def test_a_disk_that_fails_while_serving_takes_its_directory_offline_and_the_others_go_on(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    fs = FailingFs(OsFs(), errno.EIO, lambda call: call.path.is_relative_to(a))
    with Own(a, b, fs=fs) as own:
        own.create(partitions=2)
        fs.is_broken = True
        for _ in range(120):
            own.clock.advance(1)
            own.worker.step()
        assert own.states == [DirState.OFFLINE, DirState.SERVING]
        assert "Input/output error" in own.status(0).reason
        assert own.events.of("log_dir_offline")
    assert own.states == [DirState.OFFLINE, DirState.STOPPED]
    assert (b / MARKER).exists()


def test_all_directories_in_use_are_tried_again_until_they_are_free(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    own = Own(tmp_path / "a")
    with lock_log_dir(PurePath(tmp_path / "a")):
        own.worker.start()
        assert own.states == [DirState.OFFLINE]
        own.clock.advance(60)
        own.worker.step()
        assert own.states == [DirState.OFFLINE]
    own.clock.advance(60)
    own.worker.step()
    assert own.states == [DirState.SERVING]
    own.worker.stop()
    assert len(own.events.of("log_dir_offline")) == len(own.events.of("log_dir_back")) == 1


def test_a_directory_whose_volume_is_not_mounted_is_not_made_anew_and_opened_once_it_is_there(tmp_path: Path) -> None:
    place, volume, state = tmp_path / "a", tmp_path / "volume", tmp_path / "state"
    state.mkdir()
    with Own(place, state_dir=state) as own:
        own.create()
        own.append()
    assert "log_dirs" in (state / FILE_NAME).read_text()
    place.rename(volume)
    for leaves_mount_point in (False, True):
        if leaves_mount_point:
            place.mkdir()
        with Own(place, state_dir=state) as own:
            assert own.states == [DirState.ABSENT]
            assert "is its volume mounted?" in own.status().reason
            own.worker.step()
            assert own.events.names == ["log_dir_absent"]
    with Own(place, state_dir=state) as own:
        place.rmdir()
        volume.rename(place)
        own.clock.advance(60)
        own.worker.step()
        assert own.states == [DirState.SERVING]
        assert own.worker.engine.run(lambda m: m.log(P0).log_end) == 1


def test_a_broker_s_directory_where_ours_was_is_not_taken_over_by_a_reopening(tmp_path: Path) -> None:
    place, volume, state = tmp_path / "a", tmp_path / "volume", tmp_path / "state"
    state.mkdir()
    with Own(place, state_dir=state) as own:
        own.create()
        own.append()
    place.rename(volume)
    with Own(place, state_dir=state) as own:
        assert own.states == [DirState.ABSENT]
        log = make(place, TORN)
        ours = (volume / "meta.properties").read_text()
        other = re.sub("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAg", ours)
        (place / "meta.properties").write_text(other)
        before = log.read_bytes()
        own.worker.command("reopen")
        own.worker.step()
        assert own.states == [DirState.ABSENT]
        assert "restart with --take-over" in own.status().reason
        assert log.read_bytes() == before


def test_a_directory_that_is_unmounted_under_us_goes_offline_and_comes_back_with_a_reopening(tmp_path: Path) -> None:
    a, b, volume = tmp_path / "a", tmp_path / "b", tmp_path / "volume"
    with Own(a, b) as own:
        own.create(partitions=2)
        a.rename(volume)
        a.mkdir()
        own.clock.advance(60)
        own.worker.step()
        assert own.states == [DirState.OFFLINE, DirState.SERVING]
        assert "was its volume unmounted?" in own.status().reason
        assert list(a.iterdir()) == [], "nothing is made in its place"
        assert not own.worker.has_hope()
        a.rmdir()
        volume.rename(a)
        assert own.worker.has_hope()
        own.worker.command("reopen")
        own.worker.step()
        assert own.states == [DirState.SERVING, DirState.SERVING]


def test_a_recovery_is_cut_short_by_the_end_and_the_next_start_begins_it_anew(tmp_path: Path) -> None:
    log = make(tmp_path / "a", TORN)
    own = Own(tmp_path / "a")
    own.worker.interrupt()  # before it begins, as by a stop that comes at once
    own.worker.start()
    own.worker.stop()
    assert own.states == [DirState.STOPPED]
    own = Own(tmp_path / "a")
    began: list[bool] = []

    class Interrupting(OsFs):
        def open_read(self, path: PurePath) -> Any:
            if path.suffix == ".log" and not began:
                began.append(True)
                own.worker.interrupt()
            return super().open_read(path)

    own = Own(tmp_path / "a", fs=Interrupting())
    own.worker.start()
    assert began
    assert own.states == [DirState.STOPPED]
    assert "cut short" in own.status().reason
    own.worker.stop()
    assert log.stat().st_size == len(TORN)
    with Own(tmp_path / "a") as own:
        assert own.states == [DirState.SERVING]


def test_while_a_recovery_runs_it_tells_how_many_logs_and_segments_are_left(tmp_path: Path) -> None:
    for topic, segments in (("a", 1), ("b", 3)):
        first = make(tmp_path / "a", batch_v2(0, 2), partition=f"{topic}-0")
        for base in range(2, 2 * segments, 2):
            first.with_name(f"{base:020}.log").write_bytes(batch_v2(base, 2))
    (tmp_path / "a" / RECOVERY_POINTS).unlink()
    seen: list[RecoveryProgress] = []
    told: list[Any] = []

    class Looking(OsFs):
        def open_read(self, path: PurePath) -> Any:
            progress = own.status().recovery
            if path.suffix == ".log" and progress is not None and len(seen) < 4:
                seen.append(progress)
                told.append(broker_state(ServiceStatus("", "", 1, 0, 0, False, False, own.worker.status())))
            return super().open_read(path)

    own = Own(tmp_path / "a", fs=Looking())
    with own:
        assert [each.segments_remaining for each in seen] == [4, 3, 2, 1]
        assert [each.partitions_total - each.partitions_done for each in seen] == [2, 1, 1, 1]
        assert {each.is_listed for each in seen} == {True}
        assert told[1] == {
            "brokerState": 2,
            "recoveryState": {"remainingLogsToRecover": 1, "remainingSegmentsToRecover": 3},
        }
        done = own.status().recovery
        assert done is not None
        assert (done.segments_remaining, done.partitions_done, done.partitions_total) == (0, 2, 2)


class Listener:
    """Serves one client of its own: a thread that appends until it is stopped."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._end = threading.Event()
        self.appended = 0
        self.refused: list[type[Exception]] = []

    def start(self, engine: Engine) -> None:
        self.calls.append("start")
        engine.run(lambda m: m.topics.create("orders", 1, {"internal.segment.bytes": "2000"}, 0))
        self._thread = threading.Thread(target=self._serve, args=(engine,))
        self._thread.start()

    def _serve(self, engine: Engine) -> None:
        while not self._end.is_set():
            engine.run(lambda m: m.append(P0, batch("x"), 1_700_000_000_000))
            self.appended += 1

    def status(self) -> ListenerStatus:
        return ListenerStatus("nowhere", "", "none", accepted=self.appended)

    def stop(self) -> None:
        self.calls.append("stop")
        self._end.set()
        self._thread.join(30)


def test_listeners_serve_between_opening_and_closing_and_lose_nothing(tmp_path: Path) -> None:
    listener = Listener()
    with Own(tmp_path / "a", listeners=[listener]) as own:
        while listener.appended < 200:
            own.clock.advance(5)
            own.worker.step()
    assert listener.calls == ["start", "stop"]
    with pytest.raises(NotServing):
        own.worker.engine.run(lambda m: m)
    with Own(tmp_path / "a") as own:
        assert own.status().recovery is None
        assert own.worker.engine.run(lambda m: m.log(P0).log_end) == listener.appended


class HeldFs(OsFs):
    """Holds every sync of a `.log` by its name while `gate` is closed."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()

    def sync_file(self, path: PurePath) -> None:
        if path.suffix == ".log" and not self.gate.is_set():
            self.reached.set()
            assert self.gate.wait(60)
        super().sync_file(path)


def test_appends_go_on_while_a_full_segment_is_brought_to_the_disk(tmp_path: Path) -> None:
    fs = HeldFs()
    with Own(tmp_path / "a", fs=fs) as own:
        own.worker.engine.run(
            lambda m: m.topics.create("orders", 1, {"internal.segment.bytes": "200"}, own.clock.now_ms())
        )
        for _ in range(3):
            own.append()
        own.clock.advance(2)
        fs.gate.clear()
        stepping = threading.Thread(target=own.worker.step)
        stepping.start()
        assert fs.reached.wait(60)
        own.append()
        assert own.worker.engine.run(lambda m: (m.log(P0).log_end, m.log(P0).recovery_point)) == (4, 0)
        fs.gate.set()
        stepping.join(60)
        assert own.worker.engine.run(lambda m: m.log(P0).recovery_point) > 0


def test_appends_and_schedules_take_turns(tmp_path: Path) -> None:
    with Own(tmp_path / "a") as own:
        own.create()
        inside = threading.Event()
        go_on = threading.Event()

        def slow(_: LogManager) -> None:
            inside.set()
            go_on.wait(30)

        client = threading.Thread(target=lambda: own.worker.engine.run(slow))
        client.start()
        inside.wait(30)
        stepping = threading.Thread(target=own.worker.step)
        stepping.start()
        assert own.states == [DirState.SERVING], "how it is can be asked meanwhile"
        assert stepping.is_alive()
        go_on.set()
        stepping.join(30)
        client.join(30)
        assert not stepping.is_alive()


@pytest.mark.parametrize("jump", [-86_400_000 * 365, 86_400_000 * 365])
def test_a_clock_that_jumps_ends_no_schedule(tmp_path: Path, jump: int) -> None:
    with Own(tmp_path / "a") as own:
        own.create()
        own.append()
        own.clock.ms += jump
        for _ in range(70):
            own.clock.advance(1)
            own.worker.step()
        assert own.states == [DirState.SERVING]
        own.append()
        for _ in range(70):
            own.clock.advance(1)
            own.worker.step()
        assert own.events.of("schedule_failed") == []
        assert own.worker.engine.run(lambda m: m.log(P0).log_end) >= 1


def test_orders_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    with Own(tmp_path / "a") as own, pytest.raises(ValueError, match="unknown order dance"):
        own.worker.command("dance")


def test_the_beat_tells_what_the_disk_did(tmp_path: Path) -> None:
    done = [0]
    with Own(tmp_path / "a", moved=lambda: done[0]) as own:
        before = own.worker.beat()
        assert own.worker.beat() == before
        done[0] += 1
        assert own.worker.beat() != before
