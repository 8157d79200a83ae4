"""The directories of partitions: where a new one goes, making it, putting it out of the way, removing it.

Source: Apache Kafka 4.3.0, LogManager.nextLogDirs, PartitionMetadataFile, LogManager.asyncDelete.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from checkpoint.markers import (
    PARTITION_METADATA,
    decode_partition_metadata,
    encode_partition_metadata,
    read,
)
from storage.base.errors import ConfigInvalid, FileVanished, printable
from storage.base.names import METADATA_TOPIC, delete_directory_name, is_legal_topic
from storage.base.units import TopicPartition
from storage.disk.fs import FileKind, Fs, ReadFs, replace_atomically

MOST_CHARACTERS: Final = 249
"""Of the name of a topic that is made now."""


def ensure_new_topic_name(topic: str) -> None:
    """Raise `ConfigInvalid` unless a broker would make a topic of this name."""
    if not is_legal_topic(topic) or len(topic) > MOST_CHARACTERS:
        raise ConfigInvalid(
            f"topic {printable(topic)}: a name has 1 to {MOST_CHARACTERS} of the characters a-z, A-Z, 0-9, '.', '_' "
            "and '-', and is neither '.' nor '..'"
        )
    if topic == METADATA_TOPIC:
        raise ConfigInvalid(f"topic {topic} is the metadata log of a cluster")


def emptiest(counts: Mapping[PurePath, int]) -> PurePath:
    """Return the log directory with the fewest partitions, of equal ones the first."""
    return min(counts, key=lambda log_dir: counts[log_dir])


def place_partitions(partitions: range, counts: Mapping[PurePath, int]) -> dict[int, PurePath]:
    """Return the log directory for each new partition: always the one that has the fewest by then."""
    so_far = dict(counts)
    places = {}
    for partition in partitions:
        places[partition] = emptiest(so_far)
        so_far[places[partition]] += 1
    return places


def make_partition(fs: Fs, log_dir: PurePath, partition: TopicPartition, topic_id: bytes, unique_id: bytes) -> PurePath:
    """Make the directory of a partition with its `partition.metadata`, durably and in one step; it must not exist.

    A broker of KRaft takes a directory without that file for a stray, and recovery holds it. So until it is whole it
    has the name of one that waits for its deletion: that is what a crash makes of it.
    """
    unfinished = log_dir / delete_directory_name(partition, unique_id.hex())
    fs.make_dir(unfinished)
    replace_atomically(fs, unfinished / PARTITION_METADATA, encode_partition_metadata(topic_id))
    directory = log_dir / str(partition)
    fs.rename(unfinished, directory)
    fs.sync_dir(log_dir)
    return directory


def read_topic_id(fs: ReadFs, directory: PurePath) -> bytes | None:
    """Return the id of the topic, None if the directory does not tell; raises `CheckpointCorrupt` and `ReadFault`."""
    try:
        return read(fs, directory / PARTITION_METADATA, decode_partition_metadata).topic_id
    except FileVanished:
        return None


def mark_deleted(fs: Fs, log_dir: PurePath, partition: TopicPartition, unique_id: bytes) -> PurePath:
    """Rename the directory so that it waits for its removal, durably; return where it is now."""
    target = log_dir / delete_directory_name(partition, unique_id.hex())
    fs.rename(log_dir / str(partition), target)
    fs.sync_dir(log_dir)
    return target


def remove_directory(fs: Fs, directory: PurePath) -> None:
    """Remove the directory with everything in it; what is gone already is fine."""
    try:
        entries = fs.entries(directory)
    except FileVanished:
        return
    for name, stat in entries.items():
        if stat.kind is FileKind.DIRECTORY:
            remove_directory(fs, directory / name)
        else:
            with contextlib.suppress(FileVanished):
                fs.remove(directory / name)
    with contextlib.suppress(FileVanished):
        fs.remove_dir(directory)
