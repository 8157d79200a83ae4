"""How fast `logmend verify` reads one log, beside `kafka-dump-log` on the same file, and how long it takes to start.

Both are timed as whole commands, a process from its start to its end; Kafka's is the class behind its script, so the
script itself is not counted. `--depth full` checks every batch against the indexes and checksums, as does the dump of
headers; `--depth records` also decompresses and parses every record, as does `--deep-iteration`.
Times are wall time, medians; `cpu` is the processor time of logmend. Page cache warm.

Usage: python bench/bench_verify.py [--mib 256] [--repeat 5] [--json FILE] [--scratch DIR]; Kafka needs Java, Maven
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness import about, head, line, logmend, measure, process, row, write_json
from interop.kafka_lab import jars
from logs import write_segment

NAME: Final = "00000000000000000000.log"
FULL: Final = {16384: "4", 1024: "8"}
DUMP: Final = ("java", "-Xmx512m", "-cp", "{jars}", "org.apache.kafka.tools.DumpLogSegments", "--files")


def dump(path: Path, *flags: str) -> float:
    """Return the seconds that Kafka's dump takes."""
    return process([*(word.format(jars=jars()) for word in DUMP), str(path), *flags])


def compare(what: str, path: Path, depth: str, target: str, repeat: int, *, kafka: bool) -> dict[str, Any]:
    """Measure one depth on one file."""
    case = {"ours": lambda: logmend("verify", "--depth", depth, path)}
    if kafka:
        case["theirs"] = lambda: dump(path, *(["--deep-iteration"] if depth == "records" else []))
    found = measure(case, repeat)
    return row(what, found["ours"], found.get("theirs"), f">= {target}" if target else "")


def cases(scratch: Path, size_mib: int, repeat: int, *, kafka: bool) -> Iterator[dict[str, Any]]:
    """Measure everything, one line at a time."""
    empty = scratch / "empty"
    empty.mkdir()
    start = measure({"recover": lambda: logmend("recover", empty), "version": lambda: logmend("--version")}, 4 * repeat)
    yield row("start: recover of an empty directory", start["recover"], None, "<= 0.15 s")
    yield row("start: --version", start["version"], None, "")
    for size, target in FULL.items():
        for codec in ("none", "zstd", "lz4"):
            path = scratch / f"{codec}-{size}" / NAME
            write_segment(path, size, size_mib << 20, codec=codec)
            told = f"{size_mib} MiB of {size} B batches, {codec}"
            if codec == "none":
                yield compare(f"verify --depth full, {told}", path, "full", target, repeat, kafka=kafka)
            if codec != "lz4":
                yield compare(f"verify --depth records, {told}", path, "records", "3", repeat, kafka=kafka)
            else:
                yield compare(f"verify --depth records, {told}", path, "records", "", repeat, kafka=False)
            shutil.rmtree(path.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time logmend verify beside kafka-dump-log.")
    parser.add_argument("--mib", type=int, default=256, help="size of each log")
    parser.add_argument("--repeat", type=int, default=5, help="counted repetitions")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs")
    asked = parser.parse_args()
    kafka = bool(shutil.which("java") and shutil.which("mvn"))
    print(about(asked.repeat, kafka=kafka))
    print(head())
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
        for told in cases(Path(scratch), asked.mib, asked.repeat, kafka=kafka):
            print(line(told), flush=True)
            rows.append(told)
    write_json(asked.json, asked.repeat, rows)


if __name__ == "__main__":
    main()
