"""The frame of the service, with workers that do what a test wants: threads, orders, signs of life, the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Self

import pytest
from support.service_parts import Listening, MovedClock, ObedientWorker, Told
from support.waiting import until

from daemon.service.service import Reloaded, Service, Setup, exit_status
from daemon.service.systemd import Systemd
from daemon.status.line import status_line
from daemon.status.model import DirState, LogDirStatus, Mode, RecoveryProgress, Worker
from storage.base.errors import ConfigInvalid, ExitStatus, LogmendError

GUARD, OTHER = PurePath("/a"), PurePath("/b")


class Running:
    """A service in a thread, and what surrounds it."""

    def __init__(self, *workers: Worker, parts: Sequence[Any] = (), **more: Any) -> None:
        self.events, self.clock = Told(), MovedClock()
        self.looks = 0
        setup = Setup("1", "c", self.events, self.clock, counters=self._count, tick_seconds=0.01, **more)
        self.service = Service(workers, setup)
        for part in parts:
            self.service.add(part)
        self.status: list[ExitStatus] = []
        self.thread = threading.Thread(target=lambda: self.status.append(self.service.run()), daemon=True)

    def _count(self) -> dict[str, int]:
        self.looks += 1
        return {}

    def tick(self, times: int = 3) -> None:
        """Wait until the main thread has looked around so often, the last time from its beginning."""
        before = self.looks
        until(lambda: self.looks > before + times)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def end(self) -> ExitStatus:
        self.service.request_stop("enough")
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.status[0]

    def __exit__(self, *_: object) -> None:
        self.service.request_stop()
        self.thread.join(30)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path / "notify")
    yield made
    made.close()


def test_each_worker_starts_steps_and_stops_in_its_own_thread() -> None:
    one, two = ObedientWorker("/a"), ObedientWorker("/b")
    threads: dict[str, set[int]] = {"/a": set(), "/b": set()}
    for worker in (one, two):
        seen = threads[str(worker.paths[0])]
        worker.on_step = worker.on_stop = lambda seen=seen: seen.add(threading.get_ident())  # type: ignore[misc]
    with Running(one, two) as running:
        until(lambda: running.service.status().ready)
        assert running.end() is ExitStatus.CLEAN
    assert one.calls == two.calls == ["start", "stop"]
    assert len(threads["/a"]) == len(threads["/b"]) == 1
    assert threads["/a"] != threads["/b"]
    assert running.events.names[0] == "service_started"
    assert running.events.names[-1] == "service_stopped"
    assert running.events.of("service_stopping") == [{"reason": "enough"}]


def test_a_step_that_asks_for_time_gets_it_and_a_change_calls_it_at_once() -> None:
    worker, other = ObedientWorker("/a"), ObedientWorker("/b")
    with Running(worker, other) as running:
        until(lambda: worker.steps == 1 and other.steps == 1)
        running.service.changed([GUARD / "checkpoint", GUARD / "x", PurePath("/c/y")])
        until(lambda: worker.steps == 2)
        running.end()
    assert worker.woken == [frozenset((GUARD / "checkpoint", GUARD / "x"))]
    assert (other.woken, other.steps) == ([], 1)


def test_a_change_that_comes_during_a_step_is_not_lost() -> None:
    worker = ObedientWorker("/a")
    inside, go_on = threading.Event(), threading.Event()

    def step() -> None:
        inside.set()
        go_on.wait(30)

    worker.on_step = step
    with Running(worker) as running:
        inside.wait(30)
        running.service.changed([GUARD / "x"])
        go_on.set()
        assert until(lambda: worker.steps == 2)


def test_orders_go_to_whoever_has_the_directory_or_to_all() -> None:
    with Running(ObedientWorker("/a"), ObedientWorker("/b")) as running:
        assert running.service.command("greet", "you", GUARD) == "/a greets you"
        assert running.service.command("greet", "you") == "/a greets you\n/b greets you"
        with pytest.raises(ValueError, match="no such log directory: /c"):
            running.service.command("greet", "you", PurePath("/c"))
        with pytest.raises(ValueError, match="unknown order dance"):
            running.service.command("dance")


def test_it_is_ready_once_each_directory_is_guarded_served_or_left_aside() -> None:
    worker, slow = ObedientWorker("/a"), ObedientWorker("/b", mode=Mode.OWN)
    go_on = threading.Event()
    slow.on_start = lambda: (slow.enter(DirState.RECOVERING), go_on.wait(30), slow.enter(DirState.OFFLINE, reason="x"))
    with Running(worker, slow) as running:
        until(lambda: slow.status()[0].state is DirState.RECOVERING and worker.steps)
        assert not running.service.status().ready
        go_on.set()
        until(lambda: running.service.status().ready)
        assert running.end() is ExitStatus.ENVIRONMENT


def test_a_fault_of_ours_ends_its_worker_alone_and_shows_in_status_and_exit_status() -> None:
    worker, bad = ObedientWorker("/a"), ObedientWorker("/b")

    def fail() -> None:
        raise ZeroDivisionError("oops")

    bad.on_step = fail
    with Running(worker, bad) as running:
        until(lambda: running.service.status().log_dirs[1].state is DirState.OFFLINE)
        found = running.service.status()
        assert found.log_dirs[1].reason == "a fault of logmend itself: ZeroDivisionError: oops"
        assert found.log_dirs[0].state is DirState.GUARDING
        (told,) = until(lambda: running.events.of("worker_failed"))
        assert (told["log_dir"], "in fail" in told["traceback"]) == ("/b", True)
        assert running.end() is ExitStatus.BUG
    assert bad.calls == ["start", "stop"]


def test_with_no_worker_left_the_service_ends_by_itself() -> None:
    bad = ObedientWorker("/b")

    def fail() -> None:
        raise LogmendError("cannot")

    bad.on_start = fail
    with Running(bad) as running:
        running.thread.join(30)
        assert running.status == [ExitStatus.BUG]


def test_parts_begin_before_the_workers_and_end_after_them() -> None:
    order: list[str] = []

    class Part:
        def start(self) -> None:
            order.append("part starts")

        def beat(self) -> bool:
            return True

        def stop(self) -> None:
            order.append("part stops")

    worker = ObedientWorker("/a")
    worker.on_start = lambda: (order.append("worker starts"), worker.enter(DirState.GUARDING))
    worker.on_stop = lambda: order.append("worker stops")
    with Running(worker, parts=[Part()]) as running:
        until(lambda: worker.steps)
        running.end()
    assert order == ["part starts", "worker starts", "worker stops", "part stops"]


def test_systemd_hears_of_ready_state_reload_and_end(systemd: Listening) -> None:
    worker = ObedientWorker("/a")
    with Running(worker, systemd=Systemd(systemd.address), reload=lambda: Reloaded(("log.level",), ("log_dir",))) as it:
        until(lambda: systemd.count("READY=1") == 1)
        it.service.request_reload()
        until(lambda: systemd.count("READY=1") == 2)
        it.end()
        until(lambda: "STOPPING=1" in systemd.said)
    assert "STATUS=guarding 1" in systemd.said
    assert systemd.said.index("READY=1") < systemd.said.index("RELOADING=1") < systemd.said.index("STOPPING=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in systemd.said)
    assert it.events.of("config_reloaded") == [{"path": "", "changed": ("log.level",), "waiting": ("log_dir",)}]


def test_a_configuration_that_is_wrong_is_refused_and_the_work_goes_on(systemd: Listening) -> None:
    def reload() -> Reloaded:
        raise ConfigInvalid("l.toml: unknown key x = 3")

    worker = ObedientWorker("/a")
    with Running(worker, systemd=Systemd(systemd.address), reload=reload, config_path="l.toml") as running:
        until(lambda: systemd.count("READY=1") == 1)
        running.service.request_reload()
        until(lambda: running.events.of("config_refused"))
        until(lambda: systemd.count("READY=1") == 2)
        assert running.end() is ExitStatus.CLEAN
    assert running.events.of("config_refused") == [{"path": "l.toml", "reason": "l.toml: unknown key x = 3"}]


def test_signs_of_life_end_when_one_worker_stands_still_and_begin_again_when_it_moves(systemd: Listening) -> None:
    well, stuck = ObedientWorker("/a"), ObedientWorker("/b")
    inside, go_on = threading.Event(), threading.Event()

    def step() -> None:
        if stuck.steps == 2:
            inside.set()
            go_on.wait(60)

    stuck.on_step, stuck.wait, well.wait = step, 0.01, 0.01
    with Running(well, stuck, systemd=Systemd(systemd.address, watchdog_seconds=10)) as running:
        inside.wait(30)
        until(lambda: systemd.count("WATCHDOG=1"))
        running.tick()
        running.clock.advance(6)  # more than half of what is allowed
        running.tick()
        before = systemd.count("WATCHDOG=1")
        running.tick(20)
        assert systemd.count("WATCHDOG=1") == before
        go_on.set()
        until(lambda: systemd.count("WATCHDOG=1") > before)


def test_a_worker_that_waits_for_its_time_counts_as_moving(systemd: Listening) -> None:
    with Running(ObedientWorker("/a"), systemd=Systemd(systemd.address, watchdog_seconds=10)) as running:
        until(lambda: systemd.count("WATCHDOG=1"))
        running.clock.advance(3600)
        running.tick()
        before = systemd.count("WATCHDOG=1")
        assert until(lambda: systemd.count("WATCHDOG=1") > before)


def test_a_part_whose_threads_are_stuck_ends_the_signs_of_life_too(systemd: Listening) -> None:
    class Part:
        is_alive = True

        def start(self) -> None: ...

        def beat(self) -> bool:
            return self.is_alive

        def stop(self) -> None: ...

    part = Part()
    with Running(ObedientWorker("/a"), parts=[part], systemd=Systemd(systemd.address, 10)) as running:
        until(lambda: systemd.count("WATCHDOG=1"))
        part.is_alive = False
        running.tick()
        running.clock.advance(6)
        running.tick()
        before = systemd.count("WATCHDOG=1")
        running.tick(20)
        assert systemd.count("WATCHDOG=1") == before


def test_while_a_recovery_moves_it_asks_for_more_time_and_not_when_it_stands(systemd: Listening) -> None:
    worker = ObedientWorker("/a", mode=Mode.OWN)
    go_on = threading.Event()
    worker.on_start = lambda: go_on.wait(60)

    def asked() -> int:
        return sum(line.startswith("EXTEND_TIMEOUT_USEC=") for line in systemd.said)

    with Running(worker, systemd=Systemd(systemd.address)) as running:
        for done in (100, 200):
            before = asked()
            worker.enter(DirState.RECOVERING, recovery=RecoveryProgress(1000, done, 10.0, 5.0, 2, 1, 0))
            running.clock.advance(20)
            until(lambda before=before: asked() > before)  # type: ignore[misc]
        until(lambda: any("recovering /a: 20 %, 200 B of 1000 B" in line for line in systemd.said))
        running.clock.advance(60)
        running.tick()
        before = asked()
        running.clock.advance(60)
        running.tick(20)
        assert asked() == before
        go_on.set()


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ({}, {"state": DirState.STOPPED}, 0),
        ({"state": DirState.OFFLINE}, {"state": DirState.OFFLINE}, 5),
        ({"state": DirState.ABSENT}, {"state": DirState.ABSENT}, 5),
        ({"state": DirState.OFFLINE, "exit_status": 3}, {"state": DirState.OFFLINE, "exit_status": 3}, 3),
        ({"state": DirState.OFFLINE, "exit_status": 6}, {"state": DirState.STOPPED}, 6),
        ({}, {"state": DirState.OFFLINE, "exit_status": 5}, 5),
        ({"findings": ("something",)}, {"state": DirState.STOPPED}, 1),
    ],
)
def test_the_exit_status_says_how_a_directory_was(before: Any, after: Any, status: int) -> None:
    def made(more: Any) -> LogDirStatus:
        return LogDirStatus(
            **{"path": GUARD, "mode": Mode.OWN, "state": DirState.SERVING, "reason": "", "since_ms": 0, **more}
        )

    assert exit_status(made(before), made(after), has_failed=False) == status
    assert exit_status(made(before), made(after), has_failed=True) is ExitStatus.BUG


def test_the_line_tells_of_a_recovery_first_and_of_what_is_left_aside() -> None:
    worker, bad = ObedientWorker("/a", mode=Mode.OWN), ObedientWorker("/b\x1b[31m")
    worker.enter(DirState.RECOVERING, recovery=RecoveryProgress(1 << 30, 1 << 28, 1 << 26, 12.0, 40, 12, 0))
    bad.enter(DirState.OFFLINE, reason="Input/output error")
    service = Service([worker, bad], Setup("1", "c", Told(), MovedClock()))
    assert status_line(service.status()) == (
        "recovering /a: 25 %, 256.0 MiB of 1.0 GiB, 64.0 MiB/s, about 12 s left, 12 of 40 partitions, 0 segments left; "
        "offline 1; /b\\x1b[31m: Input/output error"
    )


def test_the_status_is_returned_while_a_worker_is_stuck() -> None:
    worker = ObedientWorker("/a")
    go_on = threading.Event()
    worker.on_step = lambda: go_on.wait(60)
    with Running(worker) as running:
        until(lambda: worker.steps)
        assert json.dumps(running.service.status().log_dirs[0].state) == '"guarding"'
        go_on.set()
