"""Replicas of one partition side by side; pure: batches and records come through a `Fetch`.

What a replica must hold lies from its log start to its high watermark; below and above, replicas may differ. A block
whose digests are equal needs no look. One that only some replicas have is missing in the others. Otherwise batches are
fetched and compared, and where they overlap without being equal, their records.

Compacted topics are cleaned by each broker in its own time. There, what two replicas both still have at an offset must
be equal, and what one lacks must have been superseded: a later record of the same key must be in that replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from audit.tables.kinds import AuditKind
from audit.tables.schema import BLOCK_OFFSETS
from storage.base.errors import CorruptData


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica as it was read. `high_watermark` and `log_end` are exclusive; None where nothing tells.

    `unread`: ranges of offsets, both inclusive, of which nothing is known because they could not be read.
    """

    broker: str
    log_dir: str
    log_start: int
    log_end: int | None
    high_watermark: int | None
    unread: tuple[tuple[int, int], ...] = ()


class BlockState(NamedTuple):
    """What a replica holds of a block; offsets are inclusive."""

    digest: int
    first: int
    last: int
    max_epoch: int


class Batch(NamedTuple):
    """A batch of a replica: `place` means something to the `Fetch` that it came from."""

    base: int
    last: int
    crc: int
    epoch: int
    place: object = None

    @property
    def identity(self) -> tuple[int, int, int]:
        """Equal for equal batches of two replicas."""
        return self.base, self.last, self.crc


class Told(NamedTuple):
    """A record: digests over all that must agree, and over its key. Compaction lets some go without a trace."""

    offset: int
    content: bytes
    key: bytes | None
    may_go: bool = False


class Fetch(Protocol):
    """Where batches and records come from; raises `EnvironmentFault` where that fails."""

    def batches(self, replica: Replica, first: int, last: int) -> list[Batch]:
        """Return the sound batches with a base offset from `first` to `last`, and one that reaches into them."""

    def records(self, replica: Replica, batch: Batch) -> Iterator[Told]:
        """Return the records of a batch; raises `CorruptData` if they cannot be decoded."""

    def keys_behind(self, replica: Replica, wanted: Mapping[bytes, int]) -> set[bytes] | None:
        """Return which of the keys occur behind the offset given with each; None if that were too much to read."""


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


Blocks = Mapping[int, Mapping[int, BlockState]]
"""Block number to the replicas that have it; only blocks that are not equal in all replicas."""

Content = tuple[tuple[int, bytes], ...]
"""Offset and digest of each record, in order."""

_NOT_FETCHED: Final = "digests differ; batches were not fetched"


def until_of(replicas: Sequence[Replica]) -> list[int]:
    """Return for each replica the offset, exclusive, up to which it must agree with the others.

    Its high watermark; where that is not known the lowest known one, and without any the lowest log end.
    """
    known = [replica.high_watermark for replica in replicas if replica.high_watermark is not None]
    ends = [replica.log_end for replica in replicas if replica.log_end is not None]
    fallback = min(known) if known else min(ends, default=0)
    return [fallback if replica.high_watermark is None else replica.high_watermark for replica in replicas]


def compare(
    replicas: Sequence[Replica], blocks: Blocks, fetch: Fetch | None, *, compacted: bool, detail_blocks: int
) -> Compared:
    """Compare replicas by the blocks that differ; without `fetch`, or beyond `detail_blocks`, by digests."""
    comparison = _Comparison(replicas, fetch, compacted=compacted, left=detail_blocks)
    comparison.tails()
    for number in sorted(blocks):
        comparison.block(number, blocks[number])
    comparison.finish()
    return comparison.result


class _Comparison:
    def __init__(self, replicas: Sequence[Replica], fetch: Fetch | None, *, compacted: bool, left: int) -> None:
        self._replicas, self._fetch, self._compacted, self._left = replicas, fetch, compacted, left
        self._until = until_of(replicas)
        self.result = Compared()
        self._absent: dict[int, dict[bytes, int]] = {}  # of compacted topics: replica -> key -> last offset it lacks

    # ---- whole replicas

    def tails(self) -> None:
        """Find replicas that end below their own high watermark."""
        for number, replica in enumerate(self._replicas):
            end, until = replica.log_end, self._until[number]
            if end is not None and end < until and not _meets(replica.unread, end, until - 1):
                start = max(end, replica.log_start)
                evidence = f"the log ends at {end}, the high watermark is {until}"
                self._add(AuditKind.REPLICA_BEHIND, number, start, until - 1, evidence)
                others = [n for n, other in enumerate(self._replicas) if (other.log_end or 0) > start]
                self._count(others, start, until - 1)

    # ---- blocks

    def block(self, number: int, states: Mapping[int, BlockState]) -> None:
        first, last = number * BLOCK_OFFSETS, (number + 1) * BLOCK_OFFSETS - 1
        digests = {state.digest for state in states.values()}
        absent = [n for n in range(len(self._replicas)) if n not in states]
        data = (min(state.first for state in states.values()), max(state.last for state in states.values()))
        vouched = any(self._must_hold_some(n, *data) for n in states)
        if not self._compacted and len(digests) == 1 and vouched and all(self._decides(n, *data) for n in absent):
            lacking = [n for n in absent if self._must_hold(n, *data)]
            for n in lacking:
                self._lacks(n, *data)
            if lacking:
                self._count(list(states), *data)
            return
        if not any(self._must_hold_some(n, *data) for n in (*states, *absent)):
            return
        if self._fetch is None or not self._left:
            self._by_digest(states, absent, data)
            return
        self._left -= 1
        if self._compacted:
            self._compacted_block(first, last)
        else:
            self._plain_block(first, last)

    def _by_digest(self, states: Mapping[int, BlockState], absent: Sequence[int], data: tuple[int, int]) -> None:
        """Judge a block of which no more than digests is known, by the replicas that must hold all of it."""
        bound = [n for n in (*states, *absent) if self._must_hold(n, *data)]
        if self._compacted or len(bound) < 2:
            self._add(AuditKind.NOT_COMPARED, next(iter(states)), *data, _NOT_FETCHED)
            return
        groups: dict[int, list[int]] = {}
        for n, state in states.items():
            if n in bound:
                groups.setdefault(state.digest, []).append(n)
        self._blame(list(groups.values()), *data, _NOT_FETCHED, {n: s.max_epoch for n, s in states.items()})
        for n in absent:
            if n in bound:
                self._lacks(n, *data)
        for n, state in states.items():
            if n not in bound and state.digest not in groups and self._must_hold_some(n, *data):
                self._add(AuditKind.NOT_COMPARED, n, *data, _NOT_FETCHED)

    def _plain_block(self, first: int, last: int) -> None:
        assert self._fetch is not None
        held = [
            {batch.identity: batch for batch in self._fetch.batches(replica, first, last)} for replica in self._replicas
        ]
        union = {identity: batch for batches in held for identity, batch in batches.items()}
        odd = []
        for identity, batch in sorted(union.items()):
            if not first <= batch.base <= last:
                continue
            must = [n for n in range(len(held)) if self._must_hold(n, batch.base, batch.last)]
            # What only replicas hold that need not, above their high watermark, may be undone tomorrow.
            if any(identity in held[n] for n in must) and any(identity not in held[n] for n in must):
                odd.append(batch)
        for start, end in _merged([(batch.base, batch.last) for batch in odd]):
            self._odd_range(held, start, end)

    def _odd_range(self, held: Sequence[Mapping[tuple[int, int, int], Batch]], first: int, last: int) -> None:
        """Judge a range of offsets in which replicas do not hold the same batches."""
        versions: dict[tuple[tuple[int, int, int], ...], list[int]] = {}
        epochs = {}
        for n, batches in enumerate(held):
            inside = tuple(sorted(i for i, batch in batches.items() if batch.base <= last and batch.last >= first))
            if not self._must_hold_some(n, first, last) and not inside:
                continue
            versions.setdefault(inside, []).append(n)
            epochs[n] = max((batches[i].epoch for i in inside), default=-1)
        by_content: dict[Content, list[int]] = {}
        for inside, numbers in versions.items():
            content = self._content(numbers[0], [held[numbers[0]][i] for i in inside], first, last)
            by_content.setdefault(content, []).extend(numbers)
        # Who need not hold the range may confirm what another holds, but contradicts nobody.
        by_content = {
            content: numbers
            for content, numbers in by_content.items()
            if any(self._must_hold_some(n, first, last) for n in numbers)
        }
        if len(by_content) == 1 and len(versions) > 1:
            few = min(versions.values(), key=len)
            evidence = "the same records in other batches, or compressed otherwise"
            self._add(AuditKind.LAYOUT_DIFFERS, few[0], first, last, evidence)
            return
        self._judge(by_content, epochs)

    def _judge(self, by_content: Mapping[Content, list[int]], epochs: Mapping[int, int]) -> None:
        """Say who lacks what others hold, and who holds something else; groups are those with equal records."""
        full = {content: dict(content) for content in by_content if content}
        everything: dict[int, set[bytes]] = {}
        for records in full.values():
            for offset, told in records.items():
                everything.setdefault(offset, set()).add(told)
        conflicts = sorted(offset for offset, told in everything.items() if len(told) > 1)
        if conflicts:
            groups = [by_content[content] for content in full]
            self._blame(groups, conflicts[0], conflicts[-1], "other records at the same offsets", epochs)
        for content, numbers in by_content.items():
            has = full.get(content, {})
            for start, end in _runs(sorted(offset for offset in everything if offset not in has)):
                for n in numbers:
                    if self._must_hold_some(n, start, end):
                        self._lacks(n, max(start, self._replicas[n].log_start), min(end, self._until[n] - 1))
                holders = [n for c, ns in by_content.items() for n in ns if c in full and start in full[c]]
                self._count(holders, start, end)

    def _content(self, replica: int, batches: Sequence[Batch], first: int, last: int) -> Content:
        assert self._fetch is not None
        source = self._replicas[replica]
        try:
            told = [record for batch in batches for record in self._fetch.records(source, batch)]
        except CorruptData:  # a codec or a content that is not known: then batches count as wholes
            told = [Told(offset, b"%d" % batch.crc, None) for batch in batches for offset in (batch.base, batch.last)]
        return tuple(sorted({(record.offset, record.content) for record in told if first <= record.offset <= last}))

    # ---- compacted

    def _compacted_block(self, first: int, last: int) -> None:
        assert self._fetch is not None
        held: list[dict[int, Told]] = []
        epochs = {}
        for n, replica in enumerate(self._replicas):
            batches = self._fetch.batches(replica, first, last)
            records_of_all = (record for batch in batches for record in self._fetch.records(replica, batch))
            held.append({record.offset: record for record in records_of_all if first <= record.offset <= last})
            epochs[n] = max((batch.epoch for batch in batches), default=-1)
        for offset in sorted({offset for records in held for offset in records}):
            versions: dict[bytes, list[int]] = {}
            for n, records in enumerate(held):
                if offset in records and self._must_hold(n, offset, offset):
                    versions.setdefault(records[offset].content, []).append(n)
            if len(versions) > 1:
                self._blame(list(versions.values()), offset, offset, "other records at the same offsets", epochs)
            told = next((held[n][offset] for n in range(len(held)) if self._vouches(n, held[n], offset)), None)
            key = None if told is None or told.may_go else told.key
            for n, records in enumerate(held):
                if key is not None and offset not in records and self._must_hold(n, offset, offset):
                    self._absent.setdefault(n, {})[key] = offset

    def _vouches(self, n: int, records: Mapping[int, Told], offset: int) -> bool:
        return offset in records and self._must_hold(n, offset, offset)

    def finish(self) -> None:
        """Tell apart what compaction removed and what was lost; put ranges together."""
        for n, keys in self._absent.items():
            assert self._fetch is not None
            later = self._fetch.keys_behind(self._replicas[n], keys)
            if later is None:
                evidence = f"{len(keys)} keys were not looked for: too much would have to be read"
                self._add(AuditKind.NOT_COMPARED, n, min(keys.values()), max(keys.values()), evidence)
                continue
            for offset in sorted(offset for key, offset in keys.items() if key not in later):
                self._lacks(n, offset, offset, "others hold the last record of a key here")
                self._count([other for other in range(len(self._replicas)) if other != n], offset, offset)
        self.result.differences = _joined(self.result.differences)

    # ---- what is found

    def _must_hold(self, n: int, first: int, last: int) -> bool:
        """Tell whether a replica must have all of a range of offsets."""
        replica = self._replicas[n]
        return replica.log_start <= first and last < self._until[n] and not _meets(replica.unread, first, last)

    def _must_hold_some(self, n: int, first: int, last: int) -> bool:
        replica = self._replicas[n]
        start, end = max(first, replica.log_start), min(last, self._until[n] - 1)
        return start <= end and not _meets(replica.unread, start, end)

    def _decides(self, n: int, first: int, last: int) -> bool:
        """Tell whether a replica must have all of a range, or need not have any of it."""
        return self._must_hold(n, first, last) or not self._must_hold_some(n, first, last)

    def _lacks(self, n: int, first: int, last: int, evidence: str = "others hold batches here") -> None:
        end = self._replicas[n].log_end
        if end is not None and first >= end:
            return  # `tails` has said so
        self._add(AuditKind.REPLICA_HOLE, n, first, last, evidence)

    def _blame(
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
                if self._must_hold_some(n, first, last):
                    self._add(AuditKind.REPLICA_DIFFERS, n, first, last, f"{evidence}: {names}")

    def _count(self, holders: Sequence[int], first: int, last: int) -> None:
        if len(holders) == 1:
            self.result.lone.add(holders[0])
        elif not holders:
            self.result.lost.append((first, last))

    def _add(self, kind: AuditKind, n: int, first: int, last: int, evidence: str) -> None:
        self.result.differences.append(Difference(kind, n, first, last, evidence))


def _meets(ranges: Iterable[tuple[int, int]], first: int, last: int) -> bool:
    return any(start <= last and end >= first for start, end in ranges)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of offsets as those that overlap become one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return rising offsets as runs without a gap."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], offset
        else:
            runs.append((offset, offset))
    return runs


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
