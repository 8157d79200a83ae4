"""Parts of huge segments: cut by the index, read apart, joined again. No Spark in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Final

from audit.scan.listing import ListedSegment
from audit.tables.reading import open_place
from audit.tables.schema import BLOCK_OFFSETS, Binary, Int, Ints, Long, SegmentRow, Text
from audit.tables.wire import PackedBlocks, digest_of
from recovery.segment.segment_report import Depth
from storage.base.errors import EnvironmentFault
from storage.base.rows import BatchRows
from storage.disk.fs import ReadFs
from storage.index.indexes import OFFSET_ENTRY
from storage.kernel.fold import SegmentFold
from storage.reading.log_reader import LogReader

_INDEX_LIMIT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """What one task is to read: `end` is None for all of the segment, else `start` to `end` are bytes of the log."""

    segment: ListedSegment
    start: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class PieceRow:
    """A part of a segment that was read apart. It joins the next one where `valid_until` is the other's start."""

    cluster: Text
    broker: Text
    log_dir: Text
    topic: Text
    partition: Int
    base_offset: Long
    start: Long
    end: Long
    valid_until: Long
    first_offset: Long | None
    next_offset: Long
    batches: Long
    records: Long
    max_timestamp_ms: Long
    epochs: Ints
    blocks: Binary
    evidence: Text


def cut(segment: ListedSegment, split_bytes: int) -> list[SegmentTask]:
    """Return the tasks for a segment: one, or for a huge one several that begin where its index says a batch does.

    The index is believed only to choose places: a part that does not begin with a batch, or does not join the next, is
    found out afterwards, and the segment is read whole.
    """
    if segment.size_bytes <= split_bytes:
        return [SegmentTask(segment)]
    try:
        fs, log_dir = open_place(segment.log_dir)
        places = _index_positions(fs, log_dir / segment.directory / segment.files[1], segment.size_bytes)
    except EnvironmentFault:
        return [SegmentTask(segment)]
    starts = [0]
    for place in places:
        if place - starts[-1] >= split_bytes and segment.size_bytes - place >= split_bytes // 4:
            starts.append(place)
    if len(starts) == 1:
        return [SegmentTask(segment)]
    return [
        SegmentTask(segment, start, end)
        for start, end in zip(starts, [*starts[1:], segment.size_bytes], strict=True)
    ]  # fmt: skip


def _index_positions(fs: ReadFs, path: PurePath, log_size: int) -> list[int]:
    size = min(fs.stat(path).size, _INDEX_LIMIT)
    data = bytearray(size)
    with fs.open_read(path) as file, memoryview(data) as view:
        size = file.read_into(0, view)
    positions, last = [], 0
    for _, position in OFFSET_ENTRY.iter_unpack(bytes(data[: size // OFFSET_ENTRY.size * OFFSET_ENTRY.size])):
        if not last < position < log_size:
            break
        positions.append(position)
        last = position
    return positions


def read_piece(reader: LogReader, fs: ReadFs, log_dir: PurePath, task: SegmentTask) -> PieceRow:
    """Return what a part of a log holds; raises `ReadFault` and `FileVanished`."""
    segment = task.segment
    path = log_dir / segment.directory / segment.files[0]
    assert task.end is not None
    fold = SegmentFold(segment.base_offset, event_limit=1, block_offsets=BLOCK_OFFSETS)

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        fold.add(rows, count)

    with fs.open_read(path) as file:
        scan = reader.scan(file, path, task.end, segment.base_offset, on_rows, start=task.start)
    return PieceRow(
        segment.cluster,
        segment.broker,
        segment.log_dir,
        segment.topic,
        segment.partition,
        segment.base_offset,
        task.start,
        task.end,
        scan.valid_size,
        fold.first_offset,
        fold.next_offset,
        fold.batch_count,
        fold.record_count,
        fold.max_timestamp,
        [epoch for epoch, _ in fold.epochs],
        fold.blocks(),
        scan.stop.name.lower(),
    )


def joined(segment: ListedSegment, pieces: Iterable[PieceRow], now: datetime) -> list[SegmentRow | PackedBlocks] | None:
    """Return the rows of a segment whose parts join without a gap or an overlap; None if they do not."""
    ordered = sorted(pieces, key=lambda piece: piece.start)
    place, offset = 0, segment.base_offset
    for piece in ordered:
        if piece.start != place or piece.valid_until != piece.end:
            return None
        if piece.first_offset is not None and piece.first_offset < offset:
            return None
        place, offset = piece.end, max(offset, piece.next_offset)
    if place != segment.size_bytes:
        return None
    blocks = b"".join(piece.blocks for piece in ordered)
    epochs: list[int] = []
    for epoch in (epoch for piece in ordered for epoch in piece.epochs):
        if not epochs or epoch > epochs[-1]:
            epochs.append(epoch)
    firsts = [piece.first_offset for piece in ordered if piece.first_offset is not None]
    stamp = max(piece.max_timestamp_ms for piece in ordered)
    row = SegmentRow(
        segment.cluster,
        segment.broker,
        segment.log_dir,
        segment.topic,
        segment.partition,
        segment.directory,
        segment.base_offset,
        segment.size_bytes,
        segment.size_bytes,
        segment.mtime_ms,
        segment.is_active,
        sum(piece.batches for piece in ordered),
        sum(piece.records for piece in ordered),
        min(firsts, default=None),
        offset - 1 if firsts else None,
        stamp if stamp >= 0 else None,
        epochs,
        digest_of(blocks),
        now,
        Depth.FULL.value,
        from_previous=False,
    )
    key = (segment.cluster, segment.topic, segment.partition, segment.broker, segment.log_dir)
    return [row, PackedBlocks(key, segment.base_offset, blocks)]
