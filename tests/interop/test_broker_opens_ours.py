"""A broker's topics, appended to by the engine while the broker is down, and served by the broker afterwards.

The broker has made the topics, so that its metadata knows them. Between its clean shutdown and its next start the
engine owns the log directory; the broker must find nothing to recover, and clients every record.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from golden.golden import checkpoint
from interop.kafka_lab import Broker, Cluster
from interop.test_partitions_of_keys import by_java
from support.batches import marker
from support.command import environment
from support.managers import records

from engine.manager.manager import LogManager
from storage.base import units
from storage.batch.record import Record, encode_batch
from storage.codec.compression import Codec
from storage.disk.fs import OsFs
from storage.log.log_types import Appended
from storage.producers.producers import Origin

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC, TRANSACTIONS, BY_COMMAND = "orders", "payments", "clicks"
PARTITIONS = 3
SMALL = {"internal.segment.bytes": "4000", "index.interval.bytes": "200"}
DAMAGE = ("unflushed", "orrupt", "rebuilding index", "Could not find", "Found invalid", "Deleting", "WARN", "ERROR")


def now() -> int:
    return time.time_ns() // 1_000_000


def start_again(broker: Broker) -> list[str]:
    """Start the broker and return the lines that it printed about its logs; the metadata log it always recovers."""
    printed = broker.output.stat().st_size
    broker.start()
    said = broker.output.read_bytes()[printed:].decode(errors="replace").splitlines()
    ours = [line for line in said if "__cluster_metadata" not in line]
    return [line for line in ours if "(kafka.log" in line or "storage.internals.log" in line]


def consume(cluster: Cluster, topic: str, count: int, isolation: str = "read_uncommitted") -> list[list[Any]]:
    """Return (offset, key, value) of the records of each partition as a stock client reads them."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False,
        "check.crcs": True, "isolation.level": isolation,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    deadline = time.monotonic() + 60
    while sum(map(len, found)) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            partition = message.partition()
            assert partition is not None
            found[partition].append((message.offset(), message.key(), message.value()))
    assert consumer.consume(1, 1.0) == []
    consumer.close()
    return found


def append(manager: LogManager, topic: str, partition: int, batch: bytes, **more: Any) -> Appended:
    done = manager.append(units.TopicPartition(topic, partition), batch, now(), **more)
    assert done is not None
    return done


def batch(*contents: tuple[bytes | None, bytes], **more: Any) -> bytes:
    return encode_batch([Record(n, now(), key=key, value=value) for n, (key, value) in enumerate(contents)], **more)


def fill(manager: LogManager) -> list[list[Any]]:
    """Append batches of every codec, idempotent ones among them and some twice; return what is there."""
    found: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    sequences = [0] * PARTITIONS
    for number, (codec, size) in enumerate(itertools.product(Codec, (1, 3, 40))):
        for partition in range(PARTITIONS):
            contents = [(b"key-%d" % n, b"%d %d %s" % (number, n, b"x" * (n % 90))) for n in range(size)]
            if number % 2:
                sequence = {"producer_id": 4000 + partition, "producer_epoch": 0, "base_sequence": sequences[partition]}
                made = batch(*contents, codec=codec, **sequence)
                sequences[partition] += size
                first = append(manager, TOPIC, partition, made)
                assert append(manager, TOPIC, partition, made)[:2] == first[:2]
            else:
                first = append(manager, TOPIC, partition, batch(*contents, codec=codec))
            found[partition] += [(first.first_offset + n, *content) for n, content in enumerate(contents)]
    return found


def pay(manager: LogManager) -> list[Any]:
    """Append transactions to partition 0: a committed, an aborted and an open one; return what is committed."""
    committed = []
    for producer_id, commit in ((5000, True), (5001, False), (5002, None)):
        made = batch(
            (b"k", b"%d" % producer_id), producer_id=producer_id, producer_epoch=0, base_sequence=0, flags=0x10
        )
        done = append(manager, TRANSACTIONS, 0, made)
        if commit is None:
            continue
        append(
            manager, TRANSACTIONS, 0, marker(0, producer_id, commit=commit, timestamp=now()), origin=Origin.COORDINATOR
        )
        if commit:
            committed.append((done.first_offset, b"k", b"%d" % producer_id))
    return committed


def by_command(log_dir: Path, count: int) -> dict[bytes, int]:
    """Append with the command; return the partition of each key as the command's own `read` tells it."""
    lines = "".join(json.dumps({"key": f"user-{n}", "value": f"click {n}"}) + "\n" for n in range(count))
    printed = ""
    for words, text in ((["append", "--codec", "zstd"], lines), (["read"], "")):
        command = [sys.executable, "-m", "cli.main", *words, "--topic", BY_COMMAND, "--log-dir", str(log_dir)]
        done = subprocess.run(
            command, input=text, env=environment(), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    told = [json.loads(line) for line in printed.splitlines()]
    assert len(told) == count
    return {each["key"].encode(): each["partition"] for each in told}


def engine(log_dir: Path) -> LogManager:
    manager = LogManager.open(OsFs(), [PurePath(log_dir)], now())
    assert manager.offline == {}
    return manager


def contents(manager: LogManager, topic: str) -> Iterator[list[Any]]:
    for partition in range(PARTITIONS):
        name = units.TopicPartition(topic, partition)
        yield [(record.offset, record.key, record.value) for record in records(manager, name)]


def test_a_broker_takes_over_what_the_engine_wrote_and_the_engine_what_the_broker_wrote(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    cluster = kafka_cluster()
    broker, log_dir = cluster[0], cluster[0].log_dirs[0]
    for topic in (TOPIC, TRANSACTIONS, BY_COMMAND):
        cluster.create_topic(topic, partitions=PARTITIONS, config=SMALL)
    broker.stop()

    with engine(log_dir) as manager:
        for topic in (TOPIC, TRANSACTIONS):
            manager.topics.alter(topic, now(), settings=SMALL)
        wanted = fill(manager)
        committed = pay(manager)
        assert len(manager.log(units.TopicPartition(TOPIC, 0)).segments) > 1
    places = by_command(log_dir, 200)
    chosen = by_java(list(places), PARTITIONS)
    assert list(places.values()) == [partition for _, partition in chosen]

    said = start_again(broker)
    assert any(f"Skipping recovery of {3 * PARTITIONS} logs from {log_dir}" in line for line in said), said
    assert [line for line in said if any(word in line for word in DAMAGE)] == []
    assert consume(cluster, TOPIC, sum(map(len, wanted))) == wanted
    assert consume(cluster, TRANSACTIONS, len(committed), "read_committed")[0] == committed
    clicks = consume(cluster, BY_COMMAND, 200)
    assert {key: number for number, found in enumerate(clicks) for _, key, _ in found} == places

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4", "linger.ms": 5})
    for partition in range(PARTITIONS):
        for number in range(30):
            producer.produce(TOPIC, b"broker %d" % number, b"b", partition)
    assert producer.flush(60) == 0
    broker.stop()

    with engine(log_dir) as manager:
        found = list(contents(manager, TOPIC))
        assert [each[: len(before)] for each, before in zip(found, wanted, strict=True)] == wanted
        assert [[value for _, _, value in each[-30:]] for each in found] == [
            [b"broker %d" % number for number in range(30)]
        ] * PARTITIONS
        done = append(manager, TOPIC, 0, batch((b"e", b"again"), codec=Codec.GZIP))
        assert done.first_offset == found[0][-1][0] + 1
        # The producer of the time before the broker is still known.
        sequence = sum(size for number, (_, size) in enumerate(itertools.product(Codec, (1, 3, 40))) if number % 2)
        more = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": sequence}
        assert not append(manager, TOPIC, 0, batch((b"e", b"once more"), **more)).is_duplicate
    assert checkpoint(log_dir / "recovery-point-offset-checkpoint")[f"{TOPIC}-0"] == done.first_offset + 2

    said = start_again(broker)
    assert [line for line in said if any(word in line for word in DAMAGE)] == []
    total = sum(map(len, found)) + 2
    assert consume(cluster, TOPIC, total)[0][-2:] == [
        (done.first_offset, b"e", b"again"), (done.first_offset + 1, b"e", b"once more"),
    ]  # fmt: skip
