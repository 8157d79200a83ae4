"""Puts the plan of one partition together from what its steps have decided, in the order in which it is carried out."""

from __future__ import annotations

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.markers import PARTITION_METADATA
from recovery.partition.changes import Changes
from recovery.partition.cutting import Logs
from recovery.partition.partition import Survey
from recovery.partition.points import is_tiered
from recovery.partition.tiering import log_start_of
from recovery.plan.findings import Damage
from recovery.plan.plan import (
    Action,
    LoadedOffsets,
    PlannedPartition,
    Precondition,
    RecoveryPlan,
    Roll,
    Seen,
    Trim,
    Verdict,
)
from storage.base.units import INT64_MAX


def assemble(survey: Survey, logs: Logs, changes: Changes) -> PlannedPartition:
    """Return the plan that carries the changes out: copies first, derived files after the log that they follow."""
    points = survey.points
    end = logs.end(points.log_start)
    point = end if points.clean else min(points.recovery_point or 0, end)
    gone = changes.paths_aside()
    actions: tuple[Action, ...] = (
        *changes.copies,
        *changes.splits,
        *changes.asides,
        *changes.splices,
        *changes.truncates,
        *(rename for rename in changes.renames if rename.path not in gone),
        *sorted(changes.replaces, key=lambda r: (r.path.suffix not in (".index", ".timeindex"), str(r.path))),
    )
    loaded = LoadedOffsets(log_start_of(points, logs), end, point)
    # Names are compared, not paths: there are many of them, and nearly always no action at all.
    touched = {action.path.name for action in actions if action.path.parent == survey.directory}
    if actions:
        touched |= {files.log.name for files in survey.resolved.segments}
    entries = survey.inventory.entries
    roll = _roll(survey, logs)
    plan = RecoveryPlan(
        partition=survey.partition,
        directory=survey.directory,
        verdicts=_ordered(changes),
        held=False,
        preconditions=tuple(
            Precondition.of(survey.directory / name, entry.stat) for name, entry in entries.items() if name in touched
        ),
        actions=actions,
        cuts=changes.cuts,
        loaded=loaded,
        scanned_bytes=scanned_bytes(logs),
        roll=roll,
        seen=None if actions else _seen(survey, logs, loaded, roll),
    )
    return PlannedPartition(plan, dict(changes.contents))


def without_actions(survey: Survey, changes: Changes, scanned: int, *, held: bool = False) -> PlannedPartition:
    """Return a plan that says what was found and does nothing: of a partition that is held or can not be read."""
    plan = RecoveryPlan(
        partition=survey.partition,
        directory=survey.directory,
        verdicts=_ordered(changes),
        held=held,
        preconditions=(),
        actions=(),
        cuts=changes.cuts,
        loaded=None,
        scanned_bytes=scanned,
    )
    return PlannedPartition(plan, {})


def scanned_bytes(logs: Logs) -> int:
    """Return the bytes that were read of the segments, pieces of them included."""
    return sum(report.scanned_bytes for report in logs.reports.values())


def _ordered(changes: Changes) -> tuple[Verdict, ...]:
    return tuple(sorted(changes.verdicts, key=_order))


def _order(verdict: Verdict) -> tuple[str, int, str]:
    finding = verdict.finding
    return finding.path.name, finding.position or 0, finding.kind.value


def _seen(survey: Survey, logs: Logs, loaded: LoadedOffsets, roll: Roll | None) -> Seen:
    """Return what is known of a partition in which nothing is to be done."""
    resolved = survey.resolved
    segments = resolved.segments
    active = segments[-1].log_stat.size if segments else 0
    unflushed: list[str] = []
    if loaded.recovery_point < loaded.log_end or roll is not None:
        first = max((f.base_offset for f in segments if f.base_offset <= loaded.recovery_point), default=0)
        unflushed += (name for files in segments if files.base_offset >= first for name in files.names_there())
        unflushed += (name for offset, name in resolved.snapshots.items() if offset >= first)
        unflushed += (n for n in (EPOCHS_NAME, PARTITION_METADATA) if n in survey.inventory.entries)
    return Seen(active, loaded.log_end in resolved.snapshots, tuple(unflushed), _trims(survey, logs, roll))


def _trims(survey: Survey, logs: Logs, roll: Roll | None) -> tuple[Trim, ...]:
    if roll is None:
        return ()
    trims = logs.report_on(logs.kept[-1]).trims.items()
    return tuple(Trim(path.name, size, survey.inventory.entries[path.name].stat.size) for path, size in trims)


def _roll(survey: Survey, logs: Logs) -> Roll | None:
    """Return the roll of a partition's active segment; None where it spares a broker little, or can not be done.

    The end of the log must fit the name of a file and lie above the log start: at the start a broker deletes the
    snapshot that the new segment relies on. Where the index is too small for the log it is not what a roll leaves.
    """
    points, least = survey.points, survey.options.roll_from
    if not survey.may_roll or least is None or not logs.kept or logs.held:
        return None
    if is_tiered(points, logs.kept[0].base_offset):  # of the segments that stay
        return None
    active = logs.report_on(logs.kept[-1])
    if active.valid_size < max(least, 1) or any(f.kind is Damage.INDEX_OVERFULL for f in active.findings):
        return None
    end = logs.end(points.log_start)
    return Roll(end, active.valid_size) if logs.start(points.log_start) < end < INT64_MAX else None
