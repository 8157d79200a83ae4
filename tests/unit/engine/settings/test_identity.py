"""Cluster and node id of log directories: kept where a file has them, drawn where none has, the same for all."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.memory_fs import MemoryFs

from checkpoint.markers import MetaProperties, decode_meta_properties, encode_meta_properties
from checkpoint.uuids import encode_uuid, is_reserved
from engine.settings.identity import FIRST_NODE, draw_id, ensure_identities, is_absent, make_log_dir, read_identity
from storage.base.errors import ConfigInvalid, ReadFault

A, B = PurePath("/a/data"), PurePath("/b/data")


def properties(cluster: str = "c1", node: int = 7) -> bytes:
    return encode_meta_properties(MetaProperties(1, cluster, node, b"d" * 16))


def test_a_directory_that_belongs_to_nobody_gets_an_identity_which_stays() -> None:
    fs = MemoryFs({f"{A}/": b""})
    made = ensure_identities(fs, [A], draw_id)[A]
    assert (made.version, made.node_id) == (1, FIRST_NODE)
    assert read_identity(fs, A) == made == ensure_identities(fs, [A], draw_id)[A]


def test_a_new_directory_beside_a_brokers_belongs_to_the_same_broker() -> None:
    fs = MemoryFs({f"{A}/": b"", f"{B}/meta.properties": properties()})
    found = ensure_identities(fs, [A, B], draw_id)
    assert (found[A].cluster_id, found[A].node_id) == ("c1", 7)
    assert found[A].directory_id != found[B].directory_id


def test_directories_of_two_brokers_are_refused_and_nothing_is_written() -> None:
    fs = MemoryFs({f"{A}/meta.properties": properties(), f"{B}/meta.properties": properties(node=8)})
    with pytest.raises(ConfigInvalid, match=r"different brokers: .*node 7.*node 8"):
        ensure_identities(fs, [A, B], draw_id)
    assert not fs.effects


@pytest.mark.parametrize("cluster", ["MkU3OEVBNTcwNTJENDM2Qk", " a=b:c#d!e\\f\tg\nh", "Größe"])
def test_an_identity_is_read_back_as_it_was_written(cluster: str) -> None:
    made = MetaProperties(1, cluster, 3, b"0123456789abcdef")
    assert decode_meta_properties(encode_meta_properties(made)) == made


def test_a_missing_directory_is_made_with_those_above_it_and_outlives_a_power_cut() -> None:
    fs = MemoryFs({"/x/": b""})
    make_log_dir(fs, PurePath("/x/y/z"))
    assert [str(effect) for effect in fs.history] == [
        "make_dir /x/y", "sync_dir /x", "make_dir /x/y/z", "sync_dir /x/y",
    ]  # fmt: skip
    make_log_dir(fs, PurePath("/x/y/z"))
    assert len(fs.history) == 4


def test_a_file_in_place_of_a_log_directory_is_an_error() -> None:
    with pytest.raises(ReadFault, match="ENOTDIR"):
        make_log_dir(MemoryFs({"/x": b"file"}), PurePath("/x"))


def test_ids_are_of_the_kind_that_kafka_draws() -> None:
    drawn = [draw_id() for _ in range(500)]
    assert len(set(drawn)) == 500
    assert not any(is_reserved(each) or encode_uuid(each).startswith("-") for each in drawn)


def test_absent_is_what_nobody_has_put_there() -> None:
    fs = MemoryFs({"/x/file": b""})
    assert is_absent(fs, PurePath("/x/other"))
    assert not is_absent(fs, PurePath("/x/file"))
