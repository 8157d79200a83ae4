"""What guarding a large directory costs while nothing happens in it: start, memory, processor time.

    python bench/bench_guard.py [--partitions 10000] [--segments 10] [--seconds 120] [--directory DIR] [--keep]

Makes a directory of that many partitions, each log with one small batch in each segment, and guards it in a process of
its own: without a ledger, and again with the one that was left. `start` is from the beginning of the process until the
directory is guarded; `listed` until every segment is known; `idle` is the share of one processor over the seconds
after that, with the checkpoint polled, the watcher on, and the scrubber at the pace that its promise of 14 days asks.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path, PurePath
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from support.guarding import POINTS, Told, batches, indexes_of, points
from support.real_clock import RealClock

from daemon.guard.guard import GuardWorker
from daemon.guard.watch import Watcher
from daemon.ledger.ledger import Ledger
from daemon.verify.options import GuardOptions, ScrubOptions


def fill(log_dir: Path, partitions: int, segments: int) -> None:
    """Make the directory; the last segment of each partition is the active one."""
    log_dir.mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n")
    made = [(base, batches(base, 1), indexes_of(base, batches(base, 1))) for base in range(0, segments * 10, 10)]
    for number in range(partitions):
        directory = log_dir / f"topic-{number // 100}-{number % 100}"
        directory.mkdir()
        for base, log, (index, time_index) in made:
            (directory / f"{base:020}.log").write_bytes(log)
            (directory / f"{base:020}.index").write_bytes(index)
            (directory / f"{base:020}.timeindex").write_bytes(time_index)
    names = [f"topic-{number // 100}-{number % 100}" for number in range(partitions)]
    (log_dir / POINTS).write_text(points(dict.fromkeys(names, (segments - 1) * 10)))


def guard(log_dir: Path, state: Path, seconds: float, began: float) -> None:
    """Guard it and print the figures as JSON."""
    clock, told = RealClock(), Told()
    ledger = Ledger(PurePath(state), clock, told, "bench")
    options = GuardOptions(ScrubOptions(pressure_low=1000, pressure_high=1000))
    worker = GuardWorker(PurePath(log_dir), ledger, clock, told, options)
    watcher = Watcher([PurePath(log_dir)], worker.wake, clock, 5.0, told)
    watcher.start()
    worker.start()
    found: dict[str, Any] = {"start": time.time() - began}
    wake = threading.Event()
    while not worker.is_listed:
        wake.wait(worker.step())
    found["listed"] = time.time() - began
    found["processor_until_listed"] = time.process_time()
    for _ in range(30):  # what the listing has left to write, and the first sums
        wake.wait(min(worker.step(), 1.0))
    before, begin = time.process_time(), time.monotonic()
    steps = 0
    while time.monotonic() - begin < seconds:
        wake.wait(worker.step())
        steps += 1
    found["idle_percent"] = 100 * (time.process_time() - before) / (time.monotonic() - begin)
    found["steps"] = steps
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    status = worker.status()[0]
    found["segments"] = status.scrub.segments_total if status.scrub else 0
    found["partitions"] = len(status.partitions)
    found["findings"] = len(status.findings)
    watcher.stop()
    worker.stop()
    ledger.close()
    found["ledger_mib"] = (state / "ledger.sqlite3").stat().st_size / (1 << 20)
    print(json.dumps(found))


def in_own_process(log_dir: Path, state: Path, seconds: float) -> dict[str, Any]:
    """Guard a directory in a process that is begun for it; return what that measured."""
    command = [sys.executable, __file__, "--guard", log_dir, state, seconds, time.time()]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--guard", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.guard:
        log_dir, state, seconds, began = arguments.guard
        guard(Path(log_dir), Path(state), float(seconds), float(began))
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        log_dir, state = Path(scratch) / "data", Path(scratch) / "state"
        fill(log_dir, arguments.partitions, arguments.segments)
        print(f"{arguments.partitions} partitions, {arguments.segments} segments each")
        print(f"{'':16}{'start':>9}{'listed':>10}{'peak':>11}{'idle':>9}{'ledger':>11}")
        for name in ("no ledger", "with a ledger"):
            row = in_own_process(log_dir, state, arguments.seconds)
            print(
                f"{name:16}{row['start']:7.2f} s{row['listed']:8.2f} s{row['peak_mib']:7.0f} MiB"
                f"{row['idle_percent']:7.2f} %{row['ledger_mib']:7.1f} MiB"
            )
            assert row["findings"] == 0
            assert (row["partitions"], row["segments"]) == (
                arguments.partitions,
                arguments.partitions * arguments.segments,
            )


if __name__ == "__main__":
    main()
