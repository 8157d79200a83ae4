"""What the local log of a tiered topic does not tell, because only the remote tier has the older segments.

A broker deletes remote segments whose leader epochs are all older than its epoch file begins, and those below the log
start offset. So neither is derived from the local log where that begins above the log start offset.
Source: Apache Kafka 4.3.0, RemoteLogManager, UnifiedLog, LogLoader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, epoch_at
from checkpoint.offsets import LOG_START_OFFSETS
from recovery.partition.changes import Changes
from recovery.partition.cutting import Logs, ends_below_its_start
from recovery.partition.partition import Survey
from recovery.partition.points import Points, is_tiered
from recovery.plan.decide import Decision
from recovery.plan.findings import Damage, Finding
from storage.base.units import Offset


def log_start_of(points: Points, logs: Logs) -> int:
    """Return the log start offset that a broker takes: that of a tiered log may lie below its first segment."""
    local_start = logs.start(points.log_start)
    if points.has_log_start and points.log_start < local_start and is_tiered(points, local_start):
        return points.log_start
    return local_start


# ---- what is lost


def lost_local_log(survey: Survey, logs: Logs) -> Finding | None:
    """Return a finding where a broker would start a new log in place of a tiered one, and forget the remote tier."""
    points = survey.points
    if logs.kept:
        if not ends_below_its_start(survey, logs) or not is_tiered(points, logs.kept[0].base_offset):
            return None
        evidence = (
            f"the cut would leave a log that ends at {logs.end(0)}, below the log start offset {points.log_start}"
        )
    else:
        is_new = not (survey.epoch_file.entries or points.has_log_start or points.recovery_point)
        if is_new or logs.changes.cuts or not is_tiered(points, None):
            return None
        evidence = "no segment is left on this disk"
    return Finding(Damage.LOCAL_LOG_LOST, survey.directory, evidence + _BEGINS_ANEW)


def held_instead(logs: Logs) -> Logs:
    """Return the logs with nothing done to them: what was to be cut is held."""
    verdicts = (verdict._replace(row="m", decision=Decision.HOLD.value) for verdict in logs.changes.verdicts)
    return logs._replace(held=True, changes=Changes(tuple(verdicts)))


def lost_epochs(survey: Survey, logs: Logs) -> Finding | None:
    """Return a finding where nothing on this disk tells all leader epochs from the log start offset to the local log.

    What is left of a torn file is all of it if the epoch of its last line is that of the first batch here: epochs rise.
    """
    local_start = logs.kept[0].base_offset if logs.kept else 0
    if local_start <= survey.points.log_start:
        return None
    file, first = survey.epoch_file, _first_epoch(logs)
    newest = epoch_at(file.leading, Offset(local_start))
    if file.is_whole:
        known = newest is not None and (first is None or first <= newest)
    else:
        known = newest is not None and (first == newest or file.leading[-1].start_offset >= local_start)
    if known or not is_tiered(survey.points, local_start):
        return None
    path = survey.directory / EPOCHS_NAME
    what = "there is no such file" if survey.inventory.stat_of(EPOCHS_NAME) is None else _known_part(file.leading)
    evidence = (
        f"{what}, and offsets {survey.points.log_start} to {local_start - 1} lie in the remote tier alone: a broker"
        f" that starts without their epochs deletes them there. {_WAY_OUT}"
    )
    return Finding(
        Damage.EPOCHS_LOST, path, evidence, first_offset=survey.points.log_start, last_offset=local_start - 1
    )


def lost_log_start(survey: Survey, logs: Logs) -> Finding | None:
    """Return a finding with the log start offset, as its first offset, of a tiered log that has lost it.

    A broker would take 0, and its clients would ask for records that are deleted. The epoch file begins where the log
    does.
    """
    points, epochs = survey.points, survey.epoch_file
    if points.has_log_start or not (logs.kept and epochs.is_whole and epochs.leading):
        return None
    start, local_start = int(epochs.leading[0].start_offset), int(logs.kept[0].base_offset)
    if not 0 < start < local_start or not is_tiered(points, local_start):
        return None
    evidence = (
        f"{survey.partition}: no log start offset; by its leader epochs the log begins at {start}, in the remote tier"
    )
    path = survey.directory.parent / LOG_START_OFFSETS
    return Finding(Damage.LOG_START_LOST, path, evidence, first_offset=start)


_WAY_OUT: Final = (
    "Recover with --heal-from a replica, or put a copy of the file of a replica or of the newest remote segment here"
    " and recover with --depth full"
)
_BEGINS_ANEW: Final = (
    ": a broker would start a new log, give offsets out twice and delete what the remote tier has. Let a replica"
    " lead, and move this directory away before the broker starts"
)


def _known_part(leading: Sequence[EpochStart]) -> str:
    if not leading:
        return "no line of it can be used"
    return f"behind epoch {leading[-1].epoch}, which begins at offset {leading[-1].start_offset}, it tells nothing"


def _first_epoch(logs: Logs) -> int | None:
    """Return the epoch of the first batch that is on this disk, None where it is not known."""
    report = logs.report_on(logs.kept[0])
    if not report.is_scanned or report.epochs_fall or not report.epochs:
        return None
    epoch, offset = report.epochs[0]
    return epoch if offset == report.base_offset else None
