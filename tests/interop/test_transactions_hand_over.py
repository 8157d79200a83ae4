"""Transactions between a broker and our listener: what is open, decided or done goes with the directory, both ways.

Producers run through it all: the listener takes over the directory and the port of a broker that was killed, and gives
both back. The broker is of transaction version 2, its Java clients bump epochs with each transaction, librdkafka does
not; ours is of version 1.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.targets import Listener
from clients.test_ends_of_transactions import FENCED, fails, noted
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from interop.kafka_lab import Cluster, run_java
from interop.test_groups_hand_over import CONFIG, on_the_same_port

from server.txn.records import partition_of

pytestmark = [pytest.mark.slow, pytest.mark.deep]

PATIENCE = 100.0


def producer(bootstrap: str, transactional_id: str, **more: Any) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, "linger.ms": 0}
    made = Producer({**settings, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500, **more})
    made.init_transactions(PATIENCE)
    return made


def send(made: Producer, *values: str) -> None:
    failed: list[KafkaError] = []
    for number, value in enumerate(values):
        made.produce("orders", value, partition=number % 2, on_delivery=lambda error, _: noted(failed, error))
    assert made.flush(PATIENCE) == 0
    assert not failed


def whole(made: Producer, *values: str) -> None:
    """Send as one transaction."""
    made.begin_transaction()
    send(made, *values)
    made.commit_transaction(PATIENCE)


def read(bootstrap: str, topic: str = "orders") -> list[str]:
    """Return the committed records of both partitions, up to their last stable offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0, "check.crcs": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    seen, at_end, deadline = list[str](), set[int](), time.monotonic() + PATIENCE
    while len(at_end) < 2:
        assert time.monotonic() < deadline, seen
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, partition, value = message.error(), message.partition(), message.value()
        if error is None and value is not None:
            seen.append(value.decode())
        elif error is not None and partition is not None and error.code() == KafkaError._PARTITION_EOF:
            at_end.add(partition)
    consumer.close()
    return sorted(seen)


def ends(bootstrap: str) -> list[int]:
    """Return the last stable offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    found = [consumer.get_watermark_offsets(TopicPartition("orders", n), PATIENCE)[1] for n in range(2)]
    consumer.close()
    return found


def by_java(cluster: Cluster, bootstrap: str, transactional_id: str, records: int) -> None:
    """Send with Kafka's own producer in transactions of 50 ms."""
    properties = cluster.directory / f"{transactional_id}.properties"
    properties.write_text(f"bootstrap.servers={bootstrap}\nacks=all\ntransactional.id={transactional_id}\n")
    tool = "org.apache.kafka.tools.ProducerPerformance"
    run_java(
        cluster.version, cluster.directory, cluster.directory / "perf.out", tool,
        "--topic", "perf", "--num-records", str(records), "--record-size", "20", "--throughput", "300",
        "--producer.config", str(properties), "--transactional-id", transactional_id, "--transaction-duration-ms", "50",
    )  # fmt: skip


def decoded(cluster: Cluster) -> list[tuple[str, dict[str, Any] | None]]:
    """Return id and value of all records of `__transaction_state` as Kafka's own decoder reads them."""
    found = []
    for log in sorted(cluster[0].log_dirs[0].glob("__transaction_state-*/*.log")):
        output = cluster.directory / f"{log.parent.name}.{log.stem}.{time.monotonic_ns()}.dump"
        args = ("--transaction-log-decoder", "--files", str(log))
        run_java(cluster.version, cluster.directory, output, "org.apache.kafka.tools.DumpLogSegments", *args)
        for line in output.read_text().splitlines():
            if not line.startswith("| offset:"):
                continue
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            transactional_id = json.loads(key)["data"]["transactionalId"]
            assert partition_of(transactional_id, 2) == int(log.parent.name[-1])
            found.append((transactional_id, None if payload == "<DELETE>" else json.loads(payload)))
    return found


def shown(cluster: Cluster, bootstrap: str, *words: str) -> list[list[str]]:
    """Return the rows that kafka-transactions prints, without their heading."""
    output = cluster.directory / f"shown.{time.monotonic_ns()}"
    tool = "org.apache.kafka.tools.TransactionsCommand"
    run_java(cluster.version, cluster.directory, output, tool, "--bootstrap-server", bootstrap, *words)
    lines = output.read_text().splitlines()
    heading = next(n for n, line in enumerate(lines) if line.startswith(("TransactionalId", "CoordinatorId", "Topic ")))
    return [line.split() for line in lines[heading + 1 :] if line.strip()]


@pytest.fixture
def cluster(kafka_cluster: Callable[..., Cluster]) -> Cluster:
    started = kafka_cluster(config=CONFIG | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})
    for topic in ("orders", "perf"):
        started.create_topic(topic, partitions=2)
    return started


@pytest.fixture
def ours(cluster: Cluster, tmp_path: Path) -> Iterator[Listener]:
    """Our listener in the place of the broker, once it is started; whatever becomes of the test, it does not stay."""
    listener = on_the_same_port(cluster, tmp_path / "ours")
    yield listener
    listener.kill()


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_transactions_go_from_a_broker_to_us_and_back(cluster: Cluster, ours: Listener, dies: bool) -> None:
    at, expected = cluster.bootstrap, []
    stays, left = producer(at, "stays"), producer(at, "left")
    whole(stays, "a1", "a2")
    stays.begin_transaction()
    send(stays, "no1", "no2")
    stays.abort_transaction(PATIENCE)
    by_java(cluster, at, "java", 120)
    stays.begin_transaction()
    send(stays, "b1", "b2")
    left.begin_transaction()
    send(left, "no3", "no4")
    cluster[0].kill()

    ours.start()
    assert len(read(at, "perf")) == 120
    send(stays, "b3")
    stays.commit_transaction(PATIENCE)
    successor = producer(at, "left")
    whole(successor, "c1", "c2")
    with fails(*FENCED):
        left.commit_transaction(PATIENCE)
    by_java(cluster, at, "java", 60)
    fresh, gone = producer(at, "fresh"), producer(at, "gone", **{"transaction.timeout.ms": 60_000})
    whole(fresh, "d1", "d2")
    expected = ["a1", "a2", "b1", "b2", "b3", "c1", "c2", "d1", "d2"]
    assert read(at) == expected
    assert len(read(at, "perf")) == 180
    rows = {row[0]: row[-1] for row in shown(cluster, at, "list")}
    assert rows == {"stays": "CompleteCommit", "left": "CompleteCommit", "fresh": "CompleteCommit", "gone": "Empty",
                    "java": "CompleteCommit"}  # fmt: skip
    fresh.begin_transaction()
    send(fresh, "e1", "e2")
    gone.begin_transaction()
    send(gone, "no5", "no6")
    ((*_, partitions),) = shown(cluster, at, "describe", "--transactional-id", "fresh")
    assert set(partitions.split(",")) == {"orders-0", "orders-1"}
    (ours.kill if dies else ours.stop)()

    states = Counter(
        (each, None if value is None else value["data"]["transactionStatus"]) for each, value in decoded(cluster)
    )
    assert states["fresh", 4] == 1
    cluster[0].start()
    send(fresh, "e3")
    fresh.commit_transaction(PATIENCE)
    whole(producer(at, "gone"), "f1", "f2")
    whole(stays, "g1", "g2")
    by_java(cluster, at, "java", 60)
    assert read(at) == [*expected, "e1", "e2", "e3", "f1", "f2", "g1", "g2"]
    assert len(read(at, "perf")) == 240


def test_a_transaction_that_hangs_is_found_through_us_and_ended_by_a_broker(cluster: Cluster, tmp_path: Path) -> None:
    at = cluster.bootstrap
    whole(producer(at, "before"), "a1", "a2")
    deadline = time.monotonic() + PATIENCE
    while read(at) != ["a1", "a2"]:  # a broker answers before it writes the markers
        assert time.monotonic() < deadline
    lost = producer(at, "lost")
    lost.begin_transaction()
    send(lost, "no1")
    cluster[0].kill()
    for directory in cluster[0].log_dirs[0].glob("__transaction_state-*"):
        shutil.rmtree(directory)
    with on_the_same_port(cluster, tmp_path / "ours"):
        found = shown(cluster, at, "find-hanging", "--topic", "orders", "--max-transaction-timeout", "0")
        assert [row[:2] for row in found] == [["orders", "0"]]
        offset = found[0][5]
        assert read(at) == ["a1", "a2"]
        assert ends(at) == [2, 2]  # readers stop where it hangs
    cluster[0].start()
    abort = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", offset)
    tool, output = "org.apache.kafka.tools.TransactionsCommand", cluster.directory / "aborted"
    run_java(cluster.version, cluster.directory, output, tool, "--bootstrap-server", at, *abort)
    whole(producer(at, "behind"), "b1", "b2")
    assert read(at) == ["a1", "a2", "b1", "b2"]
