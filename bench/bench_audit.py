"""How fast an audit reads beside the same scan in plain processes, what a task costs, and how large a fleet it plans.

Usage: python bench/bench_audit.py [--mib N] [--names N] [--segments N] [--repeat N] [--scratch DIR] [--json FILE]

Plain: two processes that call the very scan that a task calls, file by file. Audit: the job in a session that is warm;
`reading` is what counts beside the plain scan, from the first task to the last result, and `whole` is from the manifest
to the tables. Each file has more names, so that much is read and little is stored. Planning: segments that are empty
files, so that listing and cutting is all there is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from harness import ROOT, about, head, line, measure, row, write_json
from logs import write_segment

from audit.scan.batches import list_logs
from audit.spark import job
from audit.spark.progress import SilentProgress
from audit.spark.session import prepare_environment, session_settings
from audit.tables.options import AuditOptions, Source
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import ScanOptions
from recovery.segment.verify import scan_segment
from storage.base.units import Offset
from storage.disk.fs import OsFs, ReadOnlyFs
from storage.reading.log_reader import LogReader

PROCESSES: Final = 2
FILES: Final = 8
SIZES: Final = (16384, 1024)
PLAIN = "plain"
"""Key of the two plain processes in what is measured."""


def fleet(place: Path, size: int, mib: int, names: int) -> tuple[list[tuple[str, str]], int]:
    """Write a log directory a broker; return broker and path of each, and the bytes that are to be read."""
    total = 0
    for broker in range(PROCESSES):
        for file in range(FILES):
            written = place / f"written-{broker}-{file}"
            write_segment(written, size, (mib << 20) // FILES)
            for name in range(names):
                path = place / f"b{broker}" / f"orders-{(broker * FILES + file) * names + name}" / f"{0:020d}.log"
                path.parent.mkdir(parents=True)
                path.hardlink_to(written)
                total += written.stat().st_size
    return [(str(broker), str(place / f"b{broker}")) for broker in range(PROCESSES)], total


def scan_directory(path: str) -> int:
    """Verify every segment of a log directory as a task does; return the bytes."""

    fs, reader, options, total = ReadOnlyFs(OsFs()), LogReader(), ScanOptions(4096, 10 << 20, None), 0
    for log in list_logs(fs, Path(path)):
        names = [log.path.with_suffix(end) for end in (".index", ".timeindex", ".txnindex")]
        files = SegmentFiles(Offset(0), log.path, fs.stat(log.path), names[0], None, names[1], None, names[2], None)
        report = scan_segment(fs, files, options, reader, in_scope=False, active=True)
        assert report.valid_size == log.size, report.findings
        total += log.size
    return total


def plain(directories: list[tuple[str, str]]) -> float:
    """Return the seconds that two plain processes take, started beforehand."""
    with get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(warm_up, range(PROCESSES), chunksize=1)
        start = time.perf_counter()
        pool.map(scan_directory, [path for _, path in directories], chunksize=1)
        return time.perf_counter() - start


def warm_up(_: int) -> None:

    time.sleep(0.5)  # so that each process gets one


def session(scratch: Path) -> Any:
    """Return a session with two workers, as `logmend audit` starts it."""

    prepare_environment(os.environ)  # type: ignore[arg-type]
    settings = session_settings(f"local[{PROCESSES}]", {"spark.local.dir": str(scratch)}, PROCESSES)
    return job.start_session(settings)


class Phases(SilentProgress):
    """Notes when each phase of an audit begins."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}

    def phase(self, name: str) -> None:
        self.began[name] = time.perf_counter()


def audit(spark: Any, directories: list[tuple[str, str]], out: Path) -> tuple[float, float]:
    """Return the seconds that reading took in an audit, and those of the whole of it."""
    sources = [Source("bench", broker, path) for broker, path in directories]
    phases, start = Phases(), time.perf_counter()
    result = job.run(spark, sources, AuditOptions(out=str(out), audit_id=f"b{time.time_ns()}"), phases)
    assert not [kind for kind, severity in result.kinds if severity in ("damage", "blocking")], result.kinds
    return phases.began["comparing"] - phases.began["verifying"], time.perf_counter() - start


def many_segments(place: Path, count: int) -> list[tuple[str, str]]:
    """Make log directories with `count` empty segments in all, 100 a partition."""
    for number in range(count // 100):
        directory = place / f"b{number % 4}" / f"t{number}-0"
        directory.mkdir(parents=True)
        for base in range(100):
            (directory / f"{base * 1000:020d}.log").touch()
    return [(str(broker), str(place / f"b{broker}")) for broker in range(4)]


def plan_seconds(spark: Any, directories: list[tuple[str, str]], out: Path) -> float:
    """Return the seconds from a manifest to its tasks, none of them read."""

    class Planned(Exception):
        """Raised where reading would begin."""

    class Stop(SilentProgress):
        def phase(self, name: str) -> None:
            if name == "verifying":
                raise Planned

    sources = [Source("bench", broker, path) for broker, path in directories]
    start = time.perf_counter()
    with contextlib.suppress(Planned):
        job.run(spark, sources, AuditOptions(out=str(out), audit_id=f"p{time.time_ns()}"), Stop())
    return time.perf_counter() - start


def driver_mib() -> float:
    """Return the largest resident size that Java, our child, has had, and of Python itself, in MiB."""
    java = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True, check=False)
    peak = 0
    for process in java.stdout.split():
        told = Path(f"/proc/{process}/status").read_text()
        peak += int(next(each for each in told.splitlines() if each.startswith("VmHWM")).split()[1])
    return (peak + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the audit.")
    parser.add_argument("--mib", type=int, default=1024, help="MiB of logs for each of two brokers")
    parser.add_argument("--names", type=int, default=8, help="how often each of them is read")
    parser.add_argument("--segments", type=int, default=100_000, help="segments to plan for")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scratch", metavar="DIR")
    parser.add_argument("--json", metavar="FILE")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(about(asked.repeat, kafka=False).replace("no Kafka: Java or Maven is missing", "theirs: two plain processes"))
    print(head().replace("kafka", "plain"))

    def told(what: str, contenders: dict[str, Any], target: str) -> None:
        found = measure(contenders, asked.repeat)
        rows.append(row(what, found["audit"], found.get(PLAIN), target))
        print(line(rows[-1]), flush=True)

    with tempfile.TemporaryDirectory(dir=asked.scratch) as name:
        place = Path(name)
        spark = session(place / "spark")
        for size in SIZES:
            for share in (4, 1):
                where, total = fleet(place / f"d{size}-{share}", size, asked.mib // share, asked.names)
                whole: list[float] = []

                def reading(where: list[tuple[str, str]] = where, whole: list[float] = whole) -> float:
                    seconds, all_of_it = audit(spark, where, place / "out")
                    whole.append(all_of_it)
                    return seconds

                both = {"audit": reading, PLAIN: lambda where=where: plain(where)}
                told(f"reading {total >> 20} MiB, {size} B batches", both, ">= 0.8" if share == 1 else "")
                rows[-1] |= {"bytes": total, "whole": statistics.median(whole[1:])}
                print(f"    {total / rows[-1]['ours']['median'] / 1e9:.2f} GB/s; whole: {rows[-1]['whole']:.1f} s")
        few = many_segments(place / "few", 400)
        told("whole audit of 400 empty segments", {"audit": lambda: audit(spark, few, place / "out")[1]}, "")
        many = many_segments(place / "many", asked.segments)
        told(f"plan {asked.segments} segments", {"audit": lambda: plan_seconds(spark, many, place / "out")}, "< 30 s")
        rows[-1]["driver_mib"] = driver_mib()
        print(f"driver, Java and Python together: {rows[-1]['driver_mib']:.0f} MiB at most")
        spark.stop()
    write_json(asked.json, asked.repeat, rows)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
