"""Verifies what a broker flushed since the last look: per partition the range from the old recovery point to the new.

Those bytes no longer change in place. A broker may still take them away: by retention, by compaction (another file
under the same name), or by truncation, which lowers the recovery point as well. So a bad range rests a moment, then the
checkpoint is read again, then the file, before the guard reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from daemon.guard.backlog import Backlog, Pending, Suspicion
from daemon.guard.cursors import Cursors
from daemon.ledger.page import Cursor, PartitionRow
from daemon.scrub.generation import Generation
from daemon.verify.context import ScrubContext
from daemon.verify.diagnosis import diagnose_flushed
from daemon.verify.options import GuardOptions
from daemon.verify.segment_scan import FlushedScan, Seen
from recovery.plan.findings import Damage, Finding
from storage.base.errors import FileVanished, ReadFault
from storage.base.units import TopicPartition
from storage.reading.log_reader import LogReader

_LEAST_RATE: Final = 8 << 20
_SHORT_LOOKS: Final = 3
"""Checkpoints that must claim more than the log holds before that becomes a finding."""
_LOOKS: Final = 10
_AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Range:
    """A range that is being read, in the segment `base`."""

    row: PartitionRow
    base: int
    scan: FlushedScan


class FlushedRanges:
    """Reads the ranges of the backlog, a piece a step. One thread.

    `refresh` reads the checkpoint again and calls `take_points`.
    """

    def __init__(
        self, context: ScrubContext, generation: Generation, options: GuardOptions, refresh: Callable[[], None]
    ) -> None:
        self._context, self.generation, self.options, self._refresh = context, generation, options, refresh
        self._cursors = Cursors(context, generation.page)
        self.backlog = Backlog(context, generation.page, generation.census, self._cursors)
        self._reader = LogReader()
        self._range: _Range | None = None
        self._rest_until = 0.0

    def take_points(self, points: Mapping[TopicPartition, int]) -> int:
        """Add what a checkpoint declares flushed; return how many partitions have something new."""
        moved = self.backlog.take_points(points, self.options.catch_up_bytes)
        if self.backlog.has_strangers:
            self.generation.census.look_at_root()
            moved += self.backlog.take_points(points, self.options.catch_up_bytes)
        return moved

    def step(self) -> float | None:
        """Read a piece of a range; return the seconds to rest, None where nothing can be read now."""
        now = self._context.clock.monotonic()
        if now < self._rest_until:
            return self._rest_until - now
        if self._range is None and not self._begin():
            return None
        if self._range is None:
            return 0.0
        row = self._range.row
        pending = self.backlog.get(row)
        if pending is None or self.generation.census.partitions.by_name.get(row.name) is not row:
            self.close()
            return 0.0
        rest = self._advance(self._range, pending)
        self._rest_until = now + rest
        return rest

    def close(self) -> None:
        """Close the range that is being read."""
        if self._range is not None:
            self._range.scan.close()
            self._range = None

    # ---- the first look

    def _begin(self) -> bool:
        """Open the range that has waited longest; return whether anything was done."""
        oldest = self.backlog.oldest()
        if oldest is None:
            return False
        row, pending = oldest
        try:
            if pending.suspicion is not None:
                self._look_again(row.name, pending.suspicion)
            else:
                self._open(row, pending)
        except FileVanished:
            self._lost(row, pending)
        except ReadFault as fault:
            self._unreadable(row, pending, fault)
        return True

    def _open(self, row: PartitionRow, pending: Pending) -> None:
        cursor = self._cursors.placed(row, self._cursors[row])
        if cursor.base is None or cursor.offset >= pending.point:
            self._done(row, _moved(cursor, max(cursor.offset, pending.point)))
            return
        self._cursors.keep(row, cursor)
        path = self._context.log_of(row, cursor.base)
        stat = self._context.disk.stat(path)
        # An index entry says only where to begin; offsets are checked from the segment's own base on.
        start = Seen(cursor.position, cursor.offset if cursor.inode == stat.inode else cursor.base)
        scan = FlushedScan(self._context.disk, path, stat, start, pending.point, self._reader)
        self._range = _Range(row, cursor.base, scan)

    def _advance(self, part: _Range, pending: Pending) -> float:
        try:
            size, is_over = part.scan.advance()
        except FileVanished:
            self.close()
            self._lost(part.row, pending)
            return 0.0
        except ReadFault as fault:
            self.close()
            self._suspect(pending, Suspicion(part.base, replace(part.scan.seen), fault))
            return 0.0
        pending.size = max(pending.size - size, 0)
        if is_over:
            self.close()
            self._finish(part, pending)
        wanted = self.backlog.waiting_bytes() / (self.options.verify_within_seconds / 2)
        return size / min(max(wanted, _LEAST_RATE), self.options.max_bytes_per_second)

    def _finish(self, part: _Range, pending: Pending) -> None:
        row, scan = part.row, part.scan
        begin, end, inode = scan.begin, scan.seen, scan.stat.inode
        if scan.is_damaged:
            if end.position == begin.position > 0 and begin.next_offset == part.base:  # the index entry led astray
                self._cursors.keep(row, Cursor(part.base, part.base, 0, inode))
            else:
                self._suspect(pending, Suspicion(part.base, replace(end)))
            return
        if end.position > begin.position:
            self._context.tell(
                "range_verified", topic=row.name.topic, partition=row.name.partition,
                first_offset=begin.next_offset, next_offset=end.next_offset, bytes=end.position - begin.position,
            )  # fmt: skip
        cursor = Cursor(end.next_offset, part.base, end.position, inode)
        if scan.reaches_point:
            is_placed = end.next_offset == pending.point
            self._done(row, Cursor(scan.point, *cursor[1:]) if is_placed else Cursor(scan.point))
            return
        self._go_on(row, pending, cursor, scan.stat.size)

    def _go_on(self, row: PartitionRow, pending: Pending, cursor: Cursor, size: int) -> None:
        """Go to the next segment, or wait for more where the log ends below its recovery point."""
        assert cursor.base is not None
        try:
            bases = self._context.disk.bases(self._context.log_dir / row.directory)
            following = [base for base in bases if base > cursor.base]
            if following:
                self._cursors.put(row, Cursor(max(following[0], cursor.offset), following[0]))
                if following[0] >= pending.point:
                    self._done(row, Cursor(pending.point))
                return
            self._cursors.put(row, cursor)
            if self._context.disk.stat(self._context.log_of(row, cursor.base)).size == size:
                self._short(row, pending, cursor)
        except ReadFault:
            self._lost(row, pending)

    def _short(self, row: PartitionRow, pending: Pending, cursor: Cursor) -> None:
        """Open a finding if several checkpoints claim too much; one may be older than a truncation of the log."""
        pending.short.add(self.backlog.version)
        pending.retry_at = self._context.clock.monotonic() + self.options.scrub.confirm_seconds
        if len(pending.short) < _SHORT_LOOKS:
            return
        assert cursor.base is not None
        evidence = f"the recovery point says {pending.point}, the log ends with {cursor.offset - 1}"
        path = self._context.log_of(row, cursor.base)
        finding = Finding(
            Damage.CHECKPOINT_BEYOND_END, path, evidence, cursor.position, None, cursor.offset, pending.point - 1
        )
        self._context.findings.put(row.name, [finding], "on disk")
        self._done(row, Cursor(pending.point))

    def _done(self, row: PartitionRow, cursor: Cursor) -> None:
        self.backlog.drop(row)
        self._cursors.put(row, cursor)

    def _lost(self, row: PartitionRow, pending: Pending) -> None:
        """Look for the offsets of a file that vanished elsewhere; give up where the whole partition vanished."""
        self._cursors.keep(row, Cursor(self._cursors[row].offset))
        pending.suspicion = None
        pending.looks += 1
        pending.retry_at = self._context.clock.monotonic() + _AGAIN_SECONDS
        if pending.looks >= _LOOKS:
            self.backlog.drop(row)
        self.generation.census.ask(row.directory, listing=True)

    # ---- the second look

    def _suspect(self, pending: Pending, suspicion: Suspicion) -> None:
        pending.suspicion = suspicion
        pending.retry_at = self._context.clock.monotonic() + self.options.scrub.confirm_seconds

    def _unreadable(self, row: PartitionRow, pending: Pending, fault: ReadFault) -> None:
        cursor = self._cursors[row]
        if pending.suspicion is None:
            base = cursor.offset if cursor.base is None else cursor.base
            self._suspect(pending, Suspicion(base, Seen(cursor.position, cursor.offset), fault))
            return
        self.generation.follow_up.unreadable(row, pending.suspicion.base, fault)
        pending.suspicion = None
        self._done(row, Cursor(pending.point))

    def _look_again(self, name: TopicPartition, suspicion: Suspicion) -> None:
        self._refresh()
        row = self.generation.census.partitions.by_name.get(name)
        pending = None if row is None else self.backlog.get(row)
        if pending is None or row is None:
            return
        begin = Seen(suspicion.seen.position, suspicion.seen.next_offset)
        diagnosis = diagnose_flushed(
            self._context.disk, self._context.log_dir / row.directory, suspicion.base, begin, pending.point,
            self._reader,
        )  # fmt: skip
        if diagnosis.moved:
            self._lost(row, pending)
            return
        pending.suspicion = None
        self.generation.follow_up.judge(row, suspicion.base, diagnosis, suspicion.seen.position, suspicion.error)
        inode = self._context.disk.stat(self._context.log_of(row, suspicion.base)).inode
        if not diagnosis.findings:
            self._cursors.put(row, Cursor(begin.next_offset, suspicion.base, begin.position, inode))
            return
        last = diagnosis.findings[-1]
        if last.next_good_offset is None or last.position is None or last.size is None:
            self._done(row, Cursor(pending.point))  # nothing behind it can be read; the scrubber tries again
        else:
            self._cursors.put(
                row, Cursor(last.next_good_offset, suspicion.base, last.position + last.size, inode)
            )  # fmt: skip


def _moved(cursor: Cursor, offset: int) -> Cursor:
    """Return the cursor at an offset; its place stays known only if the offset is its own."""
    return cursor if cursor.offset == offset else Cursor(offset)
