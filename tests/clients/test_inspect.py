"""Stock clients read a directory that a killed broker left, before anybody has repaired it."""

from __future__ import annotations

from typing import Any

import pytest
from clients import left
from clients.running import ASSIGN, CLIENTS, CLUSTER, IDEMPOTENT, ISOLATION, MAX_TIMESTAMP, ClientError, Drivers, able
from clients.targets import OF_OURS, Target

pytestmark = pytest.mark.inspect

every_client = pytest.mark.parametrize("client", CLIENTS)
who_reads_alone = pytest.mark.parametrize("client", able(ASSIGN))
"""A client that can read as a member of a group only finds no groups where nothing is written."""
PAYMENTS = [f"r{number}" for number in range(30)]


@every_client
def test_the_topics_are_listed(client: str, readers: Drivers) -> None:
    listed = readers(client).ask("topics")
    assert {name: listed.get(name) for name in left.TOPICS} == left.TOPICS


@who_reads_alone
def test_records_of_every_codec_are_read(client: str, readers: Drivers) -> None:
    count = left.PER_CODEC * len(left.CODECS)
    found = readers(client).ask("consume", topic="codecs", partitions=[0], count=count)
    assert found == {"0": [[number, f"r{number}"] for number in range(count)]}


@who_reads_alone
def test_several_partitions_are_read_from_an_offset_on(client: str, readers: Drivers) -> None:
    found = readers(client).ask("consume", topic="orders", partitions=[0, 1, 2], start=7, count=left.ORDERS - 3 * 7)
    assert found == {str(partition): left.orders(partition, 7) for partition in range(3)}


@every_client
def test_offsets_are_found_by_time(client: str, readers: Drivers) -> None:
    count = left.PER_CODEC * len(left.CODECS)
    at: list[Any] = ["earliest", "latest", left.START_MS - 5, left.START_MS + 1, left.START_MS + 57]
    assert readers(client).ask("offsets", topic="codecs", partition=0, at=at) == [0, count, 0, 1, 57]


@pytest.mark.parametrize("client", able(MAX_TIMESTAMP))
def test_the_offset_of_the_newest_record_is_found(client: str, readers: Drivers) -> None:
    count = left.PER_CODEC * len(left.CODECS)
    assert readers(client).ask("offsets", topic="codecs", partition=0, at=["max"]) == [count - 1]


@pytest.mark.parametrize("client", able(ASSIGN, ISOLATION))
def test_an_aborted_transaction_is_not_shown_to_who_reads_committed(client: str, readers: Drivers) -> None:
    committed = readers(client).ask("consume", topic="payments", partitions=[0], count=20, isolation="committed")
    every = readers(client).ask("consume", topic="payments", partitions=[0], count=30)
    assert [value for _, value in committed["0"]] == PAYMENTS[:10] + PAYMENTS[20:]
    assert [value for _, value in every["0"]] == PAYMENTS


@who_reads_alone
def test_offsets_above_what_a_double_holds_are_exact(client: str, readers: Drivers) -> None:
    driver = readers(client)
    ends = driver.ask("offsets", topic="far", partition=0, at=["earliest", "latest"])
    found = driver.ask("consume", topic="far", partitions=[0], count=left.FAR_COUNT)
    assert [int(offset) for offset in ends] == [left.FAR, left.FAR + left.FAR_COUNT]
    assert [[int(offset), value] for offset, value in found["0"]] == [
        [left.FAR + at, f"r{at}"] for at in range(left.FAR_COUNT)
    ]


@every_client
def test_positions_of_groups_are_read(client: str, readers: Drivers) -> None:
    found = readers(client).committed("readers", "orders", [0, 1, 2])
    assert found == left.COMMITTED


@every_client
def test_the_settings_of_a_topic_are_read(client: str, readers: Drivers) -> None:
    settings = readers(client).ask("configs", topic="orders")
    assert settings["cleanup.policy"] == "delete"
    assert settings["segment.bytes"] == "1073741824"


@pytest.mark.parametrize("client", able(CLUSTER))
def test_the_cluster_is_the_node_that_was_asked(client: str, readers: Drivers, inspected: Target) -> None:
    told = readers(client).ask("cluster")
    assert told["nodes"] == [inspected.bootstrap]
    assert told["id"]


def test_the_java_client_sees_the_sizes_of_partitions(readers: Drivers, inspected: Target) -> None:
    sizes = readers("java").ask("log_dirs")
    log = inspected.log_dir / "orders-1" / "00000000000000000000.log"
    assert sizes["orders-1"] == log.stat().st_size > 0


def test_the_java_client_sees_the_producers_of_a_partition(readers: Drivers) -> None:
    assert readers("java").ask("producers", topic="payments", partition=0) == 1


@OF_OURS
@pytest.mark.parametrize(
    ("client", "idempotent"), [(name, False) for name in CLIENTS] + [(name, True) for name in able(IDEMPOTENT)]
)
def test_a_producer_is_refused_at_once_and_says_why(client: str, idempotent: bool, readers: Drivers) -> None:
    with pytest.raises(ClientError) as refused:
        readers(client).ask("produce", topic="orders", partitions=[0], first=0, count=1, idempotent=idempotent)
    assert refused.value.is_kind("TOPIC_AUTHORIZATION_FAILED"), refused.value
