"""How fast `logmend recover` is, beside Kafka's own loader on equal copies of the same directory.

One partition of magic 2 batches (random payload, ten records each by their headers, sixteen idempotent producers,
timestamps that rise every 16 KiB) in segments of 256 MiB, none of it flushed: both check every batch. Two forms:

- `recover`: as a kill leaves it: sound logs, their indexes (those of the active segment preallocated), epochs and
  producer snapshots, but none yet for the log end;
- `bare`: only the logs and the small files that name the topic; indexes, epochs and snapshots all have to be made;
- `spread`: the same bytes, bare, in 16 partitions of one segment each, for logmend alone.

logmend is timed as the whole command, a process from its start to its end: it plans, writes and syncs, and looks again;
by default it uses all processors, with `-j 1` one; `py`, with --python, is what runs where no C compiler was at hand:
none of the three extension modules is there, and `-j 1`. Python's modules are compiled before, as an installation does.
`limit` is what it takes to read and sum the same bytes in C, 1 MiB at a time, in one thread of a process that is up:
`share` is that by the time of `-j 1`. Kafka is the loader of its log alone
(4.3.0, `UnifiedLog.create`, unclean, recovery point 0) in a JVM that is up and warm; it uses one thread for a partition
and syncs only snapshots and epochs. What a repetition changes is undone before the next; repetitions are interleaved,
the first is not counted, the page cache is warm.

Times are medians; MB are 10**6 bytes of log; `spread` is the slowest less the fastest repetition, in per cent of the
median; `cpu` is seconds of processor time, of the whole process and for Kafka of the whole JVM meanwhile, and says more
than the clock where others are busy. `ratio` and `-j 1` are Kafka's time by logmend's: above 1, logmend is faster.
`load` is the machine's load average.

Usage: python bench/bench_recover.py [--mib 512] [--repeat 5] [--sizes 16384,1024,170] [--python] [--json FILE]
       [--scratch DIR]
Without Java and Maven there is only the `bare` form, and no Kafka beside it.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from interop.kafka_lab import KAFKA, Oracle

from storage.disk.buffers import page_aligned
from storage.kernel.scan import crc32c, crc_name, kernel_name

ROOT: Final = Path(__file__).resolve().parent.parent
SIZES: Final = (16384, 1024, 170)
MIB: Final = 1 << 20
SEGMENT: Final = 256 << 20
SPREAD: Final = 16
BLOCK: Final = 16384
RECORDS: Final = 10
TS: Final = 1_700_000_000_000
PARTITION: Final = "bench-0"
INDEX_BYTES: Final = {"segment.index.bytes": "10485760"}
SMALL_FILES: Final = {
    "meta.properties": "version=1\nnode.id=1\ncluster.id=bench\n",
    "recovery-point-offset-checkpoint": "0\n1\nbench 0 0\n",
    "log-start-offset-checkpoint": "0\n0\n",
    f"{PARTITION}/partition.metadata": "version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A",
}
PYTHON_KERNEL: Final = """
import sys
sys.modules |= dict.fromkeys(("storage.kernel._scan", "storage.disk._disk", "storage.kernel._dedupe"))
from cli.main import run
run()
"""
CONTENDERS: Final = ("logmend", "logmend -j 1", "limit", "python", "kafka")
Taken = tuple[float, float]
"""Seconds by the clock, and of processor time."""


def sealed_batch(payload: bytes, number: int) -> bytes:
    """Return a batch for offset 0; its producer, sequence and timestamps follow from `number`."""
    timestamp = TS + number * RECORDS
    tail = struct.pack(
        ">hiqqqhii", 0, RECORDS - 1, timestamp, timestamp + 9, 4000 + number % 16, 0, number // 16 * RECORDS, RECORDS
    )
    body = tail + payload
    return struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(memoryview(body))) + body


def segment(size: int, first: int, count: int) -> bytearray:
    """Return `count` batches of `size` bytes from batch number `first` on.

    The base offset is no part of what the checksum covers: batches are sealed once a block, repeated, and get their
    offsets by slices, one for each of the eight bytes.
    """
    payload = os.urandom(size - 61)
    each = max(BLOCK // size, 1)
    log = bytearray().join(sealed_batch(payload, first + n) * min(each, count - n) for n in range(0, count, each))
    offsets = array("Q", range(first * RECORDS, (first + count) * RECORDS, RECORDS))
    if sys.byteorder == "little":
        offsets.byteswap()
    stamps = offsets.tobytes()
    for byte in range(8):
        log[byte::size] = stamps[byte::8]
    return log


def make_log_dir(directory: Path, size: int, total: int) -> int:
    """Make the bare directory with `total` bytes of log, or a little less; return its next offset."""
    (directory / PARTITION).mkdir(parents=True)
    for name, text in SMALL_FILES.items():
        (directory / name).write_text(text)
    made = 0
    while total - made * size >= size:
        count = min(SEGMENT, total - made * size) // size
        (directory / PARTITION / f"{made * RECORDS:020d}.log").write_bytes(segment(size, made, count))
        made += count
    return made * RECORDS


def make_spread(directory: Path, size: int, total: int) -> None:
    """Make the bare directory with the bytes in partitions of a segment each."""
    count = total // SPREAD // size
    log = segment(size, 0, count)
    for number in range(SPREAD):
        for name, text in SMALL_FILES.items():
            path = directory / name.replace(PARTITION, f"bench-{number}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (directory / f"bench-{number}" / f"{0:020d}.log").write_bytes(log)


def others(directory: Path) -> Iterator[Path]:
    """Return all files but the logs."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix != ".log")


def put_back(directory: Path, kept: Path) -> None:
    """Make all files but the logs equal to those that were kept, and let all writing come to rest."""
    for path in list(others(directory)):
        path.unlink()
    shutil.copytree(kept, directory, dirs_exist_ok=True)
    os.sync()


def keep(directory: Path, kept: Path) -> None:
    """Copy all files but the logs."""
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("*.log"))


def recover(directory: Path, *flags: str, python_kernel: bool = False) -> Taken:
    """Return what the whole command takes; with `python_kernel` as where no C compiler was at hand."""
    installed = Path(sys.executable).with_name("logmend")
    command = [str(installed)] if installed.exists() else [sys.executable, "-m", "cli.main"]
    if python_kernel:
        command = [sys.executable, "-c", PYTHON_KERNEL]
    words = [*command, "recover", *flags, str(directory)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu_of(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def limit(directory: Path) -> Taken:
    """Return what it takes to read all logs and sum them, and nothing else."""
    buffer = page_aligned(MIB)
    before, start = time.process_time(), time.perf_counter()
    for path in sorted(directory.rglob("*.log")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                crc32c(buffer[:count])
    return time.perf_counter() - start, time.process_time() - before


def load(oracle: Oracle, directory: Path, next_offset: int) -> Taken:
    """Return what Kafka's loader takes; leave the files as a kill would."""
    before = cpu_of(oracle.process.pid)
    opened = oracle(
        op="open", log="bench", dir=directory / PARTITION, recovery_point=0, clean=False, config=INDEX_BYTES
    )
    cpu = cpu_of(oracle.process.pid) - before
    oracle(op="close", log="bench", abruptly=True)
    assert opened["log_end"] == next_offset, opened
    return float(opened["load_ms"]) / 1000, cpu


def as_killed(oracle: Oracle, directory: Path, next_offset: int) -> None:
    """Let Kafka make indexes, epochs and snapshots; take away the snapshot that only a clean stop leaves."""
    load(oracle, directory, next_offset)
    (directory / PARTITION / f"{next_offset:020d}.snapshot").unlink()


def measure(
    contenders: dict[str, Callable[[], Taken]], before: Callable[[], None], repeat: int
) -> dict[str, list[Taken]]:
    """Run all in turn, `repeat` + 1 times, beginning with another one each time; return what the counted ones took."""
    found: dict[str, list[Taken]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(repeat + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            before()
            taken = contenders[name]()
            if turn:
                found[name].append(taken)
    return found


def row(form: str, size: int, log_bytes: int, found: dict[str, list[Taken]]) -> dict[str, Any]:
    """Return the figures of one line of the table."""
    told: dict[str, Any] = {"form": form, "batch_bytes": size, "log_bytes": log_bytes, "load": os.getloadavg()[0]}
    for name, taken in found.items():
        seconds, cpu = [each[0] for each in taken], [each[1] for each in taken]
        median = statistics.median(seconds)
        told[name] = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "median": median,
            "cpu": statistics.median(cpu),
            "mb_per_s": log_bytes / median / 1e6,
            "spread": (max(seconds) - min(seconds)) / median,
        }
    if "kafka" in found:
        told["ratio"] = told["kafka"]["median"] / told["logmend"]["median"]
        told["ratio_j1"] = told["kafka"]["median"] / told["logmend -j 1"]["median"]
    told["share"] = told["limit"]["median"] / told["logmend -j 1"]["median"]
    if "python" in found:
        told["ratio_python"] = told["kafka"]["median"] / told["python"]["median"]
    return told


def line(told: dict[str, Any]) -> str:
    parts = [f"{told['form']:8}{told['batch_bytes']:5}"]
    for name in CONTENDERS:
        if name in told:
            found = told[name]
            speed = f"{found['median']:7.2f} s {found['mb_per_s']:5.0f} MB/s"
            parts.append(f"{speed} {found['spread'] * 100:4.0f} % {found['cpu']:6.2f} s")
    ratios = [f"{name} {told[name]:.2f}" for name in ("ratio", "ratio_j1", "ratio_python") if name in told]
    parts.append(", ".join([f"share {told['share'] * 100:.0f} %", *ratios]).replace("ratio_", "").replace("j1", "-j 1"))
    return " ".join(parts) + f", load {told['load']:.1f}"


def case(
    scratch: Path, size: int, total: int, repeat: int, oracle: Oracle | None, *, python: bool
) -> Iterator[dict[str, Any]]:
    """Measure batches of one size in both forms."""
    ours, theirs, kept = scratch / "ours", scratch / "theirs", scratch / "kept"
    next_offset = make_log_dir(ours, size, total)
    shutil.copytree(ours, theirs)
    log_bytes = sum(path.stat().st_size for path in ours.rglob("*.log"))

    def before() -> None:
        put_back(ours, kept)
        put_back(theirs, kept)

    contenders = {
        "logmend": lambda: recover(ours),
        "logmend -j 1": lambda: recover(ours, "-j", "1"),
        "limit": lambda: limit(ours),
    }
    if oracle is not None:
        contenders["kafka"] = lambda: load(oracle, theirs, next_offset)
    keep(ours, kept)
    bare = row("bare", size, log_bytes, measure(contenders, before, repeat))
    if oracle is not None:
        before()
        as_killed(oracle, theirs, next_offset)
        keep(theirs, kept)
        if python:
            contenders["python"] = lambda: recover(ours, "-j", "1", python_kernel=True)
        yield row("recover", size, log_bytes, measure(contenders, before, repeat))
    yield bare
    shutil.rmtree(ours)
    shutil.rmtree(theirs)
    make_spread(ours, size, total)
    keep(ours, kept)
    contenders.pop("kafka", None)
    contenders.pop("python", None)
    yield row("spread", size, log_bytes, measure(contenders, lambda: put_back(ours, kept), repeat))
    shutil.rmtree(ours)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time logmend recover beside Kafka's own loader.")
    parser.add_argument("--mib", type=int, default=512, help="size of the log of each case")
    parser.add_argument("--repeat", type=int, default=5, help="counted repetitions")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the batches of each case")
    parser.add_argument("--python", action="store_true", help="time the Python kernel too, with -j 1, as recover")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE as well")
    parser.add_argument("--scratch", metavar="DIR", help="where to make the logs: needs twice their size")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    for package in ("cli", "recovery", "checkpoint", "storage"):  # else each process would, where that is not kept
        compileall.compile_dir(ROOT / package, quiet=1)
    oracle = Oracle(patience_seconds=600) if shutil.which("java") and shutil.which("mvn") else None
    about = f"{asked.mib} MiB a case, {asked.repeat} repetitions, {os.cpu_count()} processors, scanner {kernel_name()}"
    print(f"{about}, CRC-32C {crc_name()}, Kafka {KAFKA if oracle else 'not here: no Java or Maven'}")
    names = ["logmend: time, speed, spread, cpu", "-j 1", "limit", *["Python, -j 1"] * asked.python, "kafka"]
    print("form    batch" + "".join(f"   {name:34}" for name in names), flush=True)
    rows = []
    try:
        for size in map(int, asked.sizes.split(",")):
            with tempfile.TemporaryDirectory(dir=asked.scratch) as scratch:
                for told in case(Path(scratch), size, asked.mib << 20, asked.repeat, oracle, python=asked.python):
                    print(line(told), flush=True)
                    rows.append(told)
    finally:
        if oracle is not None:
            oracle.close()
    if asked.json:
        facts = {"kafka": KAFKA, "kernel": kernel_name(), "crc": crc_name(), "processors": os.cpu_count()}
        Path(asked.json).write_text(json.dumps(facts | {"repeat": asked.repeat, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
