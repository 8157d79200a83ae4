"""How fast a quick look reads a clean log directory, beside Kafka's own load of the same logs, shut down cleanly.

Partitions of ten small segments, indexes, snapshots and checkpoints as Kafka itself leaves them when it is shut
down cleanly. logmend is timed as the whole command `verify --depth quick`; it looks at the first and last entries
of every index and at the batches behind the last one. The engine is `LogManager.open` of the whole directory in a
process that is up: lock, checkpoints, topics and all logs. Kafka is the sum of what its loader takes for each log, one
after another (4.3.0, `UnifiedLog.create`, clean, the recovery point at the log end), in a JVM that is up and warm.
Times are wall time, medians; `cpu` is processor time, Kafka's and the engine's with the closing that follows. Page
cache warm.

Usage: python bench/bench_open.py [--partitions 1000] [--repeat 3] [--json FILE] [--scratch DIR]; needs Java and Maven
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any, Final

from harness import beside_kafka, line, logmend, measure, row
from interop.kafka_lab import Oracle
from logs import batches

from engine.manager.manager import LogManager
from storage.disk.fs import OsFs

SEGMENTS: Final = 10
BATCHES: Final = 12
BATCH_BYTES: Final = 1024
CONFIG: Final = {"segment.index.bytes": "1048576"}
TOPIC: Final = "bench"


def make_log(directory: Path) -> None:
    """Write a bare log."""
    directory.mkdir(parents=True)
    made = list(batches(BATCH_BYTES, BATCH_BYTES * SEGMENTS * BATCHES))
    for first in range(0, SEGMENTS * BATCHES, BATCHES):
        part = made[first : first + BATCHES]
        base = int.from_bytes(part[0][:8], "big")
        (directory / f"{base:020d}.log").write_bytes(b"".join(part))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A")


def shut_down(oracle: Oracle, log_dir: Path, partitions: int) -> int:
    """Let Kafka open a log and close it cleanly, copy it, write what Kafka leaves at the top; return its end."""
    first = log_dir / f"{TOPIC}-0"
    end = oracle(op="open", log="bench", dir=first, recovery_point=0, config=CONFIG)["log_end"]
    oracle(op="close", log="bench")
    for number in range(1, partitions):
        shutil.copytree(first, log_dir / f"{TOPIC}-{number}")
    points = "".join(f"{TOPIC} {number} {end}\n" for number in range(partitions))
    starts = "".join(f"{TOPIC} {number} 0\n" for number in range(partitions))
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n{partitions}\n{points}")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n{partitions}\n{starts}")
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=bench\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return int(end)


def load(oracle: Oracle, log_dir: Path, partitions: int, end: int) -> float:
    """Return the seconds that Kafka's loader takes for all logs."""
    taken = 0.0
    for number in range(partitions):
        directory = log_dir / f"{TOPIC}-{number}"
        opened = oracle(op="open", log="bench", dir=directory, recovery_point=end, clean=True, config=CONFIG)
        oracle(op="close", log="bench")
        assert opened["log_end"] == end, opened
        taken += float(opened["load_ms"]) / 1000
    return taken


def open_ours(log_dir: Path, partitions: int) -> float:
    """Return the seconds in which the engine opens all logs; it leaves the directory as it was, shut down cleanly."""
    start = time.perf_counter()
    manager = LogManager.open(OsFs(), [log_dir], time.time_ns() // 1_000_000)
    taken = time.perf_counter() - start
    assert sum(1 for _ in manager.partitions()) == partitions
    manager.close()
    return taken


def run(asked: argparse.Namespace, scratch: Path, oracle: Oracle) -> list[dict[str, Any]]:
    """Measure and print."""
    log_dir = scratch / "logs"
    make_log(log_dir / f"{TOPIC}-0")
    end = shut_down(oracle, log_dir, asked.partitions)
    found = measure(
        {
            "kafka": lambda: load(oracle, log_dir, asked.partitions, end),
            "-j 1": lambda: logmend("verify", "--depth", "quick", "-j", 1, log_dir),
            "default": lambda: logmend("verify", "--depth", "quick", log_dir),
            "engine": lambda: open_ours(log_dir, asked.partitions),
        },
        asked.repeat,
    )
    what = f"{asked.partitions:,} partitions, {asked.partitions * SEGMENTS:,} segments, verify --depth quick"
    rows = [
        row(f"{what}{flags}", found[name], found["kafka"], ">= 2")
        for name, flags in (("-j 1", " -j 1"), ("default", ""))
    ]
    what = f"{asked.partitions:,} partitions, {asked.partitions * SEGMENTS:,} segments, opened by the engine"
    rows.append(row(what, found["engine"], found["kafka"], ">= 1"))
    for told in rows:
        print(line(told), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a quick look at a clean log directory beside Kafka's load.")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3, help="counted repetitions")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs")
    beside_kafka(parser.parse_args(), run, "a clean directory is what Kafka itself leaves")


if __name__ == "__main__":
    main()
