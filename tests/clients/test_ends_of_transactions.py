"""How transactions end: by their producer, by its successor, by their timeout, and after the listener died in between.

All with librdkafka, in this process, against `logmend serve`. What is committed is what a reader of committed records
sees; where it has to wait, it waits for the records themselves.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients.targets import Listener
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import free_port
from support.tiers import deep

PATIENCE = 100.0


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """A listener on an empty directory, on a port that it keeps over restarts, with a topic `orders` of three."""
    (tmp_path / "data").mkdir()
    port = free_port()
    with Listener(tmp_path / "data", tmp_path / "listener", "--listen", f"127.0.0.1:{port}") as found:
        create(found, "orders", 3)
        yield found


def create(listener: Listener, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": listener.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE)


def producer(listener: Listener, transactional_id: str, **more: Any) -> Producer:
    settings = {"bootstrap.servers": listener.bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    made = Producer({**settings, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0, **more})
    made.init_transactions(PATIENCE)
    return made


def noted(failed: list[KafkaError], error: KafkaError | None) -> None:
    """Take note of what came of a record; for a callback of its delivery."""
    if error is not None:
        failed.append(error)


def send(made: Producer, *values: str, may_fail: bool = False) -> None:
    """Send and wait until they are acknowledged, one to each partition in turn."""
    failed: list[KafkaError] = []
    for number, value in enumerate(values):
        made.produce("orders", value, partition=number % 3, on_delivery=lambda error, _: noted(failed, error))
    assert made.flush(PATIENCE) == 0
    assert may_fail or not failed


def read(listener: Listener, *, until: Iterable[str] = (), isolation: str = "read_committed") -> set[str]:
    """Return what a reader sees between the first record and the ends of now; with `until` it waits for these."""
    settings = {"bootstrap.servers": listener.bootstrap, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest", "log_level": 0})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(3)])
    seen, at_end, wanted, deadline = set[str](), set[int](), set(until), time.monotonic() + PATIENCE
    try:
        while (len(at_end) < 3 or not wanted <= seen) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, partition, value = message.error(), message.partition(), message.value()
            assert partition is not None
            if error is None:
                assert value is not None
                assert value.decode() not in seen, "a record is there twice"
                seen.add(value.decode())
                at_end.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(partition)
    finally:
        consumer.close()
    assert len(at_end) == 3, f"not read to the end: {seen}"
    return seen


def ends(listener: Listener) -> list[int]:
    """Return the last stable offsets."""
    consumer = Consumer({"bootstrap.servers": listener.bootstrap, "group.id": "r", "isolation.level": "read_committed"})
    try:
        offsets = [consumer.get_watermark_offsets(TopicPartition("orders", n), PATIENCE) for n in range(3)]
    finally:
        consumer.close()
    return [high for _, high in offsets]


@contextmanager
def fails(*codes: int) -> Iterator[None]:
    with pytest.raises(KafkaException) as caught:
        yield
    assert caught.value.args[0].code() in codes, caught.value


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def test_what_is_committed_is_read_at_once_and_what_is_aborted_never(listener: Listener) -> None:
    made = producer(listener, "t")
    made.begin_transaction()
    send(made, "a1", "a2", "a3", "a4")
    assert read(listener) == set()
    assert read(listener, isolation="read_uncommitted") == {"a1", "a2", "a3", "a4"}
    made.commit_transaction(PATIENCE)
    assert read(listener) == {"a1", "a2", "a3", "a4"}
    made.begin_transaction()
    send(made, "b1", "b2")
    made.abort_transaction(PATIENCE)
    made.begin_transaction()
    send(made, "c1")
    made.commit_transaction(PATIENCE)
    assert read(listener) == {"a1", "a2", "a3", "a4", "c1"}


def test_a_second_producer_of_the_id_aborts_what_the_first_had_begun_and_the_first_cannot_commit(
    listener: Listener,
) -> None:
    first = producer(listener, "t")
    first.begin_transaction()
    send(first, "a1", "a2")
    second = producer(listener, "t")
    second.begin_transaction()
    send(second, "b1")
    with fails(*FENCED):
        first.commit_transaction(PATIENCE)
    second.commit_transaction(PATIENCE)
    assert read(listener) == {"b1"}


def test_a_transaction_that_takes_too_long_is_aborted_and_lets_readers_go_on(listener: Listener) -> None:
    slow = producer(listener, "slow", **{"transaction.timeout.ms": 2_000, "message.timeout.ms": 2_000})
    slow.begin_transaction()
    send(slow, "a1", "a2", "a3", may_fail=True)  # on a machine that is slow itself
    quick = producer(listener, "quick")
    quick.begin_transaction()
    send(quick, "b1", "b2", "b3")
    quick.commit_transaction(PATIENCE)
    assert read(listener, until=("b1", "b2", "b3")) == {"b1", "b2", "b3"}
    with fails(*FENCED, KafkaError._STATE, KafkaError.INVALID_TXN_STATE, KafkaError._TIMED_OUT):
        slow.commit_transaction(PATIENCE)
    assert read(listener) == {"b1", "b2", "b3"}


def positions(listener: Listener, group: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": listener.bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition("orders", n) for n in range(3)], PATIENCE)
    finally:
        consumer.close()
    return [each.offset for each in found]


def test_offsets_in_a_transaction_count_with_it_or_not_at_all(listener: Listener) -> None:
    made = producer(listener, "t")
    consumer = Consumer({"bootstrap.servers": listener.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + PATIENCE
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.2)
    for commits, offset in ((True, 5), (False, 9), (True, 7)):
        made.begin_transaction()
        send(made, f"v{offset}")
        places = [TopicPartition("orders", 1, offset)]
        made.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE)
        if commits:
            made.commit_transaction(PATIENCE)
        else:
            made.abort_transaction(PATIENCE)
        assert positions(listener, "g")[1] == (offset if commits else 5)
    consumer.close()
    assert read(listener) == {"v5", "v7"}
    listener.stop()
    listener.start()
    assert positions(listener, "g")[1] == 7


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_a_transaction_goes_on_behind_a_restart(listener: Listener, dies: bool) -> None:
    made = producer(listener, "t")
    made.begin_transaction()
    send(made, "a1", "a2")
    (listener.kill if dies else listener.stop)()
    listener.start()
    send(made, "a3", "a4")
    assert read(listener) == set()
    made.commit_transaction(PATIENCE)
    assert read(listener) == {"a1", "a2", "a3", "a4"}


@pytest.mark.parametrize("dies", [deep(False, id="stopped"), pytest.param(True, id="killed")])
def test_what_nobody_ends_behind_a_restart_is_aborted_at_its_timeout(listener: Listener, dies: bool) -> None:
    made = producer(listener, "t", **{"transaction.timeout.ms": 2_000, "message.timeout.ms": 2_000})
    made.begin_transaction()
    send(made, "a1", "a2", may_fail=True)
    (listener.kill if dies else listener.stop)()
    listener.start()
    other = producer(listener, "other")
    other.begin_transaction()
    send(other, "b1", "b2", "b3")
    other.commit_transaction(PATIENCE)
    assert read(listener, until=("b1", "b2", "b3")) == {"b1", "b2", "b3"}


def test_killed_again_and_again_each_transaction_is_whole_and_none_that_was_committed_is_lost(
    listener: Listener,
) -> None:
    committed, unknown = [], []
    for life in range(3):
        made = producer(listener, "t")
        for number in range(life + 2):
            values = [f"{life}-{number}-{n}" for n in range(3)]
            made.begin_transaction()
            send(made, *values)
            if number == life + 1:
                unknown.append(values)
                break
            made.commit_transaction(PATIENCE)
            committed.append(values)
        listener.kill()
        listener.start()
    last = producer(listener, "t")  # aborts what the one before it left
    last.begin_transaction()
    send(last, "end")
    last.commit_transaction(PATIENCE)
    assert read(listener, until=["end"]) == {"end", *(value for values in committed for value in values)}
    assert len(unknown) == 3


def test_clients_see_transactions_as_a_broker_shows_them(listener: Listener) -> None:
    made = producer(listener, "seen")
    made.begin_transaction()
    send(made, "a1", "a2")
    before = ends(listener)
    assert before == [0, 0, 0]
    made.commit_transaction(PATIENCE)
    assert ends(listener) == [2, 2, 0]


class Sender(threading.Thread):
    """Runs transactions until it is told to stop, over however many restarts; notes what each came to."""

    def __init__(self, listener: Listener, transactional_id: str, told: queue.SimpleQueue[str]) -> None:
        super().__init__(name=transactional_id)
        self._told = told
        self.committed: list[list[str]] = []
        self.aborted: list[list[str]] = []
        self.is_asked_to_stop = threading.Event()
        self.fault: Exception | None = None
        self._made = producer(listener, transactional_id, **{"transaction.timeout.ms": 120_000})

    def run(self) -> None:
        try:
            while not self.is_asked_to_stop.is_set():
                self._one(len(self.committed) + len(self.aborted))
        except KafkaException as error:
            self.fault = error

    def _one(self, number: int) -> None:
        values = [f"{self.name} {number} {n}" for n in range(3)]
        self._made.begin_transaction()
        send(self._made, *values)
        if number % 3 == 2:
            self._made.abort_transaction(PATIENCE)
            self.aborted.append(values)
        else:
            self._made.commit_transaction(PATIENCE)
            self.committed.append(values)
            self._told.put(self.name)


def test_killed_under_load_everything_goes_on_and_every_end_is_what_the_client_was_told(listener: Listener) -> None:
    told, counts = queue.SimpleQueue[str](), Counter[str]()
    senders = [Sender(listener, f"t{number}", told) for number in range(3)]
    for sender in senders:
        sender.start()
    try:
        for life in range(1, 4):
            while min(counts[sender.name] for sender in senders) < 10 * life:
                counts[told.get(timeout=PATIENCE)] += 1
            if life < 3:
                listener.kill()
                listener.start()
    finally:
        for sender in senders:
            sender.is_asked_to_stop.set()
        for sender in senders:
            sender.join(PATIENCE)
    assert [sender.fault for sender in senders] == [None] * 3
    assert all(len(sender.committed) >= 30 for sender in senders)
    expected = {value for sender in senders for values in sender.committed for value in values}
    assert read(listener, until=expected) == expected
