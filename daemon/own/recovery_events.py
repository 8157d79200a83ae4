"""Tells what a recovery did, from the plan that was carried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from daemon.own.progress import RecoveryWatch
from daemon.status.model import Events, RecoveryProgress
from engine.logdir.log_dir import LogDir
from recovery.plan.plan import Action, LogDirPlan, Quarantine, RecoveryPlan, ReplaceFile, TruncateTo
from recovery.plan.words import count
from storage.base.errors import CorruptData
from storage.base.names import parse_directory_name


def tell_recovery(events: Events, log_dir: LogDir, watch: RecoveryWatch, now_ms: int) -> RecoveryProgress | None:
    """Tell of the recovery of a log directory and return how it went; nothing, and None, if there was none.

    The plan is let go of: with many findings it is large.
    """
    plan, log_dir.recovered = log_dir.recovered, None
    failed = log_dir.offline is not None
    result = "failed" if failed else "nothing to do" if plan is None else _result(plan)
    progress = watch.progress(log_dir.path, finished_ms=now_ms, result=result)
    if progress is None:
        return None
    if failed:
        events.tell("recovery_failed", log_dir=log_dir.path, reason=log_dir.offline)
        return progress
    if plan is not None and not plan.is_empty:
        _tell_plan(events, plan)
    events.tell(
        "recovery_finished",
        log_dir=log_dir.path,
        plan_id=None if plan is None else plan.plan_id,
        seconds=round(watch.seconds(log_dir.path), 3),
        bytes=progress.done_bytes,
        actions=0 if plan is None else _actions(plan),
        result=result,
    )
    return progress


def _actions(plan: LogDirPlan) -> int:
    return len(plan.before) + sum(len(each.actions) for each in plan.partitions) + len(plan.after)


def _result(plan: LogDirPlan) -> str:
    if plan.is_empty:
        return "nothing to do"
    cuts = sum(len(each.cuts) for each in plan.partitions)
    done = count(_actions(plan), "action")
    return f"{done}, {count(cuts, 'cut')}" if cuts else done


def _tell_plan(events: Events, plan: LogDirPlan) -> None:
    findings = sum(1 for _ in plan.all_verdicts())
    events.tell(
        "recovery_planned", log_dir=plan.log_dir, plan_id=plan.plan_id, findings=findings, actions=_actions(plan)
    )
    for partition in plan.partitions:
        where = _names(plan.log_dir, partition)
        for event, fields in _told(partition):
            events.tell(event, **where, plan_id=plan.plan_id, **fields)


def _names(log_dir: PurePath, partition: RecoveryPlan) -> dict[str, object]:
    try:
        name = parse_directory_name(partition.directory.name).partition
    except CorruptData:
        return {"log_dir": log_dir}
    return {"log_dir": log_dir, "topic": name.topic, "partition": name.partition}


def _told(partition: RecoveryPlan) -> Iterator[tuple[str, dict[str, object]]]:
    for action in partition.actions:
        yield from _event_of(action)


def _event_of(action: Action) -> Iterator[tuple[str, dict[str, object]]]:
    match action:
        case Quarantine():
            fields: dict[str, object] = {"path": action.path, "position": action.position, "bytes": action.size}
            yield "bytes_quarantined", fields
        case TruncateTo():
            cut = action.old_size - action.size
            yield "log_truncated", {"path": action.path, "position": action.size, "size": cut}
        case ReplaceFile() if action.path.suffix in (".index", ".timeindex"):
            yield "index_rebuilt", {"path": action.path}
        case _:
            return
