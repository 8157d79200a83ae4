"""The small files that say who wrote a directory, and whether it was left in order.

`.kafka_cleanshutdown`, `meta.properties`, `partition.metadata` and `quorum-state`. Source: Apache Kafka 4.3.0,
CleanShutdownFileHandler, MetaProperties, PartitionMetadataFile, FileQuorumStateStore.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeVar

from checkpoint import text
from checkpoint.properties import decode_properties, encode_value
from checkpoint.text import decode_text, quoted, split_lines
from checkpoint.uuids import ZERO, decode_uuid, encode_uuid
from storage.base.errors import CheckpointCorrupt, UnsupportedFormat
from storage.base.numerals import parse_int32, parse_int64
from storage.base.units import INT32_MAX, INT64_MAX, Epoch, Offset
from storage.disk.fs import Fs, ReadFs, replace_atomically

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
QUORUM_STATE: Final = "quorum-state"
LIMIT: Final = 1 << 20
"""Bytes of the largest of these files that is read."""

_COLON: Final = re.compile(r":[ \t\n\v\f\r]+")

T = TypeVar("T")


# ---- .kafka_cleanshutdown


def decode_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in the marker, int64, None if it names none. No content is an error: existence counts."""
    try:
        document = _json_object(data)
    except CheckpointCorrupt:
        return None
    epoch = document.get("brokerEpoch")
    if isinstance(epoch, str):
        epoch = parse_int64(epoch.strip())
    elif isinstance(epoch, float) and abs(epoch) <= INT64_MAX:
        epoch = int(epoch)
    return epoch if _is_int(epoch, INT64_MAX) else None


def encode_clean_shutdown(broker_epoch: int | None) -> bytes:
    """Return the marker as Kafka 3.7 and later write it; without an epoch the empty one of the releases before."""
    return b"" if broker_epoch is None else b'{"version":0,"brokerEpoch":%d}' % broker_epoch


# ---- meta.properties


class MetaProperties(NamedTuple):
    """Who a log directory belongs to. `version` is 0 (ZooKeeper) or 1 (KRaft), in which cluster and node are set."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Return the identity; unknown keys are ignored.

    Raises `UnsupportedFormat` for a version above 1, `CheckpointCorrupt` for any other that is not 0 or 1, for a key of
    version 1 that is missing, and for a value that is no number or no UUID.
    """
    properties = decode_properties(data)
    version = parse_int32(properties.get("version", "0").strip())
    if version is None or version < 0:
        raise CheckpointCorrupt(f"version {quoted(properties['version'])}; 0 and 1 are known")
    if version > 1:
        raise UnsupportedFormat(f"{META_PROPERTIES} of version {version}; 0 and 1 are known")
    node_key = "node.id" if version else "broker.id"
    for key in ("cluster.id", node_key):
        if version and key not in properties:
            raise CheckpointCorrupt(f"{key} is missing")
    directory = properties.get("directory.id")
    return MetaProperties(
        version,
        properties.get("cluster.id"),
        _node_id(properties, node_key),
        None if directory is None else decode_uuid(directory),
    )


def _node_id(found: Mapping[str, str], key: str) -> int | None:
    if key not in found:
        return None
    number = parse_int32(found[key])
    if number is None:
        raise CheckpointCorrupt(f"{key} {quoted(found[key])} is no number, or out of range")
    return number


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Return the file as a broker of KRaft stores it, without the date; that is version 1 with all four values."""
    assert properties.version == 1, properties.version
    assert properties.directory_id is not None
    values = {
        "cluster.id": properties.cluster_id or "",
        "directory.id": encode_uuid(properties.directory_id),
        "node.id": str(properties.node_id),
        "version": str(properties.version),
    }
    return "".join(f"{key}={encode_value(value)}\n" for key, value in values.items()).encode("ascii")


# ---- partition.metadata


class PartitionMetadata(NamedTuple):
    """`topic_id` is what ties the directory to its topic; a topic of the same name made later has another."""

    version: int
    topic_id: bytes


def decode_partition_metadata(data: bytes) -> PartitionMetadata:
    """Return the topic id; as for a broker, keys are not looked at and a higher version is read like version 0.

    Raises `CheckpointCorrupt` where a broker would fail, which includes the id of 16 zero bytes.
    """
    values = [_value(line) for line in split_lines(decode_text(data))[:2]]
    if len(values) < 2:
        raise CheckpointCorrupt("two lines are needed, a version and a topic id")
    version = parse_int32(values[0])
    if version is None or version < 0:
        raise CheckpointCorrupt(f"{quoted(values[0])} is no version")
    topic_id = decode_uuid(values[1])
    if topic_id == ZERO:
        raise CheckpointCorrupt("the topic id is zero")
    return PartitionMetadata(version, topic_id)


def _value(line: str) -> str:
    parts = _COLON.split(line)
    while parts and parts[-1] == "":  # as Java's split does
        parts.pop()
    if len(parts) != 2:
        raise CheckpointCorrupt(f"{quoted(line)} is no key, colon, white space and value")
    return parts[1]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Return the file of version 0."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


# ---- quorum-state


class QuorumState(NamedTuple):
    """What a KRaft node knew of its quorum.

    Cluster, applied offset and voters are only in version 0, the voted directory only in version 1.
    """

    version: int
    leader_id: int | None
    leader_epoch: Epoch
    voted_id: int | None
    voted_directory_id: bytes | None
    cluster_id: str | None
    applied_offset: Offset | None
    voters: tuple[int, ...] | None


def decode_quorum_state(data: bytes) -> QuorumState:
    """Return the state in the first line.

    Raises `UnsupportedFormat` for a data_version above 1, `CheckpointCorrupt` for what is not the object it should be.
    """
    lines = split_lines(decode_text(data))
    document = _json_object(lines[0].encode() if lines else b"")
    version = _demand_int(document, "data_version", INT32_MAX)
    if version > 1:
        raise UnsupportedFormat(f"{QUORUM_STATE} of version {version}; 0 and 1 are known")
    directory = document.get("votedDirectoryId")
    cluster = document.get("clusterId")
    if (directory is not None and not isinstance(directory, str)) or (
        cluster is not None and not isinstance(cluster, str)
    ):
        raise CheckpointCorrupt("an id is no text")
    return QuorumState(
        version,
        _none_if_negative(_demand_int(document, "leaderId", INT32_MAX)),
        Epoch(_demand_int(document, "leaderEpoch", INT32_MAX)),
        _none_if_negative(_demand_int(document, "votedId", INT32_MAX)) if "votedId" in document else None,
        None if directory is None else decode_uuid(directory),
        cluster,
        Offset(_demand_int(document, "appliedOffset", INT64_MAX)) if "appliedOffset" in document else None,
        _voters(document.get("currentVoters")),
    )


def _voters(found: object) -> tuple[int, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(voter, dict) for voter in found):
        raise CheckpointCorrupt("currentVoters is no list of voters")
    return tuple(_demand_int(voter, "voterId", INT32_MAX) for voter in found)


# ---- common


def read(fs: ReadFs, path: PurePath, parse: text.Parse[T]) -> T:
    """Return what one of the decoders above makes of a file; raises as it does, `FileVanished` and `ReadFault`."""
    return text.read(fs, path, LIMIT, parse)


def write_clean_shutdown(fs: Fs, path: PurePath, broker_epoch: int | None) -> None:
    """Leave the marker durably; it must be the last thing that is written to a log directory."""
    replace_atomically(fs, path, encode_clean_shutdown(broker_epoch))


def _json_object(data: bytes) -> dict[str, Any]:
    """Return the object that `data` begins with; what follows it is ignored, as Kafka's parser does."""
    try:
        document, _ = json.JSONDecoder().raw_decode(decode_text(data).lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        raise CheckpointCorrupt("not JSON") from None
    if not isinstance(document, dict):
        raise CheckpointCorrupt("no JSON object")
    return document


def _demand_int(document: Mapping[str, Any], key: str, highest: int) -> int:
    number = document.get(key)
    if not _is_int(number, highest):
        raise CheckpointCorrupt(f"{key} is missing, no number, or out of range")
    assert isinstance(number, int)
    return number


def _is_int(value: object, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -highest - 1 <= value <= highest


def _none_if_negative(number: int) -> int | None:
    return number if number >= 0 else None
