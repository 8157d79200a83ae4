"""One of three brokers loses sectors while it is stopped; it heals from the others, running or not, and rejoins."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from golden.golden import checkpoint
from interop.kafka_lab import Broker, Cluster
from interop.test_recover_live_broker import logmend, saying, start_again
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(600)]

TOPIC, PARTITIONS, RECORDS, SECTOR, SECTORS, SEED = "kept", 3, 3000, 512, 1000, 5
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}
WATERMARKS, RECOVERY_POINTS = "replication-offset-checkpoint", "recovery-point-offset-checkpoint"
CUT = ("Corruption found in segment", "Truncating to offset", "Truncating partition")


def produce(cluster: Cluster, count: int) -> dict[tuple[int, int], bytes]:
    """Produce records that no codec makes small; return the acknowledged ones by partition and offset."""
    rng = random.Random(SEED)
    known: dict[tuple[int, int], bytes] = {}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 32768,
                         "enable.idempotence": True})  # fmt: skip
    for number in range(count):
        value = rng.randbytes(1000)

        def told(error: object, message: object, value: bytes = value) -> None:
            assert error is None, error
            known[message.partition(), message.offset()] = value  # type: ignore[attr-defined]

        producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=told)
        producer.poll(0)
    assert producer.flush(120) == 0
    return known


def logs(broker: Broker) -> dict[str, bytes]:
    root = broker.log_dirs[0]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob(f"{TOPIC}-*/*.log"))}


def destroy(broker: Broker) -> int:
    """Overwrite random sectors of the stopped broker's logs; return their bytes."""
    rng = random.Random(SEED)
    places = [
        (path, at)
        for path in sorted(broker.log_dirs[0].glob(f"{TOPIC}-*/*.log"))
        for at in range(0, path.stat().st_size // SECTOR * SECTOR, SECTOR)
    ]
    chosen = rng.sample(places, min(SECTORS, len(places) // 2))
    for path, at in chosen:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(rng.randbytes(SECTOR))
    return len(chosen) * SECTOR


def wait_for_replicas(cluster: Cluster) -> None:
    """Wait until every partition has all its replicas in sync again."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def in_sync() -> bool:
        partitions = client.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
        return bool(partitions) and all(len(each.isrs) == len(each.replicas) for each in partitions)

    until(in_sync, 120)


def wait_for_checkpoints(cluster: Cluster, known: dict[tuple[int, int], bytes]) -> None:
    """Wait until every broker's checkpoints name all partitions, with watermarks at the end of what was produced."""
    ends = {f"{TOPIC}-{number}": max(at for partition, at in known if partition == number) + 1
            for number in range(PARTITIONS)}  # fmt: skip
    homes = [broker.log_dirs[0] for broker in cluster.brokers]

    def written() -> bool:
        return all(
            ends.items() <= checkpoint(home / WATERMARKS).items()
            and ends.keys() <= checkpoint(home / RECOVERY_POINTS).keys()
            for home in homes
        )

    until(written, 120, say=lambda: [checkpoint(home / WATERMARKS) for home in homes])


def read(cluster: Cluster, wanted: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + 60
    while len(found) < wanted and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None
            place, value = (message.partition(), message.offset()), message.value()
            assert value is not None
            found[place] = value  # type: ignore[index]
    consumer.close()
    return found


def test_a_thousand_lost_sectors_come_back_and_the_broker_rejoins_without_cutting(
    kafka_cluster: Callable[..., Cluster],
) -> None:
    cluster = kafka_cluster(brokers=3, config=CONFIG)
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
    known = produce(cluster, RECORDS)
    wait_for_replicas(cluster)
    wait_for_checkpoints(cluster, known)
    victim, healthy = cluster[1], cluster[0]
    for source in (f"127.0.0.1:{healthy.port}", str(healthy.log_dirs[0])):
        victim.stop()
        before = logs(victim)
        lost = destroy(victim)
        assert logs(victim) != before
        healed = heal(victim, source)
        print(f"{lost} bytes destroyed, {len(healed)} holes, {sum(note['size'] for note in healed)} bytes taken")
        assert logs(victim) == before
        printed = start_again(victim)
        # The metadata log may lose a record that was never committed: the broker alone had it when it was stopped.
        assert saying(saying(printed, *CUT), f"{TOPIC}-") == []
        wait_for_replicas(cluster)
        after = logs(victim)
        assert all(after[name][: len(data)] == data for name, data in before.items())
    assert read(cluster, len(known)) == known


def heal(victim: Broker, source: str) -> list[dict[str, int]]:
    """Recover the victim's directory from a source; every hole must be filled."""
    done = logmend("recover", "--json", "--depth", "full", "--heal-from", source, victim.log_dirs[0])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = list(json.loads(done.stdout)["results"][0]["healing"])
    assert found
    assert all(note["healed"] for note in found)
    return found
