"""From a kill to a broker that serves, however much was unflushed: the broker alone, and with each form of the hook.

A real broker fills one partition and is killed; its files become those of all partitions, so that every one has an
active segment with nothing flushed. Each way starts from the same bytes in the same files. Loading is what the broker
says of its logs; the outage is hook and loading together. `serves` is the time until the broker answers a client about
the topic; what was read is what the kernel counts for each process. With marks, a guard has read the directory before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness import ROOT, installed
from interop.kafka_lab import Cluster

TOPIC = "filled"
BATCH_OVERHEAD = 61 + 12
"""Bytes of a batch beside the value of its one record, nearly."""
_LITTLE = 1 << 20
"""Bytes that a log which has just begun, as that of metadata, may have without a mark."""
CONFIG = {
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "log.retention.check.interval.ms": "3600000",
}
WAYS: dict[str, list[str] | None] = {
    "broker alone": None,
    "hook keeps segments": ["--no-marks", "--keep-segments"],
    "hook": ["--no-marks"],
    "hook with marks": [],
    "hook with marker": ["--clean-marker", "4.3"],
}
LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms")


def fill(cluster: Cluster, partitions: int, size: int, batch_bytes: int) -> None:
    """Produce `size` bytes to the first partition in batches of one record."""
    cluster.create_topic(TOPIC, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1,
                         "queue.buffering.max.messages": 100_000})  # fmt: skip
    value = os.urandom(batch_bytes - BATCH_OVERHEAD)
    for _ in range(size // batch_bytes):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0


def multiply(log_dir: Path) -> None:
    """Give every partition the files of the first one: the same topic, so the same topic id."""
    first = log_dir / f"{TOPIC}-0"
    for place in sorted(log_dir.glob(f"{TOPIC}-*")):
        if place != first:
            shutil.rmtree(place)
            shutil.copytree(first, place)
    os.sync()


def put_back(kept: Path, log_dir: Path) -> None:
    """Make the directory hold what was kept, in the files that it has: a mark names files by their inodes."""
    wanted = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    for path in [path for path in log_dir.rglob("*") if path.is_file() and path.relative_to(log_dir) not in wanted]:
        path.unlink()
    for name in wanted:
        before, after = kept / name, log_dir / name
        after.parent.mkdir(parents=True, exist_ok=True)
        if not after.exists():
            shutil.copy2(before, after)
        elif before.stat().st_size != after.stat().st_size or before.read_bytes() != after.read_bytes():
            with after.open("r+b") as file:
                file.truncate(0)
                file.write(before.read_bytes().rstrip(b"\0"))  # a preallocated index is a hole, and stays one
                file.truncate(before.stat().st_size)
    os.sync()


def guard(log_dir: Path, state: Path) -> float:
    """Let a guard read the log directory and sync it; return the processor seconds that it took."""
    words = ["run", "--log-dir", log_dir, "--state-dir", state, "--listen", "none", "--log-level", "error"]
    process = subprocess.Popen([*installed(), *map(str, words)], stderr=subprocess.DEVNULL, cwd=ROOT)
    while not is_marked(state):
        assert process.poll() is None
        time.sleep(0.2)
    process.terminate()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    process.returncode = status
    return usage.ru_utime + usage.ru_stime


def is_marked(state: Path) -> bool:
    """Tell whether the status of the guard says that a crash, even a power cut, would leave next to nothing to read."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        status = json.loads((state / "status.json").read_text())
        exposures = [log_dir.get("exposure") for log_dir in status["log_dirs"]]
        return all(one and one["marked_bytes"] and one["power_bytes"] < _LITTLE for one in exposures)
    return False


def answer(cluster: Cluster) -> None:
    """Wait until the broker leads the topic."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    while True:
        topic = client.list_topics(TOPIC, timeout=10).topics[TOPIC]
        if topic.error is None and topic.partitions and all(one.leader >= 0 for one in topic.partitions.values()):
            return
        time.sleep(0.01)


def measure(cluster: Cluster, kept: Path, flags: list[str] | None, state: Path, *, is_cold: bool) -> dict[str, Any]:
    """Start from the kept bytes; return seconds of the hook and of the broker, and the bytes that each read."""
    broker = cluster[0]
    log_dir = broker.log_dirs[0]
    put_back(kept, log_dir)
    if is_cold:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    hook, hook_read = (0.0, 0) if flags is None else recover(log_dir, [*flags, "--state-dir", str(state)])
    printed = broker.output.stat().st_size
    begin = time.perf_counter()
    broker.start()
    answer(cluster)
    seconds = time.perf_counter() - begin
    assert broker.process is not None
    lines = broker.output.read_bytes()[printed:].decode(errors="replace")
    loaded = LOADED.search(lines)
    assert loaded is not None, lines[-2000:]
    figures = {
        "hook": hook,
        "hook_read": hook_read,
        "broker": seconds,
        "read": bytes_read(broker.process.pid),
        "loading": int(loaded[2]) / 1000,
        "scans": lines.count("Recovering unflushed segment"),
        "skipped": "Skipping recovery of" in lines,
    }
    broker.kill()
    return figures


def recover(log_dir: Path, flags: list[str]) -> tuple[float, int]:
    """Run the hook; return its seconds and the bytes of the log that it scanned."""
    words = [*installed(), "recover", "--json", *flags, str(log_dir)]
    begin = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    seconds = time.perf_counter() - begin
    return seconds, json.loads(done.stdout)["results"][0]["scanned_bytes"]


def bytes_read(pid: int) -> int:
    """Return what a process has read so far by the kernel's count."""
    return int(dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())["rchar"])


def main() -> None:
    """Print the table, or lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--segment-mib", type=int, default=16, help="unflushed bytes of each partition")
    parser.add_argument("--batch-bytes", type=int, default=1024)
    parser.add_argument(
        "--recovery-threads", type=int, default=2, help="num.recovery.threads.per.data.dir of the broker"
    )
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each way (as root)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.scratch)))
        config = CONFIG | {
            "log.segment.bytes": str(asked.segment_mib + 1 << 20),
            "num.recovery.threads.per.data.dir": str(asked.recovery_threads),
        }
        cluster = stack.enter_context(Cluster(scratch / "cluster", config=config))
        fill(cluster, asked.partitions, asked.segment_mib << 20, asked.batch_bytes)
        broker = cluster[0]
        broker.kill()
        multiply(broker.log_dirs[0])
        kept = scratch / "kept"
        shutil.copytree(broker.log_dirs[0], kept)
        state = scratch / "state"
        print(f"the guard took {guard(broker.log_dirs[0], state):.2f} s of processor time", file=sys.stderr)
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
        for _ in range(asked.repeat):
            for name, flags in WAYS.items():
                rounds[name].append(measure(cluster, kept, flags, state, is_cold=asked.cold))
    show(rounds, as_json=asked.json)


def show(rounds: dict[str, list[dict[str, Any]]], *, as_json: bool) -> None:
    """Print a row for each way: medians of the seconds, and what the last round counted."""
    alone = statistics.median(figures["loading"] for figures in rounds["broker alone"])
    if not as_json:
        print(f"{'':22}{'hook s':>8}{'loading s':>11}{'outage s':>10}{'of alone':>10}{'serves s':>10}"
              f"{'hook MiB':>10}{'broker MiB':>12}")  # fmt: skip
    for name, figures in rounds.items():
        hook, own, loading = (statistics.median(one[key] for one in figures) for key in ("hook", "broker", "loading"))
        last, of_alone = figures[-1], (hook + loading) / alone
        if as_json:
            medians = {"hook": hook, "broker": own, "loading": loading, "of_alone": of_alone}
            print(json.dumps({"way": name, **last, **medians}))
            continue
        print(f"{name:22}{hook:8.2f}{loading:11.2f}{hook + loading:10.2f}{of_alone:10.2f}{own:10.2f}"
              f"{last['hook_read'] / 2**20:10.0f}{last['read'] / 2**20:12.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
