"""The four checkpoints at the top of a log directory that map partitions to offsets.

Source: Apache Kafka 4.3.0, OffsetCheckpointFile; unchanged since 0.8.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from checkpoint import text
from storage.base.numerals import parse_int32, parse_int64
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import FileStat, Fs, ReadFs, replace_atomically

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
"""Per partition: everything below is flushed."""
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
"""Per partition: everything below is replicated."""
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
"""Only of partitions whose log start offset is above the base offset of their first segment."""
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
"""Per compacted partition: the first offset that was not cleaned yet."""

LIMIT: Final = 64 << 20
"""Bytes of the largest file that is read: some hundred thousand partitions."""


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    """Return the offset of each partition; of two entries for one partition the later counts, as for a broker.

    Topics are not checked and offsets may be negative, as brokers allow. Raises `CheckpointCorrupt` and
    `UnsupportedFormat`.
    """
    return {
        TopicPartition(topic, text.int32_field(partition)): Offset(text.int64_field(offset))
        for topic, partition, offset in text.decode(data, 3)
    }


def decode_leading(data: bytes) -> dict[TopicPartition, Offset]:
    """Return the entries of the leading lines that are whole: what is left of a torn file."""
    entries: dict[TopicPartition, Offset] = {}
    for topic, *numbers in text.decode_leading(data, 3)[0]:
        partition, offset = parse_int32(numbers[0]), parse_int64(numbers[1])
        if partition is None or offset is None:
            break
        entries[TopicPartition(topic, partition)] = Offset(offset)
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Return the file, in order of partitions; any order is right. `ValueError` for a topic that it cannot hold."""
    return text.encode((*partition, offset) for partition, offset in sorted(offsets.items()))


def read_offsets(fs: ReadFs, path: PurePath) -> dict[TopicPartition, Offset]:
    """Return what the file holds; raises as `decode_offsets` does, and `FileVanished` and `ReadFault`."""
    return text.read(fs, path, LIMIT, decode_offsets)


def write_offsets(
    fs: Fs, path: PurePath, offsets: Mapping[TopicPartition, Offset], like: FileStat | None = None
) -> None:
    """Replace the file durably; a crash leaves the old content or the new."""
    replace_atomically(fs, path, encode_offsets(offsets), like)
