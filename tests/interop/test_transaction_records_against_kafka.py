"""Records of `__transaction_state` as Kafka's own classes write them, in every version, are read and written alike."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any, NamedTuple

import pytest
from interop.conftest import HERE
from interop.kafka_lab import jars

from server.txn.records import Facts, State, decode_key, decode_value, encode_key, encode_value, partition_of
from storage.base.units import TopicPartition

COUNT = 3_000


class Written(NamedTuple):
    """A record by Kafka."""

    version: int
    transactional_id: str
    partition: int
    key: bytes
    value: bytes
    json: dict[str, Any]


@pytest.fixture(scope="module")
def written(kafka_kit: None) -> list[Written]:
    command = ["java", "-Xmx256m", "-cp", jars(), str(HERE / "TransactionRecords.java"), "1", str(COUNT)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    found = []
    for line in printed.splitlines():
        version, name, partition, key, value, text = line.split("\t")
        found.append(
            Written(
                int(version), base64.b64decode(name).decode(), int(partition), bytes.fromhex(key), bytes.fromhex(value),
                json.loads(text),
            )
        )  # fmt: skip
    return found


def facts_of(said: dict[str, Any]) -> Facts:
    topics = said["transactionPartitions"] or []
    names = (TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitionIds"])
    return Facts(
        said["producerId"], said["producerEpoch"], said["transactionTimeoutMs"], State(said["transactionStatus"]),
        frozenset(names), said["transactionLastUpdateTimestampMs"], said["transactionStartTimestampMs"],
        said.get("previousProducerId", -1), said.get("nextProducerId", -1), said.get("clientTransactionVersion", 0),
    )  # fmt: skip


def test_values_of_every_version_are_read_as_kafka_reads_them(written: list[Written]) -> None:
    assert len(written) == COUNT
    assert {each.version for each in written} == {0, 1}
    for each in written:
        assert decode_value(each.value) == facts_of(each.json)


def test_what_we_write_is_what_kafka_writes(written: list[Written]) -> None:
    for each in written:
        assert encode_key(each.transactional_id) == each.key
        if each.version == 1:
            assert encode_value(decode_value(each.value)) == each.value


def test_keys_are_read_and_ids_lie_where_kafka_looks_for_them(written: list[Written]) -> None:
    for each in written:
        assert decode_key(each.key) == each.transactional_id
        assert partition_of(each.transactional_id, 50) == each.partition
