"""A consumer commits while the listener is killed again and again: no answered commit is lost, nobody joins anew."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from clients.targets import Listener
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.group_asking import positions

KILLS = 4
RECORDS = 20_000
WAIT_SECONDS = 90.0


class Killer(threading.Thread):
    """Kills the listener at random moments and starts it again on its port."""

    def __init__(self, listener: Listener, seed: int) -> None:
        super().__init__()
        self.listener, self.rng, self.done = listener, random.Random(seed), threading.Event()
        self.may_kill = threading.Event()

    def run(self) -> None:
        try:
            for _ in range(KILLS):
                assert self.may_kill.wait(WAIT_SECONDS)
                self.may_kill.clear()
                threading.Event().wait(self.rng.uniform(0, 0.5))
                self.listener.kill()
                self.listener.start()
        finally:
            self.done.set()


def commit_each(consumer: Consumer, killer: Killer) -> dict[int, int]:
    """Commit every record for itself, until the killer is done and once more; return what was acknowledged."""
    acknowledged: dict[int, int] = {}
    since, deadline = 0, time.monotonic() + 4 * WAIT_SECONDS
    while not killer.done.is_set() or since < 50:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        try:
            (committed,) = consumer.commit(message=message, asynchronous=False)
        except KafkaException:  # the listener was killed before it answered
            continue
        if committed.error is None:
            acknowledged[committed.partition] = committed.offset
            since += 1
            if since % 50 == 0:
                killer.may_kill.set()
            since = since if killer.done.is_set() else since % 50
    return acknowledged


@pytest.mark.slow
def test_answered_commits_and_members_survive_kills(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path / 'data'}\ngroup.initial.rebalance.delay.ms=100\n")
    with Listener(tmp_path / "data", tmp_path, "--server-properties", str(settings)) as listener:
        bootstrap = listener.bootstrap
        listener.options += ("--listen", bootstrap)  # the same port from now on
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_SECONDS)
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("orders", str(number))
        assert producer.flush(WAIT_SECONDS) == 0
        assigned: list[list[TopicPartition]] = []
        consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0,
            "enable.auto.commit": False, "session.timeout.ms": 60_000, "reconnect.backoff.max.ms": 300,
        })  # fmt: skip
        consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.append(partitions))
        killer = Killer(listener, seed=1)
        killer.start()
        acknowledged = commit_each(consumer, killer)
        killer.join()
        assert positions(bootstrap, "g")[0] >= acknowledged[0] > KILLS * 10
        assert [len(each) for each in assigned] == [1]
        consumer.close()
