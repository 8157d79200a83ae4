"""What an audit says of one partition: its replicas, what the metadata wants, and what the comparison found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from audit.judge.compare import compare
from audit.judge.differences import Compared
from audit.judge.replicas import BlockState, Fetch, Replica, until_of
from audit.scan.finding_rows import audit_row
from audit.scan.listing import ReplicaRow
from audit.scan.metadata import AssignedRow
from audit.tables.kinds import DISAGREEMENTS, AuditKind
from audit.tables.options import Source
from audit.tables.schema import FindingRow, Verdict, VerdictRow
from storage.base.names import METADATA_TOPIC
from storage.base.units import TopicPartition

_NO_REPLICA: Final = "the metadata assigns it to this broker, which has no directory for it"


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica: how it was listed, and what reading it gave."""

    row: ReplicaRow
    log_end: int | None
    """Exclusive; None if nothing could be read."""
    unread: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets, inclusive, of segments that could not be read."""
    is_damaged: bool = False
    """Bytes of records are bad somewhere in it."""
    is_unreadable: bool = False

    @property
    def source(self) -> Source:
        """The log directory it lies in."""
        return Source(self.row.cluster, self.row.broker, self.row.log_dir)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """All that is known of a partition before its replicas are compared."""

    cluster: str
    topic: str
    partition: int
    replicas: tuple[ReplicaState, ...]
    assigned: AssignedRow | None = None
    has_metadata: bool = False
    """The cluster's metadata is known, whether it names this partition or not."""
    blocks: Mapping[int, Mapping[int, BlockState]] = field(default_factory=dict)
    """Blocks that differ, by their number, and the replicas that have them, numbered as in `replicas`."""
    omitted: int = 0
    """Blocks that differ and were too many to be told."""

    @property
    def name(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The brokers of one cluster that the audit looked at: node id to a log directory, and those not read in full."""

    brokers: Mapping[int, Source]
    unlisted: frozenset[int] = frozenset()


def judge(
    state: PartitionState, fleet: Fleet, fetch: Fetch | None, detail_blocks: int
) -> tuple[VerdictRow, list[FindingRow]]:
    """Return the verdict on a partition and the findings that concern its replicas together."""
    judging = _Judging(state, fleet)
    judging.assignment()
    judging.topic_ids()
    judging.comparison(fetch, detail_blocks)
    return judging.verdict(), judging.findings


class _Judging:
    def __init__(self, state: PartitionState, fleet: Fleet) -> None:
        self._state, self._fleet = state, fleet
        self.findings: list[FindingRow] = []
        self._compared = Compared()
        # Those that move in or are strays by name are no replicas yet, or any more.
        self._numbers = [n for n, replica in enumerate(state.replicas) if not replica.row.state]
        self._missing: list[str] = []
        self._bad: set[int] = set()
        self._compared_until: list[int] = []

    # ---- what should be there

    def assignment(self) -> None:
        """Hold the directories against the metadata."""
        state = self._state
        if not state.has_metadata or state.topic == METADATA_TOPIC:
            return
        assigned = set() if state.assigned is None else set(state.assigned.replicas)
        for n in self._numbers:
            replica = state.replicas[n]
            if replica.row.node_id not in assigned:
                known = "the metadata does not know this partition"
                evidence = known if state.assigned is None else f"the metadata assigns it to {_listed(assigned)} only"
                self._add(AuditKind.STRAY_REPLICA, replica, evidence)
        self._numbers = [n for n in self._numbers if state.replicas[n].row.node_id in assigned]
        there = {state.replicas[n].row.node_id for n in self._numbers}
        for node in sorted(assigned - there):
            source = self._fleet.brokers.get(node)
            if source is None:
                continue  # nobody asked about that broker
            self._missing.append(source.broker)
            if node not in self._fleet.unlisted:
                self.findings.append(audit_row(AuditKind.REPLICA_MISSING, source, state.name, _NO_REPLICA))
        audited = assigned & set(self._fleet.brokers) - self._fleet.unlisted
        if audited - there and len(assigned) > 1:
            evidence = f"{len(there)} of {len(assigned)} replicas are on disk"
            self._add_all(AuditKind.UNDER_REPLICATED, evidence)

    def topic_ids(self) -> None:
        """Leave out directories of another topic that had the same name."""
        state = self._state
        ids = {n: state.replicas[n].row.topic_id for n in self._numbers}
        counts = Counter(topic_id for topic_id in ids.values() if topic_id is not None)
        expected = state.assigned.topic_id if state.assigned is not None else None
        kind = AuditKind.WRONG_TOPIC_ID if expected is not None else AuditKind.TOPIC_IDS_DIFFER
        if expected is None and len(counts) > 1:
            (expected, _), *_ = counts.most_common()
        for n, topic_id in ids.items():
            if expected is not None and topic_id not in (expected, None):
                evidence = f"topic id {topic_id}, {'the metadata has' if state.assigned else 'most have'} {expected}"
                self._add(kind, state.replicas[n], evidence)
                self._numbers.remove(n)
                self._bad.add(n)

    # ---- what the data says

    def comparison(self, fetch: Fetch | None, detail_blocks: int) -> None:
        """Compare the replicas that are left."""
        state = self._state
        chosen = [state.replicas[n] for n in self._numbers]
        self._duplicates(chosen)
        replicas = [_replica(replica) for replica in chosen]
        at = {n: place for place, n in enumerate(self._numbers)}
        blocks = {
            number: {at[n]: block for n, block in states.items() if n in at} for number, states in state.blocks.items()
        }
        blocks = {number: states for number, states in blocks.items() if _still_differs(states, len(at))}
        policy = "" if state.assigned is None else state.assigned.cleanup_policy
        compacted = "compact" in policy or any(replica.row.clean_until is not None for replica in chosen)
        self._compared = compare(replicas, blocks, fetch, compacted=compacted, detail_blocks=detail_blocks)
        self._compared_until = until_of(replicas)
        for one in self._compared.differences:
            replica = chosen[one.replica]
            self._add(one.kind, replica, one.evidence, (one.first, one.last))
        self._bad |= {self._numbers[place] for place in self._compared.blamed()}
        for first, last in self._compared.lost:
            self._add_all(AuditKind.NO_GOOD_COPY, "no replica holds it", (first, last))
        if state.omitted:
            self._add_all(AuditKind.NOT_COMPARED, f"{state.omitted} more blocks differ")
        self._starts(chosen)

    def _duplicates(self, chosen: Sequence[ReplicaState]) -> None:
        brokers = Counter(replica.row.broker for replica in chosen)
        for replica in chosen:
            if brokers[replica.row.broker] > 1:
                evidence = "the same broker has it in another log directory as well: it refuses to start"
                self._add(AuditKind.DUPLICATE_REPLICA, replica, evidence)

    def _starts(self, chosen: Sequence[ReplicaState]) -> None:
        starts = {replica.row.log_start for replica in chosen}
        if len(starts) > 1:
            told = ", ".join(f"{replica.row.broker}: {replica.row.log_start}" for replica in chosen)
            self._add_all(AuditKind.LOG_STARTS_DIFFER, f"log starts are {told}", (min(starts), max(starts) - 1))

    # ---- verdict

    def verdict(self) -> VerdictRow:
        """Return the row; call it last."""
        state = self._state
        chosen = [state.replicas[n] for n in self._numbers]
        bad = self._bad | {n for n in self._numbers if state.replicas[n].is_damaged or state.replicas[n].is_unreadable}
        good = [n for n in self._numbers if n not in bad]
        disagreed = [row for row in self.findings if row.kind in DISAGREEMENTS]
        firsts = [row.first_offset for row in disagreed if row.first_offset is not None]
        lasts = [row.last_offset for row in disagreed if row.last_offset is not None]
        starts = sorted(replica.row.log_start for replica in chosen)
        return VerdictRow(
            state.cluster,
            state.topic,
            state.partition,
            state.assigned.topic_id
            if state.assigned
            else next((r.row.topic_id for r in chosen if r.row.topic_id), None),
            len(state.assigned.replicas) if state.assigned else None,
            len([replica for replica in state.replicas if not replica.row.state]),
            len(good),
            sorted({state.replicas[n].row.broker for n in good}),
            sorted({state.replicas[n].row.broker for n in bad} | set(self._missing)),
            self._lone(good),
            min(firsts, default=None),
            max(lasts, default=None),
            starts[1] if len(starts) > 1 else 0,
            sorted(self._compared_until)[-2] if len(self._compared_until) > 1 else 0,
            max((replica.row.size_bytes for replica in state.replicas), default=0),
            self._verdict(good, bad).value,
        )

    def _lone(self, good: Sequence[int]) -> str | None:
        lone = sorted(self._compared.lone)
        if lone:
            return self._state.replicas[self._numbers[lone[0]]].row.broker
        if len(good) == 1 and self._is_lone():
            return self._state.replicas[good[0]].row.broker
        return None

    def _is_lone(self) -> bool:
        """Tell whether a single replica is left of what should be more, whatever the offsets."""
        readable = [n for n in self._numbers if not self._state.replicas[n].is_unreadable]
        return len(readable) == 1 and (len(self._numbers) > 1 or bool(self._missing or self._bad))

    def _verdict(self, good: Sequence[int], bad: set[int]) -> Verdict:
        state, kinds = self._state, {row.kind for row in self.findings}
        if any(state.replicas[n].is_unreadable for n in self._numbers) or self._unlisted():
            return Verdict.UNREADABLE
        if self._compared.lone or self._compared.lost or (not good and bad) or (len(good) == 1 and self._is_lone()):
            if AuditKind.REPLICA_DIFFERS.value in kinds and not self._compared.lone and not self._compared.lost:
                return Verdict.DIVERGENT
            return Verdict.ONE_GOOD_COPY
        if AuditKind.REPLICA_DIFFERS.value in kinds:
            return Verdict.DIVERGENT
        return Verdict.DEGRADED if bad or self._missing else Verdict.HEALTHY

    def _unlisted(self) -> bool:
        wanted = set() if self._state.assigned is None else set(self._state.assigned.replicas)
        there = {replica.row.node_id for replica in self._state.replicas}
        return bool((wanted - there) & self._fleet.unlisted)

    # ---- rows

    def _add(
        self, kind: AuditKind, replica: ReplicaState, evidence: str, offsets: tuple[int, int] | None = None
    ) -> None:
        path = f"{replica.row.log_dir.rstrip('/')}/{replica.row.directory}"
        self.findings.append(audit_row(kind, replica.source, self._state.name, evidence, path=path, offsets=offsets))

    def _add_all(self, kind: AuditKind, evidence: str, offsets: tuple[int, int] | None = None) -> None:
        """Add a finding on the partition as a whole."""
        source = Source(self._state.cluster, "", "")
        path = str(self._state.name)
        self.findings.append(audit_row(kind, source, self._state.name, evidence, path=path, offsets=offsets))


def _replica(state: ReplicaState) -> Replica:
    row = state.row
    mark = row.high_watermark
    return Replica(row.broker, row.log_dir, row.log_start, state.log_end, mark, state.unread)


def _still_differs(states: Mapping[int, BlockState], replicas: int) -> bool:
    return bool(states) and (len(states) < replicas or len({block.digest for block in states.values()}) > 1)


def _listed(numbers: set[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
