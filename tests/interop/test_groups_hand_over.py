"""Groups between a broker and our listener: positions, members and generations go with the directory, both ways.

One consumer runs through it all. The listener takes over the broker's directory and its port, and gives both back: the
consumer stays the member it was, in the generation it was in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clients.targets import Listener
from confluent_kafka import Consumer, Producer, TopicPartition
from interop.kafka_lab import Cluster, run_java
from support.group_asking import members, positions

pytestmark = pytest.mark.slow

WAIT_SECONDS = 90.0
CONFIG = {
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "3000",  # without these a broker that was killed is not let in again for nine seconds
    "broker.heartbeat.interval.ms": "500",
}


class Reader:
    """A consumer with a group of its own that counts what it has seen."""

    def __init__(self, bootstrap: str, group: str, strategy: str = "range", **more: object) -> None:
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0,
            "enable.auto.commit": False, "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 500, "session.timeout.ms": 60_000, **more,
        })  # fmt: skip
        self.seen: list[tuple[int, int]] = []
        self.rebalances = 0
        self.consumer.subscribe(["orders"], on_assign=self._assigned)

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def read_until(self, count: int) -> None:
        """Read until `count` records have been seen in all, and commit them."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.seen) < count:
            assert time.monotonic() < deadline, f"{len(self.seen)} of {count} records"
            message = self.consumer.poll(0.2)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.seen.append((partition, offset))
        committed = self.consumer.commit(asynchronous=False)
        assert committed
        assert all(each.error is None for each in committed)


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce("orders", str(number), partition=number % 3)
    assert producer.flush(WAIT_SECONDS) == 0


def decoded(cluster: Cluster) -> list[str]:
    """Return what Kafka's own decoder says of all records of `__consumer_offsets`; it is strict about every byte."""
    lines: list[str] = []
    for log in sorted(cluster[0].log_dirs[0].glob("__consumer_offsets-*/*.log")):
        output = cluster.directory / f"{log.parent.name}.{log.stem}.dump"
        args = ("--offsets-decoder", "--files", str(log))
        run_java(cluster.version, cluster.directory, output, "org.apache.kafka.tools.DumpLogSegments", *args)
        lines += [line for line in output.read_text().splitlines() if line.startswith("| offset:")]
    return lines


def generations(lines: list[str], group: str) -> list[int]:
    found = [re.search(rf'"group":"{group}".*"generation":(\d+)', line) for line in lines]
    return [int(each.group(1)) for each in found if each is not None]


@pytest.fixture
def cluster(kafka_cluster: Callable[..., Cluster]) -> Cluster:
    started = kafka_cluster(config=CONFIG)
    started.create_topic("orders", partitions=3)
    return started


def on_the_same_port(cluster: Cluster, directory: Path) -> Listener:
    broker = cluster[0]
    place = ("--listen", f"127.0.0.1:{broker.port}", "--server-properties", str(broker.properties))
    return Listener(broker.log_dirs[0], directory, *place)


def test_a_consumer_stays_in_its_group_from_a_broker_to_us_and_back(cluster: Cluster, tmp_path: Path) -> None:
    bootstrap = cluster.bootstrap
    produce(bootstrap, 300)
    reader = Reader(bootstrap, "stays")
    reader.read_until(300)
    before = members(bootstrap, "stays")
    cluster[0].kill()
    with on_the_same_port(cluster, tmp_path / "ours"):
        assert positions(bootstrap, "stays") == {0: 100, 1: 100, 2: 100}
        assert members(bootstrap, "stays") == before
        produce(bootstrap, 300)
        reader.read_until(600)
        ours = Reader(bootstrap, "ours", "cooperative-sticky")
        ours.read_until(600)
        ours.consumer.close()
        assert members(bootstrap, "stays") == before
    lines = decoded(cluster)
    assert generations(lines, "stays") == [0, 1]
    assert generations(lines, "ours") == [0, 1, 2]
    cluster[0].start()
    assert positions(bootstrap, "stays") == positions(bootstrap, "ours") == {0: 200, 1: 200, 2: 200}
    assert members(bootstrap, "stays") == before
    produce(bootstrap, 300)
    reader.read_until(900)
    assert reader.rebalances == 1
    assert sorted(reader.seen) == [(partition, offset) for partition in range(3) for offset in range(300)]
    again = Reader(bootstrap, "ours", "cooperative-sticky")
    again.read_until(300)
    assert sorted(again.seen) == [(partition, offset) for partition in range(3) for offset in range(200, 300)]
    for each in (reader, again):
        each.consumer.close()
