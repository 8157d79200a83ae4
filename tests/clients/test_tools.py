"""The tools that come with Kafka 4.3.0, as commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from clients import left
from clients.commands import json_lines, tool
from clients.running import Drivers
from clients.targets import Target

EACH = 30


def lines(first: int, count: int) -> str:
    return "".join(f"r{number}\n" for number in range(first, first + count))


@pytest.mark.inspect
def test_the_console_consumer_and_the_offset_shell_read_what_a_broker_left(inspected: Target) -> None:
    words = ["--topic", "payments", "--partition", "0", "--offset", "earliest", "--max-messages", "20"]
    isolated = ["--isolation-level", "read_committed"]
    read = tool("kafka-console-consumer", *words, *isolated, bootstrap=inspected.bootstrap)
    assert read == lines(0, 10) + lines(20, 10)
    ends = tool("kafka-get-offsets", "--topic", "orders|far", bootstrap=inspected.bootstrap)
    assert ends.split() == [f"far:0:{left.FAR + left.FAR_COUNT}", *(f"orders:{n}:{left.ORDERS // 3}" for n in range(3))]


@pytest.mark.inspect
def test_the_tools_describe_what_a_broker_left(inspected: Target) -> None:
    described = tool("kafka-topics", "--describe", "--topic", "orders", bootstrap=inspected.bootstrap)
    assert "PartitionCount: 3" in described
    groups = tool(
        "kafka-consumer-groups", "--describe", "--group", "readers", "--offsets", bootstrap=inspected.bootstrap
    )
    rows = [line.split() for line in groups.splitlines() if line.startswith("readers")]
    assert sorted((row[2], row[3], row[4]) for row in rows) == [("0", "10", "30"), ("1", "20", "30")]
    told = tool("kafka-log-dirs", "--describe", "--topic-list", "orders", bootstrap=inspected.bootstrap)
    (sizes,) = json_lines(told)
    partitions = [one for found in sizes["brokers"] for dirs in found["logDirs"] for one in dirs["partitions"]]
    log = inspected.log_dir / "orders-0" / "00000000000000000000.log"
    assert {one["partition"]: one["size"] for one in partitions}["orders-0"] == log.stat().st_size


@pytest.mark.write
def test_topics_are_administered(written: Target, clients: Drivers, tmp_path: Path) -> None:
    name, at = f"tools-{os.getpid()}", written.bootstrap
    made = ["--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=7200000"]
    tool("kafka-topics", *made, bootstrap=at)
    tool("kafka-topics", "--alter", "--topic", name, "--partitions", "3", bootstrap=at)
    altering = ["--alter", "--entity-type", "topics", "--entity-name", name]
    adding = ["--add-config", "cleanup.policy=compact,max.message.bytes=5000"]
    tool("kafka-configs", *altering, *adding, "--delete-config", "retention.ms", bootstrap=at)
    described = tool("kafka-topics", "--describe", "--topic", name, bootstrap=at)
    assert "PartitionCount: 3" in described
    assert "max.message.bytes=5000" in described
    assert "retention.ms" not in described
    settings = tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", name, bootstrap=at)
    assert "cleanup.policy=compact" in settings
    clients("confluent").ask("produce", topic=name, partitions=[1], first=0, count=EACH)
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": name, "partition": 1, "offset": 12}], "version": 1}))
    deleted = tool("kafka-delete-records", "--offset-json-file", str(wanted), bootstrap=at)
    if "low_watermark: 12" not in deleted:  # a compacted topic keeps its records
        assert "POLICY_VIOLATION" in deleted or "PolicyViolation" in deleted, deleted
    tool("kafka-topics", "--delete", "--topic", name, bootstrap=at)
    assert name not in tool("kafka-topics", "--list", bootstrap=at).split()


@pytest.mark.write
@pytest.mark.groups
def test_the_console_tools_write_and_read_and_groups_are_administered(
    written: Target, topic: Callable[..., str]
) -> None:
    name, at = topic(), written.bootstrap
    group = f"console-{name}"
    tool("kafka-console-producer", "--topic", name, "--compression-codec", "zstd", given=lines(0, EACH), bootstrap=at)
    words = ["--topic", name, "--group", group, "--from-beginning", "--max-messages", str(EACH)]
    assert tool("kafka-console-consumer", *words, bootstrap=at) == lines(0, EACH)
    about = ["--group", group]
    resetting = [*about, "--topic", name, "--reset-offsets", "--to-offset", "17", "--execute"]
    tool("kafka-consumer-groups", *resetting, bootstrap=at)
    described = tool("kafka-consumer-groups", *about, "--describe", bootstrap=at)
    (row,) = (line.split() for line in described.splitlines() if line.startswith(group))
    assert row[1:6] == [name, "0", "17", str(EACH), str(EACH - 17)]
    words = ["--topic", name, "--group", group, "--max-messages", str(EACH - 17)]
    assert tool("kafka-console-consumer", *words, bootstrap=at) == lines(17, EACH - 17)
    tool("kafka-consumer-groups", *about, "--delete", bootstrap=at)
    assert group not in tool("kafka-consumer-groups", "--list", bootstrap=at).split()


@pytest.mark.write
@pytest.mark.groups
def test_the_verifiable_tools_lose_nothing(written: Target, topic: Callable[..., str]) -> None:
    name, at, count = topic(3), written.bootstrap, 300
    sent = json_lines(tool("kafka-verifiable-producer", "--topic", name, "--max-messages", str(count), bootstrap=at))
    assert sum(event["name"] == "producer_send_success" for event in sent) == count
    told = next(event for event in sent if event["name"] == "tool_data")
    assert (told["sent"], told["acked"]) == (count, count)
    words = [
        "--topic",
        name,
        "--group-id",
        f"verify-{name}",
        "--max-messages",
        str(count),
        "--reset-policy",
        "earliest",
    ]
    read = json_lines(tool("kafka-verifiable-consumer", *words, "--verbose", bootstrap=at))
    values = [event["value"] for event in read if event["name"] == "record_data"]
    assert sorted(map(int, values)) == list(range(count))
    assert sum(event["count"] for event in read if event["name"] == "records_consumed") == count


@pytest.mark.txn
def test_transactions_are_listed_and_described(written: Target, clients: Drivers, topic: Callable[..., str]) -> None:
    name, at = topic(), written.bootstrap
    clients("java").ask("transact", name=f"id-{name}", topic=name, partitions=[0], steps=[[0, 5, "commit"]])
    listed = [line.split() for line in tool("kafka-transactions", "list", bootstrap=at).splitlines()]
    assert [row[-1] for row in listed if row[0] == f"id-{name}"] == ["CompleteCommit"]
    told = tool("kafka-transactions", "describe", "--transactional-id", f"id-{name}", bootstrap=at)
    assert "CompleteCommit" in told
    producers = tool("kafka-transactions", "describe-producers", "--topic", name, "--partition", "0", bootstrap=at)
    assert len(producers.splitlines()) == 2
