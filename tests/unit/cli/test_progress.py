"""Progress: the line, when it is shown, and that it can be asked for and stopped."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import PurePath

import pytest

from cli.console import Console
from cli.progress import Mode, ProgressReporter, Stopped, choose_mode
from cli.signals import Terminated, handled, nothing
from recovery.plan.plan import SetAside


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Run:
    """A reporter with a clock that stands still unless moved, and what it wrote."""

    def __init__(self, mode: Mode, *, jsonl: bool = False) -> None:
        self.clock, self.out, self.err = Clock(), io.StringIO(), io.StringIO()
        self.reporter = ProgressReporter(Console(self.out, self.err, jsonl=jsonl), mode, self.clock)

    def scan(self, size: int, seconds: float) -> None:
        self.clock.now += seconds
        self.reporter.scanned("orders-0", size)


def test_a_journal_gets_a_line_every_few_seconds() -> None:
    run = Run(Mode.PLAIN)
    run.reporter.begin("/data", 1000, 1)
    for _ in range(110):
        run.scan(1, 0.1)
    lines = run.err.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("logmend: /data: ") for line in lines)


def test_a_terminal_gets_one_line_that_is_drawn_again_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = Run(Mode.TERMINAL)
    run.reporter.begin("/data", 1000, 1)
    for _ in range(20):
        run.scan(10, 0.1)
    run.reporter.end()
    written = run.err.getvalue()
    assert "\n" not in written
    assert written.count("\r/data: ") > 5
    assert written.endswith("\r")
    assert written.rstrip("\r").endswith(" ")


def test_work_that_is_done_at_once_shows_nothing() -> None:
    for mode in Mode:
        run = Run(mode)
        run.reporter.begin("/data", 10, 1)
        run.scan(10, 0.2)
        run.reporter.end()
        assert run.err.getvalue() == ""


def test_a_name_from_the_disk_cannot_move_the_cursor() -> None:
    run = Run(Mode.NONE)
    run.reporter.begin("/da\x1bta", 10, 1)
    run.reporter.scanned("or\nders-0", 1)
    run.reporter.print_line()
    assert "\x1b" not in run.err.getvalue()
    assert run.err.getvalue().count("\n") == 1


def test_events_are_lines_of_json_in_order() -> None:
    run = Run(Mode.NONE, jsonl=True)
    run.reporter.begin("/data", 0, 2)
    run.reporter.listed("orders-0", 10, 1)
    run.reporter.listed("orders-1", 0, 0)
    run.scan(10, 1)
    run.reporter.segment_done("orders-0")
    run.reporter.partition_done("orders-0", 2)
    run.reporter.applying(SetAside(PurePath("/data/orders-0/x.log"), "why"))
    run.reporter.end()
    events = [json.loads(line) for line in run.out.getvalue().splitlines()]
    assert [event["event"] for event in events] == [
        "scan_started",
        "listing_finished",
        "partition_verified",
        "action_started",
        "scan_finished",
    ]
    assert (events[1]["total_bytes"], events[1]["segments"]) == (10, 1)
    assert events[3]["action"]["kind"] == "set_aside"
    assert events[4]["bytes"] == 10


def test_no_share_and_no_time_left_is_told_before_all_is_listed() -> None:
    run = Run(Mode.NONE)
    run.reporter.begin("/data", 0, 2)
    run.reporter.listed("orders-0", 100, 1)
    run.scan(99, 1)
    run.reporter.print_line()
    run.reporter.listed("orders-1", 300, 1)
    run.reporter.print_line()
    before, after = run.err.getvalue().splitlines()
    assert before == "logmend: /data: 99 B of at least 100 B, 99 B/s, 0 of 2 partitions, orders-0"
    assert after == "logmend: /data: 99 B of 400 B, 24 %, 99 B/s, ETA 3 s, 0 of 2 partitions, orders-0"


def test_log_directories_that_are_read_at_once_are_counted_together() -> None:
    run = Run(Mode.NONE)
    run.reporter.begin("/a", 0, 1)
    run.reporter.begin("/b", 0, 2)
    run.reporter.begin("/a", 0, 1)  # planned once more
    for size in (10, 10, 20, 0):
        run.reporter.listed("any-0", size, 1)
    run.scan(20, 1)
    run.reporter.print_line()
    run.reporter.end()
    run.reporter.end()
    run.reporter.begin("/c", 0, 1)
    run.reporter.listed("any-0", 5, 1)
    run.reporter.print_line()
    first, second = run.err.getvalue().splitlines()
    assert first.startswith("logmend: /a, /b: 20 B of 40 B, 50 %")
    assert "0 of 3 partitions" in first
    assert second == "logmend: /c: 0 B of 5 B, 0 %, 0 of 1 partition"


def test_sigusr1_prints_one_line_whatever_the_mode() -> None:
    run = Run(Mode.NONE)
    run.reporter.begin("/data", 0, 1)
    run.reporter.listed("orders-0", 10, 1)
    with handled(stop=nothing, tell=run.reporter.print_line):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert run.err.getvalue() == "logmend: /data: 0 B of 10 B, 0 %, 0 of 1 partition\n"


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_signal_to_stop_makes_the_threads_give_up(number: int, raised: type[BaseException]) -> None:
    run = Run(Mode.NONE)
    with pytest.raises(raised), handled(stop=run.reporter.stop, tell=nothing):
        os.kill(os.getpid(), number)
    with pytest.raises(Stopped):
        run.reporter.scanned("orders-0", 1)


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handled(stop=nothing, tell=nothing):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_auto_is_a_terminal_only_on_one() -> None:
    assert choose_mode("auto", is_terminal=True) is Mode.TERMINAL
    assert choose_mode("auto", is_terminal=False) is Mode.PLAIN
    assert choose_mode("none", is_terminal=True) is Mode.NONE


def test_a_supervisor_is_told_at_the_beginning_and_once_a_second_while_something_moves() -> None:
    told: list[str] = []
    run = Run(Mode.NONE)
    run.reporter = ProgressReporter(Console(run.out, run.err), Mode.NONE, run.clock, told.append)
    run.reporter.begin("/data", 0, 1)
    run.reporter.listed("orders-0", 4096, 1)
    for _ in range(4):
        run.scan(1024, 0.5)
    assert told == [
        "/data: 0 B of at least 0 B, 0 of 1 partition",
        "/data: 2.0 KiB of 4.0 KiB, 50 %, 2.0 KiB/s, ETA 1 s, 0 of 1 partition, orders-0",
        "/data: 4.0 KiB of 4.0 KiB, 100 %, 2.0 KiB/s, ETA 0 s, 0 of 1 partition, orders-0",
    ]
    assert run.err.getvalue() == ""
