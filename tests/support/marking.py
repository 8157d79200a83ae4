"""Marks as a guard makes them, of logs as they lie on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from recovery.logdir.survey import Planned, plan_log_dir
from recovery.plan.plan import PlanOptions
from recovery.segment.marks import EVENT_LIMIT, HEADER_BYTES, Mark, index_digest
from recovery.segment.memory import Guarded, Memory
from storage.base.rows import BatchRows
from storage.disk.fs import OsFs
from storage.kernel.fold import SegmentFold
from storage.kernel.scan import scan_batches

BOOT, LATER_BOOT = (f"7c5a6f0e-0000-4000-8000-00000000000{n}" for n in (1, 2))


class Folded(NamedTuple):
    """A fold, where it ended, what may follow there, and the header of the last batch before that."""

    fold: SegmentFold
    position: int
    next_offset: int
    header: bytes


def fold_of(log: Path, batches: int | None = None, *, interval: int = 4096, index_bytes: int = 10 << 20) -> Folded:
    """Return the fold of the first `batches` sound batches of a log, all by default."""
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
    return Folded(fold, position, following, header)


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
    fold, position, following, header = fold_of(log, batches, interval=interval, index_bytes=index_bytes)
    if not position:
        return None
    state, (offsets, times), stat = fold.save(), fold.take_indexes(), OsFs().stat(log)
    return Mark(
        log.parent.name, topic_id, stat.device, stat.inode, int(log.stem), interval, index_bytes, position, following,
        header, len(offsets), index_digest(offsets), len(times), index_digest(times), state, boot_id, made_ms,
        is_durable,
    )  # fmt: skip


def planned_with(
    log_dir: Path, options: PlanOptions, marks: Mapping[tuple[str, int], Mark], boot_id: str = BOOT
) -> Planned:
    """Return the plan that a recovery makes with these marks."""
    guarded = Guarded({key: (mark,) for key, mark in marks.items()}, boot_id, 5_000)
    return plan_log_dir(OsFs(), log_dir, options, memory=Memory(guarded))


def planned_without(log_dir: Path, options: PlanOptions) -> Planned:
    """Return the plan that a recovery makes by reading everything."""
    return plan_log_dir(OsFs(), log_dir, options)


def same(one: Planned, other: Planned) -> bool:
    """Tell whether two plans are the same to the byte, and so is what they would write."""
    return one.plan == other.plan and one.plan.plan_id == other.plan.plan_id and one.contents == other.contents


def marked_bytes(planned: Planned) -> int:
    """Return how much of the logs was not read for a plan because of marks."""
    return sum(partition.coverage.marked for partition in planned.plan.partitions)
