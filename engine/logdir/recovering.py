"""Brings one log directory, whose lock is held, into a state in which its logs can be opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from checkpoint.leader_epoch import FILE_NAME as EPOCHS
from checkpoint.leader_epoch import read_epochs
from checkpoint.offsets import LOG_START_OFFSETS
from engine.settings.options import ManagerOptions
from engine.settings.refusals import LogDirHeld, LogDirStopped, LogDirTiered
from recovery.apply.execute import execute
from recovery.logdir.log_dir import known_offsets
from recovery.logdir.survey import LIST_ALL, Planned, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan
from recovery.segment.memory import Memory
from storage.base.errors import CorruptData, FileVanished, LogmendError, printable
from storage.base.names import DirectoryName, FileName, FileRole, FileState, parse_file_name
from storage.base.units import Offset
from storage.disk.fs import FileKind, Fs, ReadFs


def recover_log_dir(fs: Fs, log_dir: PurePath, options: ManagerOptions, now_ms: int) -> LogDirPlan:
    """Plan, carry out, look again; return the plan that was carried out.

    Raises `LogDirHeld` and `LogDirStopped` before anything is changed, what planning and carrying out raise, and
    `LogmendError` if the second look finds work, which is a fault of ours.
    """
    # No broker scans the logs after this: their last time indexes, too, have to end with the largest timestamp.
    # A directory of ours is recovered whole, whatever topics are selected: one marker stands for all of its logs.
    wanted = options.recovery._replace(clean_marker=True, topics=())

    def look(memory: Memory | None = None) -> Planned:
        return plan_log_dir(fs, log_dir, wanted, options.reporter, options.jobs, memory, LIST_ALL)

    planned = look()
    plan = planned.plan
    if plan.stopped:
        raise LogDirStopped(log_dir, _evidence(plan, "stop"), plan.status)
    if plan.is_held:
        raise LogDirHeld(log_dir, _evidence(plan, "hold"))
    if plan.is_empty:
        return plan
    for number in range(2 if plan.is_first_of_two else 1):
        orders = Orders(planned.plan.plan_id, now_ms + number, options.version)
        execute(fs, planned.plan, planned.content_of, orders, options.reporter)
        planned = look(planned.memory)
    again = planned.plan
    if not again.is_empty or again.stopped:
        raise LogmendError(f"{printable(log_dir)}: recovered, and a second look still finds work: {again.plan_id}")
    return plan


def _evidence(plan: LogDirPlan, decision: str) -> str:
    findings = [verdict.finding for verdict in plan.all_verdicts() if verdict.decision == decision]
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    if not findings:
        return decision
    path = findings[0].path
    place = path.relative_to(plan.log_dir) if path.is_relative_to(plan.log_dir) else path
    return f"{printable(place)}: {findings[0].evidence}{more}"


def refuse_tiered(fs: ReadFs, log_dir: PurePath, directories: Sequence[DirectoryName]) -> None:
    """Raise `LogDirTiered` for a partition of which a broker noted that its log begins in a remote tier.

    A log start offset of 0 is noted for such alone. One below the first segment may be out of date; then the epochs
    begin no lower than the segments.
    """
    starts = known_offsets(fs, log_dir / LOG_START_OFFSETS)
    for directory in directories:
        start = starts.get(directory.partition)
        if start == 0 or (start is not None and _begins_below(fs, log_dir / directory.name, start)):
            raise LogDirTiered(log_dir, directory.partition)


def _begins_below(fs: ReadFs, directory: PurePath, log_start: Offset) -> bool:
    names = [parsed for name in fs.entries(directory) if (parsed := parse_file_name(name)) is not None]
    bases = [name.base_offset for name in names if name.role is FileRole.LOG and name.state is FileState.LIVE]
    first = min((base for base in bases if base is not None), default=None)
    try:
        epochs = read_epochs(fs, directory / EPOCHS)
    except (FileVanished, CorruptData):
        epochs = []
    return first is not None and log_start < first and bool(epochs) and epochs[0].start_offset < first


def needs_a_look(fs: ReadFs, directory: PurePath) -> bool:
    """Tell whether a partition has what a clean shutdown does not leave, but a marker does not rule out.

    That is a replacement that was cut off, or a log without its index: a broker sees to those on every start.
    """
    names = [found for name, stat in fs.entries(directory).items()
             if stat.kind is FileKind.FILE and (found := parse_file_name(name)) is not None]  # fmt: skip
    if any(name.state in (FileState.CLEANED, FileState.SWAP) for name in names):
        return True
    live = [name for name in names if name.state is FileState.LIVE and name.is_canonical]
    return _bases(live, FileRole.LOG) != _bases(live, FileRole.INDEX)


def _bases(names: list[FileName], role: FileRole) -> set[int | None]:
    return {name.base_offset for name in names if name.role is role}
