"""A real kernel that refuses what `topics`, `append` and `read` ask of it, and writes that are cut short at any byte.

As in `test_system_calls.py`: strace fails the n-th call of a kind on the files of the log directory, counted on an
undisturbed run. After each: no traceback, a documented status, everything that was acknowledged is there, of what
was under way a beginning, and an undisturbed recovery ends clean.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.test_system_calls import CALLS, Fault, calls_of
from support.calling import call
from support.command import ROOT, environment
from support.faults import EVERYTHING, sample
from support.needs import need
from support.tiers import deep

from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset

FIRST = [f"first {number}" for number in range(4)]
MORE = [f"more {number}" for number in range(6)]
SETTINGS = ("internal.segment.bytes=200", "flush.messages=2")
TOPS = ("logmend-topics.json", "meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
        "replication-offset-checkpoint", "cleaner-offset-checkpoint", ".kafka_cleanshutdown", ".lock")  # fmt: skip
INSIDE = ("leader-epoch-checkpoint", "partition.metadata")
ROLES = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX, FileRole.SNAPSHOT)
COMMANDS = {
    "append": ["append", "--topic", "orders", "--format", "text", "--batch-bytes", "1"],
    "create": ["topics", "create", "--topic", "other", "--partitions", "1"],
    "delete": ["topics", "delete", "--topic", "orders"],
    "read": ["read", "--topic", "orders"],
}


def lines(values: list[str]) -> str:
    return "".join(f"{value}\n" for value in values)


def run(words: list[str], home: Path, text: str = "", before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "cli.main", *words, "--log-dir", str(home)]
    return subprocess.run(
        command, env=environment(PYTHONDONTWRITEBYTECODE="1"), input=text, capture_output=True, text=True, check=False,
        timeout=180, cwd=ROOT,
    )  # fmt: skip


@dataclass
class Bench:
    """A log directory with one topic and four records, made anew for each fault at the same place."""

    home: Path
    model: Path
    command: str

    def make(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.model, self.home)

    def paths(self) -> Iterator[str]:
        for name in (*TOPS, *(f"{part}-0" for part in ("orders", "other"))):
            yield str(self.home / name)
            yield str(self.home / f"{name}.tmp")
        yield str(self.home)
        for partition in ("orders-0", "other-0"):
            yield from (str(self.home / partition / f"{name}{end}") for name in INSIDE for end in ("", ".tmp"))
            for base, role in itertools.product(range(len(FIRST) + len(MORE) + 1), ROLES):
                yield str(self.home / partition / segment_file_name(Offset(base), role))

    def run(self, *injected: str) -> tuple[subprocess.CompletedProcess[str], str]:
        trace = self.home.with_suffix(".trace")
        fast = [] if any("signal=" in word for word in injected) else ["--seccomp-bpf"]
        strace = ["strace", "-f", "-qq", *fast, "-o", str(trace), "-e", f"trace={','.join(CALLS)}"]
        for word in injected:
            strace += ["-e", f"inject={word}"]
        for path in self.paths():
            strace += ["-P", path]
        done = run(COMMANDS[self.command], self.home, lines(MORE) if self.command == "append" else "", tuple(strace))
        return done, trace.read_text(errors="replace")

    def found(self) -> list[str] | None:
        """Return the values in the topic after an undisturbed recovery; None if there is no such topic."""
        recovered = call("recover", self.home)
        assert recovered.returncode == 0, recovered.stdout + recovered.stderr
        read = call(*COMMANDS["read"], "--log-dir", self.home)
        if read.returncode == 2 and self.command == "delete":
            return None
        assert read.returncode == 0, read.stderr
        return [json.loads(line)["value"] for line in read.stdout.splitlines()]

    def judge(self, done: subprocess.CompletedProcess[str]) -> None:
        assert "Traceback" not in done.stdout + done.stderr
        found = self.found()
        if self.command == "delete":
            assert found in (None, FIRST)
            return
        assert found is not None
        assert found == (FIRST + MORE)[: len(found)]
        assert len(found) >= len(FIRST) + (len(MORE) if self.command == "append" and done.returncode == 0 else 0)
        again = call(*COMMANDS["append"], "--log-dir", self.home, stdin=lines(["last"]))
        assert again.returncode == 0, again.stderr
        assert self.found() == [*found, "last"]


@pytest.fixture(params=sorted(COMMANDS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    need("strace")
    return begun(tmp_path, request.param)


def begun(tmp_path: Path, command: str, settings: tuple[str, ...] = SETTINGS) -> Bench:
    model = tmp_path / "model"
    config = [word for setting in settings for word in ("--config", setting)]
    for words, text in (
        (["topics", "create", "--init", "--topic", "orders", "--partitions", "1", *config], ""),
        (COMMANDS["append"], lines(FIRST)),
    ):
        done = call(*words, "--log-dir", model, stdin=text)
        assert done.returncode == 0, done.stderr
    return Bench(tmp_path / "data", model, command)


def faults_of(bench: Bench, errors: dict[str, tuple[str, ...]], *, forever: bool) -> list[Fault]:
    bench.make()
    done, trace = bench.run()
    assert done.returncode == 0, done.stderr
    counts: Counter[str] = calls_of(trace)
    assert counts["openat"] > 3, "strace saw nothing of it"
    found = [
        Fault(call, number, error, forever)
        for call, count in sorted(counts.items())
        for number in range(1, count + 1)
        for error in errors.get(call, ())
    ]
    print(f"{len(found)} faults are possible")
    if EVERYTHING:
        return found
    rng = random.Random(f"{bench.command}{forever}{errors}")
    by_call = [[fault for fault in found if fault.call == call] for call in sorted({f.call for f in found})]
    chosen = [rng.choice(group) for group in by_call]
    return rng.sample(chosen, min(4, len(chosen)))


def wrong_with(bench: Bench, fault: Fault) -> str:
    bench.make()
    how = "signal=KILL" if fault.error == "KILL" else f"error={fault.error}"
    done, trace = bench.run(f"{fault.call}:{how}:when={fault.number}{'+' if fault.forever else ''}")
    try:
        if fault.error == "KILL":
            assert done.returncode in (-9, 137, 0)
        else:
            # 1: what could not be appended is told; 2: what cannot be read may not be there; 5: the disk.
            assert done.returncode in (0, 1, 2, 5), "the status"
            if done.returncode and "(INJECTED)" in trace:
                assert re.search(r"^logmend: ", done.stderr, re.MULTILINE), "it does not say what failed"
        bench.judge(done)
    except AssertionError as error:
        return f"{fault}: {error} (status {done.returncode}: {done.stdout}{done.stderr})"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.parametrize("forever", [pytest.param(False, id="once"), deep(True, id="from then on")])
def test_a_call_that_fails_costs_nothing_that_was_acknowledged(bench: Bench, forever: bool) -> None:
    tried = faults_of(bench, CALLS, forever=forever)
    assert [why for fault in tried if (why := wrong_with(bench, fault))] == []


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
def test_a_kill_before_any_call_costs_nothing_that_was_acknowledged(bench: Bench) -> None:
    tried = faults_of(bench, dict.fromkeys(CALLS, ("KILL",)), forever=False)
    assert [why for fault in tried if (why := wrong_with(bench, fault))] == []


BOUNDED = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv[0] = "logmend"
runpy.run_module("cli.main", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
def test_a_batch_that_is_written_in_part_is_taken_back_at_every_byte_of_it(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel write less than it was asked to: a log of one segment that ends at any byte."""
    bench = begun(tmp_path, "append", ())
    whole = run(["append", "--topic", "orders", "--format", "text"], bench.model, lines(["x" * 300]))
    assert whole.returncode == 0, whole.stderr
    (log,) = (bench.model / "orders-0").glob("*.log")
    start = log.stat().st_size
    for limit in sample(range(start, start + 90), 6):
        bench.make()
        code = BOUNDED.format(limit=limit)
        words = ["append", "--topic", "orders", "--format", "text", "--log-dir", str(bench.home)]
        done = subprocess.run(
            [sys.executable, "-c", code, *words], env=environment(PYTHONDONTWRITEBYTECODE="1"), input="cut short\n",
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        found = bench.found()
        expected = [*FIRST, "x" * 300]
        assert found in (expected, [*expected, "cut short"])
        assert (found == expected) == (done.returncode != 0), done.stderr
