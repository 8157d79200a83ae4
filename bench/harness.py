"""What the programs of this folder share: commands that are timed, repetitions that take turns, figures, their table.

All contenders of a case run in turn, the first round is not counted, and medians are compared, so that what else the
machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or commands that are timed compile themselves each time
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from interop.kafka_lab import KAFKA, Oracle

from storage.kernel.scan import crc_name, kernel_name

ROOT: Final = Path(__file__).resolve().parent.parent
Case = Mapping[str, Callable[[], float]]
"""Contenders by their names; each returns the seconds that count."""


def logmend(*words: object, statuses: tuple[int, ...] = (0,)) -> float:
    """Return the seconds that the whole command takes, from the start of its process to the end."""
    return process([*installed(), *map(str, words)], statuses)


def installed() -> list[str]:
    """Return the words that begin each command of logmend."""
    command = Path(sys.executable).with_name("logmend")
    return [str(command)] if command.exists() else [sys.executable, "-m", "cli.main"]


def process(command: Sequence[str], statuses: tuple[int, ...] = (0,)) -> float:
    """Return the seconds that a process takes; what it says goes nowhere."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    seconds = time.perf_counter() - start
    assert done.returncode in statuses, (command, done.returncode, done.stderr[-2000:])
    return seconds


def processor_seconds() -> float:
    """Return the processor time of this process, of all children that have ended, and of those that are watched."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime + sum(map(_seconds_of, WATCHED))


WATCHED: Final[set[int]] = set()
"""Processes that go on, whose processor time counts as well: the one that Kafka's classes run in."""


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(case: Case, repeat: int) -> dict[str, dict[str, Any]]:
    """Run all contenders in turn, `repeat` + 1 times; return wall and processor seconds of the counted rounds."""
    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "processor_seconds": []} for name in case}
    for turn in range(repeat + 1):
        for name, work in case.items():
            before = processor_seconds()
            taken = work()
            if turn:
                found[name]["seconds"].append(taken)
                found[name]["processor_seconds"].append(processor_seconds() - before)
    for told in found.values():
        told["median"] = statistics.median(told["seconds"])
        told["spread"] = (max(told["seconds"]) - min(told["seconds"])) / told["median"]
        told["processor_median"] = statistics.median(told["processor_seconds"])
    return found


def row(what: str, ours: Mapping[str, Any], theirs: Mapping[str, Any] | None, target: str) -> dict[str, Any]:
    """Return one line of the table; the ratio is their time by ours: above 1, we are faster."""
    told: dict[str, Any] = {"what": what, "ours": ours, "theirs": theirs, "target": target, "load": os.getloadavg()[0]}
    told["ratio"] = theirs["median"] / ours["median"] if theirs else None
    return told


def head() -> str:
    """Return the first line of a table."""
    kafka = f"{'kafka':>9} {'cpu':>7} {'spread':>6} {'ratio':>6} {'cpu':>5}"
    return f"{'':62}{'logmend':>9} {'cpu':>7} {'spread':>6} {kafka}  target   load"


def line(told: Mapping[str, Any]) -> str:
    """Return a line of the table."""
    ours, theirs = told["ours"], told["theirs"]
    parts = f"{ours['median']:7.3f} s {ours['processor_median']:5.2f} s {ours['spread'] * 100:4.0f} %"
    other = " " * 37
    if theirs:
        busy = theirs["processor_median"] / max(ours["processor_median"], 0.001)
        other = f"{theirs['median']:7.3f} s {theirs['processor_median']:5.2f} s {theirs['spread'] * 100:4.0f} % "
        other += f"{told['ratio']:6.2f} {busy if theirs['processor_median'] else math.nan:5.2f}"
    return f"{told['what']:62}{parts} {other}  {told['target']:8}{told['load']:5.1f}"


def about(repeat: int, *, kafka: bool) -> str:
    """Return what a table was measured with."""
    peer = f"Kafka {KAFKA}" if kafka else "no Kafka: Java or Maven is missing"
    return f"{repeat} repetitions, {os.cpu_count()} processors, scanner {kernel_name()}, CRC-32C {crc_name()}, {peer}"


def beside_kafka(
    asked: argparse.Namespace, run: Callable[[argparse.Namespace, Path, Oracle], Sequence[Mapping[str, Any]]], why: str
) -> None:
    """Run what cannot do without Kafka's classes, with a place for logs, and write its figures; `why` it cannot."""
    if not (shutil.which("java") and shutil.which("mvn")):
        sys.exit(f"{Path(sys.argv[0]).name}: needs Java and Maven: {why}")
    print(about(asked.repeat, kafka=True))
    print(head())
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch, Oracle(patience_seconds=600) as oracle:
        WATCHED.add(oracle.process.pid)
        write_json(asked.json, asked.repeat, run(asked, Path(scratch), oracle))


def write_json(path: str | None, repeat: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all figures, if anybody wants them."""
    if path:
        facts = {"kafka": KAFKA, "kernel": kernel_name(), "crc": crc_name(), "processors": os.cpu_count()}
        Path(path).write_text(json.dumps({**facts, "repeat": repeat, "rows": rows}, indent=1) + "\n")
