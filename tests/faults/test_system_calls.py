"""A real kernel that refuses, once or from then on, or kills: at each system call on the files of a log directory.

strace fails the n-th call of a kind whose path or descriptor is a file of the log directory, so that the interpreter's
own calls are left alone. Which calls there are is counted on an undisturbed run. LOGMEND_FAULTS=all tries every one of
them with every error; by default a sample that is spread over all.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from support.command import ROOT, environment
from support.faults import (
    DAMAGES,
    EVERYTHING,
    ROLL,
    ROLLED,
    check_end,
    check_nothing_is_lost,
    check_recovered,
    recovered,
    write_tree,
)
from support.log_dirs import Files
from support.needs import impossible, need
from support.recovering import plan as plan_here
from support.tiers import deep

from storage.base.errors import LogmendError
from storage.disk.fs import OsFs

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EACCES")
LOOKS = {
    "openat": ("EIO", "EACCES", "EMFILE"),
    "newfstatat": ("EIO", "EACCES"),
    "fstat": ("EIO",),
    "getdents64": ("EIO",),
    "lseek": ("EIO",),
    "read": ("EIO",),
    "statfs": ("EIO",),
    "fcntl": ("EIO", "ENOLCK"),
}
CHANGES = {
    **dict.fromkeys(("write", "ftruncate", "fsync", "rename", "linkat", "link", "unlink", "mkdir"), ERRORS),
    **dict.fromkeys(("utimensat", "fchown", "fchmod", "close"), ERRORS),
    "syncfs": ERRORS,
}
CALLS = LOOKS | CHANGES
TOGETHER = ("-c", "import recovery.apply.together as it; it._FEWEST = 1; import cli.main as main; main.run()")
"""A command that syncs the whole file system for a few files too."""


class Fault(NamedTuple):
    """The `number`-th `call` fails with `error`, or kills; with `forever` all later ones do as well."""

    call: str
    number: int
    error: str
    forever: bool

    def __str__(self) -> str:
        return f"{self.call} {self.number}{'+' if self.forever else ''} {self.error}"


@dataclass
class Scene:
    """A damaged log directory, made anew for each fault at the same place, and what an undisturbed recovery makes."""

    home: Path
    before: Files
    wanted: Files
    program: tuple[str, ...] = ("-m", "cli.main")

    def make(self) -> Path:
        shutil.rmtree(self.home, ignore_errors=True)
        return write_tree(self.home, self.before)

    def paths(self) -> list[str]:
        """Return every path that a recovery may touch, those of files it has yet to make included."""
        plan_id = plan_here(self.home).plan_id
        found = {self.home, self.home / ".lock", self.home / "orders-0"}
        for name in self.before.keys() | self.wanted.keys():
            path = self.home / name
            kept = path.with_name(f"kept.{path.name}.{plan_id}.logmend")
            found |= {path, path.with_name(path.name + ".tmp"), kept, path.with_name(f"{plan_id}.logmend.json")}
            plain = len(self.wanted.get(name, b""))
            found.add(path.with_name(f"kept.{path.name}.{plain}.{plan_id}.logmend"))
        return sorted(map(str, found))

    def run(self, *injected: str, traced: str | None = None) -> tuple[subprocess.CompletedProcess[str], str]:
        """Run `logmend recover` under strace; return how it ended, and the trace."""
        trace = self.home.with_suffix(".trace")
        fast = [] if any("signal=" in word for word in injected) else ["--seccomp-bpf"]  # which forgets signals
        command = ["strace", "-f", "-qq", *fast, "-o", str(trace), "-e", f"trace={traced or ','.join(CALLS)}"]
        for word in injected:
            command += ["-e", f"inject={word}"]
        for path in self.paths():
            command += ["-P", path]
        command += [sys.executable, *self.program, "recover", "-j", "1", *ROLL, str(self.home)]
        done = subprocess.run(
            command, env=environment(PYTHONDONTWRITEBYTECODE="1"), capture_output=True, text=True, check=False,
            timeout=180, cwd=ROOT,
        )  # fmt: skip
        return done, trace.read_text(errors="replace")


def calls_of(trace: str) -> Counter[str]:
    """Return how many calls of each kind a thread made at most: strace counts for each thread by itself."""
    by_thread = Counter(re.findall(r"^(\d+) +(\w+)\(", trace, re.MULTILINE))
    found: Counter[str] = Counter()
    for (_, call), count in by_thread.items():
        found[call] = max(found[call], count)
    return found


POINTS_STAY = "make room: the recovery points stay as they were"
"""A full disk at the very last step: everything is in order but for that, and the next run does it."""


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    need("strace")
    before = DAMAGES[request.param]
    return Scene(tmp_path / "data", before, recovered(before, tmp_path / "undisturbed", ROLLED))


def faults(counts: Counter[str], errors: Mapping[str, tuple[str, ...]], *, forever: bool) -> Iterator[Fault]:
    for call, count in sorted(counts.items()):
        for number, error in itertools.product(range(1, count + 1), errors.get(call, ())):
            yield Fault(call, number, error, forever)


def chosen(scene: Scene, errors: Mapping[str, tuple[str, ...]], *, forever: bool = False) -> list[Fault]:
    """Return one fault of each kind of call, others for each scene; every one with LOGMEND_FAULTS=all."""
    everything = list(faults(counted(scene), errors, forever=forever))
    print(f"{len(everything)} faults are possible")
    if EVERYTHING:
        return everything
    rng = random.Random(f"{sorted(scene.before)}{forever}{errors}")
    by_call = [[fault for fault in everything if fault.call == call] for call in sorted({f.call for f in everything})]
    return [rng.choice(group) for group in by_call]


def counted(scene: Scene) -> Counter[str]:
    scene.make()
    done, trace = scene.run()
    assert done.returncode == 0, done.stderr
    found = calls_of(trace)
    assert found["fsync"] >= 2, "strace saw nothing of what a recovery does"
    check_end(scene.home, scene.before, scene.wanted, ROLLED)
    return found


def fault_in(scene: Scene, fault: Fault, check: Callable[[subprocess.CompletedProcess[str], Fault], None]) -> str:
    """Run a recovery with the fault, and one without after it; return what does not hold, or nothing."""
    scene.make()
    how = "signal=KILL" if fault.error == "KILL" else f"error={fault.error}"
    done, trace = scene.run(f"{fault.call}:{how}:when={fault.number}{'+' if fault.forever else ''}")
    try:
        assert "Traceback" not in done.stdout + done.stderr
        came = "(INJECTED)" in trace or "killed by SIGKILL" in trace
        if came:  # threads share the work as it comes, and the n-th call of one may not
            check(done, fault)
        if done.returncode == 0 and POINTS_STAY not in done.stdout + done.stderr:
            check_recovered(done, scene.home, scene.wanted)
        check_end(scene.home, scene.before, scene.wanted, ROLLED)
    except (AssertionError, LogmendError) as error:
        return f"{fault}: {error} (status {done.returncode}: {done.stdout}{done.stderr})"
    return ""


def check_told(done: subprocess.CompletedProcess[str], fault: Fault) -> None:
    """Status 5 with path and operation; 0 where the call does not matter: owner and mode that may not be given."""
    assert done.returncode in (0, 5)
    if done.returncode == 5:
        assert re.search(r"^logmend: /.*: .+ failed: ", done.stderr, re.MULTILINE) or re.search(
            r"read_error.*failed: ", done.stdout
        ), "it does not say what failed, and where"


def check_made_again(done: subprocess.CompletedProcess[str], fault: Fault) -> None:
    """A signal that comes in between: Python makes the call again, but for listing and cutting, which are reported."""
    assert done.returncode in ((0, 5) if fault.call in ("openat", "ftruncate") else (0,))


def check_killed(done: subprocess.CompletedProcess[str], fault: Fault) -> None:
    assert done.returncode in (-9, 137)


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.parametrize("scene", ["broken_in_the_middle", "left_over", deep("torn"), deep("zeroed")], indirect=True)
@pytest.mark.parametrize("forever", [pytest.param(False, id="once"), deep(True, id="from then on")])
def test_a_call_that_fails_ends_in_status_5_with_nothing_lost_and_the_next_run_repairs(
    scene: Scene, forever: bool
) -> None:
    tried = chosen(scene, CALLS, forever=forever)
    assert [why for fault in tried if (why := fault_in(scene, fault, check_told))] == []


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.deep
@pytest.mark.parametrize("scene", ["torn"], indirect=True)
def test_an_interrupted_call_is_made_again_or_reported(scene: Scene) -> None:
    interruptible = dict.fromkeys(("openat", "read", "write", "fsync", "ftruncate", "fcntl"), ("EINTR",))
    tried = chosen(scene, interruptible)
    assert [why for fault in tried if (why := fault_in(scene, fault, check_made_again))] == []


@pytest.mark.slow
@pytest.mark.timeout(7200 if EVERYTHING else 900)
@pytest.mark.parametrize("scene", ["torn", "zeroed", deep("broken_in_the_middle"), deep("left_over")], indirect=True)
def test_a_kill_before_any_call_loses_nothing_and_the_next_run_repairs(scene: Scene) -> None:
    tried = chosen(scene, dict.fromkeys(CALLS, ("KILL",)))
    assert [why for fault in tried if (why := fault_in(scene, fault, check_killed))] == []


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    need("strace")
    before = DAMAGES["torn"]
    scene = Scene(tmp_path / "data", before, recovered(before, tmp_path / "undisturbed", ROLLED))
    for number in (1, 3):
        scene.make()
        done, trace = scene.run(f"fsync:error=EIO:when={number}", traced="fsync")
        assert done.returncode == 5
        failed = re.findall(r"fsync\((\d+)\) += -1 EIO", trace)
        assert len(failed) == 1
        assert calls_of(trace)["fsync"] <= number + 1, "it went on syncing"
        check_nothing_is_lost(scene.home, before)


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["torn", "broken_in_the_middle"], indirect=True)
def test_a_file_system_that_cannot_be_synced_ends_in_status_5_with_nothing_lost(scene: Scene) -> None:
    volume = OsFs().volume(scene.home.parent)
    if volume is None:
        impossible("no ext4 or xfs, or a Linux that is too old")
    volume.close()
    scene.program = TOGETHER
    scene.make()
    done, trace = scene.run(traced="syncfs")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"syncfs\(", trace)) >= 6
    # Copies, new files and changes each have threads of their own, of which each counts for itself.
    count = calls_of(trace)["syncfs"]
    assert count >= 3
    for number in range(1, count + 1):
        fault = Fault("syncfs", number, "EIO", forever=False)
        assert fault_in(scene, fault, check_told) == ""
        scene.make()
        done, trace = scene.run(f"syncfs:error=EIO:when={number}", traced="syncfs")
        assert (done.returncode, trace.count("(INJECTED)")) == (5, 1)
        assert re.search(r"^logmend: /.*/data: syncing the file system failed: ", done.stderr, re.MULTILINE)
        assert calls_of(trace)["syncfs"] == number, "it went on syncing"
