"""Directories of partitions: placed by Kafka's rule, made before any data, put away and removed."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.memory_fs import MemoryFs

from engine.logdir.partitions import (
    ensure_new_topic_name,
    make_partition,
    mark_deleted,
    place_partitions,
    read_topic_id,
    remove_directory,
)
from storage.base.errors import ConfigInvalid
from storage.base.names import DirectoryState, parse_directory_name
from storage.base.units import TopicPartition

A, B, C = PurePath("/a"), PurePath("/b"), PurePath("/c")
ID = b"0123456789abcdef"
ORDERS = TopicPartition("orders", 0)


def test_a_new_partition_goes_where_the_fewest_are_and_of_equals_to_the_first() -> None:
    assert place_partitions(range(4), {A: 2, B: 0, C: 1}) == {0: B, 1: B, 2: C, 3: A}
    assert place_partitions(range(2, 4), {A: 0, B: 0}) == {2: A, 3: B}


def test_a_partition_is_made_with_its_topic_id_in_one_durable_step() -> None:
    fs = MemoryFs({"/a/": b""})
    directory = make_partition(fs, A, ORDERS, ID, ID)
    assert directory == A / "orders-0"
    assert read_topic_id(fs, directory) == ID
    assert [effect.method for effect in fs.history] == [
        "make_dir", "create", "append", "sync", "rename", "sync_dir", "rename", "sync_dir",
    ]  # fmt: skip
    before = fs.history[0].path
    assert parse_directory_name(before.name).state is DirectoryState.DELETE
    assert fs.history[-2].path == before


def test_a_deleted_partition_has_a_name_that_says_so_and_is_removed_with_all_in_it() -> None:
    fs = MemoryFs({"/a/orders-0/x.log": b"1", "/a/orders-0/inner/y": b"2"})
    gone = mark_deleted(fs, A, ORDERS, ID)
    parsed = parse_directory_name(gone.name)
    assert (parsed.partition, parsed.state) == (ORDERS, DirectoryState.DELETE)
    remove_directory(fs, gone)
    remove_directory(fs, gone)
    assert fs.entries(A) == {}


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, "__cluster_metadata"])
def test_a_name_that_brokers_refuse_is_refused(topic: str) -> None:
    with pytest.raises(ConfigInvalid, match="topic"):
        ensure_new_topic_name(topic)


def test_names_that_brokers_take_are_taken() -> None:
    for topic in ("orders", "a.b_c-d", "x" * 249, "__consumer_offsets"):
        ensure_new_topic_name(topic)
        assert parse_directory_name(f"{topic}-0").partition.topic == topic
