"""Hands a log directory over to a broker: rolls active segments, lets recovery points rise, and may leave a marker.

Everything up to a log end has been verified by then: below the old recovery point it was flushed, above it every batch
was read. What is missing is that it is durable, for after a kill much of it is in the page cache alone. So each file
that may hold such bytes is synced, with the directories. Then large active segments are rolled, and only then do the
points rise to the log ends: a broker that starts scans its active segments and nothing else.
docs/operate/hand-over.md says what is promised.
Source: Apache Kafka 4.3.0, LogLoader, LogManager, CleanShutdownFileHandler; behaviour tried with that version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Final

from checkpoint.markers import encode_clean_shutdown
from checkpoint.offsets import decode_offsets, encode_offsets
from recovery.apply.execute import Applying, execute
from recovery.apply.roll import roll, rolling_partitions, take_back
from recovery.apply.together import is_on, shared_volume
from recovery.logdir.log_dir import MARKER, RECOVERY_POINTS
from recovery.partition.points import SMALL_FILE_LIMIT
from recovery.plan.digest import sha256_of
from recovery.plan.orders import Orders
from recovery.plan.plan import (
    LogDirPlan,
    RecoveryPlan,
    ReplaceFile,
    Seen,
    regular_partitions,
    rising_points,
)
from recovery.plan.results import HandedOver, Rise, Rolled
from storage.base.errors import CorruptData, DiskFull, FileVanished, NoRoom
from storage.base.names import FileRole, FileState, parse_file_name
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import Fs, ReadFs, read_all, replace_atomically
from storage.disk.pool import run_all

MARKED_VERSIONS: Final = ("4.3",)
"""Brokers that were seen to start rightly from a marker that we left."""
_NO_EPOCH: Final = -1
_FEW: Final = 2
_REASON: Final = "all below the log ends is verified and durable"


def hand_over(
    fs: Fs,
    plan: LogDirPlan,
    orders: Orders,
    reporter: Applying,
    *,
    marker: bool = False,
    threads: int = 1,
    synced: AbstractSet[PurePath] = frozenset(),
) -> HandedOver:
    """Make durable what was verified, roll active segments, then let the recovery points rise; with `marker` leave one.

    `plan` is what a look at the directory found, and must be empty; the caller holds the lock. What is among `synced`
    is durable: written, synced and not touched since, while the lock was held. The checkpoint of before
    is kept like everything else that is replaced. Beside a marker no segment is rolled, for nothing is scanned; nor
    without room for it. Raises `WriteFault`, `NoRoom` and `PlanStale` as `execute` does;
    the points are then as they were. A marker that cannot be left is no error: `refused` says why.
    """
    assert plan.is_empty
    path = plan.log_dir / RECOVERY_POINTS
    known = _known_points(fs, path)
    is_marked = MARKER in fs.entries(plan.log_dir)
    refused = _why_no_marker(fs, plan) if marker and not is_marked else ""
    left = is_marked or (marker and not refused)
    rising, rolling = rising_points(plan), {} if left else rolling_partitions(plan)
    if known is None and plan.is_held:
        # New points would say of what is held that none of it was flushed; it would be cut as a torn tail next time.
        rising, rolling = {}, {}
    made_durable = _make_durable(fs, plan, rising | rolling, synced, threads)
    entries = dict(known or {})
    rises = []
    for name, partition in rising.items():
        assert partition.loaded is not None
        old = entries.get(name)
        entries[name] = Offset(partition.loaded.log_end)
        rises.append(Rise(partition.partition, old, partition.loaded.log_end))
    last = plan._replace(verdicts=(), before=(), partitions=(), after=(), preconditions=())
    if rises:
        last = last._replace(after=(_new_checkpoint(fs, plan, encode_offsets(entries)),))
    partitions = tuple(roll(partition) for partition in rolling.values())
    try:
        _carry_out(fs, last._replace(partitions=partitions), encode_offsets(entries), orders, reporter, threads)
    except (NoRoom, DiskFull):
        if not rolling:
            raise
        take_back(fs, rolling.values())
        rolling = {}
        _carry_out(fs, last, encode_offsets(entries), orders, reporter, threads)
    if left and not is_marked:
        replace_atomically(fs, plan.log_dir / MARKER, encode_clean_shutdown(_NO_EPOCH), fs.stat(path))
    rolls = [Rolled(each.partition, *each.roll) for each in rolling.values() if each.roll is not None]
    scans = 0 if left else active_bytes(fs, plan) - sum(roll.size for roll in rolls)
    return HandedOver(tuple(rises), made_durable, scans, left, refused, tuple(rolls))


def _known_points(fs: ReadFs, path: PurePath) -> dict[TopicPartition, Offset] | None:
    try:
        return decode_offsets(read_all(fs, path, SMALL_FILE_LIMIT))
    except (FileVanished, CorruptData):
        return None


def _new_checkpoint(fs: Fs, plan: LogDirPlan, data: bytes) -> ReplaceFile:
    path = plan.log_dir / RECOVERY_POINTS
    there = path.name in fs.entries(plan.log_dir)
    return ReplaceFile(path, len(data), sha256_of(data), there, _REASON)


def _carry_out(fs: Fs, last: LogDirPlan, points: bytes, orders: Orders, reporter: Applying, threads: int) -> None:
    """Roll the segments, then replace the checkpoint by `points`: a plan that can be undone like any other."""
    if not last.is_empty:
        orders = orders._replace(plan_id=last.plan_id)
        execute(
            fs,
            last,
            lambda path: points if path.name == RECOVERY_POINTS else b"",
            orders,
            reporter,
            threads=threads,
            together=threads > 1,
        )


# ---- durable


def _make_durable(
    fs: Fs, plan: LogDirPlan, rising: dict[TopicPartition, RecoveryPlan], synced: AbstractSet[PurePath], threads: int
) -> int:
    """Sync every file that may hold bytes from the recovery point on, and the directories; return how many files."""
    if not rising:
        return 0
    files = [path for partition in rising.values() for path in _unflushed(partition) if path not in synced]
    directories = [partition.directory for partition in rising.values()]
    with shared_volume(fs, plan.log_dir, len(files) + len(directories) if threads > 1 else 0) as volume:
        if volume is not None:
            volume.sync()
        directories = [directory for directory in directories if not is_on(fs, volume, directory)]
    away = set(directories)
    left = [path for path in files if path.parent in away]
    if threads > 1 and len(left) > _FEW:
        run_all(fs.sync_file, left, threads, "sync")
        run_all(fs.sync_dir, directories, threads, "sync")
    else:
        for path in left:
            fs.sync_file(path)
        for directory in directories:
            fs.sync_dir(directory)
    fs.sync_dir(plan.log_dir)
    return len(files)


def _unflushed(partition: RecoveryPlan) -> list[PurePath]:
    assert partition.seen is not None  # an empty plan of a log that can be loaded has it
    return [partition.directory / name for name in partition.seen.unflushed]


def _seen(fs: ReadFs, partition: RecoveryPlan) -> Seen:
    """Return what the look at a partition has seen; of one without a plan, which is held, what a listing tells."""
    if partition.seen is not None:
        return partition.seen
    with contextlib.suppress(FileVanished):
        logs = {
            parsed.base_offset: stat.size
            for name, stat in fs.entries(partition.directory).items()
            if (parsed := parse_file_name(name)) is not None
            and parsed.role is FileRole.LOG
            and parsed.state is FileState.LIVE
            and parsed.base_offset is not None
        }
        return Seen(logs[max(logs)] if logs else 0, has_end_snapshot=False, unflushed=())
    return Seen(0, has_end_snapshot=False, unflushed=())


# ---- what is left to the broker


def active_bytes(fs: ReadFs, plan: LogDirPlan) -> int:
    """Return the bytes that a broker scans at an unclean start once the points have risen: its active segments."""
    return sum(_seen(fs, partition).active_bytes for _, partition in regular_partitions(plan))


def _why_no_marker(fs: ReadFs, plan: LogDirPlan) -> str:
    """Return what speaks against a marker, in words; empty where nothing does."""
    if plan.options.topics:
        return "only some topics were checked"
    if plan.is_held:
        return "something is held"
    if not plan.options.clean_marker:
        return "the plan was not made for one"
    for _, partition in regular_partitions(plan):
        if partition.loaded is None:
            return f"{partition.partition} was not looked at"
        end = partition.loaded.log_end
        if end > partition.loaded.log_start and not _seen(fs, partition).has_end_snapshot:
            return f"{partition.partition} has no producer snapshot at its log end {end}"
    return ""
