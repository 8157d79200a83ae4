"""Stock clients write: every codec with every kind of acknowledgement, topics, settings, deletion of records.

`LOGMEND_CLIENT_RECORDS` is the number of records of an idempotent producer, 600 by default.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients.left import CODECS, START_MS
from clients.running import CLIENTS, DELETE_RECORDS, IDEMPOTENT, MAX_TIMESTAMP, ClientError, Drivers, able
from clients.targets import AGAINST_KAFKA, Target

from storage.base.rows import BatchRows
from storage.kernel.scan import scan_batches

pytestmark = pytest.mark.write

RECORDS = int(os.environ.get("LOGMEND_CLIENT_RECORDS", "600"))
EACH = 20
CODEC_BITS = 7
every_client = pytest.mark.parametrize("client", CLIENTS)


def numbered(first: int, count: int) -> list[list[Any]]:
    """Return what is found where each offset is the number of its record."""
    return [[number, f"r{number}"] for number in range(first, first + count)]


def codecs_in_log(log_dir: Path, topic: str) -> dict[int, set[int]]:
    """Return the codecs of the batches of partition 0, by the twentieth of offsets that they begin in."""
    found: dict[int, set[int]] = {}
    for file in sorted((log_dir / f"{topic}-0").glob("*.log")):
        window, rows = memoryview(file.read_bytes()), BatchRows(4096)
        scanned = scan_batches(window, rows)
        for row in range(scanned.count):
            found.setdefault(rows.base_offset[row] // EACH, set()).add(rows.attributes[row] & CODEC_BITS)
    return found


@every_client
def test_each_codec_arrives_with_each_kind_of_acknowledgement(
    client: str, clients: Drivers, topic: Callable[..., str], written: Target
) -> None:
    name, driver, codecs, sent = topic(), clients(client), CLIENTS[client].codecs, 0
    for acks in ("all", "1", "0"):
        for codec in codecs:
            driver.ask("produce", topic=name, partitions=[0], first=sent, count=EACH, codec=codec, acks=acks, size=100)
            sent += EACH
        # Without an acknowledgement only reading says that all has arrived.
        assert clients("confluent").ask("consume", topic=name, partitions=[0], count=sent) == {"0": numbered(0, sent)}
    assert driver.ask("consume", topic=name, partitions=[0], count=sent) == {"0": numbered(0, sent)}
    wanted = [CODECS.index(codec) for codec in codecs] * 3
    assert codecs_in_log(written.log_dir, name) == {at: {codec} for at, codec in enumerate(wanted)}


@pytest.mark.parametrize("client", able(IDEMPOTENT))
def test_an_idempotent_producer_fills_several_partitions(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name, partitions = topic(3), [0, 1, 2]
    request = {"topic": name, "partitions": partitions, "first": 0, "count": RECORDS}
    offsets = clients(client).ask("produce", idempotent=True, **request)
    found = clients(client).ask("consume", topic=name, partitions=partitions, count=RECORDS)
    values = {partition: list(range(partition, RECORDS, 3)) for partition in partitions}
    assert found == {
        str(partition): [[offset, f"r{number}"] for offset, number in enumerate(numbers)]
        for partition, numbers in values.items()
    }
    assert set(offsets) <= set(range(len(values[0])))


@every_client
def test_what_one_client_writes_is_found_by_offset_and_by_time(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name, driver = topic(retention_ms="-1"), clients(client)
    driver.ask("produce", topic=name, partitions=[0], first=0, count=50, time=START_MS)
    assert driver.ask("consume", topic=name, partitions=[0], start=30, count=20) == {"0": numbered(30, 20)}
    at: list[Any] = ["earliest", "latest", START_MS + 33]
    assert driver.ask("offsets", topic=name, partition=0, at=at) == [0, 50, 33]
    if CLIENTS[client].can(MAX_TIMESTAMP):
        assert driver.ask("offsets", topic=name, partition=0, at=["max"]) == [49]


@every_client
def test_a_topic_is_made_grown_and_deleted(client: str, clients: Drivers) -> None:
    driver, name = clients(client), f"made-by-{client}-{os.getpid()}"
    driver.ask("create", topic=name, partitions=2, config={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    assert clients("java").ask("topics")[name] == 2
    settings = driver.ask("configs", topic=name)
    assert (settings["cleanup.policy"], settings["segment.bytes"]) == ("compact", "1048576")
    driver.ask("grow", topic=name, partitions=5)
    assert driver.ask("topics")[name] == 5
    driver.ask("produce", topic=name, partitions=[4], first=0, count=3)
    assert driver.ask("consume", topic=name, partitions=[4], count=3) == {"4": numbered(0, 3)}
    driver.ask("delete", topic=name)
    assert name not in driver.ask("topics")


@every_client
def test_a_topic_is_made_once_only(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name = topic()
    with pytest.raises(ClientError) as refused:
        clients(client).ask("create", topic=name, partitions=1, config={})
    # Two clients have words of their own.
    assert refused.value.is_kind("TOPIC_ALREADY_EXISTS") or refused.value.is_kind("TopicExists"), refused.value


@every_client
def test_a_setting_with_a_wrong_value_is_refused(client: str, clients: Drivers) -> None:
    with pytest.raises(ClientError) as refused:
        clients(client).ask("create", topic=f"wrong-{client}", partitions=1, config={"retention.ms": "soon"})
    assert refused.value.is_kind("INVALID_CONFIG") or refused.value.is_kind("InvalidConfiguration"), refused.value


@every_client
def test_a_setting_is_changed(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name, driver = topic(), clients(client)
    before = driver.ask("configs", topic=name)["retention.ms"]
    driver.ask("alter", topic=name, name="retention.ms", to="3600000")
    seen = driver.ask("configs", topic=name)["retention.ms"]
    if AGAINST_KAFKA:  # it answers before it knows of it itself
        assert seen in (before, "3600000")
    else:
        assert seen == clients("kafka-python-3").ask("configs", topic=name)["retention.ms"] == "3600000"


@pytest.mark.parametrize("client", able(DELETE_RECORDS))
def test_records_are_deleted_up_to_an_offset(client: str, clients: Drivers, topic: Callable[..., str]) -> None:
    name, driver = topic(), clients(client)
    driver.ask("produce", topic=name, partitions=[0], first=0, count=30)
    assert driver.ask("delete_records", topic=name, partition=0, before=12) == 12
    assert driver.ask("offsets", topic=name, partition=0, at=["earliest", "latest"]) == [12, 30]
    assert driver.ask("consume", topic=name, partitions=[0], count=18) == {"0": numbered(12, 18)}


LARGE = {
    "confluent": {"message.max.bytes": 2_000_000},
    "kafka-python-2": {"max_request_size": 2_000_000},
    "kafka-python-3": {"max_request_size": 2_000_000},
    "aiokafka": {"max_request_size": 2_000_000},
    "kafkajs": {},
    "java": {"max.request.size": 2_000_000},
}


@every_client
def test_a_record_that_is_too_large_is_refused_at_once(
    client: str, clients: Drivers, topic: Callable[..., str]
) -> None:
    name, driver = topic(), clients(client)
    request = {"topic": name, "partitions": [0], "first": 0, "count": 1}
    with pytest.raises(ClientError) as refused:
        driver.ask("produce", size=1_200_000, settings=LARGE[client], **request)
    kinds = ("MSG_SIZE_TOO_LARGE", "MessageSizeTooLarge", "MESSAGE_TOO_LARGE", "RecordTooLarge")
    assert any(map(refused.value.is_kind, kinds)), refused.value
    assert driver.ask("produce", size=900_000, settings=LARGE[client], **request) == [0]


@every_client
def test_a_topic_that_is_not_there_is_said_to_be_unknown(client: str, clients: Drivers) -> None:
    with pytest.raises(ClientError) as refused:
        clients(client).ask("delete", topic="never-made")
    kinds = ("UNKNOWN_TOPIC_OR_PART", "UnknownTopicOrPartition", "UNKNOWN_TOPIC_OR_PARTITION")
    assert any(map(refused.value.is_kind, kinds)), refused.value
