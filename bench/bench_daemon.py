"""What a broker's clients feel of the daemon: produce latency with `logmend run` guarding its directory, and without.

    python bench/bench_daemon.py [--rounds 6] [--seconds 20] [--rate 500] [--partitions 10000] [--json FILE]

One real broker, one producer that sends records of 1 KiB at a steady rate, each on its own (acks=all, no lingering),
and the time to each acknowledgement. Rounds with and without the daemon take turns in one run, off on on off, and the
first of each does not count. The broker flushes every 200 records and writes its checkpoint every second, far
more often than a real one, and all is to be scrubbed every ten minutes: so there is always something to read. The
daemon runs as its unit has it run, nice 10 and idle I/O. At the end, what guarding a directory of `--partitions` with
10 segments each costs, by `bench_guard.py`; 0 leaves that out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_guard
from confluent_kafka import Producer
from harness import ROOT, about, head, line, processor_seconds, row, write_json
from interop.kafka_lab import Cluster

TOPIC, PARTITIONS = "measured", 4
CONFIG = {
    "log.segment.bytes": str(4 << 20),
    "log.flush.interval.messages": "200",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
SCRUB = '[scrub]\ncycle = "10min"\n[guard]\nverify_within = "5s"\n[http]\nlisten = ["unix"]\n'
TARGET = "< 1.05"


def produce(cluster: Cluster, seconds: float, rate: float) -> list[float]:
    """Send records one by one at a steady rate; return the seconds to each acknowledgement.

    They count from when a record was due: a record that had to wait for the one before it has waited.
    """
    to = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    value, taken, failed = os.urandom(1024), [], []
    end = threading.Event()

    def poll() -> None:
        while not end.is_set():
            to.poll(0.05)

    poller = threading.Thread(target=poll)
    poller.start()
    begin = time.perf_counter()
    for number in range(int(seconds * rate)):
        due = begin + number / rate
        if (rest := due - time.perf_counter()) > 0:
            time.sleep(rest)

        def done(error: object, _: object, due: float = due) -> None:
            taken.append(time.perf_counter() - due)
            if error is not None:
                failed.append(error)

        to.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=done)
    assert to.flush(60) == 0
    end.set()
    poller.join()
    assert not failed, failed[0]
    return taken


@contextlib.contextmanager
def daemon(log_dir: Path, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have the service guard the directory within the context; it must find nothing."""
    config = state / "logmend.toml"
    config.write_text(SCRUB)
    command = ["nice", "-n", "10", "ionice", "-c", "idle", sys.executable, "-m", "cli.main", "run", "--log-dir",
               str(log_dir), "--state-dir", str(state), "--config", str(config), "--log-format", "logfmt"]  # fmt: skip
    with (state / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        try:
            while f"pid={process.pid} " not in (text := (state / "log").read_text()) or "service_ready" not in text:
                assert process.poll() is None, text
                time.sleep(0.05)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "the daemon found damage, or failed"


def percentile(taken: list[float], share: float) -> float:
    return sorted(taken)[min(int(len(taken) * share), len(taken) - 1)]


def figures(rounds: list[list[float]], share: float, processor: list[float]) -> dict[str, Any]:
    """Return the median of a percentile over the rounds, as the tables have it."""
    found = [percentile(each, share) for each in rounds]
    median = statistics.median(found)
    spread = (max(found) - min(found)) / median
    return {"seconds": found, "median": median, "spread": spread, "processor_median": statistics.median(processor)}


def compare(scratch: Path, rounds: int, seconds: float, rate: float) -> list[dict[str, Any]]:
    """Return a row for p50 and p99."""
    taken: dict[bool, list[list[float]]] = {False: [], True: []}
    processor: dict[bool, list[float]] = {False: [], True: []}
    state = scratch / "state"
    state.mkdir(mode=0o700)
    with Cluster(scratch / "cluster", config=CONFIG) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        produce(cluster, min(seconds, 10), rate)
        for number in range(2 * (rounds + 1)):
            is_on = number % 4 in (1, 2)
            before = processor_seconds()
            with contextlib.ExitStack() as held:
                if is_on:
                    held.enter_context(daemon(cluster[0].log_dirs[0], state))
                found = produce(cluster, seconds, rate)
            if number > 1:
                taken[is_on].append(found)
                processor[is_on].append(processor_seconds() - before)
            p50, p99 = (percentile(found, share) * 1000 for share in (0.5, 0.99))
            way = "with" if is_on else "without"
            print(f"  {way:8} p50 {p50:8.2f} ms, p99 {p99:8.2f} ms, load {os.getloadavg()[0]:.1f}", flush=True)
    told = json.loads((state / "status.json").read_text())
    assert told["counters"].get("range_verified_bytes"), "the daemon had nothing to do"
    return [
        row(f"produce {name}, with the daemon and without", figures(taken[True], share, processor[True]),
            figures(taken[False], share, processor[False]), TARGET)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]  # fmt: skip


def guard(scratch: Path, partitions: int, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the row of the start of a large guard, and all that was measured of it."""
    log_dir, state = scratch / "large", scratch / "large-state"
    bench_guard.fill(log_dir, partitions, 10)
    found = [bench_guard.in_own_process(log_dir, state, seconds) for _ in range(2)]
    starts = [each["start"] for each in found]
    ours = {"seconds": starts, "median": starts[0], "spread": 0.0,
            "processor_median": found[0]["processor_until_listed"]}  # fmt: skip
    return row(f"guard of {partitions} partitions with 10 segments each: start", ours, None, "< 5"), found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--idle-seconds", type=float, default=90.0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--scratch", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.scratch) as place:
        scratch = Path(place)
        rows = compare(scratch, asked.rounds, asked.seconds, asked.rate)
        if asked.partitions:
            started, found = guard(scratch, asked.partitions, asked.idle_seconds)
            rows.append({**started, "guard": found})
    print(about(asked.rounds, kafka=True))
    print(head())
    for each in rows:
        print(line(each))
        if "guard" in each:
            told = each["guard"]
            print(f"{'':8}peak {told['peak_mib']:.0f} MiB, idle {told['idle_percent']:.2f} % of a processor, ledger "
                  f"{told['ledger_mib']:.1f} MiB")  # fmt: skip
        elif each["theirs"]:
            print(f"{'':8}{(each['ours']['median'] / each['theirs']['median'] - 1) * 100:+.1f} % with the daemon")
    write_json(asked.json, asked.rounds, rows)


if __name__ == "__main__":
    main()
