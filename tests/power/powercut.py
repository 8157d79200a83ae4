"""Cuts the power of a real file system under `logmend recover`, `logmend quarantine restore`, and the log engine.

usage: powercut.py [--count N] [--forked M] [--seed SEED] [--kind ext4|xfs ...]     as root; a line for each kind

N times for each of the two commands, and M times (by default 10 N) in processes of our own (`forked.py`), in which the
engine takes part: appends, flushes, rolls, compaction, retention, truncation, topics, clean shutdowns.

strace stops the command behind a system call that changes something, each time another; then the file system on its
loop device is shut down as a power cut leaves it (EXT4_IOC_SHUTDOWN, which xfs knows as well), the command is killed,
the image mounted again, and what remains is held against what there was: no byte may be lost, and the next run must end
as an undisturbed one does. Where it says so, parts were written back before the cut, as a kernel does at any time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[number]) for number in (1, 2)]

from power.disk import KINDS, Disk, mounted
from power.forked import CUTTERS, cut_forked
from support.command import ROOT, environment
from support.faults import DAMAGES, ROLL, ROLLED, check_end, check_nothing_is_lost, read_tree, recovered, write_tree
from support.log_dirs import Files
from support.recovering import plan

EFFECTS = ("fsync", "rename", "ftruncate", "linkat", "link", "unlink", "utimensat", "write", "mkdir")
COMMANDS = {"recover": ["recover", "-j", "1", *ROLL], "restore": ["quarantine", "restore"]}
SECONDS = 60


@dataclass
class Bench:
    """One command on one disk, cut at one effect after the other."""

    disk: Disk
    command: str
    rng: random.Random
    cuts: int = 0
    left_to_do: int = 0
    at: Counter[str] = field(default_factory=Counter)

    @property
    def home(self) -> Path:
        return self.disk.place / "data"

    def make(self, before: Files) -> None:
        """Put the log directory on the disk, for a restore one that was recovered, and wait until it is safe there."""
        for path in self.disk.place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        write_tree(self.home, before)
        if self.command == "restore":
            self.run("recover")
        os.sync()

    def run(self, command: str) -> None:
        done = subprocess.run(
            self.words(command), env=environment(), capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr

    def words(self, command: str) -> list[str]:
        which = ["--all"] if command == "restore" else []
        return [sys.executable, "-m", "cli.main", *COMMANDS[command], *which, str(self.home)]

    def traced(self, *inject: str) -> subprocess.Popen[bytes]:
        trace = self.disk.image.with_suffix(".trace")
        trace.unlink(missing_ok=True)
        words = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={','.join(EFFECTS)}", *inject]
        env = environment(PYTHONDONTWRITEBYTECODE="1")
        null = subprocess.DEVNULL
        return subprocess.Popen([*words, *self.words(self.command)], env=env, stdout=null, stderr=null, cwd=ROOT)

    def trace(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.disk.image.with_suffix(".trace").read_text(errors="replace")
        return ""

    def places(self, before: Files) -> list[tuple[str, int]]:
        """Return every effect of an undisturbed run, as system call and number."""
        self.make(before)
        assert self.traced().wait(SECONDS) == 0
        # What the command says is written too, at the very end, and not to this disk.
        calls = re.findall(r"^\d+ +(\w+)\((?!1,|2,)", self.trace(), re.MULTILINE)
        numbers: Counter[str] = Counter()
        found = []
        for name in calls:
            numbers[name] += 1
            found.append((name, numbers[name]))
        return found

    def cycle(self, before: Files, place: tuple[str, int]) -> str:
        """Cut the power behind one effect and mount again; return what was done, for the story of a failure."""
        self.make(before)
        name, number = place
        process = self.traced("-e", f"inject={name}:signal=STOP:when={number}")
        deadline = time.monotonic() + SECONDS
        while "stopped by SIGSTOP" not in self.trace() and process.poll() is None:
            assert time.monotonic() < deadline, "the command neither stops nor ends"
            time.sleep(0.005)
        # Some calls are made by threads, which count for themselves and share the work as it comes: then the n-th call
        # may never come, and the power is cut behind the end.
        noise, flag = self.rng.choice(["none", "none", "some", "all"]), self.rng.choice([2, 2, 2, 1])
        self.write_back(noise)
        self.disk.cut_power(flag)
        for child in self.children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
        process.wait(SECONDS)
        self.disk.unmount()
        self.disk.mount()
        self.cuts += 1
        self.at[name if process.returncode else "the end"] += 1
        return f"{self.disk.kind}, {self.command}, behind {name} {number}, written back: {noise}, flag {flag}"

    @staticmethod
    def children(pid: int) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return []

    def write_back(self, noise: str) -> None:
        """Let some of what was written reach the disk without anybody's sync, as happens at any time."""
        if noise == "all":
            os.sync()
        elif noise == "some":
            files = sorted(path for path in self.home.rglob("*") if path.is_file())
            for path in self.rng.sample(files, len(files) // 3):
                with path.open("rb") as file:
                    os.fsync(file.fileno())

    def judge(self, before: Files, wanted: Files) -> None:
        if self.command == "recover":
            check_nothing_is_lost(self.home, before)
            self.left_to_do += not plan(self.home).is_empty
            check_end(self.home, before, wanted, ROLLED)
            return
        if list(self.home.rglob("*.logmend.json")):  # the last that a restore removes
            self.left_to_do += 1
            self.run("restore")
        assert read_tree(self.home) == before, "what was put back is not what there was"


def cut(kind: str, command: str, count: int, seed: int, directory: Path) -> Bench:
    """Cut the power `count` times; raises `AssertionError` with what was done where something does not hold."""
    rng = random.Random(f"{kind}-{command}-{seed}")
    with mounted(kind, directory) as disk:
        bench = Bench(disk, command, rng)
        names = sorted(DAMAGES)
        places: dict[str, list[tuple[str, int]]] = {}
        for number in range(count):
            name = names[number % len(names)]
            before = DAMAGES[name]
            wanted = recovered(before, directory / "undisturbed", ROLLED)
            if not places.get(name):
                places[name] = bench.places(before)
                rng.shuffle(places[name])
            story = bench.cycle(before, places[name].pop())
            try:
                bench.judge(before, wanted)
            except Exception as error:
                raise AssertionError(f"cut {number} of seed {seed}, {name}: {story}: {error}") from error
    return bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="cuts for each kind of file system and command")
    parser.add_argument("--forked", type=int, help="cuts for each kind of file system and kind of work, much faster")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root may mount")
    for kind in arguments.kind or KINDS:
        for command in CUTTERS:
            many = arguments.count * 10 if arguments.forked is None else arguments.forked
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                cutter = cut_forked(kind, command, many, arguments.seed, Path(directory))
            print(
                f"{kind}, {command} in a process of ours: {cutter.cuts} cuts ({cutter.at_end} behind the end), "
                f"{cutter.left_to_do} left something to do, 0 lost a byte; {time.monotonic() - began:.0f} s, "
                f"seed {arguments.seed} {dict(cutter.seen) or ''}",
                flush=True,
            )
        for command in COMMANDS if arguments.count else ():
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                bench = cut(kind, command, arguments.count, arguments.seed, Path(directory))
            print(
                f"{kind}, {command}: {bench.cuts} cuts, {bench.left_to_do} left something to do, 0 lost a byte; "
                f"{time.monotonic() - began:.0f} s, seed {arguments.seed}, behind {dict(bench.at)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
