"""`kafka-consumer-groups` at our listener: what it shows of static members, and what it changes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clients.targets import Listener
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import KAFKA, java

pytestmark = [pytest.mark.slow, pytest.mark.deep]

WAIT_SECONDS = 90.0
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def listener(kafka_kit: None, tmp_path: Path) -> Iterator[Listener]:
    settings = tmp_path / "server.properties"
    settings.write_text(f"log.dirs={tmp_path / 'data'}\ngroup.initial.rebalance.delay.ms=500\n")
    with Listener(tmp_path / "data", tmp_path, "--server-properties", str(settings)) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(WAIT_SECONDS)
        producer = Producer({"bootstrap.servers": started.bootstrap, "log_level": 0})
        for number in range(400):
            producer.produce("orders", str(number), partition=number % 4)
        assert producer.flush(WAIT_SECONDS) == 0
        yield started


@pytest.fixture
def tool(listener: Listener, tmp_path: Path) -> Callable[..., list[list[str]]]:
    """Return a function that runs the command and returns the words of its lines."""
    numbers = itertools.count()

    def run(*arguments: str) -> list[list[str]]:
        output = tmp_path / f"tool{next(numbers)}"
        command = (TOOL, "--bootstrap-server", listener.bootstrap, *arguments)
        java(KAFKA, tmp_path, output, *command, heap="128m").wait(WAIT_SECONDS)
        return [words for line in output.read_text().splitlines() if (words := line.split())]

    return run


class StaticMembers:
    """Two consumers with instance ids, which are polled together."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.assigned = {"i": 0, "j": 0}
        self.consumers = {instance: self.begin(instance) for instance in self.assigned}

    def begin(self, instance: str) -> Consumer:
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": "g", "group.instance.id": instance, "log_level": 0,
            "auto.offset.reset": "earliest", "session.timeout.ms": 120_000, "heartbeat.interval.ms": 300,
        })  # fmt: skip

        def count(*_: object) -> None:
            self.assigned[instance] += 1

        consumer.subscribe(["orders"], on_assign=count)
        return consumer

    def poll_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_done():
            assert time.monotonic() < deadline
            for consumer in self.consumers.values():
                consumer.poll(0.05)

    def share(self, instance: str) -> list[int]:
        return sorted(each.partition for each in self.consumers[instance].assignment())


def test_a_static_member_that_comes_back_has_its_part_and_the_other_hears_nothing(
    listener: Listener, tool: Callable[..., list[list[str]]]
) -> None:
    members = StaticMembers(listener.bootstrap)
    members.poll_until(lambda: len(members.share("i")) == len(members.share("j")) == 2)
    share, before = members.share("j"), members.assigned["i"]
    members.consumers["j"].close()
    members.consumers["j"] = members.begin("j")
    members.poll_until(lambda: members.share("j") == share)
    assert members.assigned["i"] == before
    rows = [row for row in tool("--describe", "--group", "g", "--members") if row[0] == "g"]
    assert sorted(row[2] for row in rows) == ["i", "j"]
    assert [row[1] for row in tool("--list", "--state") if row[0] == "g"] == ["Stable"]
    refused = tool("--delete", "--group", "g")
    assert any("GroupNotEmptyException" in " ".join(row) for row in refused)
    for consumer in members.consumers.values():
        consumer.close()


def test_positions_are_reset_removed_and_the_group_with_them(
    listener: Listener, tool: Callable[..., list[list[str]]]
) -> None:
    def positions() -> list[list[str]]:
        return [row[2:6] for row in tool("--describe", "--group", "p", "--offsets") if row[:2] == ["p", "orders"]]

    tool("--reset-offsets", "--group", "p", "--topic", "orders", "--to-offset", "30", "--execute")
    assert positions() == [[str(number), "30", "100", "70"] for number in range(4)]
    tool("--reset-offsets", "--group", "p", "--topic", "orders:1", "--to-latest", "--execute")
    assert positions()[1] == ["1", "100", "100", "0"]
    tool("--delete-offsets", "--group", "p", "--topic", "orders:0")
    assert [row[0] for row in positions()] == ["1", "2", "3"]
    tool("--delete", "--group", "p")
    assert [row for row in tool("--list") if row == ["p"]] == []
