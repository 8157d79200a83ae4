"""Writes small logs, and compacts a directory that no log is opened on, as it lies there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from support.batches import TS

from storage.base.config import LogConfig
from storage.base.names import FileRole, FileState, parse_file_name, segment_file_name
from storage.base.rows import BatchRows, ProducerEvent, Stop
from storage.base.units import Offset
from storage.batch.batch import BatchHeader, parse_header, split_batches
from storage.batch.record import Record, records_of
from storage.cleanup.compaction import Cleaned, Compaction, Round, last_records_of
from storage.cleanup.offset_map import OffsetMap
from storage.disk.fs import Fs, OsFs, read_all
from storage.kernel.scan import scan_batches
from storage.producers.producer_state import ProducerEntry, ProducerState, decode_snapshot
from storage.segment.segment import LogSegment
from storage.segment.segment_types import BatchEnd, SegmentLimits
from storage.segment.swapping import swap_in


def segments_of(fs: Fs, directory: PurePath, config: LogConfig, now_ms: int = 0) -> list[LogSegment]:
    """Return the segments of a directory in ascending order."""
    listing = fs.entries(directory)
    limits = SegmentLimits(config.index_interval_bytes, config.segment_index_bytes)
    found = [name for name in map(parse_file_name, listing) if name is not None]
    logs = [name for name in found if name.role is FileRole.LOG and name.state is FileState.LIVE]
    bases = sorted(Offset(name.base_offset) for name in logs if name.base_offset is not None)
    return [LogSegment.open(fs, directory, base, limits, now_ms, listing=listing) for base in bases]


def producers_of(fs: Fs, directory: PurePath) -> list[ProducerEntry]:
    """Return what the newest snapshot of a directory says."""
    snapshots = [name for name in fs.entries(directory) if name.endswith(".snapshot")]
    if not snapshots:
        return []
    return list(decode_snapshot(read_all(fs, directory / max(snapshots), 1 << 20)).entries.values())


def compact(
    directory: PurePath,
    config: LogConfig,
    task: Round,
    *,
    fs: Fs | None = None,
    map_bytes: int = 1 << 20,
    load_factor: float = 0.75,
    removes: bool = True,
    **more: Any,
) -> Cleaned:
    """Run one round; `.deleted` files are removed after each swap unless told otherwise."""
    fs = fs or OsFs()

    def swap(cleaned: LogSegment, sources: Sequence[LogSegment]) -> None:
        gone = [*swap_in(fs, directory, [cleaned], sources), *mark_snapshots_deleted(fs, directory, sources)]
        for segment in sources:
            segment.close()
        for path in gone if removes else ():
            fs.remove(path)

    segments = segments_of(fs, directory, config, task.now_ms)
    producers = producers_of(fs, directory)
    how = Compaction(
        fs=fs, directory=directory, config=config, swap=swap, last_records=lambda: last_records_of(producers), **more
    )
    try:
        return how.run(segments, task, OffsetMap(map_bytes, load_factor))
    finally:
        for segment in segments:
            segment.close()


def mark_snapshots_deleted(fs: Fs, directory: PurePath, sources: Sequence[LogSegment]) -> list[PurePath]:
    """Rename the producer snapshots of segments that were merged into the first, as `Log.replace_segments` does."""
    there, gone = fs.entries(directory), []
    for segment in sources[1:]:
        name = segment_file_name(segment.base_offset, FileRole.SNAPSHOT)
        if name in there:
            gone.append(directory / segment_file_name(segment.base_offset, FileRole.SNAPSHOT, FileState.DELETED))
            fs.rename(directory / name, gone[-1])
    return gone


class Clean(NamedTuple):
    """A batch of a log: its header, and its records."""

    header: BatchHeader
    records: list[Record]


def batches_of(fs: Fs, directory: PurePath) -> list[Clean]:
    """Return all batches of a directory in order; each must be sound."""
    found = []
    for name in sorted(fs.entries(directory)):
        if name.endswith(".log"):
            data = memoryview(read_all(fs, directory / name, 1 << 24))
            scanned = scan_batches(data, BatchRows(1 << 12))
            assert scanned.stop is Stop.END, f"{name}: {scanned}"
            found += [Clean(parse_header(batch), list(records_of(batch))) for batch in split_batches(data)]
    return found


def records_in(fs: Fs, directory: PurePath) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of each record that is not a control record."""
    return [
        (record.offset, record.key, record.value)
        for batch in batches_of(fs, directory)
        if not batch.header.is_control
        for record in batch.records
    ]


def offsets_in(fs: Fs, directory: PurePath) -> list[int]:
    """Return the offsets of all records, control records among them."""
    return [record.offset for batch in batches_of(fs, directory) for record in batch.records]


def write_log(
    fs: Fs,
    directory: PurePath,
    segments: Iterable[Sequence[bytes]],
    config: LogConfig | None = None,
) -> list[int]:
    """Write a segment for each list of batches, an empty active one and a snapshot; return the base offsets.

    A segment begins at its first batch; one that is given without batches begins where the one before ends.
    """
    config = config or LogConfig()
    limits = SegmentLimits(config.index_interval_bytes, config.segment_index_bytes)
    state, rows, bases = ProducerState(), BatchRows(1 << 17), []
    end = 0
    for batches in [*segments, []]:
        data = b"".join(batches)
        scanned = scan_batches(memoryview(data), rows)
        assert scanned.stop is Stop.END
        base = rows.base_offset[0] if scanned.count else end
        if scanned.count and rows.magic[0] < 2:
            base = end
        bases.append(base)
        segment = LogSegment.create(fs, directory, Offset(base), limits, TS)
        if data:
            segment.append(
                data, [BatchEnd(rows.last_offset[n], rows.max_timestamp[n], rows.size[n]) for n in range(scanned.count)]
            )
            end = rows.last_offset[scanned.count - 1] + 1
        for event in (_event(rows, n) for n in range(scanned.count) if rows.producer_id[n] >= 0):
            if (aborted := state.add_batch(event)) is not None:
                segment.append_aborted(aborted)
        segment.seal()
        segment.flush()
        segment.close()
    with fs.create(directory / f"{end:020d}.snapshot") as file:
        file.append(state.encode_snapshot())
        file.sync()
    fs.sync_dir(directory)
    return bases


def _event(rows: BatchRows, n: int) -> ProducerEvent:
    return ProducerEvent(*(getattr(rows, name)[n] for name in ProducerEvent._fields))
