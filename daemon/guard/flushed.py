"""Verifies what a broker flushed since the last look: per partition the range from the old recovery point to the new.

Those bytes no longer change in place. What a broker may do to them is to take them away: by retention, by compaction
(another file under the same name), or by truncation, which lowers the recovery point as well. So whatever does not look
right rests a moment, the checkpoint is read again, and then the file is, before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from daemon.ledger.disk import Disk
from daemon.ledger.page import Cursor, PartitionRow
from daemon.scrub.diagnosis import diagnose_flushed
from daemon.scrub.scrub import Scrubber
from daemon.scrub.segment_scan import FlushedScan, Seen
from daemon.scrub.verify_options import GuardOptions
from daemon.status.model import Clock, Events, VerificationLag
from recovery.plan.findings import Damage, Finding
from storage.base.errors import FileVanished, ReadFault
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset, TopicPartition
from storage.reading.log_reader import LogReader

_LEAST_RATE: Final = 8 << 20
_SHORT_LOOKS: Final = 3
"""So many checkpoints must claim what the log does not hold until that is told."""
_LOOKS: Final = 10
_AGAIN_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Bad:
    """Where a range did not look right, to be looked at again."""

    base: int
    seen: Seen
    error: ReadFault | None = None


@dataclass(slots=True)
class _Pending:
    """A partition of which something was flushed and is not verified. `size`: bytes, as far as that is known."""

    point: int
    since: float
    size: int = 0
    retry_at: float = 0.0
    looks: int = 0
    bad: _Bad | None = None
    short: set[int] = field(default_factory=set)
    """Versions of the checkpoint that claimed more than there is."""


class FlushedRanges:
    """See the module. One thread. `refresh` reads the checkpoint again and calls `take_points`."""

    def __init__(
        self, scrubber: Scrubber, clock: Clock, events: Events, options: GuardOptions, refresh: Callable[[], None]
    ) -> None:
        self._scrubber, self._clock, self._events, self.options = scrubber, clock, events, options
        self._refresh, self._reader = refresh, LogReader()
        self.points: Mapping[TopicPartition, int] = {}
        self.has_strangers = False
        """The checkpoint names partitions whose directories are not known yet."""
        self._cursors: dict[TopicPartition, tuple[int, Cursor]] = {}
        self._pending: dict[TopicPartition, _Pending] = {}
        self._open: tuple[TopicPartition, PartitionRow, FlushedScan, int] | None = None
        self._version = 0
        self.generation = scrubber.generation
        self._is_first = not any(row.verified_offset is not None for row in scrubber.census.partitions.values())
        self.bytes_read = 0
        self._rest_until = 0.0

    @property
    def _disk(self) -> Disk:
        return self._scrubber.disk

    # ---- what is to be done

    def take_points(self, points: Mapping[TopicPartition, int]) -> int:
        """Subtract; return how many partitions have something new."""
        self._version += 1
        self.has_strangers = False
        moved = 0
        baseline: dict[int, Cursor] = {}
        for name in [name for name in self._pending if name not in points]:
            del self._pending[name]  # it moves to another log directory, or its topic is being deleted
        for name, point in points.items():
            row = self._scrubber.census.by_name.get(name)
            if row is None:
                self.has_strangers = True
                continue
            if self.points.get(name) == point and name in self._cursors and self._cursors[name][0] == row.id:
                continue
            cursor = self._cursor(name, row)
            if cursor is None and self._is_first:
                baseline[row.id] = cursor = Cursor(point)  # what is old is the scrubber's
                self._cursors[name] = (row.id, cursor)
            moved += self._compare(name, row, cursor, point)
        self.points = dict(points)
        self._is_first = False
        self._scrubber.page.set_cursors(baseline)
        return moved

    def _cursor(self, name: TopicPartition, row: PartitionRow) -> Cursor | None:
        number, cursor = self._cursors.get(name, (0, None))
        if number != row.id:
            cursor = self._scrubber.page.cursor(row.id)
            if cursor is not None:
                self._cursors[name] = (row.id, cursor)
        return cursor

    def _set_cursor(self, name: TopicPartition, row: PartitionRow, cursor: Cursor) -> None:
        self._cursors[name] = (row.id, cursor)
        self._scrubber.page.set_cursor(row.id, cursor)

    def _compare(self, name: TopicPartition, row: PartitionRow, cursor: Cursor | None, point: int) -> int:
        """Take in the recovery point of one partition; return 1 if there is something to verify."""
        old = max(self.points.get(name, point), point if cursor is None else cursor.offset)
        if cursor is not None and point < old:
            if self._is_other(row):
                self._pending.pop(name, None)
                self._scrubber.census.renew(row.directory)
                self.has_strangers = True
                return 0
            self._events.tell(
                "recovery_point_regressed", log_dir=self._scrubber.log_dir, topic=name.topic,
                partition=name.partition, old=old, new=point,
            )  # fmt: skip
            if point < cursor.offset:
                self._scrubber.page.note_truncation(name, point, cursor.offset - 1, self._clock.now_ms())
                cursor = Cursor(point)
                self._set_cursor(name, row, cursor)
        if cursor is None:
            cursor = self._cursor_of_new(row, point)
            self._set_cursor(name, row, cursor)
        if point <= cursor.offset:
            self._pending.pop(name, None)
            return 0
        before = self._pending.get(name)
        since = self._clock.monotonic() if before is None else before.since
        pending = self._pending[name] = before or _Pending(point, since)
        pending.point = point
        pending.size = self._size_of(row, cursor)
        return 1

    def _is_other(self, row: PartitionRow) -> bool:
        """Tell whether the topic was deleted and made again since."""
        try:
            return not self._scrubber.census.has_same_topic(row)
        except ReadFault:
            return False

    def _cursor_of_new(self, row: PartitionRow, point: int) -> Cursor:
        """Return where to begin with a partition that came: at its beginning, unless that is too much at once.

        A replica that moved here from another log directory brings all its old segments; the scrubber has those.
        """
        try:
            listed = self._disk.listed(self._scrubber.log_dir / row.directory).logs
        except ReadFault:
            return Cursor(0)
        size = 0
        begin = point
        for base in reversed(listed):
            size += listed[base].size
            if size > self.options.catch_up_bytes:
                break
            begin = min(base, point)
        return Cursor(begin)

    def _size_of(self, row: PartitionRow, cursor: Cursor) -> int:
        if cursor.base is None:
            return 0
        try:
            return max(self._disk.stat(self._log_of(row, cursor.base)).size - cursor.position, 0)
        except ReadFault:
            return 0

    def lag(self) -> VerificationLag:
        """Return what waits."""
        waiting = list(self._pending.values())
        oldest = min((each.since for each in waiting), default=None)
        seconds = 0.0 if oldest is None else self._clock.monotonic() - oldest
        return VerificationLag(len(waiting), sum(each.size for each in waiting), seconds)

    # ---- doing it

    def step(self) -> float | None:
        """Read a piece of a range; return the seconds to rest, None where nothing can be done now."""
        now = self._clock.monotonic()
        if now < self._rest_until:
            return self._rest_until - now
        if self._open is None and not self._begin():
            return None
        if self._open is None:
            return 0.0
        name, row, scan, _ = self._open
        pending = self._pending.get(name)
        if pending is None or self._scrubber.census.by_name.get(name) is not row:
            self._close()
            return 0.0
        rest = self._advance(name, row, scan, pending)
        self._rest_until = now + rest
        return rest

    def next_at(self) -> float | None:
        """Return when something can be done again, monotonic; None where nothing waits."""
        return min((each.retry_at for each in self._pending.values()), default=None)

    def _begin(self) -> bool:
        """Open the range that waits longest; return whether anything was done."""
        now = self._clock.monotonic()
        ready = [(p.since, name) for name, p in self._pending.items() if p.retry_at <= now]
        if not ready:
            return False
        _, name = min(ready)
        pending, row = self._pending[name], self._scrubber.census.by_name.get(name)
        if row is None:
            del self._pending[name]
            return True
        try:
            if pending.bad is not None:
                self._look_again(name, pending.bad)
            else:
                self._open_range(name, row, pending)
        except FileVanished:
            self._lost(name, row, pending)
        except ReadFault as fault:
            self._unreadable(name, row, pending, fault)
        return True

    def _open_range(self, name: TopicPartition, row: PartitionRow, pending: _Pending) -> None:
        _, cursor = self._cursors[name]
        cursor = self._placed(row, cursor)
        if cursor.base is None or cursor.offset >= pending.point:
            self._done(name, row, replace_offset(cursor, max(cursor.offset, pending.point)))
            return
        self._cursors[name] = (row.id, cursor)
        path = self._log_of(row, cursor.base)
        stat = self._disk.stat(path)
        # What an index entry says is only where to begin; offsets are checked from the segment's own base on.
        known = cursor.inode == stat.inode
        start = Seen(cursor.position, cursor.offset if known else cursor.base)
        self._open = (name, row, FlushedScan(self._disk, path, stat, start, pending.point, self._reader), cursor.base)

    def _placed(self, row: PartitionRow, cursor: Cursor) -> Cursor:
        """Return the cursor with the place of its offset in the files as they are; `base` None if there are none."""
        directory = self._scrubber.log_dir / row.directory
        if cursor.base is not None and cursor.inode:
            try:
                stat = self._disk.stat(self._log_of(row, cursor.base))
                if stat.inode == cursor.inode and stat.size >= cursor.position:
                    return cursor
            except FileVanished:
                pass  # compacted away, or retained out
        bases = self._disk.bases(directory)
        if not bases:
            return Cursor(cursor.offset)
        base = max((base for base in bases if base <= cursor.offset), default=bases[0])
        offset = max(cursor.offset, base)
        index = directory / segment_file_name(Offset(base), FileRole.INDEX)
        position = 0 if offset == base else self._disk.floor_position(index, offset - base)
        inode = self._disk.stat(self._log_of(row, base)).inode if offset == base else 0
        return Cursor(offset, base, position, inode)

    def _advance(self, name: TopicPartition, row: PartitionRow, scan: FlushedScan, pending: _Pending) -> float:
        try:
            size, is_over = scan.advance()
        except FileVanished:
            self._close()
            self._lost(name, row, pending)
            return 0.0
        except ReadFault as fault:
            base = self._open[3] if self._open else 0
            self._close()
            self._suspect(pending, _Bad(base, replace(scan.seen), fault))
            return 0.0
        self.bytes_read += size
        pending.size = max(pending.size - size, 0)
        if is_over:
            self._finish(name, row, scan, pending)
        return self._rest(size)

    def _rest(self, size: int) -> float:
        waiting = sum(each.size for each in self._pending.values())
        wanted = waiting / (self.options.verify_within_seconds / 2)
        return size / min(max(wanted, _LEAST_RATE), self.options.max_bytes_per_second)

    def _finish(self, name: TopicPartition, row: PartitionRow, scan: FlushedScan, pending: _Pending) -> None:
        base = self._open[3] if self._open else 0
        self._close()
        begin, seen = scan.begin, scan.seen
        if scan.is_damaged:
            if seen.position == begin.position > 0 and begin.next_offset == base:  # the index entry led astray
                self._cursors[name] = (row.id, Cursor(base, base, 0, scan.stat.inode))
            else:
                self._suspect(pending, _Bad(base, replace(seen)))
            return
        if seen.position > begin.position:
            self._events.tell(
                "range_verified", log_dir=self._scrubber.log_dir, topic=name.topic, partition=name.partition,
                first_offset=begin.next_offset, next_offset=seen.next_offset, bytes=seen.position - begin.position,
            )  # fmt: skip
        if scan.reaches_point:
            at_point = seen.next_offset == pending.point
            cursor = Cursor(scan.point, base, seen.position, scan.stat.inode) if at_point else Cursor(scan.point)
            self._done(name, row, cursor)
            return
        self._go_on(name, row, pending, Cursor(seen.next_offset, base, seen.position, scan.stat.inode), scan.stat.size)

    def _go_on(self, name: TopicPartition, row: PartitionRow, pending: _Pending, cursor: Cursor, size: int) -> None:
        """Go to the next segment, or wait for more where the log ends below its recovery point."""
        assert cursor.base is not None
        try:
            following = [b for b in self._disk.bases(self._scrubber.log_dir / row.directory) if b > cursor.base]
            if following:
                self._set_cursor(name, row, Cursor(max(following[0], cursor.offset), following[0]))
                if following[0] >= pending.point:
                    self._done(name, row, Cursor(following[0] if following[0] == pending.point else pending.point))
                return
            self._set_cursor(name, row, cursor)
            if self._disk.stat(self._log_of(row, cursor.base)).size == size:
                self._short(name, row, pending, cursor)
        except ReadFault:
            self._lost(name, row, pending)

    def _short(self, name: TopicPartition, row: PartitionRow, pending: _Pending, cursor: Cursor) -> None:
        """A truncation may not have come to the checkpoint yet; what several checkpoints claim is a claim."""
        pending.short.add(self._version)
        pending.retry_at = self._clock.monotonic() + self.options.scrub.confirm_seconds
        if len(pending.short) < _SHORT_LOOKS:
            return
        assert cursor.base is not None
        evidence = f"the recovery point says {pending.point}, the log ends with {cursor.offset - 1}"
        path = self._log_of(row, cursor.base)
        finding = Finding(
            Damage.CHECKPOINT_BEYOND_END, path, evidence, cursor.position, None, cursor.offset, pending.point - 1
        )
        self._scrubber.open_findings.put(name, [finding], "on disk")
        self._done(name, row, Cursor(pending.point))

    def _done(self, name: TopicPartition, row: PartitionRow, cursor: Cursor) -> None:
        self._pending.pop(name, None)
        self._set_cursor(name, row, cursor)

    def _lost(self, name: TopicPartition, row: PartitionRow, pending: _Pending) -> None:
        """A file went away: look where its offsets are now, or give up where the whole partition went."""
        _, cursor = self._cursors[name]
        self._cursors[name] = (row.id, Cursor(cursor.offset))
        pending.bad = None
        pending.looks += 1
        pending.retry_at = self._clock.monotonic() + _AGAIN_SECONDS
        if pending.looks >= _LOOKS:
            self._pending.pop(name, None)
        self._scrubber.census.ask(row.directory, listing=True)

    # ---- the second look

    def _suspect(self, pending: _Pending, bad: _Bad) -> None:
        pending.bad = bad
        pending.retry_at = self._clock.monotonic() + self.options.scrub.confirm_seconds

    def _unreadable(self, name: TopicPartition, row: PartitionRow, pending: _Pending, fault: ReadFault) -> None:
        _, cursor = self._cursors[name]
        if pending.bad is None:
            base = cursor.offset if cursor.base is None else cursor.base
            self._suspect(pending, _Bad(base, Seen(cursor.position, cursor.offset), fault))
            return
        self._scrubber.verdicts.unreadable(row, pending.bad.base, fault)
        pending.bad = None
        self._done(name, row, Cursor(pending.point))

    def _look_again(self, name: TopicPartition, bad: _Bad) -> None:
        self._refresh()
        pending, row = self._pending.get(name), self._scrubber.census.by_name.get(name)
        if pending is None or row is None:
            return
        directory = self._scrubber.log_dir / row.directory
        begin = Seen(bad.seen.position, bad.seen.next_offset)
        seen = diagnose_flushed(self._disk, directory, bad.base, begin, pending.point, self._reader)
        if seen.moved:
            self._lost(name, row, pending)
            return
        pending.bad = None
        self._scrubber.verdicts.judge(row, bad.base, seen, bad.seen.position, bad.error)
        inode = self._disk.stat(self._log_of(row, bad.base)).inode
        if not seen.findings:
            self._set_cursor(name, row, Cursor(begin.next_offset, bad.base, begin.position, inode))
            return
        last = seen.findings[-1]
        if last.next_good_offset is None or last.position is None or last.size is None:
            self._done(name, row, Cursor(pending.point))  # nothing behind it can be read; the scrubber tries again
        else:
            self._set_cursor(name, row, Cursor(last.next_good_offset, bad.base, last.position + last.size, inode))

    def _log_of(self, row: PartitionRow, base: int) -> PurePath:
        return self._scrubber.log_dir / row.directory / segment_file_name(Offset(base), FileRole.LOG)

    def _close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None

    def close(self) -> None:
        """Let go of what is open."""
        self._close()


def replace_offset(cursor: Cursor, offset: int) -> Cursor:
    """Return the cursor at an offset of which the place is known only if it is the cursor's own."""
    return cursor if cursor.offset == offset else Cursor(offset)
