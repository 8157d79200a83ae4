"""`kill -9`, before or behind any effect of recovery, restore and engine, and of the real command at any time.

What a process wrote stays when it is killed: so all that was said must be there, flushed or not. `LOGMEND_CRASH_STATES=
all` kills thousands of times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from power.forked import CUTTERS, NoCut
from support.command import environment, logmend
from support.faults import DAMAGES, check_end, recovered, write_tree

EVERYTHING = os.environ.get("LOGMEND_CRASH_STATES") == "all"
SEED = int(os.environ.get("LOGMEND_CRASH_SEED", "0"))
KILLS = (
    {"engine": 3000, "recover": 2000, "together": 2000, "restore": 1000}
    if EVERYTHING
    else {"engine": 20, "recover": 12, "together": 8, "restore": 8}
)
COMMANDS = 300 if EVERYTHING else 6


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.parametrize("work", sorted(CUTTERS))
def test_a_kill_at_any_effect_takes_nothing_that_was_said(tmp_path: Path, work: str) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    cutter = CUTTERS[work](NoCut(place), random.Random(f"kill-{work}-{SEED}"))
    for number in range(KILLS[work]):
        try:
            cutter.cycle()
        except AssertionError as error:
            raise AssertionError(f"kill {number} of seed {SEED}: {error}") from error
    print(f"{work}: {cutter.cuts} kills, {cutter.at_end} behind the end, {cutter.left_to_do} left something to do")
    assert (cutter.cuts, cutter.left_to_do > 0) == (KILLS[work], True)


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
def test_a_recovery_that_is_killed_at_any_time_is_finished_by_the_next(tmp_path: Path) -> None:
    rng, killed = random.Random(f"time-{SEED}"), 0
    longest = 0.5
    for number in range(COMMANDS):
        before = DAMAGES[sorted(DAMAGES)[number % len(DAMAGES)]]
        home = write_tree(tmp_path / f"{number}" / "data", before)
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "recover", home], env=environment(), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        began = time.monotonic()
        try:
            process.wait(rng.uniform(0, longest))
            longest = time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        check_end(home, before, recovered(before, tmp_path / "undisturbed"))
    print(f"{COMMANDS} runs, {killed} killed")


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
def test_an_append_that_is_killed_at_any_time_leaves_a_beginning_of_what_was_sent(tmp_path: Path) -> None:
    """The input is fed piece by piece, so that the kill comes while it is at work."""
    rng = random.Random(f"append-{SEED}")
    sent = 0
    words = ["--topic", "orders", "--log-dir", str(tmp_path)]
    settings = ["--config", "segment.bytes=104857600", "--config", "flush.messages=3"]
    assert logmend("topics", "create", "--init", "--partitions", "1", *settings, *words).returncode == 0
    for _ in range(COMMANDS // 2):
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "append", "--format", "text", "--batch-bytes", "200", *words],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        assert process.stdin is not None
        fed = sent
        log, more = tmp_path / "orders-0" / f"{0:020d}.log", rng.randint(0, 10)
        size = log.stat().st_size if log.exists() else 0
        deadline = time.monotonic() + 60
        while more >= 0:
            process.stdin.write(b"".join(b"%d\n" % number for number in range(fed, fed + 20)))
            process.stdin.flush()
            fed += 20
            time.sleep(rng.uniform(0, 0.03))
            more -= log.exists() and log.stat().st_size > size  # it is at work
            assert time.monotonic() < deadline
        process.kill()
        process.wait()
        process.stdin.close()
        done = logmend("recover", str(tmp_path))
        assert done.returncode == 0, done.stderr
        found = logmend("read", *words)
        assert found.returncode == 0, found.stderr
        values = [int(json.loads(line)["value"]) for line in found.stdout.splitlines()]
        assert values == list(range(len(values)))
        assert sent <= len(values) <= fed
        sent = len(values)
    assert sent > 0, "nothing was ever written before a kill"
