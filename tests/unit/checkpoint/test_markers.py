"""The small files of identity and order are read as a broker reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.markers import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    QUORUM_STATE,
    MetaProperties,
    PartitionMetadata,
    QuorumState,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
    encode_clean_shutdown,
    encode_partition_metadata,
    read,
    write_clean_shutdown,
)
from checkpoint.uuids import METADATA_TOPIC_ID, ZERO, decode_uuid, encode_uuid, is_reserved
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat
from storage.base.names import FileRole
from storage.disk.fs import OsFs

# Written by Kafka's own classes.
MARKER = bytes.fromhex("7b2276657273696f6e223a302c2262726f6b657245706f6368223a34327d")
METADATA = bytes.fromhex("76657273696f6e3a20300a746f7069635f69643a204478347450457461615869486c71573077394c683841")
UUID = bytes.fromhex("0f1e2d3c4b5a69788796a5b4c3d2e1f0")
UUID_TEXT = "Dx4tPEtaaXiHlqW0w9Lh8A"
PROPERTIES = f"""#
#Fri Nov 14 22:13:20 UTC 2023
node.id=7
directory.id={UUID_TEXT}
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qk
"""
DEEP = b"[" * 100_000


# ---- UUIDs


def test_the_text_of_a_uuid_is_url_safe_base64_without_padding() -> None:
    assert encode_uuid(UUID) == UUID_TEXT
    assert decode_uuid(UUID_TEXT) == decode_uuid(UUID_TEXT + "==") == UUID
    assert encode_uuid(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", UUID_TEXT[:21], UUID_TEXT + "=", UUID_TEXT + "A", UUID_TEXT + "\n", "+" * 22, "ä" * 22]
)
def test_anything_but_sixteen_bytes_is_no_uuid(text: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_uuid(text)


@given(st.binary(min_size=16, max_size=16))
def test_every_uuid_is_read_back(uuid: bytes) -> None:
    assert decode_uuid(encode_uuid(uuid)) == uuid


def test_low_ids_are_reserved() -> None:
    assert is_reserved(ZERO)
    assert is_reserved(bytes(15) + b"\x63")
    assert not is_reserved(bytes(15) + b"\x64")
    assert is_reserved(bytes(8) + b"\xff" * 8)
    assert not is_reserved(UUID)


# ---- .kafka_cleanshutdown


def test_the_marker_kafka_wrote_is_read_and_written_back() -> None:
    assert decode_clean_shutdown(MARKER) == 42
    assert encode_clean_shutdown(42) == MARKER
    assert encode_clean_shutdown(None) == b""


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b'{"brokerEpoch":7}', 7),
        (b'{"brokerEpoch":"7"}', 7),
        (b'{"version":99,"brokerEpoch":-1,"more":[{}]}', -1),
        (b' \n{"brokerEpoch":7} and more', 7),
        (b'{"brokerEpoch":9223372036854775807}', 2**63 - 1),
        (b'{"brokerEpoch":9223372036854775808}', None),
        (b'{"brokerEpoch":4.5}', 4),
        (b'{"brokerEpoch":4e12}', 4 * 10**12),
        (b'{"brokerEpoch":1e999}', None),
        (b'{"brokerEpoch":NaN}', None),
        (b'{"brokerEpoch":null}', None),
        (b'{"brokerEpoch":true}', None),
        (b'{"brokerEpoch":"x"}', None),
        (b'{"brokerEpoch":[1]}', None),
        (b'{"version":0}', None),
        (b"", None),
        (b"clean", None),
        (b"[]", None),
        (b"\xff", None),
        (b'{"brokerEpoch":' + b"9" * 10_000 + b"}", None),
        (DEEP, None),
    ],
)
def test_a_marker_of_any_content_is_one_and_names_an_epoch_or_none(data: bytes, epoch: int | None) -> None:
    assert decode_clean_shutdown(data) == epoch


def test_a_marker_is_written_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / CLEAN_SHUTDOWN
    write_clean_shutdown(OsFs(), path, 42)
    assert path.read_bytes() == MARKER
    assert read(OsFs(), path, decode_clean_shutdown) == 42


# ---- meta.properties


def test_meta_properties_of_kraft_name_cluster_node_and_directory() -> None:
    assert decode_meta_properties(PROPERTIES.encode()) == MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qk", 7, UUID)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", MetaProperties(0, None, None, None)),
        (b"version=0\nbroker.id=3\ncluster.id=x\n", MetaProperties(0, "x", 3, None)),
        (b"broker.id=3\nnode.id=4\nforeign=1", MetaProperties(0, None, 3, None)),
        (b"version= 1 \nnode.id=4\ncluster.id=x", MetaProperties(1, "x", 4, None)),
    ],
)
def test_version_0_demands_nothing_and_is_the_default(data: bytes, found: MetaProperties) -> None:
    assert decode_meta_properties(data) == found


@pytest.mark.parametrize(
    "data",
    [
        b"version=x",
        b"version=",
        b"version=-1",
        b"version=1\ncluster.id=x",
        b"version=1\nnode.id=1",
        b"version=1\nnode.id=one\ncluster.id=x",
        b"version=0\nbroker.id=2147483648",
        b"directory.id=short",
        b"version=\\u",
    ],
)
def test_what_a_broker_refuses_in_meta_properties_is_corrupt(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_meta_properties(data)


def test_a_newer_version_of_meta_properties_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormat):
        decode_meta_properties(b"version=2")


# ---- partition.metadata


def test_the_partition_metadata_kafka_wrote_is_read_and_written_back() -> None:
    assert decode_partition_metadata(METADATA) == PartitionMetadata(0, UUID)
    assert encode_partition_metadata(UUID) == METADATA


@pytest.mark.parametrize(
    "text",
    [
        f"version: 0\ntopic_id: {UUID_TEXT}\n",
        f"version: 0\r\ntopic_id: {UUID_TEXT}\r\nmore\n",
        f"what:\t+0\never:  {UUID_TEXT}==",
    ],
)
def test_keys_are_not_looked_at_and_further_lines_are_ignored(text: str) -> None:
    assert decode_partition_metadata(text.encode()) == PartitionMetadata(0, UUID)


def test_a_higher_version_is_read_like_the_first() -> None:
    assert decode_partition_metadata(f"version: 9\ntopic_id: {UUID_TEXT}".encode()).version == 9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 0\n",
        f"version:0\ntopic_id: {UUID_TEXT}",
        f"version: -1\ntopic_id: {UUID_TEXT}",
        f"version: x\ntopic_id: {UUID_TEXT}",
        f"version: 0 \ntopic_id: {UUID_TEXT}",
        f"version: 0\ntopic_id: {UUID_TEXT} ",
        f"version: 0\ntopic_id:{UUID_TEXT}",
        f"version: 0: 1\ntopic_id: {UUID_TEXT}",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        f"\nversion: 0\ntopic_id: {UUID_TEXT}",
        "version: 0\ntopic_id: \udcff",
    ],
)
def test_what_a_broker_refuses_in_partition_metadata_is_corrupt(text: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_partition_metadata(text.encode(errors="surrogateescape"))


# ---- quorum-state


def test_quorum_state_of_version_0_lists_voters() -> None:
    data = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}\nnot read'
    )
    assert decode_quorum_state(data) == QuorumState(0, 1, 5, None, None, "", 0, (1, 2))


def test_quorum_state_of_version_1_names_the_voted_directory() -> None:
    data = f'{{"leaderId":-1,"leaderEpoch":5,"votedId":3,"votedDirectoryId":"{UUID_TEXT}","data_version":1}}'
    assert decode_quorum_state(data.encode()) == QuorumState(1, None, 5, 3, UUID, None, None, None)


SOUND = {"leaderId": 1, "leaderEpoch": 5, "votedId": -1, "data_version": 0}


@pytest.mark.parametrize(
    "data",
    [b"", b"\n" + json.dumps(SOUND).encode(), b"{}", b"[]", b"1", b"\xff", DEEP]
    + [
        json.dumps({**SOUND, key: value}).encode()
        for key, value in (
            ("leaderId", None),
            ("leaderEpoch", "5"),
            ("leaderEpoch", 2**31),
            ("votedId", True),
            ("data_version", "0"),
            ("appliedOffset", 1.5),
            ("currentVoters", 3),
            ("currentVoters", [3]),
            ("currentVoters", [{}]),
            ("votedDirectoryId", "x"),
            ("votedDirectoryId", 7),
            ("clusterId", 7),
        )
    ],
)
def test_a_quorum_state_that_is_not_the_object_it_should_be_is_corrupt(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_quorum_state(data)


def test_a_newer_quorum_state_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormat):
        decode_quorum_state(json.dumps({**SOUND, "data_version": 2}).encode())


# ---- all


@given(
    st.one_of(st.binary(max_size=60), st.text('{}[]":, 0-version\ntopic_idbrokerEpoch\\u', max_size=60).map(str.encode))
)
def test_any_bytes_are_a_value_or_a_typed_error(data: bytes) -> None:
    found = []
    for decode in (decode_clean_shutdown, decode_meta_properties, decode_partition_metadata, decode_quorum_state):
        try:
            found.append(decode(data))
        except (CheckpointCorrupt, UnsupportedFormat) as error:
            found.append(str(error))
    assert len(found) == 4


def test_the_names_are_those_that_inventories_know() -> None:
    roles = (FileRole.CLEAN_SHUTDOWN, FileRole.META_PROPERTIES, FileRole.PARTITION_METADATA, FileRole.QUORUM_STATE)
    assert [role.value for role in roles] == [CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA, QUORUM_STATE]


def test_importing_the_checkpoints_brings_no_properties_package() -> None:
    script = "import sys, checkpoint.markers; print('javaproperties' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, check=True
    )
    assert done.stdout.strip() == b"False"
