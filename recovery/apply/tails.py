"""Keeps copies of log ends that a broker may truncate when it starts again as a follower.

What lies above the high watermark is not known to be on any other replica, and what lies above the recovery point is
not known to have survived on one. A broker that comes back behind an election that went wrong cuts it without a word;
the copy is then the only one. Opt in, bounded in size, and removed after some days.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from recovery.apply.execute import Applying, execute
from recovery.evidence.kept import find_kept
from recovery.evidence.manifest import Item
from recovery.evidence.quarantine import expire
from recovery.logdir.log_dir import known_offsets
from recovery.plan.orders import Orders
from recovery.plan.plan import KeepCopy, LogDirPlan, RecoveryPlan, regular_partitions
from recovery.plan.results import KeptTails
from storage.base.errors import BatchCorrupt
from storage.base.names import FileRole, FileState, parse_file_name
from storage.base.units import Offset
from storage.disk.fs import FileKind, Fs, ReadFs
from storage.reading.segment_walk import first_batch_reaching

REASON: Final = "not known to be safe elsewhere, kept before a broker starts"
_DAY_MS: Final = 86_400_000


def keep_tails(
    fs: Fs, plan: LogDirPlan, orders: Orders, reporter: Applying, *, most_bytes: int, days: int
) -> KeptTails:
    """Copy what each log has above its recovery point or watermark, smallest first, `most_bytes` in all, durably.

    Copies of earlier runs that are older than `days` are removed, and count against the bytes until then. `plan` is
    the plan of a look at the directory, and empty; the caller holds the lock. Raises as `execute` does.
    """
    assert plan.is_empty
    mine = [one for one in find_kept(fs, [plan.log_dir])[0] if _only_tails(one.manifest.items)]
    old = [one for one in mine if one.manifest.created_ms < orders.created_ms - days * _DAY_MS]
    freed = expire(fs, old)
    room = most_bytes - sum(one.manifest.kept_bytes for one in mine if one not in old)
    known = {(one.directory, item.name, item.position, item.size) for one in mine for item in one.manifest.items}
    tails = sorted(_tails(fs, plan), key=lambda each: sum(copy.size for copy in each[1]))
    chosen, left_out, size = [], [], 0
    for partition, copies in tails:
        new = [c for c in copies if (partition.directory, c.path.name, c.position, c.size) not in known]
        wanted = sum(copy.size for copy in new)
        if size + wanted > room:
            left_out.append(partition.partition)
        elif new:
            chosen.append(_only(partition, tuple(new)))
            size += wanted
    if chosen:
        last = plan._replace(verdicts=(), before=(), partitions=tuple(chosen), after=(), preconditions=())
        execute(fs, last, lambda _: b"", orders._replace(plan_id=last.plan_id), reporter)
    return KeptTails(len(chosen), size, tuple(left_out), freed)


def _only_tails(items: tuple[Item, ...]) -> bool:
    return bool(items) and all(item.step == "copied" for item in items)


def _only(partition: RecoveryPlan, copies: tuple[KeepCopy, ...]) -> RecoveryPlan:
    return partition._replace(verdicts=(), preconditions=(), actions=copies, cuts=(), loaded=None)


def _tails(fs: ReadFs, plan: LogDirPlan) -> Iterator[tuple[RecoveryPlan, list[KeepCopy]]]:
    watermarks = known_offsets(fs, plan.log_dir / FileRole.HIGH_WATERMARKS.value)
    for name, partition in regular_partitions(plan):
        if partition.loaded is None or partition.held:
            continue
        # A leader that lost what it had not flushed makes its followers cut below the watermark, too.
        known = min(int(watermarks.get(name, 0)), partition.loaded.recovery_point)
        if known < partition.loaded.log_end:
            yield partition, list(_copies(fs, partition.directory, max(known, partition.loaded.log_start)))


def _copies(fs: ReadFs, directory: PurePath, watermark: int) -> Iterator[KeepCopy]:
    logs = {
        int(file.base_offset): (name, stat.size)
        for name, stat in fs.entries(directory).items()
        if stat.kind is FileKind.FILE
        and (file := parse_file_name(name)) is not None
        and file.role is FileRole.LOG
        and file.state is FileState.LIVE
        and file.base_offset is not None
    }
    first = max((base for base in logs if base <= watermark), default=0)
    for base in sorted(base for base in logs if base >= first):
        name, size = logs[base]
        with fs.open_read(directory / name) as log:
            try:
                place = first_batch_reaching(log, 0, size, Offset(watermark))
            except BatchCorrupt:
                continue
        if place is not None:
            at = place.position
            yield KeepCopy(directory / name, at, size - at, place.base_offset, REASON)
