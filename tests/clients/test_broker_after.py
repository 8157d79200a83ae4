"""A broker's directory, written by all clients through the listener, and opened by the broker again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import Asking
from clients.members import Member, wait_for_values
from clients.running import CLIENTS, TRANSACTIONS, Drivers, able
from clients.targets import AGAINST_KAFKA, Broker, Listener
from support.needs import need_kafka

pytestmark = [pytest.mark.groups, pytest.mark.txn, pytest.mark.write]

EACH = 30
LOGGERS = ("(kafka.log", "storage.internals.log", ".coordinator.")
DAMAGE = ("orrupt", "Could not find", "Found invalid", "stray", "ERROR")


def values(first: int, count: int) -> list[str]:
    return [f"r{number}" for number in range(first, first + count)]


def steps(first: int) -> list[list[Any]]:
    return [[first, 10, "commit"], [first + 10, 10, "abort"]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    need_kafka()
    made = Broker(tmp_path)
    yield made
    made.stop()


def make_topics(broker: Broker, drivers: Drivers) -> None:
    """The broker makes them all, its own two as well: those that it does not know it would set aside."""
    java = drivers("java")
    for client in CLIENTS:
        java.ask("create", topic=client, partitions=2, config={})
        java.ask("create", topic=f"{client}-paid", partitions=1, config={})
    java.ask("set_offset", group="makes-the-topic", topic="java", partition=0, to=0)
    java.ask("transact", name="makes-the-topic", topic="java-paid", partitions=[0], steps=[])


def go_on(drivers: Drivers, first: int) -> None:
    """Every client writes from a number on, reads it in its group, whose position says where, and commits."""
    for client, about in CLIENTS.items():
        driver = drivers(client)
        request = {"topic": client, "partitions": [0, 1], "first": first, "count": EACH}
        driver.ask("produce", idempotent=about.can("idempotent"), codec="gzip", **request)
        member = Member(driver, f"group-{client}", client, about.strategies[0])
        wait_for_values([member], values(first, EACH))
        driver.ask("commit")
        member.leave()
        assert sorted(member.values()) == sorted(values(first, EACH)), client
        if about.can(TRANSACTIONS):
            paid = {"topic": f"{client}-paid", "partitions": [0]}
            driver.ask("transact", name=f"till-{client}", steps=steps(first), **paid)


def start_again(broker: Broker) -> list[str]:
    """Start the broker; return what it says that sounds like damage."""
    output = broker.cluster[0].output
    printed = output.stat().st_size
    broker.start()
    said = output.read_bytes()[printed:].decode(errors="replace").splitlines()
    about_logs = [line for line in said if any(of in line for of in LOGGERS) and "__cluster_metadata" not in line]
    return [line for line in about_logs if any(word in line for word in DAMAGE)]


def test_a_broker_opens_what_all_clients_wrote_and_the_same_consumers_go_on(broker: Broker, tmp_path: Path) -> None:
    broker.start()
    with Asking(broker.bootstrap, tmp_path / "before") as drivers:
        make_topics(broker, drivers)
    broker.stop()
    between = broker if AGAINST_KAFKA else Listener(broker.log_dir, tmp_path / "listener")
    with between, Asking(between.bootstrap, tmp_path / "between") as drivers:
        go_on(drivers, 0)
    assert start_again(broker) == []
    with Asking(broker.bootstrap, tmp_path / "after") as drivers:
        positions = [drivers(client).committed(f"group-{client}", client, [0, 1]) for client in CLIENTS]
        assert positions == [[EACH // 2, EACH // 2]] * len(CLIENTS)
        go_on(drivers, EACH)
        for client in able(TRANSACTIONS):
            paid = {"topic": f"{client}-paid", "partitions": [0], "isolation": "committed", "count": 20}
            found = drivers("confluent").ask("consume", **paid)
            assert [value for _, value in found["0"]] == values(0, 10) + values(EACH, 10), client
        assert {*drivers("java").ask("transactions").values()} <= {"CompleteAbort", "Empty"}
