"""One open partition: its log, its epochs, and what the schedules of the log manager do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from engine.logdir.epoch_file import EpochFile
from storage.append.append_records import Verdict
from storage.base.refusals import LogUnusable
from storage.base.units import Epoch, Offset, TopicPartition
from storage.cleanup.cleanable import Cleanable, DirtySegment, LogState, assess
from storage.cleanup.retention import LogEnds, RetainedSegment, Retention, RetentionPolicy, retain
from storage.log.log import Log
from storage.log.log_types import Appended
from storage.producers.producers import Origin
from storage.segment.segment import LogSegment


@dataclass(slots=True)
class Partition:
    """An open log with its epoch file. `leader_epoch` is that of the next append.

    `has_settings`: the topic is in our list, so that what may delete records has been asked for. `rolled_to` waits to
    be flushed up to.
    """

    name: TopicPartition
    log: Log
    epochs: EpochFile
    leader_epoch: Epoch
    has_settings: bool
    last_flush_ms: int
    rolled_to: Offset | None = None

    @property
    def directory(self) -> PurePath:
        """Where its files are."""
        return self.log.directory

    @property
    def is_dead(self) -> bool:
        """Whether a sync of its log failed, or a write could not be taken back."""
        try:
            self.log.set_log_start(self.log.log_start)  # changes nothing, and asks first
        except LogUnusable:
            return True
        return False

    def append(
        self,
        batch: bytes | bytearray | memoryview,
        now_ms: int,
        origin: Origin,
        transaction_version: int,
        verdict: Verdict | None = None,
    ) -> Appended | None:
        """Append as `Log.append_as_leader` does; no consumer sees it before the high watermark is raised."""
        appended = self.log.append_as_leader(
            batch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            transaction_version=transaction_version,
            verdict=verdict,
        )
        if appended is not None and appended.rolled is not None:
            self.rolled_to = appended.rolled.base_offset
        return appended

    def close_removed(self) -> None:
        """Close the segments that have left the log; for when their files are removed."""
        self.log.close_removed()

    def let_go(self) -> None:
        """Close all files and do nothing else, as a crash would."""
        self.log.close_abruptly()

    def close(self) -> None:
        """Make everything durable and close it; raises as `Log.close` does."""
        self.begin_pending_epoch()
        self.epochs.save()
        self.log.close()

    def flush(self, now_ms: int, up_to: Offset | None = None) -> None:
        """Make the log durable; raises as `Log.flush` does. What is durable by then counts as replicated."""
        point = self.log.flush(up_to)
        if point > self.log.high_watermark:
            self.log.set_high_watermark(point)
        if up_to is None:
            self.last_flush_ms = now_ms
        if self.rolled_to is not None and self.log.recovery_point >= self.rolled_to:
            self.rolled_to = None

    def flush_due(self, now_ms: int) -> None:
        """Flush if `is_flush_due`: all of it for its age, else what a roll has closed."""
        if self.is_flush_due(now_ms):
            is_old = now_ms - self.last_flush_ms >= self.log.config.flush_ms
            self.flush(now_ms, None if is_old else self.rolled_to)

    def start_epoch(self, epoch: int) -> None:
        """Let a new leader epoch begin at the log end, durably."""
        self.leader_epoch = Epoch(epoch)
        self.epochs.assign(self.leader_epoch, self.log.log_end)

    def begin_pending_epoch(self) -> None:
        """Note the leader epoch that an unclean shutdown made due, if no append has done so; 0 needs no note."""
        if self.leader_epoch > max(self.epochs.newest, 0):
            self.epochs.assign(self.leader_epoch, self.log.log_end)

    def is_flush_due(self, now_ms: int) -> bool:
        """Tell whether a segment was rolled, or `flush.ms` have gone by with something to flush."""
        if self.rolled_to is not None:
            return True
        is_old = now_ms - self.last_flush_ms >= self.log.config.flush_ms
        return is_old and self.log.log_end > self.log.recovery_point

    @property
    def ends(self) -> LogEnds:
        """Where the log begins and ends."""
        return LogEnds(self.log.log_start, self.log.log_end, self.log.high_watermark)

    def assess_retention(self, now_ms: int) -> Retention:
        """Return what retention would do now. Raises `ReadFault`."""
        policy = RetentionPolicy.of(self.log.config) if self.has_settings else RetentionPolicy(deletes=False)
        return retain(retained_segments(self.log.segments.all), policy, self.ends, now_ms)

    def retain(self, now_ms: int) -> tuple[PurePath, ...]:
        """Take the segments that may go out of the log; return their files, which wait for removal."""
        retention = self.assess_retention(now_ms)
        if not retention.deletable:
            return ()
        if retention.needs_roll:
            self.log.roll(now_ms)
        # First the log start, so that no reader is sent to a segment that is deleted. The epochs are durable before the
        # segments go: epochs that begin below both a noted log start and the first segment are those of a tiered log.
        self.log.set_log_start(retention.log_start)
        self.epochs.save()
        bases = {verdict.segment.base_offset for verdict in retention.deletable}
        return self.log.delete_segments(s for s in self.log.segments.all if s.base_offset in bases)

    def assess_compaction(self, checkpoint: Offset | None, now_ms: int) -> Cleanable:
        """Return what compaction would find now; `checkpoint`: up to where it has been. Raises `ReadFault`."""
        log = self.log
        state = LogState(log.log_start, log.log_end, log.last_stable_offset, checkpoint)
        return assess(dirty_segments(log.segments.all), state, log.config, now_ms)


def retained_segments(segments: Sequence[LogSegment]) -> list[RetainedSegment]:
    """Return the segments of a log, all of them in order, as retention sees them. Raises `ReadFault`."""
    nexts: list[Offset | None] = [segment.base_offset for segment in segments[1:]]
    return [
        RetainedSegment(segment.base_offset, segment.size, segment.largest_timestamp_ms(), behind)
        for segment, behind in zip(segments, [*nexts, None], strict=True)
    ]


def dirty_segments(segments: Sequence[LogSegment]) -> list[DirtySegment]:
    """Return the segments of a log, all of them in order, as compaction sees them. Raises `ReadFault`."""
    return [
        DirtySegment(segment.base_offset, segment.size, segment.largest_timestamp_ms(), segment.first_timestamp())
        for segment in segments
    ]
