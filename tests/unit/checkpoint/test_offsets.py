"""Offset checkpoints are read as a broker reads them, and replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.offsets import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
    read_offsets,
    write_offsets,
)
from storage.base.errors import CheckpointCorrupt
from storage.base.names import FileRole
from storage.base.units import TopicPartition
from storage.disk.fs import OsFs

# Written by Kafka's own classes.
KAFKA = bytes.fromhex("300a320a6f726465727320302034320a6f7264657273203120300a")
ORDERS = {TopicPartition("orders", 0): 42, TopicPartition("orders", 1): 0}


def test_the_file_kafka_wrote_is_read_and_written_back() -> None:
    assert decode_offsets(KAFKA) == ORDERS
    assert encode_offsets(ORDERS) == KAFKA


def test_of_two_entries_for_one_partition_the_later_counts() -> None:
    assert decode_offsets(b"0\n2\nt 0 5\nt +0 3\n") == {TopicPartition("t", 0): 3}


def test_offsets_and_partitions_may_be_negative_and_topics_are_not_checked() -> None:
    assert decode_offsets("0\n1\nä/☃ -1 -5\n".encode()) == {TopicPartition("ä/☃", -1): -5}


@pytest.mark.parametrize(
    "entry", ["t x 1", "t 0 x", "t 2147483648 1", "t 0 9223372036854775808", "t 0", "t 0 1 2", "t 0 1.0"]
)
def test_a_field_that_is_no_number_or_out_of_range_is_corrupt(entry: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_offsets(f"0\n1\n{entry}\n".encode())


topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(-1, 2**63 - 1), max_size=20))
def test_all_offsets_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_a_file_is_replaced_in_one_step_and_leaves_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / RECOVERY_POINTS
    path.with_name(path.name + ".tmp").write_bytes(b"stale")
    write_offsets(OsFs(), path, {})
    write_offsets(OsFs(), path, ORDERS)
    assert read_offsets(OsFs(), path) == ORDERS
    assert [entry.name for entry in tmp_path.iterdir()] == [RECOVERY_POINTS]


def test_the_four_names_are_those_that_inventories_know() -> None:
    roles = (FileRole.RECOVERY_POINTS, FileRole.HIGH_WATERMARKS, FileRole.LOG_START_OFFSETS, FileRole.CLEANER_OFFSETS)
    assert [role.value for role in roles] == [RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS]
