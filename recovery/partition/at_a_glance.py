"""The plan of a partition in which nothing is to be done, from one look: most are like this after a clean shutdown.

What `recovery.partition.partition` and `recovery.partition.partition_plan` would say at length comes out the same;
where anything is odd, they are asked.
"""

from __future__ import annotations

from typing import Final

from checkpoint.leader_epoch import decode_epochs
from checkpoint.markers import decode_partition_metadata
from recovery.partition.derive import derive_epochs
from recovery.partition.partition import Survey
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import LoadedOffsets, PlannedPartition, RecoveryPlan, Seen
from storage.base.errors import CorruptData, ReadFault, UnsupportedFormat
from storage.base.units import INT64_MAX
from storage.disk.glance import Glance, glance
from storage.producers.producer_state import check_snapshot
from storage.reading.log_reader import LogReader

_FIRST_WITH_PRODUCERS: Final = 2


def look_at(survey: Survey, reader: LogReader) -> None:
    """Plan a partition that was shut down cleanly at a glance; where that is not enough, prepare it for a quick look.

    Faults of the disk become findings.
    """
    refused = None
    try:
        survey.done = _plan(survey)
    except ReadFault as fault:
        refused = Finding(Damage.READ_ERROR, fault.path, str(fault))
    if survey.done is not None:
        return
    survey.prepare(reader)
    # What failed once is not believed, though it may now be read without an error.
    if refused is not None and not any(finding.kind is refused.kind for finding in survey.findings):
        survey.findings.append(refused)


def _plan(survey: Survey) -> PlannedPartition | None:
    seen = glance(survey.fs, survey.directory, survey.options.user)
    if seen is None or not _has_sound_side_files(survey, seen):
        return None
    loaded = LoadedOffsets(max(survey.points.log_start, seen.first_base), seen.log_end, seen.log_end)
    plan = RecoveryPlan(
        partition=survey.partition,
        directory=survey.directory,
        verdicts=(),
        held=False,
        preconditions=(),
        actions=(),
        cuts=(),
        loaded=loaded,
        scanned_bytes=0,
        seen=Seen(seen.active_size, seen.has_end_snapshot, ()),
    )
    return PlannedPartition(plan, {})


def _has_sound_side_files(survey: Survey, seen: Glance) -> bool:
    if seen.epochs is None or (seen.metadata is None and survey.points.topic_ids is not None):
        return False
    try:
        epochs = decode_epochs(seen.epochs)
        if seen.metadata is not None:
            decode_partition_metadata(seen.metadata)
        if seen.snapshot is not None:
            check_snapshot(seen.snapshot)
    except (CorruptData, UnsupportedFormat):
        return False
    return derive_epochs(epochs, (), INT64_MAX, 0) == epochs and _knows_its_producers(survey, seen)


def _knows_its_producers(survey: Survey, seen: Glance) -> bool:
    """Tell whether a broker finds what it needs to know of producers; where no batch has any, that is nothing."""
    if seen.snapshot is not None or seen.magic < _FIRST_WITH_PRODUCERS:
        return True
    return seen.log_end <= max(survey.points.log_start, seen.first_base)
