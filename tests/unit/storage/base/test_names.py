"""Names of files and directories mean what a broker takes them for."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import CorruptData
from storage.base.names import (
    NUMBERED_ROLES,
    DirectoryName,
    DirectoryState,
    FileName,
    FileRole,
    FileState,
    delete_directory_name,
    is_cluster_metadata,
    is_legal_topic,
    parse_directory_name,
    parse_file_name,
    parse_root_file_name,
    segment_file_name,
    snapshot_file_name,
)
from storage.base.units import TopicPartition

BASE = "00000000000000000042"
ID = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def parsed(name: str) -> FileName:
    found = parse_file_name(name)
    assert found is not None, name
    assert found.name == name
    return found


@pytest.mark.parametrize("role", sorted(NUMBERED_ROLES, key=lambda role: role.value))
@pytest.mark.parametrize("state", [FileState.LIVE, FileState.DELETED, FileState.CLEANED, FileState.SWAP])
def test_every_name_that_brokers_write_for_a_segment_is_read_back(role: FileRole, state: FileState) -> None:
    name = segment_file_name(42, role, state)
    assert name == BASE + role.value + state.value
    assert parsed(name) == FileName(name, role, state, 42, None, is_canonical=True)
    assert not parsed(name).stops_load


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(sorted(NUMBERED_ROLES, key=str)), st.sampled_from(FileState))
def test_every_int64_is_read_back_from_a_file_name(offset: int, role: FileRole, state: FileState) -> None:
    if state is not FileState.PARTIAL:
        found = parsed(segment_file_name(offset, role, state))
        assert (found.role, found.state, found.base_offset, found.is_canonical) == (role, state, offset, True)


@pytest.mark.parametrize("name", ["5.log", "+00000000000000000005.log", "000000000000000000005.log", "5.x.log"])
def test_a_log_under_another_name_than_twenty_digits_is_not_canonical(name: str) -> None:
    found = parsed(name)
    assert (found.role, found.base_offset, found.is_canonical, found.stops_load) == (FileRole.LOG, 5, False, False)


@pytest.mark.parametrize(
    "name",
    [
        ".log",
        "x.log",
        "1_0.index",
        " 1.timeindex",
        "1-2.txnindex",
        "latest.snapshot",
        "99999999999999999999.log",
        "9223372036854775808.snapshot",
        "foo.cleaned",
        ".swap",
        "foo.log.swap",
        "\udcff.log",
        "0x10.log",
        "00000000000000000000 .log",
    ],
)
def test_a_kafka_suffix_behind_something_that_is_no_int64_keeps_a_broker_from_starting(name: str) -> None:
    assert parsed(name).stops_load


@pytest.mark.parametrize("name", ["foo.deleted", "foo.log.deleted", ".deleted", BASE + ".log.swap.deleted"])
def test_a_deleted_file_of_any_name_is_removed_and_stops_nothing(name: str) -> None:
    found = parsed(name)
    assert found.state is FileState.DELETED
    assert not found.stops_load


def test_a_stranger_with_a_state_suffix_and_a_number_is_known_by_both() -> None:
    found = parsed("7.foo.swap")
    assert (found.role, found.state, found.base_offset, found.stops_load) == (FileRole.OTHER, FileState.SWAP, 7, False)


@pytest.mark.parametrize(
    "name",
    [
        "foo",
        "",
        ".",
        "notes.txt",
        "log",
        BASE,
        BASE + ".log.bak",
        BASE + ".LOG",
        BASE + "log",
        "foo.tmp",
        "foo.log.tmp",
        BASE + ".log.swap.tmp",
        "partition.metadata.tmp.tmp",
        ".lock",
        "meta.properties",
        "x.checkpoint",
        "x.checkpoint.deleted",
        "x.checkpoint.part",
        "99999999999999999999-0000000001.checkpoint",
        "00000000000000000001-9999999999.checkpoint",
        "1-1.checkpoint",
        "bootstrap.checkpoint",
        "\udcff\udcfe",
        BASE + ".log\n",
    ],
)
def test_what_no_broker_touches_is_a_stranger(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("leader-epoch-checkpoint", FileRole.LEADER_EPOCHS),
        ("partition.metadata", FileRole.PARTITION_METADATA),
        ("quorum-state", FileRole.QUORUM_STATE),
        (BASE + ".log.17.abc.logmend", FileRole.OURS),
        ("abc.logmend.json", FileRole.OURS),
        (".logmend", FileRole.OURS),
    ],
)
def test_fixed_names_and_ours_are_known_and_so_are_their_unfinished_writes(name: str, role: FileRole) -> None:
    assert parsed(name) == FileName(name, role, FileState.LIVE, None, None, is_canonical=True)
    assert parsed(name + ".tmp").role is role
    assert parsed(name + ".tmp").state is FileState.TEMPORARY
    assert not parsed(name + ".tmp").stops_load


@pytest.mark.parametrize(
    ("suffix", "state"), [("", FileState.LIVE), (".part", FileState.PARTIAL), (".deleted", FileState.DELETED)]
)
def test_metadata_snapshots_carry_offset_and_epoch(suffix: str, state: FileState) -> None:
    name = "00000000000000000007-0000000003.checkpoint" + suffix
    assert parsed(name) == FileName(name, FileRole.METADATA_SNAPSHOT, state, 7, 3, is_canonical=True)


def test_a_producer_snapshot_is_named_by_its_end_offset() -> None:
    assert snapshot_file_name(102) == "00000000000000000102.snapshot"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("recovery-point-offset-checkpoint", FileRole.RECOVERY_POINTS),
        ("replication-offset-checkpoint", FileRole.HIGH_WATERMARKS),
        ("log-start-offset-checkpoint", FileRole.LOG_START_OFFSETS),
        ("cleaner-offset-checkpoint", FileRole.CLEANER_OFFSETS),
        (".kafka_cleanshutdown", FileRole.CLEAN_SHUTDOWN),
        ("meta.properties", FileRole.META_PROPERTIES),
        ("bootstrap.checkpoint", FileRole.BOOTSTRAP_METADATA),
        (".lock", FileRole.LOCK),
        ("plan.logmend.json", FileRole.OURS),
    ],
)
def test_the_files_at_the_top_of_a_log_directory_are_known(name: str, role: FileRole) -> None:
    found = parse_root_file_name(name)
    assert found is not None
    assert (found.role, found.state) == (role, FileState.LIVE)
    unfinished = parse_root_file_name(name + ".tmp")
    assert unfinished is not None
    assert (unfinished.role, unfinished.state) == (role, FileState.TEMPORARY)


@pytest.mark.parametrize("name", ["", "foo", BASE + ".log", "leader-epoch-checkpoint", "foo.tmp", ".tmp"])
def test_anything_else_at_the_top_is_a_stranger(name: str) -> None:
    assert parse_root_file_name(name) is None


@given(st.text(alphabet=st.one_of(st.sampled_from("05.-+logswapindex\n \udcff"), st.characters()), max_size=40))
def test_any_text_is_a_file_name_or_a_stranger(name: str) -> None:
    found = parse_file_name(name)
    assert found is None or found.name == name
    parse_root_file_name(name)


@pytest.mark.parametrize(
    ("name", "topic", "partition", "is_canonical"),
    [
        ("orders-0", "orders", 0, True),
        ("a-b-12", "a-b", 12, True),
        ("orders-007", "orders", 7, False),
        ("orders-+7", "orders", 7, False),
        ("orders--7", "orders-", 7, True),
        ("--1", "-", 1, True),
        (".Trash-1000", ".Trash", 1000, True),
        ("__cluster_metadata-0", "__cluster_metadata", 0, True),
        ("@metadata-0", "@metadata", 0, True),
        ("with space-2147483647", "with space", 2**31 - 1, True),
        ("\udcff-1", "\udcff", 1, True),
        ("a.b-delete-1", "a.b-delete", 1, True),
    ],
)
def test_a_partition_directory_is_cut_at_its_last_dash(
    name: str, topic: str, partition: int, *, is_canonical: bool
) -> None:
    found = parse_directory_name(name)
    assert found == DirectoryName(name, TopicPartition(topic, partition), None, None)
    assert found.is_canonical is is_canonical


@pytest.mark.parametrize("state", DirectoryState)
@pytest.mark.parametrize(
    ("rest", "unique_id", "topic", "partition"),
    [("orders-0", ID, "orders", 0), ("a.b-c-3", "x", "a.b-c", 3), ("a.b-1", "y-z", "a.b", 1)],
)
def test_a_suffixed_directory_is_cut_at_its_last_dot(
    state: DirectoryState, rest: str, unique_id: str, topic: str, partition: int
) -> None:
    name = f"{rest}.{unique_id}{state.value}"
    found = parse_directory_name(name)
    assert found == DirectoryName(name, TopicPartition(topic, partition), state, unique_id)
    assert found.is_canonical


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "lost+found",
        "orders",
        "orders-",
        "-1",
        "orders-x",
        "orders-1_0",
        "orders- 1",
        "orders-2147483648",
        "orders-delete",
        "orders-0-delete",
        "orders-0.-delete",
        "orders.x-delete",
        "-0.x-delete",
        "or ders-0.x-delete",
        "orders-0.x\n-stray",
        "orders-x.y-future",
        "a.b-c-delete",
    ],
)
def test_a_directory_that_would_keep_a_broker_from_starting_is_refused(name: str) -> None:
    with pytest.raises(CorruptData, match="directory name"):
        parse_directory_name(name)


@given(st.text(alphabet="a-.0 \n", max_size=12), st.sampled_from(DirectoryState))
def test_suffixed_names_are_accepted_exactly_where_the_brokers_pattern_matches(
    text: str, state: DirectoryState
) -> None:
    name = text + state.value
    pattern = re.compile(rf"(\S+)-(\S+)\.(\S+){state.value}", re.ASCII)
    topic, _, digits = name[: max(name.rfind("."), 0)].rpartition("-")
    is_fine = pattern.fullmatch(name) is not None and topic and re.fullmatch("0+", digits)
    try:
        found = parse_directory_name(name)
    except CorruptData:
        assert not is_fine
    else:
        assert is_fine
        assert found.partition == TopicPartition(topic, 0)


def test_the_names_of_leaving_directories_are_cut_to_255_characters() -> None:
    partition = TopicPartition("t" * 249, 12)
    name = delete_directory_name(partition, ID)
    assert len(name) == 255
    topic = parse_directory_name(name).partition.topic
    assert name == f"{topic}-12.{ID}-delete"
    assert partition.topic.startswith(topic)
    assert delete_directory_name(TopicPartition("t", 12), ID) == f"t-12.{ID}-delete"


def test_the_name_of_a_future_directory_is_never_cut() -> None:
    name = f"{'t' * 249}-12.{ID}-future"
    assert len(name) > 255
    assert parse_directory_name(name).partition == TopicPartition("t" * 249, 12)


def test_topic_names_are_judged_by_the_widest_rule_there_ever_was() -> None:
    assert all(map(is_legal_topic, ["a", "A.b_c-1", "t" * 255, "..."]))
    assert not any(map(is_legal_topic, ["", ".", "..", "t" * 256, "a b", "ä", "a/b", "\udcff", "a\n"]))
    assert is_cluster_metadata(TopicPartition("__cluster_metadata", 0))


def test_a_hundred_thousand_names_are_parsed_in_a_second() -> None:
    names = [f"{number:020d}{suffix}" for number in range(25_000) for suffix in (".log", ".index", ".log.swap", "")]
    names += ["-" * 1000 + ".x-delete", "a-b." * 60 + "-delete", "x." * 120 + "log"] * 100
    begin = time.process_time()
    for name in names:
        parse_file_name(name)
    assert time.process_time() - begin < 3


def test_hostile_names_cost_linear_time() -> None:
    begin = time.process_time()
    for name in ("-." * 500_000 + " -delete", "0" * 1_000_000 + ".log", ".tmp" * 250_000, "a-a." * 250_000 + "-delete"):
        parse_file_name(name)
        with pytest.raises(CorruptData):
            parse_directory_name(name)
    assert time.process_time() - begin < 2
