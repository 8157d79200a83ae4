"""The process runs out of file descriptors, for good, at one access to the log directory after another.

From the n-th access on, every further `open` of the process fails with EMFILE, those of the interpreter for modules
included. LOGMEND_FAULTS=all tries every n; by default a sample that is spread over all.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import ROOT, environment
from support.faults import (
    DAMAGES,
    EVERYTHING,
    check_end,
    check_nothing_is_lost,
    recovered,
    sample,
    write_tree,
)
from support.log_dirs import Files, sound
from support.tiers import spread

LIMIT = """
import os, resource, sys
home, wanted, trace = os.environ["FAULT_HOME"], int(os.environ["FAULT_AT"]), int(os.environ["FAULT_TRACE"])
accesses = 0

def hook(event, about):
    global accesses
    if (event == "open" or event.startswith("os.")) and any(str(one).startswith(home) for one in about):
        accesses += 1
        os.write(trace, b".")
        if accesses == wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

sys.addaudithook(hook)
"""
MOST = 5
Prepare = Callable[[Path, Path, Files], tuple[str, ...]]


def run(home: Path, fault_at: int, *words: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run a command without descriptors from an access on (0: never); return how it ended and the accesses made."""
    patch = home.with_name("patch")
    patch.mkdir(exist_ok=True)
    (patch / "sitecustomize.py").write_text(LIMIT)
    with home.with_name("trace").open("w+b") as trace:
        env = environment(
            PYTHONDONTWRITEBYTECODE="1",
            FAULT_HOME=str(home),
            FAULT_AT=str(fault_at),
            FAULT_TRACE=str(trace.fileno()),
        )
        env["PYTHONPATH"] = f"{patch}:{ROOT}"
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words], env=env, capture_output=True, text=True, check=False,
            timeout=180, cwd="/", pass_fds=[trace.fileno()],
        )  # fmt: skip
        return done, trace.seek(0, 2)


def recover(home: Path, replica: Path, before: Files) -> tuple[str, ...]:
    return ("recover", "-j", "1", str(home))


def recover_in_threads(home: Path, replica: Path, before: Files) -> tuple[str, ...]:
    return ("recover", "-j", "2", "--keep-tail", "1M", "--jsonl", str(home))


def apply(home: Path, replica: Path, before: Files) -> tuple[str, ...]:
    plan = home.with_name("plan.json")
    plan.unlink(missing_ok=True)
    done, _ = run(home, 0, "plan", "--out", str(plan), str(home))
    assert done.returncode == 1, done.stderr
    return ("apply", str(plan))


def heal(home: Path, replica: Path, before: Files) -> tuple[str, ...]:
    return ("recover", "--heal-from", str(replica), str(home))


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return what is wrong with how the command ended, or nothing."""
    if "Traceback" in done.stderr or "a fault of logmend" in done.stdout + done.stderr:
        return "it blames itself"
    if done.returncode not in (0, 5):
        return "another status than 5"
    if done.returncode == 5 and "EMFILE" not in done.stdout + done.stderr:
        return "it does not say what is missing"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.parametrize(
    ("prepare", "damage"), spread(itertools.product([recover, recover_in_threads, apply, heal], sorted(DAMAGES)), 5)
)
def test_without_descriptors_a_repair_ends_in_status_5_and_the_next_run_repairs(
    tmp_path: Path, prepare: Prepare, damage: str
) -> None:
    before = DAMAGES[damage]
    wanted = recovered(before, tmp_path / "undisturbed")
    home, replica = tmp_path / "data", write_tree(tmp_path / "replica", sound())

    def attempt(fault_at: int) -> tuple[subprocess.CompletedProcess[str], int]:
        shutil.rmtree(home, ignore_errors=True)
        write_tree(home, before)
        return run(home, fault_at, *prepare(home, replica, before))

    done, count = attempt(0)
    assert done.returncode == 0, done.stderr
    wrong = []
    for number in sample(range(1, count + 1), MOST):
        assert isinstance(number, int)
        done, _ = attempt(number)
        if why := complaint(done):
            wrong.append(f"{number} of {count}: {why}: status {done.returncode}: {done.stdout}{done.stderr}")
        if prepare is heal:
            check_nothing_is_lost(home, before)
            done, _ = run(home, 0, *prepare(home, replica, before))
            assert done.returncode == 0, done.stderr
        else:
            check_end(home, before, wanted)
    assert wrong == []
