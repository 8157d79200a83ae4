"""The list of topics: what it holds is read back, what is no list is refused, and the newest entry counts."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import pytest
from support.memory_fs import MemoryFs

from checkpoint.uuids import encode_uuid
from engine.manager.catalog import (
    FILE_NAME,
    TopicEntry,
    decode_catalog,
    encode_catalog,
    merge,
    read_catalog,
    write_catalog,
)
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat
from storage.base.names import parse_file_name, parse_root_file_name

ID = b"0123456789abcdef"
ORDERS = TopicEntry("orders", ID, 3, {"cleanup.policy": "compact"}, 4, {0: "/a", 2: "/b"}, deleting=True)
PLAIN = {"topic_id": encode_uuid(ID), "partitions": 3, "revision": 1, "config": {}}


def listed(**changes: Any) -> bytes:
    return json.dumps({"version": 1, "topics": {"orders": {**PLAIN, **changes}}}).encode()


def test_entries_are_read_back_as_they_were_written() -> None:
    catalog = {"orders": ORDERS, "clicks": TopicEntry("clicks", ID, 1)}
    assert decode_catalog(encode_catalog(catalog)) == catalog


def test_the_file_is_one_that_neither_brokers_nor_recoveries_know() -> None:
    assert parse_root_file_name(FILE_NAME) is None
    assert parse_file_name(FILE_NAME) is None


def test_a_log_directory_without_the_file_lists_nothing() -> None:
    fs, place = MemoryFs({"/a/": b""}), PurePath("/a")
    assert read_catalog(fs, place) == {}
    write_catalog(fs, place, {"orders": ORDERS})
    assert read_catalog(fs, place) == {"orders": ORDERS}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "topics": []}', b'{"version": 1, "topics": {"a/b": {}}}',
        b"[" * 100_000, listed(topic_id=None), listed(topic_id="short"), listed(partitions=0), listed(partitions=True),
        listed(partitions="3"), listed(revision=None), listed(config=[]), listed(config={"a": 1}),
        listed(making={"x": "/a"}), listed(making={"0": 1}),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt, match=FILE_NAME):
        read_catalog(MemoryFs({f"/a/{FILE_NAME}": data}), PurePath("/a"))


def test_a_list_of_a_later_version_is_no_damage() -> None:
    with pytest.raises(UnsupportedFormat, match="version 2"):
        decode_catalog(b'{"version": 2, "topics": {}}')


def test_of_two_entries_the_one_of_the_higher_revision_counts() -> None:
    newer = ORDERS.changed(partitions=5)
    assert newer.revision == 5
    other = TopicEntry("clicks", ID, 1)
    assert merge([{"orders": newer}, {"orders": ORDERS, "clicks": other}]) == {"orders": newer, "clicks": other}
    assert merge([{"orders": ORDERS}, {"orders": newer}]) == {"orders": newer}
