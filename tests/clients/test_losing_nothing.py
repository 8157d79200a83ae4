"""What producers were told to be there is there, once: through cut connections, and through the end of the listener.

`LOGMEND_CUT_RECORDS` (20,000) is the number of records through a proxy that cuts; `LOGMEND_KILL_ROUNDS` (3) is how
often the listener is killed under load.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import HERE
from clients.running import ClientMissing, made
from clients.targets import OF_OURS, Listener
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop.kafka_lab import free_port
from support.cutting_proxy import CuttingProxy
from support.tiers import deep

pytestmark = [pytest.mark.write, OF_OURS]

CUT_RECORDS = int(os.environ.get("LOGMEND_CUT_RECORDS", "20000"))
KILL_ROUNDS = int(os.environ.get("LOGMEND_KILL_ROUNDS", "3"))
PATIENCE = 120
READER = HERE / "drivers" / "tail_reader.py"
QUIET: dict[str, Any] = {"log_level": 0, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 50}


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for done in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        done.result(PATIENCE)


def records(bootstrap: str, topic: str, partitions: int = 1) -> dict[tuple[int, int], bytes]:
    """Return all records of a topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "any", "enable.partition.eof": True, **QUIET})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[tuple[int, int], bytes] = {}
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1000, 1):
            error = message.error()
            if error is None:
                found[message.partition(), message.offset()] = message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return found


def new_directory(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("flush", ["none", "sync"])
def test_answers_that_are_cut_off_lose_no_record_and_double_none(tmp_path: Path, flush: str) -> None:
    with (
        CuttingProxy(share=0.2) as proxy,
        Listener(new_directory(tmp_path), tmp_path / "l", "--flush", flush, "--advertise", proxy.address) as listener,
    ):
        host, _, port = listener.bootstrap.rpartition(":")
        proxy.target = host, int(port)
        create(proxy.address, "orders")
        failed: list[object] = []
        producer = Producer({
            "bootstrap.servers": proxy.address, "enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 1,
            "retry.backoff.ms": 1, "message.timeout.ms": PATIENCE * 1000, **QUIET,
        })  # fmt: skip
        for number in range(CUT_RECORDS):
            while True:
                try:
                    producer.produce("orders", b"%d" % number, on_delivery=lambda e, _: e and failed.append(e))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(PATIENCE) == 0
        assert failed == []
        assert proxy.cuts > CUT_RECORDS / 20 / 10, "so many answers were never seen"
        proxy.share = 0
        found = records(proxy.address, "orders")
    assert [found[0, offset] for offset in range(len(found))] == [b"%d" % number for number in range(CUT_RECORDS)]


class Ledger:
    """Outside of the listener: what it said is there."""

    def __init__(self) -> None:
        self.told: dict[tuple[int, int], bytes] = {}
        self.grew = threading.Event()
        self.target = 0

    def delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.told[message.partition(), message.offset()] = message.value()
            if len(self.told) >= self.target:
                self.grew.set()

    def produce_until(self, bootstrap: str, more: int, then: Callable[[], object], acks: str, label: str) -> None:
        """Produce without end; do `then` once `more` were told to be there."""
        self.grew.clear()
        self.target = len(self.told) + more
        producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 2, "retries": 0, **QUIET})
        number = 0
        while not self.grew.is_set():
            try:
                producer.produce(
                    "orders", f"{label}-{number}".encode(), partition=number % 4, on_delivery=self.delivered
                )
                number += 1
            except BufferError:
                pass
            producer.poll(0)
        then()
        producer.purge()
        producer.poll(1)


@pytest.mark.parametrize("acks", ["all", deep("1")])
def test_a_listener_that_is_killed_under_load_has_all_that_it_said_it_has(tmp_path: Path, acks: str) -> None:
    draw, ledger = random.Random(5), Ledger()
    listener = Listener(new_directory(tmp_path), tmp_path / "l", "--flush", "sync")
    for round_ in range(KILL_ROUNDS):
        listener.start()
        if not round_:
            create(listener.bootstrap, "orders", 4, **{"segment.bytes": "1048576"})
        ledger.produce_until(listener.bootstrap, draw.randrange(2_000, 20_000), listener.kill, acks, f"{round_}")
    with listener:
        found = records(listener.bootstrap, "orders", 4)
    missing = {place: value for place, value in ledger.told.items() if found.get(place) != value}
    assert len(ledger.told) >= KILL_ROUNDS * 2_000
    assert missing == {}
    for partition in range(4):
        offsets = [offset for number, offset in found if number == partition]
        assert sorted(offsets) == list(range(len(offsets)))


def test_a_consumer_notices_that_the_tail_it_has_read_was_written_anew(tmp_path: Path) -> None:
    log_dir, port = new_directory(tmp_path), free_port()
    listener = Listener(log_dir, tmp_path / "l", "--flush", "none", "--listen", f"127.0.0.1:{port}")
    listener.start()
    create(listener.bootstrap, "orders")
    send(listener.bootstrap, "old", 100)
    consumer = Consumer({
        "bootstrap.servers": listener.bootstrap, "group.id": "any", "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100, **QUIET,
    })  # fmt: skip
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [read_one(consumer) for _ in range(100)] == [f"old {number}" for number in range(100)]
    listener.kill()
    lose_tail(log_dir / "orders-0", kept=80)
    with listener:
        send(listener.bootstrap, "new", 40)
        with pytest.raises(KafkaException) as told:
            read_on(consumer)
        assert told.value.args[0].code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
        consumer.close()


def test_the_same_goes_for_kafka_python(tmp_path: Path) -> None:
    try:
        python = made("kafka-python-3.0.12")
    except ClientMissing as missing:
        pytest.skip(str(missing))
    log_dir, port = new_directory(tmp_path), free_port()
    listener = Listener(log_dir, tmp_path / "l", "--flush", "none", "--listen", f"127.0.0.1:{port}")
    listener.start()
    create(listener.bootstrap, "orders")
    send(listener.bootstrap, "old", 100)
    with subprocess.Popen([python, READER, listener.bootstrap], stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert [json.loads(reader.stdout.readline()) for _ in range(100)] == [[n, f"old {n}"] for n in range(100)]
            listener.kill()
            lose_tail(log_dir / "orders-0", kept=80)
            with listener:
                send(listener.bootstrap, "new", 40)
                assert json.loads(reader.stdout.readline()) in ("LogTruncationError", "NoOffsetForPartitionError")
        finally:
            reader.kill()


def send(bootstrap: str, word: str, count: int) -> None:
    """Send records, a batch each."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 1, **QUIET})
    for number in range(count):
        producer.produce("orders", f"{word} {number}".encode())
    assert producer.flush(PATIENCE) == 0


def read_one(consumer: Consumer) -> str:
    message = consumer.poll(PATIENCE)
    assert message is not None
    if message.error() is not None:
        if message.error().code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return ""
        raise KafkaException(message.error())
    return str(message.value().decode())


def read_on(consumer: Consumer) -> None:
    while True:
        read_one(consumer)


def lose_tail(directory: Path, kept: int) -> None:
    """Leave so many batches and half of the next, as a power cut may."""
    (log,) = directory.glob("*.log")
    data, position = log.read_bytes(), 0
    for _ in range(kept):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    log.write_bytes(data[: position + 30])
