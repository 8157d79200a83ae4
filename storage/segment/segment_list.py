"""The segments of a log in ascending order of their base offsets.

Changes replace the whole tuple, so that a reader in another thread keeps a list that was right when it looked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from storage.segment.segment import LogSegment


class SegmentList:
    """The segments; `all` is a tuple that is never changed, only replaced. There is at least one after loading."""

    __slots__ = ("_found", "all")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self.all: tuple[LogSegment, ...] = tuple(sorted(segments, key=_base))
        self._found: tuple[tuple[LogSegment, ...], list[int]] = ((), [])
        """A list of segments, and their bases for look-ups: together, so that no reader takes those of another list."""

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def active(self) -> LogSegment:
        """The last one, which is appended to."""
        return self.all[-1]

    def change(self, *, add: Iterable[LogSegment] = (), remove: Iterable[LogSegment] = ()) -> None:
        """Take segments out and put others in, in one step for those who read."""
        gone = {id(segment) for segment in remove}
        kept = [segment for segment in self.all if id(segment) not in gone]
        self.all = tuple(sorted([*kept, *add], key=_base))

    def reaching(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments from the one that would hold `offset` on: base offset `offset` or the next below."""
        every, bases = self._found
        if every is not self.all:
            every = self.all
            bases = [segment.base_offset for segment in every]
            self._found = every, bases
        return every[max(bisect_right(bases, offset) - 1, 0) :]

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """Return the segments that may hold offsets from `start` up to below `end`."""
        found = self.reaching(start)
        return found[: bisect_left(found, end, key=_base)]

    def next_base(self, segment: LogSegment) -> int | None:
        """Return the base offset of the segment behind this one."""
        every = self.all
        index = bisect_right(every, int(segment.base_offset), key=_base)
        return every[index].base_offset if index < len(every) else None


def _base(segment: LogSegment) -> int:
    return segment.base_offset
