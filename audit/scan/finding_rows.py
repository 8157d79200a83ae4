"""Rows of findings: those of a recovery, and those of an audit's own kinds."""

from __future__ import annotations

from pathlib import PurePath

from audit.tables.kinds import PASSING, UNSAID, AuditKind
from audit.tables.options import Source, place_of
from audit.tables.schema import FindingRow
from recovery.plan.findings import Damage, Finding, Severity
from storage.base.errors import EnvironmentFault, printable
from storage.base.units import TopicPartition


def finding_row(
    source: Source,
    partition: TopicPartition | None,
    finding: Finding,
    log_dir: PurePath,
    severity: Severity | None = None,
) -> FindingRow | None:
    """Return a finding of a recovery as a row, None if an audit does not speak of it.

    Without `severity` it is that of its kind, but what a running broker leaves for a moment is a note.
    """
    if finding.kind in UNSAID:
        return None
    chosen = severity or (Severity.NOTE if finding.kind in PASSING else finding.kind.severity)
    kind = AuditKind.UNREADABLE.value if finding.kind is Damage.READ_ERROR else finding.kind.value
    return FindingRow(
        source.cluster,
        source.broker,
        source.log_dir,
        None if partition is None else printable(partition.topic),
        None if partition is None else partition.partition,
        printable(shown(source, finding.path, log_dir)),
        kind,
        finding.position,
        finding.size,
        finding.first_offset,
        finding.last_offset,
        finding.next_good_offset,
        printable(finding.evidence),
        chosen.value,
    )


def unreadable(source: Source, fault: EnvironmentFault, partition: TopicPartition | None = None) -> FindingRow:
    """Return the row for what the operating system, or a store, would not let us read."""
    return audit_row(AuditKind.UNREADABLE, source, partition, str(fault), path=str(fault.path))


def audit_row(
    kind: AuditKind,
    source: Source,
    partition: TopicPartition | None,
    evidence: str,
    *,
    path: str | None = None,
    offsets: tuple[int, int] | None = None,
    severity: Severity | None = None,
) -> FindingRow:
    """Return a row of a kind of our own; `offsets` are first and last, both inclusive."""
    first, last = offsets or (None, None)
    topic, number = partition or (None, None)
    where = path if path is not None else place_of(source, *([] if partition is None else [str(partition)]))
    return FindingRow(
        source.cluster,
        source.broker,
        source.log_dir,
        topic,
        number,
        printable(where),
        kind.value,
        None,
        None,
        first,
        last,
        None,
        evidence,
        (severity or kind.severity).value,
    )


def shown(source: Source, path: PurePath, log_dir: PurePath) -> str:
    """Return a path below `log_dir` as the manifest would name it."""
    if not path.is_relative_to(log_dir):
        return str(path)
    return place_of(source, *path.relative_to(log_dir).parts)
