"""What replicas disagree on: single differences, and the notes from which a comparison puts them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from audit.judge.replicas import Bounds, Replica
from audit.tables.kinds import AuditKind


class Difference(NamedTuple):
    """Something on which replicas disagree: a kind of finding, whose replica lacks or has it, and where."""

    kind: AuditKind
    replica: int
    first: int
    last: int
    evidence: str


@dataclass(slots=True)
class Compared:
    """What came of it; replicas are numbered as they were given."""

    differences: list[Difference] = field(default_factory=list)
    lone: set[int] = field(default_factory=set)
    """Replicas with the only good copy of something that another should have."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets of which no replica has a copy that another confirms."""

    def blamed(self) -> set[int]:
        """Return the replicas that lack something or hold something else."""
        notes = (AuditKind.LAYOUT_DIFFERS, AuditKind.NOT_COMPARED)
        return {difference.replica for difference in self.differences if difference.kind not in notes}


class Notes:
    """Collects the differences of one comparison; replicas are numbered as they were given."""

    def __init__(self, replicas: Sequence[Replica], bounds: Bounds) -> None:
        self._replicas, self._bounds = replicas, bounds
        self.result = Compared()

    def finished(self) -> Compared:
        """Return all that was noted, with differences that adjoin put together."""
        self.result.differences = _joined(self.result.differences)
        return self.result

    def lacks(self, n: int, first: int, last: int, evidence: str = "others hold batches here") -> None:
        """Note that a replica lacks a range, unless its log ends before it: that is noted apart."""
        end = self._replicas[n].log_end
        if end is not None and first >= end:
            return
        self.add(AuditKind.REPLICA_HOLE, n, first, last, evidence)

    def blame(
        self, groups: Sequence[Sequence[int]], first: int, last: int, evidence: str, epochs: Mapping[int, int]
    ) -> None:
        """Say that replicas hold different data: the largest group is believed, then the newest epoch."""

        def weight(group: Sequence[int]) -> tuple[int, int]:
            return len(group), max(epochs.get(n, -1) for n in group)

        ordered = sorted(groups, key=weight, reverse=True)
        if len(ordered) < 2:
            return
        names = ", ".join(
            f"epoch {max(epochs.get(n, -1) for n in group)} on {'+'.join(self._replicas[n].broker for n in group)}"
            for group in ordered
        )
        for group in ordered[1:]:
            for n in group:
                if self._bounds.must_hold_some(n, first, last):
                    self.add(AuditKind.REPLICA_DIFFERS, n, first, last, f"{evidence}: {names}")

    def count(self, holders: Sequence[int], first: int, last: int) -> None:
        """Note a range that only one replica holds, or none."""
        if len(holders) == 1:
            self.result.lone.add(holders[0])
        elif not holders:
            self.result.lost.append((first, last))

    def add(self, kind: AuditKind, n: int, first: int, last: int, evidence: str) -> None:
        """Note a difference."""
        self.result.differences.append(Difference(kind, n, first, last, evidence))


def _joined(differences: Iterable[Difference]) -> list[Difference]:
    """Put together what adjoins and is of one kind, replica and reason."""
    joined: list[Difference] = []
    order: Callable[[Difference], tuple[int, str, str, int]] = lambda d: (d.replica, d.kind.value, d.evidence, d.first)  # noqa: E731
    for one in sorted(differences, key=order):
        last = joined[-1] if joined else None
        same = last is not None and (last.kind, last.replica, last.evidence) == (one.kind, one.replica, one.evidence)
        if last is not None and same and one.first <= last.last + 1:
            joined[-1] = last._replace(last=max(last.last, one.last))
        else:
            joined.append(one)
    return joined
