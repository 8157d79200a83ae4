"""The last replica that had some records comes back as a follower: its broker cuts them, and they come back here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import Cluster
from interop.test_recover_live_broker import logmend
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC = "fragile"
CONFIG = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def produce(cluster: Cluster, values: list[str], acks: str = "1") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "message.timeout.ms": 90_000})
    failed: list[object] = []
    for value in values:
        producer.produce(
            TOPIC, value.encode(), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(120) == 0
    assert failed == []


def wait_for_leader(cluster: Cluster, leader: int, isr: set[int] | None = None) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    seen: Any = None

    def leads() -> bool:
        nonlocal seen
        seen = client.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.get(0)
        return seen is not None and seen.leader == leader and (isr is None or set(seen.isrs) == isr)

    until(leads, 180, say=lambda: seen)


def test_what_an_unclean_election_cost_comes_out_of_losses_and_export(kafka_cluster: Callable[..., Cluster]) -> None:
    cluster = kafka_cluster(brokers=3, config=CONFIG)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([NewTopic(TOPIC, num_partitions=1, replica_assignment=[[1, 2]])])[TOPIC].result(60)
    wait_for_leader(cluster, 1, {1, 2})
    produce(cluster, [f"both-{number}" for number in range(100)], acks="all")  # a follower in sync may still be behind
    cluster[2].stop()
    wait_for_leader(cluster, 1, {1})
    alone = [f"alone-{number}" for number in range(50)]
    produce(cluster, alone)
    cluster[1].kill()
    log_dir = cluster[1].log_dirs[0]
    done = logmend("recover", "--keep-tail", "64M", log_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert logmend("losses", log_dir).returncode == 0
    cluster[2].start()
    wait_for_leader(cluster, 2)
    produce(cluster, ["afterwards"])
    cluster[1].start()
    wait_for_leader(cluster, 2, {1, 2})
    cluster[1].stop()
    told = json.loads(logmend("losses", "--json", log_dir).stdout)["losses"]
    mine = [loss for loss in told if loss["partition"] == f"{TOPIC}-0"]
    assert [loss["by"] for loss in mine] == ["broker"]
    assert (mine[0]["first_offset"], mine[0]["last_offset"]) == (100, 149)
    done = logmend("quarantine", "export", "--partition", f"{TOPIC}-0", log_dir)
    values = [json.loads(line)["value"] for line in done.stdout.splitlines()]
    assert set(alone) <= set(values)
