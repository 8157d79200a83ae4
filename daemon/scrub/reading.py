"""Reads one segment after another for the scrubber, and reads bad ones again.

A sound segment is noted in the ledger at once. A bad one rests a moment and is read again, past the page cache, before
it is reported: a broker may be renaming, truncating or compacting the very files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from checkpoint.offsets import CLEANER_OFFSETS, LIMIT, decode_offsets
from daemon.ledger.disk import LogStat
from daemon.ledger.page import Page, PartitionRow, SegmentRow
from daemon.scrub.census import Census
from daemon.scrub.pace import Pace
from daemon.verify.context import ScrubContext
from daemon.verify.diagnosis import (
    ON_DISK,
    UNCONFIRMED,
    Diagnosis,
    diagnose_closed,
    diagnose_flushed,
    digest_again,
)
from daemon.verify.follow_up import FollowUp
from daemon.verify.segment_scan import ClosedScan, FlushedScan, Seen, are_same, segment_files
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.disk.fs import FileStat
from storage.reading.log_reader import LogReader

SOUND: Final = "sound"
_SOON_MS: Final = 60_000
_UNFLUSHED_MS: Final = 600_000
_UNFLUSHED_SHARE_MS: Final = 50
"""Of each second of the cycle, until a closed segment that is not flushed is asked for again: a twentieth of it."""
_LOOKS: Final = 6
"""Second looks at files that change at every look, before they are put off."""


@dataclass(slots=True)
class _Suspicion:
    row: SegmentRow
    at: float
    position: int | None
    error: ReadFault | None = None
    new_digest: str = ""
    looks: int = 0


@dataclass(slots=True)
class _Reading:
    row: SegmentRow
    scan: ClosedScan | FlushedScan


class SegmentReadings:
    """The segment that is being read, and the suspicions that wait for their second look. One thread.

    Call `begin`, then `advance` until the segment is over; `look_again` in between.
    """

    def __init__(self, context: ScrubContext, page: Page, census: Census, follow_up: FollowUp, pace: Pace) -> None:
        self._context, self._page, self._census, self._follow_up, self._pace = context, page, census, follow_up, pace
        self._reader = LogReader()
        self._now: _Reading | None = None
        self._suspicions: list[_Suspicion] = []

    @property
    def is_reading(self) -> bool:
        """A segment is being read."""
        return self._now is not None

    @property
    def suspects(self) -> set[int]:
        """Ids of the partitions with a segment that waits for its second look."""
        return {suspicion.row.partition_id for suspicion in self._suspicions}

    def begin(self, partition: PartitionRow, row: SegmentRow) -> None:
        """Open a segment; put it off where none of it can be read now."""
        now_ms = self._context.clock.now_ms()
        next_base, point = self._page.next_base(row.partition_id, row.base), self._context.flushed(partition.name)
        try:
            files = segment_files(self._context.disk, self._directory(row), row.base)
            if next_base is not None and (point is None or next_base <= point):
                self._now = _Reading(row, ClosedScan(self._context.disk, files, self._reader))
            elif next_base is not None:
                share = int(self._context.options.cycle_seconds * _UNFLUSHED_SHARE_MS)
                self._page.postpone(row, now_ms + min(_UNFLUSHED_MS, share))
            elif point is None or point <= row.base:
                self._sound(row, files.log_stat, "nothing")  # nothing of it is flushed
            else:
                start = Seen(0, row.base)
                self._now = _Reading(
                    row, FlushedScan(self._context.disk, files.log, files.log_stat, start, point, self._reader)
                )
        except FileVanished:
            self._vanished(row)
        except ReadFault as fault:
            self._suspect(row, None, fault)

    def advance(self) -> tuple[int, bool]:
        """Read a piece; return its bytes, and whether the segment is over."""
        assert self._now is not None
        row, scan = self._now.row, self._now.scan
        try:
            size, is_over = scan.advance()
            if is_over:
                self._finish(row, scan)
        except FileVanished:
            size, is_over = 0, True
            self._vanished(row)
        except ReadFault as fault:
            size, is_over = 0, True
            self._suspect(row, scan.seen.position, fault)
        if is_over:
            self.drop()
        return size, is_over

    def drop(self) -> None:
        """Close the segment that is being read; it keeps its place in the queue."""
        if self._now is not None:
            self._now.scan.close()
            self._now = None

    def _finish(self, row: SegmentRow, scan: ClosedScan | FlushedScan) -> None:
        source = "device" if scan.seen.from_device else "cache"
        if isinstance(scan, FlushedScan):
            if scan.is_damaged:
                self._suspect(row, scan.seen.position)
            else:
                self._sound(row, scan.stat, source, below=scan.seen.position)
            return
        after = segment_files(self._context.disk, self._directory(row), row.base)
        if not are_same(scan.files, after):
            self._page.postpone(row, self._context.clock.now_ms() + _SOON_MS)
        elif not scan.is_sound():
            self._suspect(row, scan.seen.position)
        elif self._has_other_digest(row, scan.files.log_stat.size, scan.digest):
            self._suspect(row, None, new_digest=scan.digest)
        else:
            self._page.set_digest(row, scan.digest, scan.files.log_stat.size)
            self._sound(row, scan.files.log_stat, source)

    def _sound(self, row: SegmentRow, stat: FileStat, source: str, *, below: int | None = None) -> None:
        self._note(row, stat, SOUND, source)
        partition = self._census.partitions.get(row.directory)
        if partition is not None:
            self._follow_up.settle(partition, row.base, below=below)
        if source != "nothing":
            self._context.tell(
                "segment_verified", topic=row.topic, partition=row.partition,
                base_offset=row.base, bytes=stat.size if below is None else below,
            )  # fmt: skip

    def _note(self, row: SegmentRow, stat: FileStat, verdict: str, source: str) -> None:
        log_stat = LogStat(stat.size, stat.mtime_ns, stat.inode)
        self._page.set_verified(row, log_stat, verdict, source, self._context.clock.now_ms(), self._pace.next_due_ms())
        self._census.note_change(row.partition_id)

    def _vanished(self, row: SegmentRow) -> None:
        """Put a segment off and have its directory listed, which removes it if it is gone."""
        self._page.postpone(row, self._context.clock.now_ms() + _SOON_MS)
        self._census.ask(row.directory, listing=True)

    def _directory(self, row: SegmentRow) -> PurePath:
        return self._context.log_dir / row.directory

    # ---- sealed segments do not change

    def _has_other_digest(self, row: SegmentRow, size: int, digest: str) -> bool:
        """Tell whether a segment that no cleaner works on holds other batches than at its last verification.

        One of another size was the active one again meanwhile: a follower truncates, and appends what the leader has.
        """
        if row.digest in (None, digest) or row.digest_size != size:
            return False
        partition = self._census.partitions.get(row.directory)
        if partition is None or partition.is_compacted:
            return False
        if self._is_cleaned(partition):
            self._census.set_compacted(partition)
            return False
        return True

    def _is_cleaned(self, partition: PartitionRow) -> bool:
        """Tell whether the checkpoint of a broker's cleaner names the partition, or cannot be read."""
        try:
            data = self._context.disk.read_small(self._context.log_dir / CLEANER_OFFSETS, LIMIT)
            return partition.name in decode_offsets(data)
        except FileVanished:
            return False
        except (ReadFault, CorruptData, UnsupportedFormat):
            return True

    # ---- the second look

    def _suspect(
        self, row: SegmentRow, position: int | None, error: ReadFault | None = None, *, new_digest: str = ""
    ) -> None:
        at = self._context.clock.monotonic() + self._context.options.confirm_seconds
        self._suspicions.append(_Suspicion(row, at, position, error, new_digest))
        self._page.postpone(row, self._context.clock.now_ms() + 60 * _SOON_MS)  # until the second look is over
        self._census.note_change(row.partition_id)

    def look_again(self) -> bool:
        """Take the second look at one segment, if it is time; return whether it was."""
        now = self._context.clock.monotonic()
        due = next((suspicion for suspicion in self._suspicions if suspicion.at <= now), None)
        if due is None:
            return False
        self._suspicions.remove(due)
        partition = self._census.partitions.get(due.row.directory)
        if partition is None or partition.id != due.row.partition_id:
            return True
        try:
            self._look(partition, due)
        except FileVanished:
            self._vanished(due.row)
        except ReadFault as fault:
            self._follow_up.unreadable(partition, due.row.base, fault)
        return True

    def _look(self, partition: PartitionRow, due: _Suspicion) -> None:
        row, directory = due.row, self._directory(due.row)
        if due.new_digest:
            self._look_at_digest(partition, due)
            return
        bases = self._context.disk.bases(directory)
        if row.base not in bases:
            self._vanished(row)
            return
        if row.base != bases[-1]:
            diagnosis = diagnose_closed(self._context.disk, directory, row.base, self._context.options, self._reader)
        else:
            point = self._context.flushed(partition.name)
            if point is None:
                self._vanished(row)
                return
            diagnosis = diagnose_flushed(
                self._context.disk, directory, row.base, Seen(0, row.base), point, self._reader
            )
        if self._is_settled(due, diagnosis):
            self._follow_up.found_again(partition, row.base, diagnosis)
            verdict = self._follow_up.judge(partition, row.base, diagnosis, due.position, due.error)
            source = "device" if diagnosis.from_device else "cache"
            self._note(row, segment_files(self._context.disk, directory, row.base).log_stat, verdict, source)

    def _is_settled(self, due: _Suspicion, seen: Diagnosis) -> bool:
        """Tell whether the second look counts; if not, there is another one, or the segment waits for a calmer time."""
        if not seen.moved:
            return True
        due.looks += 1
        due.at = self._context.clock.monotonic() + self._context.options.confirm_seconds
        if due.looks < _LOOKS:
            self._suspicions.append(due)
        else:
            self._page.postpone(due.row, self._context.clock.now_ms() + _UNFLUSHED_MS)
        return False

    def _look_at_digest(self, partition: PartitionRow, due: _Suspicion) -> None:
        row, directory = due.row, self._directory(due.row)
        if not self._census.has_same_topic(partition):
            self._census.renew(row.directory)
            return
        diagnosis = digest_again(self._context.disk, directory, row.base, self._reader)
        if not self._is_settled(due, diagnosis):
            return
        stat = segment_files(self._context.disk, directory, row.base).log_stat
        source = "device" if diagnosis.from_device else "cache"
        if not self._has_other_digest(row, stat.size, diagnosis.digest):
            self._sound(row, stat, source)
            return
        evidence = (
            f"every checksum holds, but its batches are not those of its last verification: digest {row.digest} then, "
            f"{diagnosis.digest} now"
        )
        self._follow_up.changed_in_place(
            partition, row.base, stat.size, evidence, ON_DISK if diagnosis.from_device else UNCONFIRMED
        )
        self._note(row, stat, "damaged", source)
