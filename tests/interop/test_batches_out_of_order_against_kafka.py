"""A batch that is there twice and two that changed places: what a real broker serves before and after a recovery."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from interop.kafka_lab import Cluster
from support.command import environment
from support.mutate import batches

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC = "ledger"
BATCHES = 12
LENGTHS = (2, 3)
"""Records of the batches, in turns."""


def produce(bootstrap: str) -> list[str]:
    """Write batches of two and three records in turns; return the values in the order of their offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 200})
    values = []
    for number in range(BATCHES):
        for record in range(LENGTHS[number % 2]):
            values.append(f"{number}.{record}")
            producer.produce(TOPIC, values[-1], partition=0)
        assert producer.flush(30) == 0
    return values


def consume(bootstrap: str) -> list[str]:
    """Return the values that a consumer reads from the beginning to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    partition = TopicPartition(TOPIC, 0, 0)
    end = consumer.get_watermark_offsets(partition, timeout=180)[1]
    consumer.assign([partition])
    values: list[str] = []
    try:
        while consumer.position([partition])[0].offset < end:
            message = consumer.poll(10)
            if message is None:
                break
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def rearrange(log: Path) -> None:
    data = log.read_bytes()
    parts = [data[position : position + size] for position, size in batches(log)]
    assert len(parts) == BATCHES
    parts[8], parts[9] = parts[9], parts[8]
    parts.insert(4, parts[2])
    log.write_bytes(b"".join(parts))


def test_what_a_broker_serves_twice_or_out_of_order_a_recovered_log_serves_once_and_in_order(
    kafka_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = kafka_cluster()
    broker = cluster[0]
    cluster.create_topic(TOPIC)
    values = produce(cluster.bootstrap)
    broker.kill()
    log = broker.log_dirs[0] / f"{TOPIC}-0" / "00000000000000000000.log"
    rearrange(log)
    damaged = Path(shutil.copytree(broker.log_dirs[0], tmp_path / "damaged"))
    size = log.stat().st_size

    broker.start()
    assert log.stat().st_size == size
    served = consume(cluster.bootstrap)
    broker.kill()
    assert set(served) == set(values)
    assert served != values  # some come twice or out of order

    shutil.rmtree(broker.log_dirs[0])
    shutil.copytree(damaged, broker.log_dirs[0])
    command = [sys.executable, "-m", "cli.main", "recover", "--server-properties", str(broker.properties)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    broker.start()
    assert consume(cluster.bootstrap) == values
