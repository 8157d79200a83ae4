"""A log that becomes shorter in the middle of its being read, and a system that has no descriptors or no locks left.

strace stops the command at its second read of the log, or when the log has just been mapped, so that what happens to
the file in between is no race.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.command import ROOT, environment, make_log_dir
from support.faults import DAMAGES, check_nothing_is_lost, write_tree
from support.needs import need
from support.recovering import tree

from storage.kernel.scan import kernel_name

BATCHES = 30_000
"""So many that the log takes more than one read."""


MAPPING = [("plan", "mapped"), ("recover", "mapped")] if kernel_name() == "c" else []
WAYS = [("verify", "read"), ("plan", "read"), ("recover", "read"), *MAPPING]
NEVER_MAPPED = (
    "from storage.reading import log_reader; log_reader._WORTH_MAPPING = 1 << 60; from cli.main import run; run()"
)


def traced(home: Path, command: str, *words: str, way: str = "") -> subprocess.Popen[str]:
    line = ["strace", "-f", "-qq", "-o", str(home.with_suffix(".trace")), *words]
    run = ["-c", NEVER_MAPPED] if way == "read" else ["-m", "cli.main"]
    return subprocess.Popen(
        [*line, sys.executable, *run, command, "-j", "1", str(home)],
        env=environment(PYTHONDONTWRITEBYTECODE="1"), text=True, cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def stopped_at(trace: Path, process: subprocess.Popen[str]) -> int | None:
    """Wait until the process under strace has stopped, and return its number; None if it ended before."""
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            if found := re.search(r"^(\d+) +--- stopped by SIGSTOP", trace.read_text(errors="replace"), re.MULTILINE):
                return int(found[1])
        time.sleep(0.01)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("command", "way"), WAYS)
@pytest.mark.parametrize("left", [0, 700, 1 << 20])
def test_a_log_that_shrinks_in_the_middle_of_its_being_read_is_not_cut_on_what_was_seen(
    tmp_path: Path, command: str, left: int, way: str
) -> None:
    need("strace")
    home = tmp_path / "data"
    batch = batch_v2(0, 2)
    whole = b"".join((2 * number).to_bytes(8, "big") + batch[8:] for number in range(BATCHES))
    log = make_log_dir(home, whole)
    calls, nth = ("mmap", 1) if way == "mapped" else ("pread64,preadv,read", 2)
    stop = f"inject={calls}:signal=STOP:when={nth}"
    process = traced(home, command, "-e", f"trace={calls}", "-e", stop, "-P", str(log), way=way)
    number = stopped_at(home.with_suffix(".trace"), process)
    assert number is not None, "it did not look at the log so often"
    os.truncate(log, left)
    os.kill(number, signal.SIGCONT)
    out, error = process.communicate(timeout=100)
    assert "Traceback" not in out + error
    assert process.returncode in ((0, 1, 5) if command != "recover" else (0, 5, 7)), out + error
    kept = b"".join(path.read_bytes() for path in sorted(home.rglob("kept.*.log.*.logmend")))
    assert log.read_bytes() + kept == whole[:left], "bytes of what the other left are gone"
    if command != "recover":
        assert log.stat().st_size == left


@pytest.mark.parametrize("command", ["verify", "plan", "recover"])
@pytest.mark.parametrize("call", ["openat:error=EMFILE:when=1+", "openat:error=ENFILE:when=1+"])
def test_without_a_free_descriptor_nothing_is_done_and_the_error_is_named(
    tmp_path: Path, command: str, call: str
) -> None:
    check_refused(tmp_path, command, call, r"\((EMFILE|ENFILE)\)")


@pytest.mark.parametrize("call", ["fcntl:error=ENOLCK:when=1+", "fcntl:error=EIO:when=1+"])
def test_a_lock_that_the_system_cannot_give_is_not_called_held_and_nothing_is_done(tmp_path: Path, call: str) -> None:
    said = check_refused(tmp_path, "recover", call, r"\((ENOLCK|EIO)\)")
    assert "holds" not in said


def check_refused(tmp_path: Path, command: str, call: str, named: str) -> str:
    need("strace")
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    (home / ".lock").touch()
    was = tree(home)
    places = [word for path in (home, home / ".lock", *home.rglob("*")) for word in ("-P", str(path))]
    process = traced(home, command, "-e", f"trace={call.partition(':')[0]}", "-e", f"inject={call}", *places)
    out, error = process.communicate(timeout=100)
    assert (process.returncode, tree(home)) == (5, was), out + error
    assert re.search(named, out + error), out + error
    assert "Traceback" not in out + error
    check_nothing_is_lost(home, DAMAGES["torn"])
    return out + error
