"""From a kill to a broker that serves: the broker alone, and with the hook before it: without rolls, rolled, marked.

A real broker is filled, killed, and its directory copied; each way starts from the same bytes. Loading is what the
broker says of its logs; the outage is hook and loading together. `serves` is the time until the broker answers a client
about the topic; what it read is what the kernel counts for it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness import logmend
from interop.kafka_lab import Broker, Cluster

TOPIC = "filled"
CONFIG = {
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "log.retention.check.interval.ms": "3600000",
}
WAYS: dict[str, list[str] | None] = {
    "broker alone": None,
    "hook keeps segments, then broker": ["--keep-segments"],
    "hook, then broker": [],
    "hook with marker, then broker": ["--clean-marker", "4.3"],
}
LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms")


def fill(cluster: Cluster, partitions: int, size: int, batch_bytes: int) -> None:
    """Produce `size` bytes in records of 1 KiB, spread over the partitions, and wait for them."""
    cluster.create_topic(TOPIC, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "enable.idempotence": True,
                         "queue.buffering.max.messages": 100_000, "batch.size": batch_bytes})  # fmt: skip
    value = bytes(range(256)) * 4
    for number in range(size // len(value)):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number // 64 % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def answer(cluster: Cluster) -> None:
    """Wait until the broker leads the topic."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    while True:
        found = client.list_topics(TOPIC, timeout=10).topics[TOPIC]
        if found.error is None and all(each.leader >= 0 for each in found.partitions.values()) and found.partitions:
            return
        time.sleep(0.01)


def measure(cluster: Cluster, broker: Broker, kept: Path, flags: list[str] | None) -> dict[str, Any]:
    """Start from the kept bytes; return seconds of the hook and of the broker, and bytes that the broker read."""
    log_dir = broker.log_dirs[0]
    shutil.rmtree(log_dir)
    shutil.copytree(kept, log_dir, symlinks=True)
    hook = 0.0 if flags is None else logmend("recover", *flags, log_dir)
    printed = broker.output.stat().st_size
    begin = time.perf_counter()
    broker.start()
    answer(cluster)
    seconds = time.perf_counter() - begin
    assert broker.process is not None
    counted = dict(line.split(": ") for line in Path(f"/proc/{broker.process.pid}/io").read_text().splitlines())
    lines = broker.output.read_bytes()[printed:].decode(errors="replace")
    loaded = LOADED.search(lines)
    broker.kill()
    return {
        "hook": hook,
        "broker": seconds,
        "read": int(counted["rchar"]),
        "loading_ms": int(loaded[2]) if loaded else None,
        "scans": lines.count("Recovering unflushed segment"),
        "skipped": "Skipping recovery of" in lines,
    }


def main() -> None:
    """Print the table, or lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--segment-mib", type=int, default=8)
    parser.add_argument("--batch-bytes", type=int, default=16 << 10)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with contextlib.ExitStack() as held:
        scratch = held.enter_context(tempfile.TemporaryDirectory(dir=asked.scratch))
        config = CONFIG | {"log.segment.bytes": str(asked.segment_mib << 20)}
        cluster = held.enter_context(Cluster(Path(scratch) / "cluster", config=config))
        broker = cluster[0]
        fill(cluster, asked.partitions, asked.mib << 20, asked.batch_bytes)
        broker.kill()
        kept = Path(scratch) / "kept"
        shutil.copytree(broker.log_dirs[0], kept)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in WAYS}
        for _ in range(asked.repeat):
            for name, flags in WAYS.items():
                found[name].append(measure(cluster, broker, kept, flags))
    show(found, as_json=asked.json)


def show(found: dict[str, list[dict[str, Any]]], *, as_json: bool) -> None:
    """Print a row for each way: medians of the seconds, and what the last round counted."""
    alone = statistics.median(each["loading_ms"] / 1000 for each in found["broker alone"])
    if not as_json:
        print(f"{'':34}{'hook s':>8}{'loading s':>11}{'outage s':>10}{'of alone':>10}{'serves s':>10}{'MiB read':>10}")
    for name, each in found.items():
        hook, own, loading = (statistics.median(one[key] for one in each) for key in ("hook", "broker", "loading_ms"))
        outage = hook + loading / 1000
        told = {"way": name, **each[-1], "hook": hook, "broker": own, "loading_ms": loading, "of_alone": outage / alone}
        if as_json:
            print(json.dumps(told))
            continue
        figures = f"{hook:8.2f}{loading / 1000:11.2f}{outage:10.2f}{told['of_alone']:10.2f}{own:10.2f}"
        print(f"{name:34}{figures}{told['read'] / 2**20:10.0f}")


if __name__ == "__main__":
    main()
