"""Brokers killed under load whose active segments a hand-over has rolled: they scan nothing and go on as before."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from golden.golden import checkpoint
from interop.broker_load import COMPACTED, PARTITIONS, read_all
from interop.kafka_lab import KAFKA, Cluster
from interop.test_recover_live_broker import (
    CUTS,
    MORE_CUTS,
    REBUILDS,
    appendable_logs,
    check_goes_on,
    check_nothing_was_cut,
    check_readable,
    killed_under_load,
    log_dir_of,
    logmend,
    saying,
    segments,
    start_again,
)
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.deep]

SCANNED = re.compile(r"partition=(\S+?),.*Recovering unflushed segment (\d+)")
CONFIG = {"log.retention.check.interval.ms": "1000", "file.delete.delay.ms": "100"}


def active(log_dir: Path, partition: str) -> Path:
    return segments(log_dir, partition)[-1]


def rolled(cluster: Cluster) -> dict[str, int]:
    """Recover and roll every active segment; return where the new ones begin, by partition."""
    broker = cluster[0]
    full = {name for name in PARTITIONS if active(broker.log_dirs[0], name).stat().st_size}
    done = logmend("recover", "--roll-from", "1", "--server-properties", broker.properties)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rolled" in done.stdout
    places = {name: active(broker.log_dirs[0], name) for name in PARTITIONS}
    assert {name: path.stat().st_size for name, path in places.items()} == dict.fromkeys(PARTITIONS, 0)
    return {name: int(places[name].stem) for name in full}


@pytest.mark.parametrize("version", [KAFKA, "3.9.1", "2.8.2"])
def test_a_broker_reads_no_rolled_segment_again_and_takes_it_as_any(
    version: str, kafka_cluster: Callable[..., Cluster]
) -> None:
    load = killed_under_load(kafka_cluster, version=version, config=CONFIG)
    log_dir = log_dir_of(load.cluster)
    before = appendable_logs(log_dir)
    bases = rolled(load.cluster)
    assert {path: path.read_bytes() for path in before} == before
    printed = start_again(load.cluster[0])
    scanned = {found[1]: int(found[2]) for line in printed if (found := SCANNED.search(line)) and found[1] in bases}
    assert scanned == bases
    assert saying(printed, *CUTS, *MORE_CUTS, *REBUILDS) == []
    check_readable(load.ledger.acknowledged, read_all(load.cluster))
    check_nothing_was_cut(before)
    check_goes_on(load, load.ledger.acknowledged)
    await_compaction(load.cluster, bases)
    await_retention(load.cluster, bases)


def await_compaction(cluster: Cluster, bases: dict[str, int]) -> None:
    """Return once the cleaner has gone beyond the rolled segment."""
    name, cleaned = f"{COMPACTED}-0", log_dir_of(cluster) / "cleaner-offset-checkpoint"
    until(lambda: checkpoint(cleaned).get(name, 0) >= bases[name], 120, say=lambda: str(checkpoint(cleaned)))


def await_retention(cluster: Cluster, bases: dict[str, int]) -> None:
    """Return once retention has deleted the rolled segments of a topic, which were its newest before the kill."""
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(60)
    rolls = {name: base for name, base in bases.items() if name.startswith("orders-")}
    assert rolls
    log_dir = log_dir_of(cluster)
    until(lambda: all(int(segments(log_dir, name)[0].stem) >= base for name, base in rolls.items()), 120)


# ---- a follower


TOPIC = "fragile"
UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


def produce(cluster: Cluster, values: list[str], acks: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "message.timeout.ms": 90_000})
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=0)
    assert producer.flush(120) == 0


def wait_for(cluster: Cluster, leader: int, isr: set[int]) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leads() -> bool:
        seen = client.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.get(0)
        return seen is not None and seen.leader == leader and set(seen.isrs) >= isr

    until(leads, 180)


def test_a_follower_truncates_to_below_a_rolled_segment_and_follows_its_leader(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    cluster = kafka_cluster(brokers=3, config=UNCLEAN)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([NewTopic(TOPIC, num_partitions=1, replica_assignment=[[1, 2]])])[TOPIC].result(60)
    wait_for(cluster, 1, {1, 2})
    produce(cluster, [f"both-{number}" for number in range(100)], "all")
    cluster[2].stop()
    wait_for(cluster, 1, {1})
    produce(cluster, [f"alone-{number}" for number in range(50)], "1")
    cluster[1].kill()
    follower, leader = (cluster[number].log_dirs[0] for number in (1, 2))
    done = logmend("recover", "--roll-from", "1", follower)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(active(follower, f"{TOPIC}-0").stem) == 150
    cluster[2].start()
    wait_for(cluster, 2, set())
    produce(cluster, ["afterwards"], "1")
    cluster[1].start()
    wait_for(cluster, 2, {1, 2})
    for broker in cluster.brokers[1:]:  # the first holds the quorum: without it a stop would wait for a controller
        broker.stop()
    assert int(active(follower, f"{TOPIC}-0").stem) <= 100
    mine, theirs = (b"".join(p.read_bytes() for p in segments(at, f"{TOPIC}-0")) for at in (follower, leader))
    assert mine == theirs
    assert b"afterwards" in mine
    assert b"alone" not in mine
