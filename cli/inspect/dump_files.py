"""Reads every kind of file that lies in a log directory and yields what is in it, damage included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from checkpoint.leader_epoch import decode_epochs, decode_lines
from checkpoint.markers import (
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
)
from checkpoint.offsets import decode_offsets
from checkpoint.uuids import encode_uuid
from cli.inspect.dump_items import Item, batch_item, damage, damage_of, fault_item, note, record_items
from recovery.evidence.manifest import MANIFEST_SUFFIX, SUFFIX
from recovery.evidence.manifest import decode as decode_manifest
from recovery.plan.plan import to_plain
from storage.base.errors import ConfigInvalid, CorruptData, printable
from storage.base.names import (
    METADATA_TOPIC,
    FileName,
    FileRole,
    parse_directory_name,
    parse_file_name,
    parse_root_file_name,
)
from storage.base.units import Offset
from storage.batch.kraft import check_snapshot
from storage.disk.fs import ReadFs, read_all
from storage.index.indexes import IndexKind, decode_offset_index, decode_time_index, used_length
from storage.index.txn_index import ENTRY as TXN_ENTRY
from storage.index.txn_index import LoadSanity, check_as_on_load, decode_txn_index
from storage.producers.producer_state import decode_snapshot, find_snapshot_fault
from storage.reading.log_walk import Batch, Window, walk

_SMALL: Final = 64 << 20
_INDEX: Final = (1 << 31) - 1
_CHECKPOINTS: Final = (
    FileRole.RECOVERY_POINTS,
    FileRole.HIGH_WATERMARKS,
    FileRole.LOG_START_OFFSETS,
    FileRole.CLEANER_OFFSETS,
)
_BATCHES: Final = (FileRole.LOG, FileRole.METADATA_SNAPSHOT, FileRole.BOOTSTRAP_METADATA)


@dataclass(frozen=True, slots=True)
class Wish:
    """How much of a log is wanted: `records` inside batches, and with `data` their keys and values."""

    records: bool = False
    data: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A file to dump, and what its name says it is; `offset` is its base offset, or the end offset of a snapshot."""

    fs: ReadFs
    path: PurePath
    role: FileRole
    offset: Offset
    wish: Wish

    def read(self, limit: int = _SMALL) -> bytes:
        """Return the whole file; `ReadFault` if it holds more than `limit` bytes."""
        return read_all(self.fs, self.path, limit)


def meaning(name: str) -> FileName | None:
    """Return what a file is by its name, whatever suffix it was given: by a broker, or by us when it was set aside."""
    if name.endswith(MANIFEST_SUFFIX):
        return parse_file_name(name)
    if name.endswith(SUFFIX):
        return meaning(_inner_name(name))
    return parse_root_file_name(name) or parse_file_name(name)


def _inner_name(name: str) -> str:
    """Return the name that a file had before it was set aside: `kept.<name>[.<position>].<plan id>.logmend`."""
    inner, _, _ = name.removesuffix(SUFFIX).removeprefix("kept.").rpartition(".")
    stem, _, position = inner.rpartition(".")
    return stem if stem and position.isdecimal() and position.isascii() else inner


def dump_file(fs: ReadFs, path: PurePath, wish: Wish) -> Iterator[Item]:
    """Yield what is in the file; `ConfigInvalid` for one whose name says nothing of its kind, and `ReadFault`."""
    name = meaning(path.name)
    reader = None if name is None else _READERS.get(name.role)
    if name is None or reader is None:
        raise ConfigInvalid(f"{printable(path)}: its name is none of those that a broker gives, so its form is unknown")
    offset = Offset(0) if name.base_offset is None else name.base_offset
    size = fs.stat(path).size
    yield Item("file", {"file": str(path), "kind": name.role.name.lower(), "offset": name.base_offset, "size": size})
    try:
        yield from reader(Source(fs, path, name.role, offset, wish))
    except CorruptData as error:
        yield damage_of(error)


def _log(source: Source) -> Iterator[Item]:
    size = source.fs.stat(source.path).size
    is_snapshot = source.role is not FileRole.LOG
    faults = 0
    with source.fs.open_read(source.path) as file:
        window = Window(file, size)
        for part in walk(file, size):
            if not isinstance(part, Batch):
                faults += 1
                yield fault_item(part)
                continue
            faults += not part.is_sound
            yield batch_item(part)
            if source.wish.records and part.is_sound:
                is_metadata = is_snapshot or _is_metadata(source.path)
                yield from record_items(window, part, with_data=source.wish.data, is_metadata=is_metadata)
        if is_snapshot and not faults:
            found_batches = (part for part in walk(file, size) if isinstance(part, Batch))
            batches = (memoryview(window.read(batch.position, batch.header.size)) for batch in found_batches)
            for reason in check_snapshot(batches).faults:
                yield damage(reason)


def _is_metadata(path: PurePath) -> bool:
    try:
        return parse_directory_name(path.parent.name).partition.topic == METADATA_TOPIC
    except CorruptData:
        return False


def _index(source: Source) -> Iterator[Item]:
    is_time = source.role is FileRole.TIME_INDEX
    kind = IndexKind.TIME if is_time else IndexKind.OFFSET
    data = memoryview(source.read(_INDEX))
    used = used_length(data, kind)
    if is_time:
        for timestamp, offset in decode_time_index(data[:used], source.offset):
            yield Item("time_index_entry", {"timestamp": timestamp, "offset": offset})
    else:
        for offset, position in decode_offset_index(data[:used], source.offset):
            yield Item("index_entry", {"offset": offset, "position": position})
    rest = bytes(data[used:])
    if rest.strip(b"\0"):
        yield damage("entry does not rise above the one before it", used, len(rest))
    elif len(data) % kind.value:
        yield damage(f"{len(data)} bytes are no multiple of {kind.value}", used, len(rest))
    elif rest:
        yield note("zero bytes behind the last entry: preallocated, or not trimmed", used, len(rest))
    elif not data:
        yield note("the file is empty")


def _txn_index(source: Source) -> Iterator[Item]:
    data = source.read()
    for entry in decode_txn_index(data):
        fields = {
            "version": 0,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        yield Item("aborted_transaction", fields)
    if check_as_on_load(data, source.offset) is not LoadSanity.SOUND:
        yield damage("an entry ends below the segment's base offset")
    if rest := len(data) % TXN_ENTRY.size:
        yield damage("a partial entry at the end", len(data) - rest, rest)


def _producers(source: Source) -> Iterator[Item]:
    state = decode_snapshot(source.read(), source.offset)
    for entry in state.entries.values():
        fields = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if entry.txn_first_offset < 0 else entry.txn_first_offset,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        yield Item("producer", fields)
    if fault := find_snapshot_fault(state):
        yield damage(fault)


def _checkpoint(source: Source) -> Iterator[Item]:
    for partition, offset in decode_offsets(source.read()).items():
        fields = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        yield Item("checkpoint_entry", fields)


def _epochs(source: Source) -> Iterator[Item]:
    data = source.read()
    lines = decode_lines(data)
    for epoch, start in lines:
        yield Item("leader_epoch", {"epoch": epoch, "startOffset": start})
    if decode_epochs(data) != lines:
        yield damage("the entries do not all rise: a broker drops those that others contradict")


def _clean_shutdown(source: Source) -> Iterator[Item]:
    yield Item("marker", {"brokerEpoch": decode_clean_shutdown(source.read())})


def _meta_properties(source: Source) -> Iterator[Item]:
    found = decode_meta_properties(source.read())
    fields = {
        "version": found.version,
        "cluster.id": found.cluster_id,
        "node.id" if found.version else "broker.id": found.node_id,
        "directory.id": _uuid(found.directory_id),
    }
    yield Item("meta_properties", fields)


def _partition_metadata(source: Source) -> Iterator[Item]:
    found = decode_partition_metadata(source.read())
    yield Item("partition_metadata", {"version": found.version, "topic_id": _uuid(found.topic_id)})


def _quorum_state(source: Source) -> Iterator[Item]:
    state = decode_quorum_state(source.read())
    fields = {
        "data_version": state.version,
        "clusterId": state.cluster_id,
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": _uuid(state.voted_directory_id),
        "appliedOffset": state.applied_offset,
        "currentVoters": None if state.voters is None else list(state.voters),
    }
    yield Item("quorum_state", fields)


def _uuid(data: bytes | None) -> str | None:
    return None if data is None else encode_uuid(data)


def _manifest(source: Source) -> Iterator[Item]:
    if not source.path.name.endswith(MANIFEST_SUFFIX):
        raise ConfigInvalid(f"{printable(source.path)}: no manifest, and no name of a file that was set aside")
    for item in decode_manifest(source.read(), source.path).items:
        yield Item("kept", to_plain(item))


_READERS: Final[dict[FileRole, Callable[[Source], Iterator[Item]]]] = {
    **dict.fromkeys(_BATCHES, _log),
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
    FileRole.INDEX: _index,
    FileRole.TIME_INDEX: _index,
    FileRole.TXN_INDEX: _txn_index,
    FileRole.SNAPSHOT: _producers,
    FileRole.LEADER_EPOCHS: _epochs,
    FileRole.CLEAN_SHUTDOWN: _clean_shutdown,
    FileRole.META_PROPERTIES: _meta_properties,
    FileRole.PARTITION_METADATA: _partition_metadata,
    FileRole.QUORUM_STATE: _quorum_state,
    FileRole.OURS: _manifest,
}
