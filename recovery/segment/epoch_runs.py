"""Which leader epochs of a flushed segment are believed where they do not only rise.

No checksum covers the epoch of a batch, and no broker writes one that is lower than one before it: where epochs fall,
some are rotten. The fewest are taken for that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final, NamedTuple

from storage.base.rows import BatchRows
from storage.disk.fs import ReadFile
from storage.reading.log_reader import LogReader

_MOST_CHANGES: Final = 100_000
"""Changes of epoch that count; a broker writes one for each election, hostile bytes one a batch."""


class _Chain(NamedTuple):
    """The best way to a run of equal epochs: how many batches it believes, and where its last epoch begins."""

    epoch: int
    batches: int
    start: int
    before: _Chain | None


class _Choice:
    """The longest choice of batches whose epochs never fall, while batches come in."""

    def __init__(self) -> None:
        self._ends: list[_Chain] = []  # rising in epoch and in batches: no other chain can become the best one
        self._changes, self._epoch = 0, -1

    def add(self, epoch: int, offset: int) -> None:
        if epoch < 0:
            return
        self._changes += epoch != self._epoch
        self._epoch = epoch
        if self._changes > _MOST_CHANGES:
            return
        ends = self._ends
        place = bisect_right(ends, epoch, key=_epoch)
        best = ends[place - 1] if place else None
        if best is None:
            longer = _Chain(epoch, 1, offset, None)
        elif best.epoch == epoch:
            longer = best._replace(batches=best.batches + 1)
        else:
            longer = _Chain(epoch, best.batches + 1, offset, best)
        first = last = bisect_left(ends, epoch, key=_epoch)
        while last < len(ends) and ends[last].batches <= longer.batches:
            last += 1
        ends[first:last] = [longer]

    def rises(self) -> list[tuple[int, int]]:
        rises: list[tuple[int, int]] = []
        chain = self._ends[-1] if self._ends and self._changes <= _MOST_CHANGES else None
        while chain is not None:
            rises.append((chain.epoch, chain.start))
            chain = chain.before
        return rises[::-1]


def _epoch(chain: _Chain) -> int:
    return chain.epoch


def believed_rises(batches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (epoch, base offset) of each rise in the longest choice of batches whose epochs never fall.

    `batches` are (epoch, base offset) in log order; those without an epoch, below 0, say nothing. Of equally long
    choices it is the one with the lower epochs. None at all where the epoch changes 100,000 times.
    """
    choice = _Choice()
    for epoch, offset in batches:
        choice.add(epoch, offset)
    return choice.rises()


def read_believed_rises(
    file: ReadFile, path: PurePath, size: int, base_offset: int, reader: LogReader
) -> list[tuple[int, int]]:
    """Return the rises of `believed_rises` from the headers of the first `size` bytes of a log, which are sound."""
    choice = _Choice()

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        for i in range(count):
            choice.add(rows.leader_epoch[i], rows.base_offset[i])

    reader.walk(file, path, size, base_offset, on_rows)
    return choice.rises()


def leave_out_undercut(
    rises: Iterable[tuple[int, int]], known: Iterable[tuple[int, int]], later_epoch: int | None
) -> list[tuple[int, int]]:
    """Return the rises of a flushed segment without those that the first epoch of a later one contradicts.

    Those that are `known` from the epoch file stay: then it is the later one that is rotten.
    """
    kept = set(known)
    return [rise for rise in rises if later_epoch is None or rise[0] <= later_epoch or rise in kept]
