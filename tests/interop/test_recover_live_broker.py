"""Real brokers before and after: killed under load, recovered by the command, and started again.

A broker that was killed scans what lies above its recovery points at its next start, whatever state that is in
("Recovering unflushed segment"). What a recovery spares it is what follows from damage: the lines below, which an
unrecovered copy provokes here as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden.golden import checkpoint
from golden.make_crashed_sample import last_batch
from interop.broker_load import (
    COMPACTED,
    CONFIG,
    PARTITIONS,
    RECOVERY_POINTS,
    TRANSACTIONAL,
    Content,
    Ledger,
    Load,
    produce_more,
    read_all,
)
from interop.kafka_lab import Broker, Cluster
from support.command import environment
from support.waiting import until

pytestmark = pytest.mark.slow

CUTS = ("Corruption found in segment", "Found invalid messages in log segment")
MORE_CUTS = ("invalid bytes at the end of segment", "Deleting segments as part of log recovery", "Found invalid offset")
REBUILDS = ("Could not find offset index file", "Found a corrupted index file", "rebuilding index files")
VICTIMS, MISLED = ("orders-0", "packed-lz4-0", "packed-zstd-0", "orders-1"), f"{TRANSACTIONAL}-0"
NEGATIVE = struct.pack(">hqqqq", 0, 1, 0, -1, 0)
"""An aborted transaction that ends before it begins."""

Contents = Mapping[str, Mapping[int, Content]]


def logmend(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the installed command; where the tests run without an installation, the same by its module."""
    installed = Path(sys.executable).with_name("logmend")
    command = [str(installed)] if installed.exists() else [sys.executable, "-m", "cli.main"]
    return subprocess.run(
        [*command, *map(str, words)], env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


def recover(broker: Broker) -> str:
    """Recover as a start-up hook does, from the broker's own settings; return what was printed."""
    done = logmend("recover", "--server-properties", broker.properties)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start_again(broker: Broker) -> list[str]:
    """Start the broker and return the lines that it printed since, up to its being ready."""
    printed = broker.output.stat().st_size
    broker.start()
    return broker.output.read_bytes()[printed:].decode(errors="replace").splitlines()


def saying(lines: list[str], *what: str) -> list[str]:
    return [line for line in lines if any(part in line for part in what)]


def segments(log_dir: Path, partition: str) -> list[Path]:
    return sorted((log_dir / partition).glob("*.log"))


def appendable_logs(log_dir: Path) -> dict[Path, bytes]:
    """Return the `.log` files of the topics that no cleaner rewrites."""
    names = (name for name in PARTITIONS if not name.startswith(COMPACTED))
    return {path: path.read_bytes() for name in names for path in segments(log_dir, name)}


def check_nothing_was_cut(before: Mapping[Path, bytes]) -> None:
    """Check that the broker has done nothing to those files but append."""
    for path, data in before.items():
        assert path.read_bytes()[: len(data)] == data, path


def check_readable(promised: Contents, found: Contents) -> None:
    """Check that every promised record is there, at its offset, with its key and value.

    Of a compacted topic, those with a later record of the same key may be gone.
    """
    for name, records in promised.items():
        there = found[name]
        latest = {key: offset for offset, (key, _) in sorted({**there, **records}.items())}
        is_compacted = name.startswith(COMPACTED)
        missing = [n for n, (key, _) in records.items() if n not in there and not (is_compacted and n < latest[key])]
        assert missing == [], f"{name}: {len(missing)} of {len(records)} are missing"
        different = [offset for offset, content in records.items() if there.get(offset, content) != content]
        assert different == [], name


def check_transactions(ledger: Ledger, committed: Contents) -> None:
    """Check that a reader of committed records sees all transactions that were committed, and none that was aborted."""
    names = [name for name in PARTITIONS if name.startswith(TRANSACTIONAL)]
    values = {value for name in names for _, value in committed[name].values() if value is not None}
    assert ledger.committed
    assert ledger.committed <= values
    assert not ledger.aborted & values


def check_goes_on(load: Load, promised: Contents) -> None:
    """Check that every topic takes more, and that a stock client reads that and what was `promised` before."""
    more = produce_more(load)
    found, committed = read_all(load.cluster), read_all(load.cluster, isolation="read_committed")
    for contents in (promised, more.acknowledged):
        check_readable(contents, found)
    assert load.ledger.aborted
    for ledger in (load.ledger, more):
        check_transactions(ledger, committed)


def killed_under_load(kafka_cluster: Callable[..., Cluster], **arguments: Any) -> Load:
    """Return the load that a broker was killed under; every partition has a recovery point above 0."""
    load = Load(kafka_cluster(config=CONFIG | arguments.pop("config", {}), **arguments))
    load.run_until_flushed()
    load.kill()
    flushed = load.ledger.below(recovery_points(load.cluster))
    assert all(flushed[name] for name in PARTITIONS)
    return load


def log_dir_of(cluster: Cluster) -> Path:
    return cluster[0].log_dirs[0]


def recovery_points(cluster: Cluster) -> dict[str, int]:
    return checkpoint(log_dir_of(cluster) / RECOVERY_POINTS)


def test_after_a_kill_and_a_recovery_the_broker_serves_every_acknowledged_record(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    load = killed_under_load(kafka_cluster)
    broker = load.cluster[0]
    before = appendable_logs(log_dir_of(load.cluster))
    recover(broker)
    # Only a process was killed: all that it wrote is in the files, so there is nothing to cut.
    assert {path: path.read_bytes() for path in before} == before
    printed = start_again(broker)
    assert saying(printed, "Recovering unflushed segment")
    assert saying(printed, *CUTS, *MORE_CUTS, *REBUILDS) == []
    check_readable(load.ledger.acknowledged, read_all(load.cluster))
    check_nothing_was_cut(before)
    check_goes_on(load, load.ledger.acknowledged)


def damage(log_dir: Path, points: Mapping[str, int]) -> dict[str, int]:
    """Damage tails that no recovery point covers, and indexes; return the offsets from which on batches are damaged."""
    torn, zeroed, unindexed = unflushed_tails(log_dir, points)[:3]
    damaged = {}
    for name in (torn, zeroed):
        log = segments(log_dir, name)[-1]
        position, size, damaged[name] = last_batch(log)
        with log.open("r+b") as file:
            file.truncate(position + size // 2)
            if name == zeroed:  # the length was durable before the bytes were
                file.truncate(position + size)
    rot(segments(log_dir, unindexed)[-1].with_suffix(".index"))
    padded, unlisted = (segments(log_dir, name)[0] for name in VICTIMS[-2:])
    with padded.with_suffix(".timeindex").open("ab") as file:
        file.write(bytes(1200))
    unlisted.with_suffix(".index").unlink()
    segments(log_dir, MISLED)[0].with_suffix(".txnindex").write_bytes(NEGATIVE)
    return damaged


def unflushed_tails(log_dir: Path, points: Mapping[str, int]) -> list[str]:
    """Return the partitions whose last batch, of an active segment, lies above the recovery point.

    A kill may come just after a roll, when the active segment is empty and has no index yet.
    """
    return [name for name in VICTIMS if last_batch(segments(log_dir, name)[-1])[2] >= points[name]]


def rot(path: Path) -> None:
    """Flip bits in each entry of an index."""
    data = bytearray(path.read_bytes())
    data[::8] = bytes(byte ^ 0x55 for byte in data[::8])
    path.write_bytes(data)


@pytest.mark.deep
def test_damaged_tails_and_indexes_are_mended_before_the_broker_sees_them(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    load = killed_under_load(kafka_cluster)
    cluster, log_dir = load.cluster, log_dir_of(load.cluster)
    damaged = damage(log_dir, recovery_points(cluster))
    flushed = load.ledger.below(recovery_points(cluster))
    undamaged = load.ledger.below({name: damaged.get(name, 1 << 60) for name in PARTITIONS})

    unrecovered = Cluster(Path(shutil.copytree(cluster.directory, cluster.directory.with_name("copy"))), config=CONFIG)
    try:
        printed = start_again(unrecovered[0])
    finally:
        unrecovered[0].kill()
    for what in (*CUTS, *REBUILDS):
        assert saying(printed, what), what
    for name in damaged:
        assert saying(saying(printed, CUTS[0]), f"partition={name},"), name

    told = recover(cluster[0])
    for name in damaged:
        assert name in told
    mended = appendable_logs(log_dir)
    assert saying(start_again(cluster[0]), *CUTS, *MORE_CUTS, *REBUILDS) == []
    found = read_all(cluster)
    check_readable(flushed, found)
    check_readable(undamaged, found)
    check_nothing_was_cut(mended)
    for name, base in damaged.items():  # what was torn was never a record again
        assert max(found[name]) < base
    check_goes_on(load, undamaged)


def steady(log_dir: Path) -> Iterator[tuple[str, str]]:
    """Return names and hashes of what a broker without load leaves alone: not its own log of the cluster's metadata."""
    for folder, _, names in os.walk(log_dir):
        for name in names:
            path = Path(folder, name)
            if "__cluster_metadata" not in folder and not name.endswith(("-checkpoint", "-checkpoint.tmp")):
                yield str(path.relative_to(log_dir)), hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.deep
def test_while_the_broker_runs_only_reading_commands_work(
    kafka_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    load = killed_under_load(kafka_cluster)
    broker, log_dir = load.cluster[0], log_dir_of(load.cluster)
    damage(log_dir, recovery_points(load.cluster))
    flushed = load.ledger.below(recovery_points(load.cluster))
    recover(broker)  # leaves copies of what it cut, for `quarantine`
    start_again(broker)
    read_all(load.cluster)
    lines = logmend("quarantine", "list", log_dir).stdout.splitlines()[:-1]
    listed, _ = dict.fromkeys(line.split()[0] for line in lines)
    plan = tmp_path / "plan.json"
    before = dict(steady(log_dir))

    for reading in (("verify",), ("verify", "--depth", "full"), ("plan", "--out", plan), ("recover", "--dry-run")):
        looked = logmend(*reading, "--server-properties", broker.properties)
        assert looked.returncode in (0, 1), looked.stdout + looked.stderr
        assert "Traceback" not in looked.stderr
    for writing in (
        ("recover", "--server-properties", broker.properties),
        ("recover", "--accept-loss", "--discard", log_dir),
        ("apply", plan),
        ("quarantine", "restore", "--plan", listed, log_dir),
        ("quarantine", "expire", "--plan", listed, log_dir),
        ("quarantine", "expire", "--older-than", "0", log_dir),
    ):
        refused = logmend(*writing)
        assert refused.returncode == 6, f"{writing}: {refused.stdout}{refused.stderr}"
        assert "in use" in refused.stderr
    assert dict(steady(log_dir)) == before
    check_goes_on(load, flushed)


@pytest.mark.deep
def test_a_broker_before_0_11_calls_no_index_corrupt_after_a_recovery(kafka_cluster: Callable[..., Cluster]) -> None:
    """It checks the last entry of each index that it loads, and takes preallocated zero bytes for one."""
    cluster = kafka_cluster(version="0.10.2.2", config={"log.index.size.max.bytes": "65536"})
    cluster.create_topic("orders", partitions=2)
    broker = cluster[0]
    until(lambda: len(list(log_dir_of(cluster).glob("orders-*/*.timeindex"))) == 2)
    broker.kill()
    assert saying(start_again(broker), "Found a corrupted index file"), "the kill left nothing to complain of"
    broker.kill()
    recover(broker)
    assert saying(start_again(broker), "Found a corrupted index file") == []
