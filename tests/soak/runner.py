"""Kills the owner of a log directory every few seconds and judges what is there when the next one has opened it.

After some kills the ends of logs that were not flushed are torn off, as a power cut may. The seed that is printed
draws the same again, as far as two processes and a clock can.

Usage: python tests/soak/runner.py [--seconds 60] [--seed N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from soak.contents import FLEETING, TOPICS
from soak.ledger import Ledger
from soak.log_files import look, points, tear

WORKER: Final = Path(__file__).with_name("worker.py")
PATIENCE_SECONDS: Final = 120
MIB: Final = 1 << 20


@dataclass
class Life:
    """One process: how long it worked, how it ended, its resident MiB and open files, sampled."""

    seconds: float = 0.0
    was_stopped: bool = False
    open_seconds: float = 0.0
    samples: list[tuple[float, float, int]] = field(default_factory=list)

    def slope(self) -> tuple[float, float]:
        """Return KiB and files a minute over the second half of the life; 0 for a short one."""
        half = [sample for sample in self.samples if sample[0] > self.seconds / 2]
        if len(half) < 8:
            return 0.0, 0.0
        mean = sum(sample[0] for sample in half) / len(half)
        spread = sum((sample[0] - mean) ** 2 for sample in half)
        memory, files = (sum((s[0] - mean) * s[column] for s in half) / spread * 60 for column in (1, 2))
        return memory * 1024, files


@dataclass
class Report:
    """What a soak was and found."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    appends: int = 0
    events: int = 0
    torn: int = 0
    torn_bytes: int = 0
    reads: int = 0
    records_read: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def __str__(self) -> str:
        figures = self.ledger.figures
        kills = sum(not life.was_stopped for life in self.lives)
        longest = max(self.lives, key=lambda life: life.seconds)
        memory, files = longest.slope()
        samples = [sample for life in self.lives for sample in life.samples] or [(0.0, 0.0, 0)]
        return "\n".join([
            f"soak: seed {self.seed}, {sum(life.seconds for life in self.lives):.0f} s, {kills} kills, "
            f"{len(self.lives) - kills} stops, {self.torn} ends torn off ({self.torn_bytes} bytes)",
            f"  {self.appends} batches acknowledged, {figures.answered_again} of them answered as there already; "
            f"{self.reads} reads of {self.records_read} records beside them",
            f"  looked at again: {figures.checks} logs, {figures.records} records; flushed {figures.flushed}, only "
            f"acknowledged {figures.unflushed_kept} of {figures.unflushed}, sent {figures.in_flight_there} of "
            f"{figures.in_flight}; {figures.keys} keys, {figures.tombstones_gone} gone with their tombstones; "
            f"{figures.visible} committed reads; {figures.removed} removed by retention",
            f"  largest log {figures.largest_log} bytes; opening took up to "
            f"{max(life.open_seconds for life in self.lives):.2f} s",
            f"  resident up to {max(s[1] for s in samples):.1f} MiB, {max(s[2] for s in samples)} files open; "
            f"in the longest life ({longest.seconds:.0f} s) {memory:+.0f} KiB and {files:+.1f} files a minute",
            *(f"  WRONG {what}" for what in self.wrong[:20]),
        ])  # fmt: skip


class Child:
    """The process, and what it says."""

    def __init__(self, directory: Path, seed: int, plant: str) -> None:
        command = [sys.executable, str(WORKER), str(directory), str(seed), plant]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""
        self.has_ended = False

    def events(self, until: float) -> Iterator[dict[str, Any]]:
        """Yield what it says until a time, or until its end."""
        assert self.process.stdout is not None
        while not self.has_ended and (left := until - time.monotonic()) > 0:
            if not select.select([self.process.stdout], [], [], min(left, 0.25))[0]:
                return
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            self.has_ended = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from map(json.loads, lines)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")

    def usage(self) -> tuple[float, int]:
        """Return resident MiB and open files."""
        place = Path(f"/proc/{self.process.pid}")
        pages = int((place / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB, len(list((place / "fd").iterdir()))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class Soak:
    """See the module. `plant` is a bug for the worker to have, so that the judge can show what it is worth."""

    def __init__(self, directory: Path, seconds: float, seed: int, *, plant: str = "", tears: float = 0.4) -> None:
        self.directory, self.seconds, self.plant, self.tears = directory, seconds, plant, tears
        self.rng = random.Random(seed)
        self.report = Report(seed)
        self.ledger = self.report.ledger
        self.counts: dict[str, Any] = {}
        self.is_full = False

    def run(self) -> Report:
        """Kill and judge until the time is over, or something is wrong."""
        end = time.monotonic() + self.seconds
        while not self.report.wrong and (time.monotonic() < end or len(self.report.lives) < 2):
            number = len(self.report.lives)
            is_long = number % 8 == 3
            most = max(end - time.monotonic(), 0.5)
            seconds = min(max(self.seconds / 12, 5.0), 60.0) if is_long else self.rng.uniform(0.3, 5.0)
            self.live(min(seconds, most))
            if not self.report.wrong:
                self.tear_ends()
        if not self.report.wrong:
            self.live(0.0)
        return self.report

    def live(self, seconds: float) -> None:
        """Let one process open, judge, let it work, and end it."""
        child = Child(self.directory, self.rng.getrandbits(32), self.plant)
        life = Life()
        self.report.lives.append(life)
        try:
            self.open_and_judge(child, life)
            if not self.report.wrong:
                child.tell(json.dumps(self.ledger.resume()))
                self.work(child, life, seconds)
                life.was_stopped = self.rng.random() < 0.15
                self.finish(child, stops=life.was_stopped)
        finally:
            child.end()

    def open_and_judge(self, child: Child, life: Life) -> None:
        begun = time.monotonic()
        logs: dict[str, list[int]] = {}
        seen: dict[str, list[tuple[int, int]]] = {}
        deadline = begun + PATIENCE_SECONDS
        while not child.has_ended and time.monotonic() < deadline:
            for event in child.events(deadline):
                match event["e"]:
                    case "opened":
                        logs, life.open_seconds = event["logs"], time.monotonic() - begun
                    case "view":
                        seen.setdefault(event["partition"], []).extend((o, n) for o, n in event["seen"])
                    case "viewed":
                        self.judge(logs, seen)
                        return
                    case _:
                        self.hear(event)
        self.report.wrong.append(f"the worker did not open the directory: exit status {child.process.poll()}")

    def judge(self, logs: dict[str, list[int]], seen: dict[str, list[tuple[int, int]]]) -> None:
        now = time.time_ns() // 1_000_000
        wrong = self.report.wrong
        if len(self.report.lives) > 1:
            wrong += [f"topic {topic.name} is lost" for topic in TOPICS if f"{topic.name}-0" not in logs]
        fleeting = [name.removesuffix("-0") for name in logs if name.startswith(FLEETING)]
        wrong += self.ledger.judge_topics(fleeting)
        for name, (start, end) in logs.items():
            wrong += self.ledger.judge(name, look(self.directory / name), (start, end), seen.get(name, []), now)

    def hear(self, event: dict[str, Any]) -> None:
        self.report.events += 1
        if event["e"] == "bad":
            self.report.wrong.append(event["what"])
        elif event["e"] == "full":
            self.is_full = True
            time.sleep(5)
        elif event["e"] == "counts":
            self.counts = event
        self.report.appends += event["e"] == "ack"
        self.ledger.hear(event)

    def work(self, child: Child, life: Life, seconds: float) -> None:
        begun = sampled = time.monotonic()
        self.counts, self.is_full = {"reads": 0, "records": 0}, False
        while not child.has_ended and time.monotonic() < begun + seconds and not self.report.wrong:
            for event in child.events(begun + seconds):
                self.hear(event)
            if time.monotonic() - sampled > 0.2 and child.process.poll() is None:
                sampled = time.monotonic()
                life.samples.append((sampled - begun, *child.usage()))
        life.seconds = time.monotonic() - begun
        self.report.reads += self.counts["reads"]
        self.report.records_read += self.counts["records"]
        if child.has_ended and not self.is_full:
            self.report.wrong.append(f"the worker ended by itself: exit status {child.process.wait()}")
        elif not life.samples and not child.has_ended:
            life.samples.append((0.0, *child.usage()))

    def finish(self, child: Child, *, stops: bool) -> None:
        if stops:
            child.tell("stop")
        else:
            child.process.kill()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not child.has_ended and time.monotonic() < deadline:
            for event in child.events(deadline):
                self.hear(event)
        if not child.has_ended:
            child.process.kill()
            self.report.wrong.append(f"it goes on {PATIENCE_SECONDS} s after it was told to end")
        if stops and not self.is_full and child.process.wait() != 0:
            self.report.wrong.append(f"a stop ended with status {child.process.returncode}")
        self.report.wrong += self.ledger.wrong

    def tear_ends(self) -> None:
        """Take away what was not flushed, here and there; of a directory that was shut down cleanly nothing."""
        if self.report.lives[-1].was_stopped or self.rng.random() > self.tears:
            return
        written = points(self.directory)
        for name, log in self.ledger.logs.items():
            if self.rng.random() < 0.5 and (self.directory / name).is_dir():
                durable = max(log.really, written.get(name, 0))
                if torn := tear(self.directory / name, durable, self.rng):
                    log.torn += torn
                    self.report.torn += 1
                    self.report.torn_bytes += torn


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the owner of a log directory again and again, and judge.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--directory", type=Path, default=None, help="kept afterwards; a temporary one without it")
    asked = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    place = asked.directory or Path(tempfile.mkdtemp(prefix="soak-"))
    report = Soak(place, asked.seconds, seed).run()
    print(report)
    if asked.directory is None and not report.wrong:
        shutil.rmtree(place)
    elif report.wrong:
        print(f"the directory is in {place}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
