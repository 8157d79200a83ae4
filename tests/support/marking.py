"""Marks as a guard makes them, of logs as they lie on the disk."""

from __future__ import annotations

from pathlib import Path

from recovery.segment.marks import EVENT_LIMIT, HEADER_BYTES, Mark, index_digest
from recovery.segment.segment_files import SegmentFiles
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset
from storage.disk.fs import OsFs
from storage.kernel.fold import SegmentFold
from storage.kernel.rows import BatchRows
from storage.kernel.scan import scan_batches

BOOT = "7c5a6f0e-0000-4000-8000-000000000001"


def listed(log: Path) -> SegmentFiles:
    """Return the files of a segment by the path of its log."""
    names = [segment_file_name(Offset(int(log.stem)), role) for role in ROLES]
    side = [OsFs().stat(log.with_name(name)) if log.with_name(name).exists() else None for name in names[1:]]
    return SegmentFiles.listed(int(log.stem), log.parent, names, OsFs().stat(log), side)


ROLES = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)


def mark_of(
    log: Path,
    batches: int | None = None,
    *,
    topic_id: str | None = None,
    interval: int = 4096,
    index_bytes: int = 10 << 20,
    boot_id: str = BOOT,
    made_ms: int = 1_000,
    is_durable: bool = False,
) -> Mark | None:
    """Return the mark behind the first `batches` sound batches of a log, all by default; None if there are none."""
    base, data, rows = int(log.stem), memoryview(log.read_bytes()), BatchRows(1)
    fold = SegmentFold(base, index_interval_bytes=interval, max_index_size=index_bytes, event_limit=EVENT_LIMIT)
    position, following, header, done = 0, base, b"", 0
    while batches is None or done < batches:
        scanned = scan_batches(data[position:], rows, position=position, next_offset=following)
        if not scanned.count:
            break
        fold.add(rows, 1)
        header, done = bytes(data[position : position + HEADER_BYTES]), done + 1
        position, following = position + scanned.size, rows.last_offset[0] + 1
    if not done:
        return None
    offsets, times = fold.take_indexes()
    stat = OsFs().stat(log)
    return Mark(
        log.parent.name, topic_id, stat.device, stat.inode, base, interval, index_bytes, position, following, header,
        len(offsets), index_digest(offsets), len(times), index_digest(times), fold.save(), boot_id, made_ms, is_durable,
    )  # fmt: skip
