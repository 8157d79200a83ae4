"""Takes the lost leader epochs of a tiered partition from a replica: plans the file that has them again.

A replica's epochs are taken if they reach from the log start offset to the local log, agree with what is left of our
file, and give the first local batch the epoch that it has: both logs then follow the leader of that epoch, and agree on
all that came before. Without a local batch the replica must have what is committed up to there. The epochs of the local
log are those of its batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from checkpoint.leader_epoch import (
    EpochStart,
    assign,
    decode_leading,
    encode_epochs,
    epoch_at,
    truncate_from_end,
    truncate_from_start,
)
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata
from recovery.heal.healing import HealNote
from recovery.heal.replica import ReplicaFacts, ReplicaSource, ReplicaUnusable
from recovery.partition.inventory import resolve, take_inventory
from recovery.partition.points import SMALL_FILE_LIMIT
from recovery.plan.digest import sha256_of
from recovery.plan.findings import Damage, Finding, Subject
from recovery.plan.plan import LogDirPlan, Precondition, RecoveryPlan, ReplaceFile, regular_partitions
from recovery.segment.epoch_runs import read_believed_rises
from storage.base.errors import CorruptData, FileVanished, UnsupportedFormat
from storage.base.units import Epoch, Offset, TopicPartition
from storage.disk.fs import ReadFs, read_all
from storage.reading.log_reader import LogReader


@dataclass(slots=True)
class EpochHealing:
    """A plan that writes epoch files, what it writes by path, and what came of each file."""

    plan: LogDirPlan
    contents: dict[PurePath, bytes] = field(default_factory=dict)
    notes: list[HealNote] = field(default_factory=list)


class _Wanted(NamedTuple):
    """What a replica's epochs have to agree with; offsets from `log_start` to below `local_start` are remote alone."""

    log_start: int
    local_start: int
    leading: Sequence[EpochStart]
    rises: Sequence[tuple[int, int]]
    """Epoch and offset where the epochs of the local batches rise."""
    topic_id: bytes | None


def plan_epoch_healing(fs: ReadFs, plan: LogDirPlan, sources: Sequence[ReplicaSource]) -> EpochHealing:
    """Return how the epoch files that `plan` found lost are written from what the replicas know.

    Raises `ReadFault` for our own disk alone.
    """
    healing = EpochHealing(plan._replace(verdicts=(), before=(), partitions=(), after=(), preconditions=()))
    partitions = []
    for name, partition in regular_partitions(plan) if sources and not plan.stopped else ():
        for lost in (finding for finding in partition.findings if finding.kind is Damage.EPOCHS_LOST):
            source, data, reason = _fill(sources, name, _read_wanted(fs, partition, lost))
            healing.notes.append(_note(name, lost, source, data, reason))
            if data:
                healing.contents[lost.path] = data
                partitions.append(_replacing(fs, partition, lost.path, data))
    healing.plan = healing.plan._replace(partitions=tuple(partitions))
    return healing


def _read_wanted(fs: ReadFs, partition: RecoveryPlan, lost: Finding) -> _Wanted:
    damaged = {f.path: f.position or 0 for f in partition.findings if f.kind.subject is Subject.LOG}
    reader, rises = LogReader(), []
    for files in resolve(take_inventory(fs, partition.directory), {}).segments:
        size = damaged.get(files.log, files.log_stat.size)
        with fs.open_read(files.log) as file:
            rises += read_believed_rises(file, files.log, size, files.base_offset, reader)
        if files.log in damaged:
            break  # what follows may be cut
    try:
        leading, _ = decode_leading(read_all(fs, lost.path, SMALL_FILE_LIMIT))
    except FileVanished:
        leading = []
    try:
        data = read_all(fs, partition.directory / PARTITION_METADATA, SMALL_FILE_LIMIT)
        topic_id = decode_partition_metadata(data).topic_id
    except (FileVanished, CorruptData, UnsupportedFormat):
        topic_id = None
    assert lost.first_offset is not None
    assert lost.last_offset is not None
    return _Wanted(lost.first_offset, lost.last_offset + 1, leading, rises, topic_id)


def _fill(sources: Sequence[ReplicaSource], name: TopicPartition, wanted: _Wanted) -> tuple[str, bytes, str]:
    """Return a source and the file that follows from it, or no source, no bytes, and why none serves."""
    accepted: dict[bytes, str] = {}
    reasons = []
    for source in sources:
        try:
            facts = source.facts(name)
        except ReplicaUnusable as error:
            reasons.append(f"{source.name}: {error}")
            continue
        reason = _refuse(facts, wanted)
        if reason:
            reasons.append(f"{source.name}: {reason}")
        else:
            accepted.setdefault(_epochs(facts, wanted), source.name)
    if len(accepted) > 1:
        return "", b"", f"the replicas disagree: {' and '.join(accepted.values())} have other epochs"
    return next(((source, data, "") for data, source in accepted.items()), ("", b"", "; ".join(reasons)))


def _refuse(theirs: ReplicaFacts, wanted: _Wanted) -> str:
    """Return why a replica does not tell the epochs that were lost; empty where it does."""
    if theirs.topic_id is not None and wanted.topic_id is not None and theirs.topic_id != wanted.topic_id:
        return "its topic id is another: a topic of the same name made at another time"
    if not theirs.epochs or theirs.epochs[0].start_offset > wanted.log_start:
        return f"it does not tell the epoch of offset {wanted.log_start}"
    for epoch, start in wanted.leading:
        if start <= wanted.local_start and epoch_at(theirs.epochs, max(start, Offset(wanted.log_start))) != epoch:
            return f"our file knows epoch {epoch} at offset {start}, it does not"
    if wanted.rises and wanted.rises[0][1] == wanted.local_start:
        first = epoch_at(theirs.epochs, Offset(wanted.local_start))
        if first != wanted.rises[0][0]:
            return f"offset {wanted.local_start} is of epoch {wanted.rises[0][0]}, it says {first}"
    elif (theirs.high_watermark or 0) < wanted.local_start:
        return f"it is known to have what is committed up to {theirs.high_watermark or 0} only"
    return ""


def _epochs(theirs: ReplicaFacts, wanted: _Wanted) -> bytes:
    below = truncate_from_end(theirs.epochs, Offset(wanted.local_start + 1))
    entries = truncate_from_start(below, Offset(wanted.log_start))
    for epoch, offset in wanted.rises:
        if epoch > entries[-1].epoch:
            entries = assign(entries, Epoch(epoch), Offset(offset))
    return encode_epochs(entries)


def _replacing(fs: ReadFs, partition: RecoveryPlan, path: PurePath, data: bytes) -> RecoveryPlan:
    there = fs.entries(partition.directory).get(path.name)
    action = ReplaceFile(path, len(data), sha256_of(data), there is not None, "leader epochs of a replica")
    conditions = () if there is None else (Precondition.of(path, there),)
    return partition._replace(
        verdicts=(), held=False, preconditions=conditions, actions=(action,), cuts=(), loaded=None
    )  # fmt: skip


def _note(name: TopicPartition, lost: Finding, source: str, data: bytes, reason: str) -> HealNote:
    assert lost.first_offset is not None
    assert lost.last_offset is not None
    return HealNote(
        str(name), lost.path, 0, lost.first_offset, lost.last_offset + 1, bool(data), source, 0, len(data), reason
    )  # fmt: skip
