"""What a KRaft cluster says should be there: topics, ids, assignments and settings, read from a log directory offline.

From the newest snapshot and the log behind it, as a controller would load them. Records behind the committed end are
not told apart: a quorum that lost its leader may have a few that will be undone.
Source: Apache Kafka 4.3.0: TopicRecord (2), PartitionRecord (3), ConfigRecord (4), PartitionChangeRecord (5),
RemoveTopicRecord (9).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from audit.tables.options import Source
from audit.tables.reading import open_place
from audit.tables.schema import Int, Ints, Text
from checkpoint.uuids import encode_uuid
from recovery.kraft.metadata_log import apply_metadata
from storage.base.errors import BatchCorrupt
from storage.base.names import METADATA_TOPIC
from storage.base.varint import read_uvarint
from storage.batch.kraft import MetadataRecord
from storage.disk.fs import ReadFs

_UUID: Final = 16
_INT32: Final = struct.Struct(">i")
_TOPIC_RESOURCE: Final = 2
_REPLICAS_TAG: Final = 2
_KEPT: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
"""Settings that say what replicas must agree on."""


@dataclass(frozen=True, slots=True)
class AssignedRow:
    """One partition as the metadata in a log directory has it; `replicas` are node ids."""

    cluster: Text
    log_dir: Text
    topic: Text
    partition: Int
    topic_id: Text
    replicas: Ints
    cleanup_policy: Text


@dataclass(slots=True)
class Metadata:
    """What the records add up to."""

    names: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[bytes, dict[int, list[int]]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, record: MetadataRecord) -> None:
        """Take in one record; those that say nothing of topics are ignored. Raises `BatchCorrupt`."""
        body = _Body(record.body)
        match record.api_key:
            case 2:
                name = body.text()
                self.names[body.take(_UUID)] = name or ""
            case 3:
                partition, topic_id = body.int32(), body.take(_UUID)
                self.partitions.setdefault(topic_id, {})[partition] = body.int32s()
            case 5:
                partition, topic_id = body.int32(), body.take(_UUID)
                changed = body.tagged().get(_REPLICAS_TAG)
                if changed is not None:
                    self.partitions.setdefault(topic_id, {})[partition] = _Body(changed).int32s()
            case 4:
                self._configure(body)
            case 9:
                topic_id = body.take(_UUID)
                self.partitions.pop(topic_id, None)
                self.configs.pop(self.names.pop(topic_id, ""), None)
            case _:
                pass

    def _configure(self, body: _Body) -> None:
        is_topic, name, key, value = body.int8() == _TOPIC_RESOURCE, body.text(), body.text(), body.text()
        if not is_topic or name is None or key not in _KEPT:
            return
        settings = self.configs.setdefault(name, {})
        if value is None:
            settings.pop(key, None)
        else:
            settings[key] = value

    def rows(self, source: Source) -> Iterator[AssignedRow]:
        """Yield a row for each partition that should be there."""
        for topic_id, partitions in self.partitions.items():
            topic = self.names.get(topic_id)
            if topic is None:
                continue
            policy = self.configs.get(topic, {}).get("cleanup.policy", "")
            for partition, replicas in sorted(partitions.items()):
                yield AssignedRow(
                    source.cluster, source.log_dir, topic, partition, encode_uuid(topic_id), replicas, policy
                )


class _Body:
    """The fields of a record, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise BatchCorrupt("a metadata record ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def int8(self) -> int:
        return int.from_bytes(self.take(1), signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def uvarint(self) -> int:
        value, self._at = read_uvarint(self._data, self._at)
        return value

    def text(self) -> str | None:
        length = self.uvarint()
        return self.take(length - 1).decode("utf-8", "replace") if length else None

    def int32s(self) -> list[int]:
        length = self.uvarint()
        return [number for (number,) in _INT32.iter_unpack(self.take(4 * max(length - 1, 0)))]

    def tagged(self) -> dict[int, bytes]:
        values = {}
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            values[tag] = self.take(size)
        return values


def read_metadata(source: Source) -> Metadata:
    """Return the metadata in one log directory; raises `ReadFault`, `FileVanished` and `CorruptData`."""
    fs, log_dir = open_place(source.log_dir)
    return read_directory(fs, log_dir / f"{METADATA_TOPIC}-0")


def read_directory(fs: ReadFs, directory: PurePath) -> Metadata:
    """Return the metadata in a partition directory of `__cluster_metadata`; raises as `read_metadata` does."""
    metadata = Metadata()
    apply_metadata(fs, directory, metadata.apply)
    return metadata
