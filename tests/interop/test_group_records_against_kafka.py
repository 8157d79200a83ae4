"""Records of `__consumer_offsets` as Kafka's own classes write them, in every version, are read and written alike."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from interop.conftest import HERE
from interop.kafka_lab import jars

from checkpoint.uuids import decode_uuid
from server.groups.format.records import (
    NO_TOPIC_ID,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    partition_of,
)

COUNT = 4_000


class Written(NamedTuple):
    """A record by Kafka."""

    kind: str
    version: int
    group: str
    partition: int
    key: bytes
    value: bytes
    json: dict[str, Any]


@pytest.fixture(scope="module")
def written(kafka_kit: None) -> list[Written]:
    command = ["java", "-Xmx256m", "-cp", jars(), str(HERE / "GroupRecords.java"), "1", str(COUNT)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    return list(parsed(printed))


def parsed(printed: str) -> Iterator[Written]:
    for line in printed.splitlines():
        kind, version, group, partition, key, value, text = line.split("\t")
        name = base64.b64decode(group).decode()
        yield Written(
            kind, int(version), name, int(partition), bytes.fromhex(key), bytes.fromhex(value), json.loads(text)
        )


def offset_of(said: dict[str, Any]) -> OffsetValue:
    topic_id = decode_uuid(said["topicId"]) if "topicId" in said else NO_TOPIC_ID
    return OffsetValue(
        said["offset"], said.get("leaderEpoch", -1), said["metadata"], said["commitTimestamp"],
        said.get("expireTimestamp", -1), topic_id,
    )  # fmt: skip


def group_of(said: dict[str, Any]) -> GroupValue:
    members = tuple(
        MemberValue(
            each["memberId"], each["clientId"], each["clientHost"], each["sessionTimeout"],
            each.get("rebalanceTimeout", -1), each.get("groupInstanceId"), base64.b64decode(each["subscription"]),
            base64.b64decode(each["assignment"]),
        )
        for each in said["members"]
    )  # fmt: skip
    return GroupValue(
        said["protocolType"], said["generation"], said["protocol"], said["leader"],
        said.get("currentStateTimestamp", -1), members,
    )  # fmt: skip


def test_every_version_is_read_as_kafka_means_it(written: list[Written]) -> None:
    assert {(each.kind, each.version) for each in written} == {(k, v) for k in ("offset", "group") for v in range(5)}
    for each in written:
        if each.kind == "offset":
            assert decode_offset(each.value) == offset_of(each.json)
        else:
            assert decode_group(each.value) == group_of(each.json)


def test_keys_and_the_versions_that_are_written_have_kafkas_bytes(written: list[Written]) -> None:
    for each in written:
        key = decode_key(each.key)
        assert isinstance(key, OffsetKey if each.kind == "offset" else GroupKey)
        assert key.group == each.group
        assert encode_key(key) == each.key
        if each.kind == "group" and each.version == 3:
            assert encode_group(decode_group(each.value)) == each.value
        if each.kind == "offset" and each.version in (1, 4):
            assert encode_offset(decode_offset(each.value)) == each.value


def test_groups_are_in_kafkas_partitions(written: list[Written]) -> None:
    assert len({each.partition for each in written}) == 50
    assert all(partition_of(each.group, 50) == each.partition for each in written)
