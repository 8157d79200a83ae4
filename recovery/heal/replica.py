"""Where good bytes may come from: the protocol of a replica, and the log directory of one as a source.

What a replica offers is hostile input: every batch is bounded before it is read, and its checksum holds before anybody
sees it. Whether it fits is judged in recovery/heal/healing.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, decode_leading
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata
from checkpoint.offsets import decode_offsets
from recovery.logdir.log_dir import LOG_STARTS
from recovery.partition.points import SMALL_FILE_LIMIT
from storage.base.errors import (
    BatchCorrupt,
    CheckpointCorrupt,
    CorruptData,
    EnvironmentFault,
    FileVanished,
    LogmendError,
    UnsupportedFormat,
)
from storage.base.names import FileRole, FileState, parse_file_name
from storage.base.units import Offset, TopicPartition
from storage.batch.batch import BatchHeader, ensure_sound
from storage.disk.fs import FileKind, ReadFile, ReadFs, read_all
from storage.index.indexes import look_up_offset
from storage.reading.segment_walk import walk_places

LARGEST_BATCH: Final = 128 << 20
"""Bytes of the largest batch that is taken from a replica."""
_INDEX_LIMIT: Final = 64 << 20


class ReplicaUnusable(LogmendError):
    """A replica cannot serve: it has not got the partition, cannot be read, or is not what it should be."""


class Offer(NamedTuple):
    """One whole batch with a checksum that holds, and its header."""

    header: BatchHeader
    data: bytes


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What a replica says of itself. An end or point that it does not know is None."""

    log_start: int
    high_watermark: int | None
    clean_point: int | None
    """Compacted up to this offset; None for a topic that no cleaner has touched."""
    epochs: tuple[EpochStart, ...]
    topic_id: bytes | None


class ReplicaSource(Protocol):
    """A replica, or a broker, that may have the batches that are missing here."""

    @property
    def name(self) -> str:
        """What a person knows it by."""

    @property
    def bytes_read(self) -> int:
        """Bytes of logs that were asked of it so far."""

    def facts(self, partition: TopicPartition) -> ReplicaFacts:
        """Return what it says of its replica of a partition; raises `ReplicaUnusable`."""

    def batches(self, partition: TopicPartition, first: int, until: int, size: int) -> Iterator[Offer]:
        """Yield its batches from the one that holds `first` on, up to those that begin at `until` or behind it.

        `size`: about how many bytes they are, which is what to ask for at a time. Ends where its log does. Raises
        `ReplicaUnusable`, also for a batch that is not sound.
        """


@dataclass(slots=True)
class DirectorySource:
    """The log directory of a replica: a mount, a copy, an unpacked snapshot. Only read, and only where it must be."""

    fs: ReadFs
    log_dir: PurePath
    bytes_read: int = 0
    _checkpoints: dict[str, Mapping[TopicPartition, Offset]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.log_dir)

    def facts(self, partition: TopicPartition) -> ReplicaFacts:
        """See `ReplicaSource`; watermarks and clean points are those of the checkpoints at its top."""
        directory = self.log_dir / str(partition)
        try:
            logs = self._logs(directory)
            if not logs:
                raise ReplicaUnusable(f"{directory}: no segment")
            start = self._checkpoint(LOG_STARTS).get(partition, Offset(0))
            return ReplicaFacts(
                log_start=max(int(start), min(logs)),
                high_watermark=self._checkpoint(FileRole.HIGH_WATERMARKS.value).get(partition),
                clean_point=self._checkpoint(FileRole.CLEANER_OFFSETS.value).get(partition),
                epochs=self._epochs(directory),
                topic_id=self._topic_id(directory),
            )
        except (EnvironmentFault, CorruptData, UnsupportedFormat) as error:
            raise ReplicaUnusable(f"{directory}: {error}") from error

    def batches(self, partition: TopicPartition, first: int, until: int, size: int = 0) -> Iterator[Offer]:  # noqa: ARG002
        """See `ReplicaSource`."""
        directory = self.log_dir / str(partition)
        try:
            logs = self._logs(directory)
            bases = sorted(logs)
            number = max(bisect_right(bases, first) - 1, 0)
            for base in bases[number:]:
                if base >= until:
                    return
                yield from self._segment(directory, base, logs[base], first, until)
        except (EnvironmentFault, CorruptData, UnsupportedFormat) as error:
            raise ReplicaUnusable(f"{directory}: {error}") from error

    def _segment(self, directory: PurePath, base: int, size: int, first: int, until: int) -> Iterator[Offer]:
        path = directory / f"{base:020d}.log"
        with self.fs.open_read(path) as file:
            for place in walk_places(file, self._position(path, base, first), size):
                if place.last_offset < first:
                    continue
                if place.base_offset >= until:
                    return
                yield self._read(file, path, place.position, place.size)

    def _position(self, path: PurePath, base: int, first: int) -> int:
        """Return where to begin: what the index says, if a batch that is not behind `first` begins there."""
        index = path.with_suffix(FileRole.INDEX.value)
        try:
            data = read_all(self.fs, index, _INDEX_LIMIT)
            at = look_up_offset(data[: len(data) // 8 * 8], Offset(base), Offset(first)).position
            with self.fs.open_read(path) as file:
                place = next(iter(walk_places(file, at, self.fs.stat(path).size)), None)
        except (EnvironmentFault, BatchCorrupt):
            return 0
        return at if place is not None and base <= place.base_offset <= first else 0

    def _read(self, file: ReadFile, path: PurePath, position: int, size: int) -> Offer:
        if size > LARGEST_BATCH:
            raise ReplicaUnusable(f"{path} at {position}: a batch of {size} bytes is more than is taken")
        buffer = bytearray(size)
        if file.read_into(position, memoryview(buffer)) < size:
            raise ReplicaUnusable(f"{path} at {position}: it has shrunk")
        self.bytes_read += size
        try:
            return Offer(ensure_sound(memoryview(buffer)), bytes(buffer))
        except BatchCorrupt as error:
            raise ReplicaUnusable(f"{path} at {position}: {error.reason}") from error

    def _logs(self, directory: PurePath) -> dict[int, int]:
        found = {}
        for name, stat in self.fs.entries(directory).items():
            file = parse_file_name(name)
            if file is None or file.role is not FileRole.LOG or file.state is not FileState.LIVE:
                continue
            if stat.kind is FileKind.FILE and file.base_offset is not None and file.is_canonical:
                found[int(file.base_offset)] = stat.size
        return found

    def _checkpoint(self, name: str) -> Mapping[TopicPartition, Offset]:
        if name not in self._checkpoints:
            try:
                self._checkpoints[name] = decode_offsets(read_all(self.fs, self.log_dir / name, SMALL_FILE_LIMIT))
            except (FileVanished, CorruptData):
                self._checkpoints[name] = {}
        return self._checkpoints[name]

    def _epochs(self, directory: PurePath) -> tuple[EpochStart, ...]:
        try:
            data = read_all(self.fs, directory / EPOCHS_NAME, SMALL_FILE_LIMIT)
        except FileVanished:
            return ()
        epochs, is_whole = decode_leading(data)
        if data and not is_whole:
            raise CheckpointCorrupt(f"{EPOCHS_NAME}: its lines are not all there")
        return tuple(epochs)

    def _topic_id(self, directory: PurePath) -> bytes | None:
        try:
            return decode_partition_metadata(
                read_all(self.fs, directory / PARTITION_METADATA, SMALL_FILE_LIMIT)
            ).topic_id
        except FileVanished:
            return None
