"""`logmend-topics.json`: the settings of topics, kept at the top of each log directory.

A broker keeps them in its metadata log and takes no notice of this file; recovery does not either. Every log directory
holds the whole list, so that one may be lost; where two differ, the entry of the higher revision counts. What is on
disk is believed before the list: a directory makes a topic exist, an entry without directories does not.

    {"version": 1, "topics": {"orders": {"topic_id": "…", "partitions": 3, "revision": 1,
                                         "config": {"cleanup.policy": "compact"}}}}

While partitions are made, `making` tells in which log directory each belongs, and while a topic is deleted `deleting`
is true: after a crash, opening finishes either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

from checkpoint.uuids import decode_uuid, encode_uuid
from storage.base.errors import CheckpointCorrupt, CorruptData, FileVanished, UnsupportedFormat
from storage.base.names import is_legal_topic
from storage.base.units import INT32_MAX, INT64_MAX
from storage.disk.fs import Fs, ReadFs, read_all, replace_atomically

FILE_NAME: Final = "logmend-topics.json"
"""No name of Kafka's and no suffix of its: brokers of every release ignore plain files that they do not know."""
VERSION: Final = 1
LIMIT: Final = 64 << 20
"""Bytes of the largest file that is read."""


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """What is known of one topic. `config` holds topic properties as text; `making`: partition -> log directory."""

    topic: str
    topic_id: bytes
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    revision: int = 1
    making: Mapping[int, str] = field(default_factory=dict)
    deleting: bool = False

    def changed(self, **changes: Any) -> TopicEntry:
        """Return the entry with these changes, under the next revision."""
        return replace(self, revision=self.revision + 1, **changes)


Catalog = dict[str, TopicEntry]
"""Topics by name."""


def decode_catalog(data: bytes) -> Catalog:
    """Return the topics in the file; raises `CheckpointCorrupt` and, for a later version, `UnsupportedFormat`."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise CheckpointCorrupt("not JSON") from None
    if not isinstance(document, dict):
        raise CheckpointCorrupt("no JSON object")
    version = document.get("version")
    if not isinstance(version, int) or version < VERSION:
        raise CheckpointCorrupt("no version")
    if version > VERSION:
        raise UnsupportedFormat(f"{FILE_NAME} of version {version}; {VERSION} is known")
    topics = document.get("topics")
    if not isinstance(topics, dict):
        raise CheckpointCorrupt("no topics")
    return {topic: _decode_entry(topic, entry) for topic, entry in topics.items()}


def _decode_entry(topic: str, entry: object) -> TopicEntry:
    if not is_legal_topic(topic) or not isinstance(entry, dict):
        raise CheckpointCorrupt(f"topic {topic!r}: no name of a topic, or no object")
    config, making = entry.get("config", {}), entry.get("making", {})
    if not isinstance(making, dict) or not _is_text(making) or not isinstance(config, dict) or not _is_text(config):
        raise CheckpointCorrupt(f"topic {topic}: config or making is no object of texts")
    topic_id = entry.get("topic_id")
    if not isinstance(topic_id, str):
        raise CheckpointCorrupt(f"topic {topic}: no topic_id")
    try:
        numbers = {int(partition): place for partition, place in making.items()}
    except ValueError:
        raise CheckpointCorrupt(f"topic {topic}: making names no partition") from None
    return TopicEntry(
        topic,
        decode_uuid(topic_id),
        _number(topic, entry, "partitions", INT32_MAX),
        config,
        _number(topic, entry, "revision", INT64_MAX),
        numbers,
        entry.get("deleting") is True,
    )


def _is_text(found: dict[Any, Any]) -> bool:
    return all(isinstance(value, str) for value in found.values())


def _number(topic: str, found: dict[str, Any], key: str, most: int) -> int:
    value = found.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise CheckpointCorrupt(f"topic {topic}: {key} is missing or out of range")
    return value


def encode_catalog(catalog: Catalog) -> bytes:
    """Return the file that holds these topics, in order of names."""
    topics = {entry.topic: _encode_entry(entry) for _, entry in sorted(catalog.items())}
    return (json.dumps({"version": VERSION, "topics": topics}, indent=1) + "\n").encode()


def _encode_entry(entry: TopicEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "topic_id": encode_uuid(entry.topic_id),
        "partitions": entry.partitions,
        "revision": entry.revision,
        "config": dict(sorted(entry.config.items())),
    }
    if entry.making:
        plain["making"] = {str(partition): place for partition, place in sorted(entry.making.items())}
    if entry.deleting:
        plain["deleting"] = True
    return plain


def read_catalog(fs: ReadFs, log_dir: PurePath) -> Catalog:
    """Return the topics that a log directory lists, none if it has no list; raises as `decode_catalog`, `ReadFault`."""
    path = log_dir / FILE_NAME
    try:
        data = read_all(fs, path, LIMIT)
    except FileVanished:
        return {}
    try:
        return decode_catalog(data)
    except CorruptData as error:
        error.path = path
        raise


def write_catalog(fs: Fs, log_dir: PurePath, catalog: Catalog) -> None:
    """Replace the list durably; a crash leaves the old one or the new."""
    replace_atomically(fs, log_dir / FILE_NAME, encode_catalog(catalog))


def merge(catalogs: Iterable[Catalog]) -> Catalog:
    """Return the newest entry of each topic."""
    merged: Catalog = {}
    for catalog in catalogs:
        for topic, entry in catalog.items():
            if topic not in merged or merged[topic].revision < entry.revision:
                merged[topic] = entry
    return merged
