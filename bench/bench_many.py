"""How long `logmend recover` takes for a broker's many partitions, beside Kafka's own loader on equal copies.

Partitions of one small segment each, as a kill leaves them: the log, its indexes preallocated with 10 MiB of which
nearly all is a hole, epochs, and no snapshot at the log end. Here it is not the bytes that take time but the looks at
files, the files that are made, and the waits for them to be durable. Of the same partitions without indexes, epochs and
snapshots (`bare`) all of that is to be made.

logmend is timed as the whole command, with one thread and with all processors. Kafka is the sum of what its loader
takes for each log, one after another (4.3.0, `UnifiedLog.create`, unclean, recovery point 0), in a JVM that is up and
warm; it syncs snapshots and epochs, and no index. Each repetition has a copy of its own, all made before the first and
some time before it, for after files were removed ext4 makes new ones more slowly. Times are wall time, medians. Page
cache warm.

Usage: python bench/bench_many.py [--partitions 500] [--kib 256] [--repeat 3] [--json FILE] [--scratch DIR]
needs Java and Maven
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from bench_recover import INDEX_BYTES, segment
from harness import beside_kafka, line, logmend, measure, row
from interop.kafka_lab import Oracle

BATCH_BYTES: Final = 16384
CONTENDERS: Final = ("kafka", "-j 1", "all")
REMEMBERED_SECONDS: Final = 36
"""So long ext4 gives no inode of a removed file to a new one, and looks for others instead."""


def make_bare(log_dir: Path, partitions: int, log_bytes: int) -> None:
    """Write the logs and the small files that name them."""
    log_dir.mkdir()
    log = segment(BATCH_BYTES, 0, max(log_bytes // BATCH_BYTES, 1))
    points = "".join(f"t{number} 0 0\n" for number in range(partitions))
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n{partitions}\n{points}")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n0\n")
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=bench\n")
    for number in range(partitions):
        directory = log_dir / f"t{number}-0"
        directory.mkdir()
        topic_id = base64.urlsafe_b64encode((number + (1 << 100)).to_bytes(16, "big")).decode().rstrip("=")
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        (directory / f"{0:020d}.log").write_bytes(log)


def load(oracle: Oracle, log_dir: Path) -> float:
    """Return the seconds that Kafka's loader takes for all logs; leave the files as a kill would."""
    taken = 0.0
    for directory in log_dir.glob("t*-0"):
        opened = oracle(
            op="open", log="bench", dir=directory, recovery_point=0, clean=False, config=INDEX_BYTES
        )  # fmt: skip
        oracle(op="close", log="bench", abruptly=True)
        taken += float(opened["load_ms"]) / 1000
    return taken


def copy(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)
    return target


def case(form: str, source: Path, scratch: Path, oracle: Oracle, repeat: int) -> list[dict[str, Any]]:
    """Measure one form, each repetition on a copy of its own."""
    copies: dict[str, Iterator[Path]] = {
        name: iter([copy(source, scratch / f"{form}-{name}-{turn}") for turn in range(repeat + 1)])
        for name in CONTENDERS
    }
    os.sync()
    time.sleep(REMEMBERED_SECONDS)
    work: dict[str, Callable[[], float]] = {
        "kafka": lambda: load(oracle, next(copies["kafka"])),
        "-j 1": lambda: logmend("recover", "-j", 1, next(copies["-j 1"])),
        "all": lambda: logmend("recover", next(copies["all"])),
    }
    found = measure(work, repeat)
    for path in scratch.glob(f"{form}-*"):
        shutil.rmtree(path)
    partitions = sum(1 for _ in source.glob("t*-0"))
    return [
        row(f"recover{flags}, {partitions:,} partitions as {form}", found[name], found["kafka"], "")
        for name, flags in (("-j 1", " -j 1"), ("all", ""))
    ]


def run(asked: argparse.Namespace, scratch: Path, oracle: Oracle) -> list[dict[str, Any]]:
    """Measure and print."""
    bare = scratch / "logs"
    make_bare(bare, asked.partitions, asked.kib << 10)
    killed = copy(bare, scratch / "after a kill")
    load(oracle, killed)
    for path in killed.rglob("*.snapshot"):
        path.unlink()
    rows = []
    for form, source in (("recover", killed), ("bare", bare)):
        for told in case(form, source, scratch, oracle, asked.repeat):
            print(line(told), flush=True)
            rows.append(told)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a recovery of many partitions beside Kafka's own loader.")
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--kib", type=int, default=256, help="size of each log")
    parser.add_argument("--repeat", type=int, default=3, help="counted repetitions")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs: eight times their size a repetition")
    beside_kafka(parser.parse_args(), run, "Kafka itself makes the files that a kill leaves")


if __name__ == "__main__":
    main()
