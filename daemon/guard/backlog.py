"""The backlog of a guard: per partition, what the broker's checkpoint declares flushed and is not verified yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.guard.cursors import Cursors
from daemon.ledger.page import Cursor, Page, PartitionRow
from daemon.scrub.census import Census
from daemon.scrub.context import ScrubContext
from daemon.scrub.segment_scan import Seen
from daemon.status.model import VerificationLag
from storage.base.errors import ReadFault
from storage.base.units import TopicPartition


@dataclass(slots=True)
class Suspicion:
    """Where a range looked bad, to be read again."""

    base: int
    seen: Seen
    error: ReadFault | None = None


@dataclass(slots=True)
class Pending:
    """A partition with a flushed range that is not verified. `size`: its bytes, as far as they are known."""

    point: int
    since: float
    size: int = 0
    retry_at: float = 0.0
    looks: int = 0
    suspicion: Suspicion | None = None
    short: set[int] = field(default_factory=set)
    """Versions of the checkpoint that claimed more than the log holds."""


class Backlog:
    """Compares each checkpoint with the cursors. One thread."""

    def __init__(self, context: ScrubContext, page: Page, census: Census, cursors: Cursors) -> None:
        self._context, self._page, self._census, self._cursors = context, page, census, cursors
        self.points: Mapping[TopicPartition, int] = {}
        self.version = 0
        """Counts the checkpoints."""
        self.has_strangers = False
        """The checkpoint names partitions whose directories are not known yet."""
        self._pending: dict[TopicPartition, Pending] = {}
        self._is_first = not any(row.verified_offset is not None for row in census.partitions.values())

    def take_points(self, points: Mapping[TopicPartition, int], catch_up_bytes: int) -> int:
        """Add what a checkpoint declares flushed; return how many partitions have something new."""
        self.version += 1
        self.has_strangers = False
        moved = 0
        baseline: dict[int, Cursor] = {}
        for name in [name for name in self._pending if name not in points]:
            del self._pending[name]  # it moves to another log directory, or its topic is being deleted
        for name, point in points.items():
            row = self._census.partitions.by_name.get(name)
            if row is None:
                self.has_strangers = True
                continue
            if self.points.get(name) == point and row in self._cursors:
                continue
            cursor = self._cursors.get(row)
            if cursor is None and self._is_first:
                baseline[row.id] = cursor = Cursor(point)  # the scrubber reads what is old
                self._cursors.keep(row, cursor)
            moved += self._compare(row, cursor, point, catch_up_bytes)
        self.points = dict(points)
        self._is_first = False
        self._cursors.put_all(baseline)
        return moved

    def _compare(self, row: PartitionRow, cursor: Cursor | None, point: int, catch_up_bytes: int) -> int:
        """Compare the recovery point of one partition with its cursor; return 1 if there is something to verify."""
        name = row.name
        old = max(self.points.get(name, point), point if cursor is None else cursor.offset)
        if cursor is not None and point < old:
            if self._is_other(row):
                self.drop(row)
                self._census.renew(row.directory)
                self.has_strangers = True
                return 0
            self._context.tell(
                "recovery_point_regressed", topic=name.topic, partition=name.partition, old=old, new=point
            )
            if point < cursor.offset:
                self._page.note_truncation(name, point, cursor.offset - 1, self._context.clock.now_ms())
                cursor = Cursor(point)
                self._cursors.put(row, cursor)
        if cursor is None:
            cursor = self._cursors.of_new(row, point, catch_up_bytes)
            self._cursors.put(row, cursor)
        if point <= cursor.offset:
            self.drop(row)
            return 0
        pending = self._pending.setdefault(name, Pending(point, self._context.clock.monotonic()))
        pending.point = point
        pending.size = self._cursors.bytes_behind(row, cursor)
        return 1

    def _is_other(self, row: PartitionRow) -> bool:
        """Tell whether the topic was deleted and created again since."""
        try:
            return not self._census.has_same_topic(row)
        except ReadFault:
            return False

    def get(self, row: PartitionRow) -> Pending | None:
        """Return what is pending of a partition."""
        return self._pending.get(row.name)

    def drop(self, row: PartitionRow) -> None:
        """Note that nothing of a partition is pending any more."""
        self._pending.pop(row.name, None)

    def oldest(self) -> tuple[PartitionRow, Pending] | None:
        """Return the partition that has waited longest among those that may be read now."""
        now = self._context.clock.monotonic()
        for name in [name for name in self._pending if name not in self._census.partitions.by_name]:
            del self._pending[name]
        ready = [(pending.since, name) for name, pending in self._pending.items() if pending.retry_at <= now]
        if not ready:
            return None
        _, name = min(ready)
        return self._census.partitions.by_name[name], self._pending[name]

    def next_at(self) -> float | None:
        """Return when a partition may be read again, monotonic; None where nothing waits."""
        return min((pending.retry_at for pending in self._pending.values()), default=None)

    def waiting_bytes(self) -> int:
        """Return the bytes that wait, as far as they are known."""
        return sum(pending.size for pending in self._pending.values())

    def lag(self) -> VerificationLag:
        """Return how many partitions and bytes wait, and for how long."""
        oldest = min((pending.since for pending in self._pending.values()), default=None)
        seconds = 0.0 if oldest is None else self._context.clock.monotonic() - oldest
        return VerificationLag(len(self._pending), self.waiting_bytes(), seconds)
