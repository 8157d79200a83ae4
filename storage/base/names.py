"""What the names in a log directory mean, and the names that we give.

Names come from the disk and may hold lone surrogates (bytes that are not UTF-8); nothing here decodes or fails on them.
Source: Apache Kafka 4.3.0, LogFileUtils, LogLoader, LocalLog, Snapshots; log directories since 0.8.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from storage.base.errors import CorruptData, printable
from storage.base.numerals import parse_int32, parse_int64
from storage.base.units import INT32_MAX, INT64_MAX, Epoch, Offset, TopicPartition

MAX_NAME: Final = 255
"""Characters of a directory name; what Kafka cuts the names of `-delete` and `-stray` directories to."""

METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""The one directory in a log directory that a broker does not take for a partition."""


class FileRole(Enum):
    """What a file is for; the value is its suffix or its whole name."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    METADATA_SNAPSHOT = ".checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    LOG_START_OFFSETS = "log-start-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    META_PROPERTIES = "meta.properties"
    BOOTSTRAP_METADATA = "bootstrap.checkpoint"
    LOCK = ".lock"
    OURS = ".logmend"  # what logmend set aside, and its manifests, `.logmend.json`
    OTHER = ""  # a stranger whose state suffix makes a broker touch it


class FileState(Enum):
    """What a broker does with the file on load; the value is the suffix that says so."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"
    PARTIAL = ".part"  # of a metadata snapshot
    TEMPORARY = ".tmp"  # an unfinished write that nobody reads


SEGMENT_ROLES: Final = frozenset({FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX})
NUMBERED_ROLES: Final = SEGMENT_ROLES | {FileRole.SNAPSHOT}

_PARTITION_FILES: Final = {
    role.value: role for role in (FileRole.LEADER_EPOCHS, FileRole.PARTITION_METADATA, FileRole.QUORUM_STATE)
}
_ROOT_FILES: Final = {
    role.value: role
    for role in (
        FileRole.RECOVERY_POINTS,
        FileRole.HIGH_WATERMARKS,
        FileRole.LOG_START_OFFSETS,
        FileRole.CLEANER_OFFSETS,
        FileRole.CLEAN_SHUTDOWN,
        FileRole.META_PROPERTIES,
        FileRole.BOOTSTRAP_METADATA,
        FileRole.LOCK,
    )
}
_NUMBERED_SUFFIXES: Final = {role.value: role for role in NUMBERED_ROLES}
_CANONICAL: Final = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)", re.ASCII)
_METADATA_SNAPSHOT: Final = re.compile(
    r"([0-9]{20})-([0-9]{10})(?:\.checkpoint(\.deleted)?|(?:-[0-9]+)?\.checkpoint(\.part))", re.ASCII
)
"""An unfinished one has a random number in its name, as `Files.createTempFile` gives it."""
_METADATA_STATES: Final = {None: FileState.LIVE, ".part": FileState.PARTIAL, ".deleted": FileState.DELETED}
_LIVE: Final = FileState.LIVE  # looking up a member of an enumeration is slow
_WHITE_SPACE: Final = re.compile(r"[ \t\n\v\f\r]")
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class FileName(NamedTuple):
    """A file by its name. `base_offset` is an int64, below 0 only in names that no broker writes.

    For a producer snapshot and a metadata snapshot it is the end offset, exclusive; `epoch` is that of the latter.
    """

    name: str
    role: FileRole
    state: FileState
    base_offset: Offset | None
    epoch: Epoch | None
    is_canonical: bool
    """False where the name is not the one a broker would write: it does not read `5.log`, but 20 digits and `.log`."""

    @property
    def stops_load(self) -> bool:
        """Whether a broker cannot start beside a plain file of this name: it takes the prefix for a number."""
        if self.base_offset is not None or self.state in (FileState.DELETED, FileState.TEMPORARY):
            return False
        return self.role in NUMBERED_ROLES or self.state in (FileState.CLEANED, FileState.SWAP)


def parse_file_name(name: str) -> FileName | None:
    """Return what a file of a partition directory is, None for a stranger that every broker ignores."""
    found = _CANONICAL.fullmatch(name)
    if found is not None and (offset := int(found[1])) <= INT64_MAX:
        return FileName(name, _NUMBERED_SUFFIXES[found[2]], _LIVE, Offset(offset), None, True)  # noqa: FBT003 (many)
    if name in _PARTITION_FILES:
        return _fixed(name, _PARTITION_FILES[name])
    if name.endswith((".logmend", ".logmend.json")):
        return _fixed(name, FileRole.OURS)
    return _parse_suffixes(name)


def parse_root_file_name(name: str) -> FileName | None:
    """Return what a file at the top of a log directory is, None for a stranger; brokers ignore those."""
    stem = name.removesuffix(FileState.TEMPORARY.value)
    if stem in _ROOT_FILES:
        return _fixed(name, _ROOT_FILES[stem], FileState.LIVE if stem == name else FileState.TEMPORARY)
    if stem.endswith((".logmend", ".logmend.json")):
        return _fixed(name, FileRole.OURS, FileState.LIVE if stem == name else FileState.TEMPORARY)
    return None


def _fixed(name: str, role: FileRole, state: FileState = FileState.LIVE) -> FileName:
    return FileName(name, role, state, None, None, is_canonical=True)


def _parse_suffixes(name: str) -> FileName | None:
    if name.endswith(FileState.TEMPORARY.value):
        return _parse_temporary(name)
    if (snapshot := _METADATA_SNAPSHOT.fullmatch(name)) is not None:
        return _metadata_snapshot(name, snapshot)
    if name.endswith((".checkpoint", ".checkpoint.part", ".checkpoint.deleted")):
        return None
    for state in (FileState.DELETED, FileState.CLEANED, FileState.SWAP):
        if name.endswith(state.value):
            return _numbered(name, name.removesuffix(state.value), state)
    parsed = _numbered(name, name, FileState.LIVE)
    return None if parsed.role is FileRole.OTHER else parsed


def _parse_temporary(name: str) -> FileName | None:
    stem = name.removesuffix(FileState.TEMPORARY.value)
    inner = None if stem.endswith(FileState.TEMPORARY.value) else parse_file_name(stem)
    if inner is None or inner.state is not FileState.LIVE or inner.stops_load:
        return None
    return inner._replace(name=name, state=FileState.TEMPORARY)


def _metadata_snapshot(name: str, found: re.Match[str]) -> FileName | None:
    offset, epoch = int(found[1]), int(found[2])
    if offset > INT64_MAX or epoch > INT32_MAX:
        return None
    state = _METADATA_STATES[found[3] or found[4]]
    return FileName(name, FileRole.METADATA_SNAPSHOT, state, Offset(offset), Epoch(epoch), is_canonical=True)


def _numbered(name: str, stem: str, state: FileState) -> FileName:
    """Parse as a broker does: the role by the last suffix, the offset by what stands before the first dot."""
    _, dot, suffix = stem.rpartition(".")
    role = _NUMBERED_SUFFIXES.get(dot + suffix, FileRole.OTHER)
    offset = parse_int64(name.partition(".")[0])
    if offset is None:
        return FileName(name, role, state, None, None, is_canonical=False)
    is_canonical = role is not FileRole.OTHER and stem == offset_digits(offset) + role.value
    return FileName(name, role, state, Offset(offset), None, is_canonical)


def offset_digits(offset: int) -> str:
    """Return the number as it stands in file names: 20 digits, with a sign before them where it is negative."""
    return f"{offset:020d}" if offset >= 0 else f"-{-offset:020d}"


def segment_file_name(base_offset: Offset, role: FileRole, state: FileState = FileState.LIVE) -> str:
    """Return the name of a file of the segment `base_offset`, or of the producer snapshot at that offset."""
    assert role in NUMBERED_ROLES, role
    return offset_digits(base_offset) + role.value + state.value


def snapshot_file_name(end_offset: Offset) -> str:
    """Return the name of the producer snapshot that covers the log up to `end_offset`, exclusive."""
    return segment_file_name(end_offset, FileRole.SNAPSHOT)


class DirectoryState(Enum):
    """What a suffixed partition directory is for; the value is the suffix."""

    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class DirectoryName(NamedTuple):
    """A partition directory by its name; `state` and `unique_id` are None for a live partition."""

    name: str
    partition: TopicPartition
    state: DirectoryState | None
    unique_id: str | None

    @property
    def is_canonical(self) -> bool:
        """Whether a broker would write this name; it reads `orders-007` as partition 7, but never writes it."""
        wanted = str(self.partition)
        return self.name == (wanted if self.state is None else f"{wanted}.{self.unique_id}{self.state.value}")


def parse_directory_name(name: str) -> DirectoryName:
    """Return the partition that a directory of a log directory belongs to.

    Raises `CorruptData` where a broker would refuse to start. As it does, characters of the topic are not checked.
    """
    for state in DirectoryState:
        if name.endswith(state.value):
            return _parse_suffixed(name, state)
    return DirectoryName(name, _parse_partition(name, name), None, None)


def _parse_suffixed(name: str, state: DirectoryState) -> DirectoryName:
    """Parse `<non-space>-<non-space>.<non-space><suffix>`, cut at the last dot."""
    body = name.removesuffix(state.value)
    dash = body.find("-", 1)
    dot = body.find(".", dash + 2)
    if dash < 0 or dot < 0 or dot == len(body) - 1 or _WHITE_SPACE.search(body):
        raise CorruptData(f"directory name {printable(name)} does not have the form topic-partition.id{state.value}")
    rest, _, unique_id = body.rpartition(".")
    return DirectoryName(name, _parse_partition(rest, name), state, unique_id)


def _parse_partition(text: str, name: str) -> TopicPartition:
    topic, _, digits = text.rpartition("-")
    partition = parse_int32(digits)
    if not topic or partition is None:
        raise CorruptData(f"directory name {printable(name)} does not have the form topic-partition")
    return TopicPartition(topic, partition)


def delete_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """Return the name under which a partition waits for its deletion; its topic is cut to fit 255 characters."""
    rest = f"-{partition.partition}.{unique_id}{DirectoryState.DELETE.value}"
    return partition.topic[: max(MAX_NAME - len(rest), 0)] + rest


def is_legal_topic(topic: str) -> bool:
    """Tell whether a topic of that name could ever be created: up to 249 characters now, 255 before 0.10."""
    return topic not in (".", "..") and _TOPIC.fullmatch(topic) is not None


def is_cluster_metadata(partition: TopicPartition) -> bool:
    """Tell whether it is the KRaft metadata log, which the log manager leaves alone."""
    return partition.topic == METADATA_TOPIC
