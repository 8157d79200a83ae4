"""Replicas of one partition side by side; pure: batches and records come through a `Fetch`.

What a replica must hold lies from its log start to its high watermark; below and above, replicas may differ. A block
whose digests are equal needs no look. One that only some replicas have is missing in the others. Otherwise batches are
fetched and compared, and where they overlap without being equal, their records.

Blocks of compacted topics are compared in `compacted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from audit.judge.compacted import CompactedBlocks
from audit.judge.differences import Compared, Notes
from audit.judge.replicas import Batch, BlockState, Bounds, Fetch, Replica, Told, meets
from audit.tables.kinds import AuditKind
from audit.tables.schema import BLOCK_OFFSETS
from storage.base.errors import CorruptData

Blocks = Mapping[int, Mapping[int, BlockState]]
"""Block number to the replicas that have it; only blocks that are not equal in all replicas."""

Content = tuple[tuple[int, bytes], ...]
"""Offset and digest of each record, in order."""

_NOT_FETCHED: Final = "digests differ; batches were not fetched"


def compare(
    replicas: Sequence[Replica], blocks: Blocks, fetch: Fetch | None, *, compacted: bool, detail_blocks: int
) -> Compared:
    """Compare replicas by the blocks that differ; without `fetch`, or beyond `detail_blocks`, by digests."""
    comparison = _Comparison(replicas, fetch, compacted=compacted, left=detail_blocks)
    comparison.tails()
    for number in sorted(blocks):
        comparison.block(number, blocks[number])
    return comparison.finish()


class _Comparison:
    def __init__(self, replicas: Sequence[Replica], fetch: Fetch | None, *, compacted: bool, left: int) -> None:
        self._replicas, self._fetch, self._left = replicas, fetch, left
        self._bounds = Bounds(replicas)
        self._notes = Notes(replicas, self._bounds)
        self._is_compacted = compacted
        self._compacted = (
            CompactedBlocks(replicas, fetch, self._bounds, self._notes) if compacted and fetch is not None else None
        )

    def finish(self) -> Compared:
        if self._compacted is not None:
            self._compacted.finish()
        return self._notes.finished()

    # ---- whole replicas

    def tails(self) -> None:
        """Find replicas that end below their own high watermark."""
        for number, replica in enumerate(self._replicas):
            end, until = replica.log_end, self._bounds.until[number]
            if end is not None and end < until and not meets(replica.unread, end, until - 1):
                start = max(end, replica.log_start)
                evidence = f"the log ends at {end}, the high watermark is {until}"
                self._notes.add(AuditKind.REPLICA_BEHIND, number, start, until - 1, evidence)
                others = [n for n, other in enumerate(self._replicas) if (other.log_end or 0) > start]
                self._notes.count(others, start, until - 1)

    # ---- blocks

    def block(self, number: int, states: Mapping[int, BlockState]) -> None:
        first, last = number * BLOCK_OFFSETS, (number + 1) * BLOCK_OFFSETS - 1
        digests = {state.digest for state in states.values()}
        absent = [n for n in range(len(self._replicas)) if n not in states]
        data = (min(state.first for state in states.values()), max(state.last for state in states.values()))
        vouched = any(self._bounds.must_hold_some(n, *data) for n in states)
        if (
            not self._is_compacted
            and len(digests) == 1
            and vouched
            and all(self._bounds.decides(n, *data) for n in absent)
        ):
            lacking = [n for n in absent if self._bounds.must_hold(n, *data)]
            for n in lacking:
                self._notes.lacks(n, *data)
            if lacking:
                self._notes.count(list(states), *data)
            return
        if not any(self._bounds.must_hold_some(n, *data) for n in (*states, *absent)):
            return
        if self._fetch is None or not self._left:
            self._by_digest(states, absent, data)
            return
        self._left -= 1
        if self._compacted is not None:
            self._compacted.block(first, last)
        else:
            self._plain_block(first, last)

    def _by_digest(self, states: Mapping[int, BlockState], absent: Sequence[int], data: tuple[int, int]) -> None:
        """Judge a block of which no more than digests is known, by the replicas that must hold all of it."""
        bound = [n for n in (*states, *absent) if self._bounds.must_hold(n, *data)]
        if self._is_compacted or len(bound) < 2:
            self._notes.add(AuditKind.NOT_COMPARED, next(iter(states)), *data, _NOT_FETCHED)
            return
        groups: dict[int, list[int]] = {}
        for n, state in states.items():
            if n in bound:
                groups.setdefault(state.digest, []).append(n)
        self._notes.blame(list(groups.values()), *data, _NOT_FETCHED, {n: s.max_epoch for n, s in states.items()})
        for n in absent:
            if n in bound:
                self._notes.lacks(n, *data)
        for n, state in states.items():
            if n not in bound and state.digest not in groups and self._bounds.must_hold_some(n, *data):
                self._notes.add(AuditKind.NOT_COMPARED, n, *data, _NOT_FETCHED)

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
            must = [n for n in range(len(held)) if self._bounds.must_hold(n, batch.base, batch.last)]
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
            if not self._bounds.must_hold_some(n, first, last) and not inside:
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
            if any(self._bounds.must_hold_some(n, first, last) for n in numbers)
        }
        if len(by_content) == 1 and len(versions) > 1:
            few = min(versions.values(), key=len)
            evidence = "the same records in other batches, or compressed otherwise"
            self._notes.add(AuditKind.LAYOUT_DIFFERS, few[0], first, last, evidence)
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
            self._notes.blame(groups, conflicts[0], conflicts[-1], "other records at the same offsets", epochs)
        for content, numbers in by_content.items():
            has = full.get(content, {})
            for start, end in _runs(sorted(offset for offset in everything if offset not in has)):
                for n in numbers:
                    if self._bounds.must_hold_some(n, start, end):
                        self._notes.lacks(
                            n, max(start, self._replicas[n].log_start), min(end, self._bounds.until[n] - 1)
                        )
                holders = [n for c, ns in by_content.items() for n in ns if c in full and start in full[c]]
                self._notes.count(holders, start, end)

    def _content(self, replica: int, batches: Sequence[Batch], first: int, last: int) -> Content:
        assert self._fetch is not None
        source = self._replicas[replica]
        try:
            told = [record for batch in batches for record in self._fetch.records(source, batch)]
        except CorruptData:  # a codec or a content that is not known: then batches count as wholes
            told = [Told(offset, b"%d" % batch.crc, None) for batch in batches for offset in (batch.base, batch.last)]
        return tuple(sorted({(record.offset, record.content) for record in told if first <= record.offset <= last}))


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
