"""An audit without Spark, for tests of what is judged: the same steps in one process, the joins done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from audit.judge.detail import DiskFetch, SegmentPlace
from audit.judge.replicas import BlockState
from audit.judge.verdicts import PartitionState, ReplicaState, judge
from audit.scan.listing import ListedSegment, LogDirRow, ReplicaRow, list_log_dir
from audit.scan.metadata import AssignedRow
from audit.scan.pieces import SegmentTask
from audit.scan.tasks import Row, Verifier, utc_now
from audit.spark.results import fleets_of, newest_metadata, status_of
from audit.spark.steps import ReadMetadata
from audit.tables.kinds import UNREADABLES
from audit.tables.options import AuditOptions, Source
from audit.tables.schema import FindingRow, SegmentRow, VerdictRow
from audit.tables.wire import PackedBlocks
from storage.base.errors import ExitStatus

NOW_MS = 1_800_000_000_000


class Audited(NamedTuple):
    """What came out, notes included."""

    verdicts: list[VerdictRow]
    findings: list[FindingRow]
    segments: list[SegmentRow]

    @property
    def serious(self) -> set[tuple[str, str, str]]:
        """Broker, partition directory and kind of each finding that is more than a note."""
        return {serious_key(row) for row in self.findings if row.severity != "note"}

    @property
    def unhealthy(self) -> set[tuple[str, str]]:
        """Partition and verdict of all that are not healthy."""
        return {(f"{row.topic}-{row.partition}", row.verdict) for row in self.verdicts if row.verdict != "healthy"}

    @property
    def status(self) -> ExitStatus:
        """What the command would exit with."""
        return status_of((row.kind, row.severity) for row in self.findings)


def serious_key(row: FindingRow) -> tuple[str, str, str]:
    """Return a finding as `fleets.Expected` has it."""
    return row.broker, "" if row.topic is None else f"{row.topic}-{row.partition}", row.kind


def audit(sources: Sequence[Source], options: AuditOptions = AuditOptions(now_ms=NOW_MS)) -> Audited:  # noqa: B008
    """Audit log directories of one cluster."""
    listed = [row for source in sources for row in list_log_dir(source, options)]
    segments = [row for row in listed if isinstance(row, ListedSegment)]
    verifier = Verifier(options, utc_now(options.now_ms))
    rows: list[Row] = [row for segment in segments for row in verifier.verify(SegmentTask(segment))]
    findings = [row for row in (*listed, *rows) if isinstance(row, FindingRow)]
    dirs = [row for row in listed if isinstance(row, LogDirRow)]
    assigned: list[AssignedRow] = []
    for newest in newest_metadata(dirs):
        for row in ReadMetadata().rows(Source(newest.cluster, newest.broker, newest.log_dir)):
            (assigned if isinstance(row, AssignedRow) else findings).append(row)  # type: ignore[arg-type]
    replicas = [row for row in listed if isinstance(row, ReplicaRow)]
    read = [row for row in rows if isinstance(row, SegmentRow)]
    verdicts, more = [], []
    names = {(r.topic, r.partition) for r in replicas} | {(a.topic, a.partition) for a in assigned}
    for topic, partition in sorted(names):
        here = [r for r in replicas if (r.topic, r.partition) == (topic, partition)]
        states = tuple(_state(r, segments, read, findings) for r in here)
        wanted = next((a for a in assigned if (a.topic, a.partition) == (topic, partition)), None)
        state = PartitionState(
            sources[0].cluster, topic, partition, states, wanted, bool(assigned), _blocks(here, rows)
        )  # fmt: skip
        fleet = fleets_of(dirs)[sources[0].cluster]
        verdict, told = judge(state, fleet, DiskFetch(_places(here, segments)), options.detail_blocks)
        verdicts.append(verdict)
        more += told
    return Audited(verdicts, findings + more, read)


def _mine(replica: ReplicaRow, row: SegmentRow | ListedSegment) -> bool:
    return (row.log_dir, row.directory) == (replica.log_dir, replica.directory)


def _state(
    replica: ReplicaRow,
    segments: Sequence[ListedSegment],
    read: Sequence[SegmentRow],
    findings: Sequence[FindingRow],
) -> ReplicaState:
    listed = sorted(s.base_offset for s in segments if _mine(replica, s))
    mine = [row for row in read if _mine(replica, row)]
    ends = [row.base_offset if row.last_offset is None else row.last_offset + 1 for row in mine]
    nexts = [*(base - 1 for base in listed[1:]), (1 << 63) - 1]
    done = {row.base_offset for row in mine}
    unread = tuple((base, until) for base, until in zip(listed, nexts, strict=False) if base not in done)
    told = [
        f for f in findings if (f.log_dir, f.topic, f.partition) == (replica.log_dir, replica.topic, replica.partition)
    ]
    damaged = any(f.severity == "damage" for f in told)
    unreadable = any(f.kind in UNREADABLES and f.severity != "note" for f in told)
    return ReplicaState(replica, max(ends, default=None), unread, damaged, unreadable)


def _blocks(replicas: Sequence[ReplicaRow], rows: Sequence[Row]) -> dict[int, dict[int, BlockState]]:
    found: dict[int, dict[int, BlockState]] = {}
    for n, replica in enumerate(replicas):
        for packed in rows:
            if not isinstance(packed, PackedBlocks) or replica.state:
                continue
            key = (replica.cluster, replica.topic, replica.partition, replica.broker, replica.log_dir)
            if packed.replica != key:
                continue
            for block, digest, _, _, first, last, epoch in packed.numbers.tolist():
                old = found.setdefault(block, {}).get(n)
                new = BlockState(digest, first, last, epoch)
                if old is not None:
                    new = BlockState(
                        old.digest ^ digest, min(old.first, first), max(old.last, last), max(old.max_epoch, epoch)
                    )
                found[block][n] = new
    return found


def _places(replicas: Sequence[ReplicaRow], segments: Sequence[ListedSegment]) -> dict[str, list[SegmentPlace]]:
    return {
        replica.log_dir: [
            SegmentPlace(s.base_offset, s.directory, s.files[0], s.files[1])
            for s in sorted(segments, key=lambda s: s.base_offset)
            if _mine(replica, s)
        ]
        for replica in replicas
        if not replica.state
    }
