"""What an audit comes to: its result, its exit status, and small facts about its brokers; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from audit.judge.verdicts import Fleet
from audit.scan.listing import LogDirRow
from audit.tables.kinds import DISAGREEMENTS, UNREADABLES
from audit.tables.options import Source
from audit.tables.schema import FindingRow
from recovery.plan.findings import Severity
from storage.base.errors import ExitStatus, worst


@dataclass(slots=True)
class AuditResult:
    """What an audit found, in numbers. `status` is what `logmend audit` exits with."""

    audit_id: str
    out: str
    status: ExitStatus
    verdicts: dict[str, int] = field(default_factory=dict)
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)
    """Kind and severity to the number of findings."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """The first hundred places that could not be read, and why."""
    disagreements: list[FindingRow] = field(default_factory=list)
    """The first hundred."""
    segments: int = 0
    from_previous: int = 0
    bytes_read: int = 0
    bytes_listed: int = 0
    tasks: int = 0
    kernel: str = ""
    seconds: float = 0.0


def status_of(kinds: Iterable[tuple[str, str]]) -> ExitStatus:
    """Return the exit status for findings of these kinds and severities; notes alone are clean."""
    serious = [kind for kind, severity in kinds if severity != Severity.NOTE.value]
    found = {ExitStatus.FINDINGS for _ in serious[:1]}
    if DISAGREEMENTS & set(serious):
        found.add(ExitStatus.HELD)
    if UNREADABLES & set(serious):
        found.add(ExitStatus.ENVIRONMENT)
    return worst(found)


def spark_path(path: str) -> str:
    """Return a path as Spark wants it: Hadoop reads S3 by another scheme, and a bare path not from the local disk."""
    if path.startswith("s3://"):
        return "s3a" + path[2:]
    return path if "://" in path else "file://" + path


def newest_metadata(dirs: Iterable[LogDirRow]) -> list[LogDirRow]:
    """Return, of each cluster, the log directory with the longest metadata log."""
    newest: dict[str, LogDirRow] = {}
    for row in dirs:
        best = newest.get(row.cluster)
        if row.end_offset is not None and (best is None or row.end_offset > (best.end_offset or 0)):
            newest[row.cluster] = row
    return list(newest.values())


def fleets_of(dirs: Iterable[LogDirRow]) -> dict[str, Fleet]:
    """Return the brokers of each cluster by their node ids."""
    brokers: dict[str, dict[int, Source]] = {}
    unlisted: dict[str, set[int]] = {}
    for row in dirs:
        if row.node_id is None:
            continue
        source = Source(row.cluster, row.broker, row.log_dir)
        brokers.setdefault(row.cluster, {}).setdefault(row.node_id, source)
        if not row.is_listed:
            unlisted.setdefault(row.cluster, set()).add(row.node_id)
    return {cluster: Fleet(found, frozenset(unlisted.get(cluster, ()))) for cluster, found in brokers.items()}
