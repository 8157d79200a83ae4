"""One log directory in, its replicas, segments and first findings out; runs on an executor.

Checkpoints are read before segments are listed: of a directory that a broker is writing to, the high watermark is then
never ahead of the log. Nothing here raises for what the world does: that becomes a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Final, TypeVar

from audit.scan.finding_rows import finding_row, unreadable
from audit.tables.options import AuditOptions, Source
from audit.tables.reading import open_place
from audit.tables.schema import FindingRow, Flag, Int, Long, Text, Texts
from checkpoint import text
from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import decode_epochs
from checkpoint.markers import META_PROPERTIES, PARTITION_METADATA, MetaProperties, decode_meta_properties
from checkpoint.markers import decode_partition_metadata as decode_metadata
from checkpoint.offsets import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, decode_offsets
from checkpoint.uuids import encode_uuid
from recovery.partition.inventory import Inventory, Resolved, resolve, swap_logs, take_inventory
from recovery.plan.findings import Damage, Finding
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData, EnvironmentFault, FileVanished, printable
from storage.base.names import METADATA_TOPIC, REMOTE_INDEX_CACHE, DirectoryName, DirectoryState, parse_directory_name
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import FileKind, ReadFs
from storage.reading.log_reader import LogReader

LOOKS: Final = 3
"""Attempts to read something that changes meanwhile."""
_LIMIT: Final = 64 << 20

T = TypeVar("T")
Offsets = dict[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One partition directory, and what the files around it say of it. Offsets that nothing tells are None.

    `state` is empty for a replica, `future` for one that moves in, `stray` for one that a broker has put aside, and
    `odd` for a directory whose name no broker gives.
    """

    cluster: Text
    broker: Text
    node_id: Int | None
    log_dir: Text
    topic: Text
    partition: Int
    directory: Text
    state: Text
    topic_id: Text | None
    log_start: Long
    high_watermark: Long | None
    clean_until: Long | None
    epochs: Texts
    segments: Long
    size_bytes: Long


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """One segment that is to be verified. `files`: names of log, index, time index and transaction index."""

    cluster: Text
    broker: Text
    log_dir: Text
    topic: Text
    partition: Int
    directory: Text
    base_offset: Long
    size_bytes: Long
    mtime_ms: Long
    is_active: Flag
    high_watermark: Long | None
    files: Texts

    @property
    def source(self) -> Source:
        """The log directory it lies in."""
        return Source(self.cluster, self.broker, self.log_dir)


@dataclass(frozen=True, slots=True)
class LogDirRow:
    """One log directory as a whole. `end_offset` is that of its copy of the KRaft metadata, None without one."""

    cluster: Text
    broker: Text
    node_id: Int | None
    log_dir: Text
    cluster_id: Text | None
    end_offset: Long | None
    is_listed: Flag


LISTED: Final[dict[str, type]] = {
    "segment": ListedSegment,
    "replica": ReplicaRow,
    "log_dir": LogDirRow,
    "finding": FindingRow,
}
Listed = ListedSegment | ReplicaRow | LogDirRow | FindingRow


def list_log_dir(source: Source, options: AuditOptions) -> Iterator[Listed]:
    """Yield everything that a log directory holds; what could not be read is a finding among it."""
    try:
        fs, log_dir = open_place(source.log_dir)
        yield from _Listing(fs, log_dir, source, options).run()
    except EnvironmentFault as fault:
        yield unreadable(source, fault)
        yield LogDirRow(
            source.cluster, source.broker, _number(source.broker), source.log_dir, None, None, is_listed=False
        )


class _Listing:
    def __init__(self, fs: ReadFs, log_dir: PurePath, source: Source, options: AuditOptions) -> None:
        self._fs, self._log_dir, self._source, self._options = fs, log_dir, source, options
        self._reader = LogReader()
        self._found: list[FindingRow] = []

    def run(self) -> Iterator[Listed]:
        source = self._source
        identity = self._read(META_PROPERTIES, decode_meta_properties, Damage.PROPERTIES_CORRUPT)
        node_id = identity.node_id if identity is not None and identity.node_id is not None else _number(source.broker)
        marks = self._checkpoint(HIGH_WATERMARKS)
        starts, cleaned = self._checkpoint(LOG_START_OFFSETS), self._checkpoint(CLEANER_OFFSETS)
        end_offset = None
        for directory in self._directories():
            rows = self._partition(directory, node_id, marks, starts, cleaned)
            if directory.partition.topic == METADATA_TOPIC and rows:
                end_offset = self._end_offset(only(rows, ListedSegment))
            yield from rows
        yield from self._found
        yield _log_dir_row(source, node_id, identity, end_offset)

    def _directories(self) -> list[DirectoryName]:
        directories = []
        for name, stat in self._fs.entries(self._log_dir).items():
            if stat.kind is not FileKind.DIRECTORY or name in (REMOTE_INDEX_CACHE, "lost+found"):
                continue
            try:
                directory = parse_directory_name(name)
            except CorruptData as error:
                self._add(None, Finding(Damage.UNKNOWN_DIRECTORY, self._log_dir / name, error.reason))
                continue
            if directory.state is not DirectoryState.DELETE and self._is_wanted(directory.partition.topic):
                directories.append(directory)
        return directories

    def _is_wanted(self, topic: str) -> bool:
        patterns = self._options.topics
        return not patterns or topic == METADATA_TOPIC or any(fnmatchcase(topic, pattern) for pattern in patterns)

    def _partition(
        self, directory: DirectoryName, node_id: int | None, marks: Offsets, starts: Offsets, cleaned: Offsets
    ) -> list[Listed]:
        path, partition = self._log_dir / directory.name, directory.partition
        try:
            resolved, findings = look(self._fs, path, self._reader)
        except FileVanished as fault:
            if fault.path != path:
                self._found.append(unreadable(self._source, fault, partition))
            return []
        except EnvironmentFault as fault:
            self._found.append(unreadable(self._source, fault, partition))
            return [self._replica(directory, node_id, [], None, marks, starts, cleaned)]
        for finding in findings:
            self._add(partition, finding)
        topic_id = self._read(f"{directory.name}/{PARTITION_METADATA}", decode_metadata, Damage.METADATA_CORRUPT)
        id_text = None if topic_id is None else encode_uuid(topic_id.topic_id)
        replica = self._replica(directory, node_id, resolved.segments, id_text, marks, starts, cleaned)
        last = len(resolved.segments) - 1
        segments = [
            _segment(self._source, directory, files, replica.high_watermark, is_active=number == last)
            for number, files in enumerate(resolved.segments)
        ]
        return [replica, *segments]

    def _replica(
        self,
        directory: DirectoryName,
        node_id: int | None,
        segments: list[SegmentFiles],
        topic_id: str | None,
        marks: Offsets,
        starts: Offsets,
        cleaned: Offsets,
    ) -> ReplicaRow:
        partition, source = directory.partition, self._source
        epochs = self._read(f"{directory.name}/{EPOCHS_NAME}", decode_epochs, Damage.EPOCHS_CORRUPT) or []
        first = segments[0].base_offset if segments else 0
        return ReplicaRow(
            source.cluster,
            source.broker,
            node_id,
            source.log_dir,
            printable(partition.topic),
            partition.partition,
            printable(directory.name),
            _state_of(directory),
            topic_id,
            max(starts.get(partition, first), first),
            marks.get(partition),
            cleaned.get(partition),
            [f"{epoch}:{start}" for epoch, start in epochs],
            len(segments),
            sum(files.log_stat.size for files in segments),
        )

    def _end_offset(self, segments: list[ListedSegment]) -> int:
        if not segments:
            return 0
        path = self._log_dir / segments[-1].directory / segments[-1].files[0]
        base = segments[-1].base_offset
        try:
            size = self._fs.stat(path).size
            with self._fs.open_read(path) as file:
                return self._reader.walk(file, path, size, base, lambda *_: None).next_offset
        except EnvironmentFault:  # the check of the segment reports it
            return base

    def _checkpoint(self, name: str) -> Offsets:
        return self._read(name, decode_offsets, Damage.CHECKPOINT_CORRUPT) or {}

    def _read(self, name: str, parse: text.Parse[T], kind: Damage) -> T | None:
        """Return what a small file holds, None where it is not there or cannot be used, which is noted."""
        path = self._log_dir / name
        try:
            return text.read(self._fs, path, _LIMIT, parse)
        except FileVanished:
            return None
        except CorruptData as error:
            self._add(_partition_at(path, self._log_dir), Finding(kind, path, error.reason))
        except EnvironmentFault as fault:
            self._found.append(unreadable(self._source, fault, _partition_at(path, self._log_dir)))
        return None

    def _add(self, partition: TopicPartition | None, finding: Finding) -> None:
        row = finding_row(self._source, partition, finding, self._log_dir)
        if row is not None:
            self._found.append(row)


def look(fs: ReadFs, directory: PurePath, reader: LogReader) -> tuple[Resolved, list[Finding]]:
    """Return the segments of a partition directory, and what is wrong with its names.

    Raises `FileVanished` if the directory goes away or never holds still, `ReadFault` for other faults of the disk.
    """
    for looks in reversed(range(LOOKS)):
        try:
            inventory = take_inventory(fs, directory)
            resolved = resolve(inventory, _swap_ends(fs, inventory, reader))
            return resolved, inventory.findings + resolved.findings
        except FileVanished as fault:
            if not looks or fault.path == directory:
                raise
    raise AssertionError


def _swap_ends(fs: ReadFs, inventory: Inventory, reader: LogReader) -> dict[int, int]:
    ends = {}
    for base, path in swap_logs(inventory).items():
        size = fs.stat(path).size
        with fs.open_read(path) as file:
            ends[base] = reader.walk(file, path, size, base, lambda *_: None).next_offset
    return ends


def _segment(
    source: Source, directory: DirectoryName, files: SegmentFiles, high_watermark: int | None, *, is_active: bool
) -> ListedSegment:
    return ListedSegment(
        source.cluster,
        source.broker,
        source.log_dir,
        printable(directory.partition.topic),
        directory.partition.partition,
        directory.name,
        files.base_offset,
        files.log_stat.size,
        files.log_stat.mtime_ns // 1_000_000,
        is_active,
        high_watermark,
        [path.name for path in (files.log, files.index, files.time_index, files.txn_index)],
    )


def _state_of(directory: DirectoryName) -> str:
    if directory.state is not None:
        return directory.state.value.lstrip("-")
    return "" if directory.is_canonical else "odd"


def _log_dir_row(
    source: Source, node_id: int | None, identity: MetaProperties | None, end_offset: int | None
) -> LogDirRow:
    cluster_id = None if identity is None else identity.cluster_id
    return LogDirRow(source.cluster, source.broker, node_id, source.log_dir, cluster_id, end_offset, is_listed=True)


def _number(broker: str) -> int | None:
    return int(broker) if broker.isascii() and broker.isdigit() and len(broker) < 10 else None


def _partition_at(path: PurePath, log_dir: PurePath) -> TopicPartition | None:
    return None if path.parent == log_dir else parse_directory_name(path.parent.name).partition


def only(rows: Iterable[Listed], kind: type[T]) -> list[T]:
    """Return the rows of one kind."""
    return [row for row in rows if isinstance(row, kind)]
