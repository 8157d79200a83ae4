"""Log: the segments of one partition, appended to by a leader or a follower, rolled, flushed, truncated and read.

`Log` reads, and hands every change to the part that makes it: `LeaderAppend`, `FollowerAppend`, `Durability`,
`SegmentChanges` and the functions of `truncation`. They share one `LogState`. The protocol around it:

- **Opening** needs a clean directory: one that recovery, a broker or `close` left in order.
- **Epochs** are kept by an `EpochKeeper`, which the log calls before it writes what makes a call needed.
- **Durability**: `flush`, `sync` and `close` make things durable. A checkpoint may lag behind `recovery_point`, which
  `flush` and `close` return, and never lead it; after a truncation it is written at once.
- **Threads**: one at a time may change the log. `read` and `offset_for_time` may run beside it in other threads: they
  see what was appended whole.
- **Failures**: an append that is refused, or that the disk refuses, leaves the log as it was, but for an epoch that was
  noted and a segment that was rolled for it, as in a broker. After a sync that fails, or a write that cannot be taken
  back, every change raises `LogUnusable`.

Source: Apache Kafka 4.3.0, UnifiedLog, LocalLog, LogLoader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from storage.base.config import LogConfig
from storage.base.refusals import OffsetOutOfRange
from storage.base.rows import Data
from storage.base.units import INT64_MAX, Offset
from storage.disk.fs import Fs
from storage.log.durability import Durability
from storage.log.follower_append import FollowerAppend
from storage.log.leader_append import LeaderAppend
from storage.log.log_opening import open_segments, segment_limits
from storage.log.log_read import fetch, find_by_time
from storage.log.log_state import LogState
from storage.log.log_types import Appended, Fetched, Isolation, LogSetup, Rolled, TimestampOffset, Truncated
from storage.log.log_writer import LogWriter
from storage.log.producer_files import ProducerFiles
from storage.log.segment_changes import SegmentChanges
from storage.log.truncation import truncate_fully, truncate_to
from storage.producers.producers import Origin, Producers
from storage.segment.segment import LogSegment
from storage.segment.segment_list import SegmentList


class Log:
    """The log of one partition. Offsets are exclusive ends where they are called end or point."""

    def __init__(self, fs: Fs, directory: PurePath, config: LogConfig, setup: LogSetup) -> None:
        """For `open` alone."""
        self._state = LogState(fs, directory, config, setup)
        self._durability = Durability(self._state)
        self._changes = SegmentChanges(self._state, self._durability, setup.draw)
        writer = LogWriter(self._state, self._changes, self._durability)
        self._leader = LeaderAppend(self._state, writer)
        self._follower = FollowerAppend(self._state, writer)
        self.directory = directory
        self.removed_on_open: tuple[PurePath, ...] = ()
        """Files that end in `.deleted` since a log below its own start was emptied; they go as after a truncation."""

    @classmethod
    def open(
        cls,
        fs: Fs,
        directory: PurePath,
        config: LogConfig,
        setup: LogSetup,
        *,
        now_ms: int,
        log_start: Offset = Offset(0),  # noqa: B008 (a number)
        recovery_point: Offset = Offset(0),  # noqa: B008
        is_clean: bool = False,
    ) -> Log:
        """Return the log of a clean directory; without any segment it gets one at `log_start`.

        `log_start` and `recovery_point` are those of the checkpoints. With `is_clean`, for a directory that was shut
        down cleanly, everything counts as flushed. The high watermark begins at the log start. Batches behind the
        newest producer snapshot are replayed as a broker does; `.deleted` files are removed. Raises `LogUnusable` where
        recovery has to run first, `BatchCorrupt` where a batch does not parse after all, `ReadFault` and `WriteFault`.
        """
        log = cls(fs, directory, config, setup)
        state = log._state
        files = open_segments(fs, directory, segment_limits(config), now_ms, log_start, log._changes.jitter)
        state.segments = SegmentList(files.segments)
        state.snapshots = ProducerFiles(fs, directory, files.snapshots)
        end = state.segments.active.read_next_offset()
        if end < log_start:  # cut in the middle of a batch; all that the files hold was given up before
            log.removed_on_open = log.truncate_fully(log_start, now_ms).removed
            end = log_start
        state.log_end = end
        state.log_start = state.high_watermark = max(log_start, state.segments.all[0].base_offset)
        state.recovery_point = max(end if is_clean else min(recovery_point, end), state.log_start)
        state.epochs.truncate_from_end(end)
        state.epochs.truncate_from_start(log_start)
        state.snapshots.remove_strays([segment.base_offset for segment in state.segments])
        had_snapshot = bool(state.snapshots.offsets)  # before those at or below the log start go
        state.load_producers(now_ms)
        if is_clean and not had_snapshot:
            # A broker that finds a clean log without any snapshot believes it to be older than snapshots are.
            state.snapshots.last_taken = 0
            state.snapshots.take(state.producers.state)
        return log

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start} to {self.log_end})"

    # ---- state

    @property
    def config(self) -> LogConfig:
        """The settings of its topic; the next append, roll or flush goes by those that are set here."""
        return self._state.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._state.config = config

    @property
    def segments(self) -> SegmentList:
        """The segments, at least one."""
        return self._state.segments

    @property
    def producers(self) -> Producers:
        """The producers at the log end."""
        return self._state.producers

    @property
    def log_start(self) -> Offset:
        """The first offset that may be read."""
        return self._state.log_start

    @property
    def log_end(self) -> Offset:
        """The offset of the next record."""
        return self._state.log_end

    @property
    def recovery_point(self) -> Offset:
        """Everything below is durable, indexes included."""
        return self._state.recovery_point

    @property
    def high_watermark(self) -> Offset:
        """Everything below is replicated."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset that a committed read may not see; at most the high watermark."""
        return self._state.last_stable_offset

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._state.segments)

    # ---- reading

    def read(
        self,
        start: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.LOG_END,
        min_one: bool = True,
    ) -> Fetched:
        """Return a range of a file with the batches from `start` on, at most `max_bytes` of it.

        With `min_one` the first batch is whole however large it is. Empty where nothing below the bound of `isolation`
        is left. Raises `OffsetOutOfRange` for a `start` below the log start or above the log end, and `ReadFault`.
        """
        state = self._state
        end = state.log_end
        if not state.log_start <= start <= end:
            raise OffsetOutOfRange(f"offset {start}; the log has those from {state.log_start} up to below {end}")
        if isolation is Isolation.LOG_END:
            return fetch(state.segments, start, max_bytes, bound=None, end=end, min_one=min_one)
        is_committed = isolation is Isolation.COMMITTED
        bound = state.last_stable_offset if is_committed else state.high_watermark
        return fetch(state.segments, start, max_bytes, bound=bound, end=end, min_one=min_one, with_aborted=is_committed)

    def offset_for_time(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record of at least this timestamp in ms, as far as time indexes lead to it.

        -1 asks for the log end, -2 for the log start, -3 for the first record of the largest timestamp. None if there
        is no such record. Raises `BatchCorrupt`, `UnsupportedFormat` and `ReadFault`.
        """
        return find_by_time(self._state.segments, self.log_start, self.log_end, timestamp)

    # ---- appending

    def append_as_leader(
        self,
        data: Data,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended | None:
        """Append what a client, or a coordinator with its markers, sends: one batch; None if there is no whole one.

        `data` is not changed: offsets, epoch and, where the topic says so, times are set in a copy. Raises what
        `check_leader_append` and `Producers.check` do, `AppendTooLarge` and `WriteFault`.
        """
        return self._leader.append(data, leader_epoch, now_ms, origin, transaction_version)

    def append_as_follower(self, data: Data, *, leader_epoch: int, now_ms: int) -> Appended | None:
        """Append batches as a leader has them, with their offsets and times; None if there is no whole one.

        Batches of an epoch above `leader_epoch` are left out with all behind them. Raises `UnexpectedOffset` if they
        begin below the log end, what `check_follower_append` raises, `InvalidTransaction`, `AppendTooLarge` and
        `WriteFault`.
        """
        return self._follower.append(data, leader_epoch, now_ms)

    # ---- rolling and flushing

    def roll(self, now_ms: int) -> Rolled:
        """Begin a new segment at the log end; an empty active one only gets younger."""
        self._state.ensure_usable()
        return self._changes.roll(0, now_ms)

    def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to`, or without it the whole log, durable; return the recovery point.

        Log files come first, then indexes and snapshots, then the directory; only then the recovery point moves. Raises
        `DiskFull` and `WriteFault`; if it is not an index that could not be written but a sync that failed, the log is
        unusable from then on.
        """
        return self._durability.flush(up_to)

    def sync(self) -> Offset:
        """Make all batches durable, but no index and no recovery point; return the log end. Raises as `flush` does."""
        return self._durability.sync()

    # ---- ends

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Note what is replicated, within log start and log end; return what it is now."""
        return self._state.set_high_watermark(offset)

    def set_log_start(self, offset: Offset) -> bool:
        """Let the log begin at `offset`, if that is above its start; tell whether it was.

        Nothing is removed: retention does that. Raises `OffsetOutOfRange` above the high watermark.
        """
        state = self._state
        state.ensure_usable()
        if offset > state.high_watermark:
            raise OffsetOutOfRange(f"log start {offset} above the high watermark {state.high_watermark}")
        if offset <= state.log_start:
            return False
        state.log_start = offset
        state.epochs.truncate_from_start(offset)
        state.producers.forget_decided(offset)
        state.producers.state.advance(offset)
        state.snapshots.after_log_start(offset)
        return True

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for too long; return their number."""
        return self._state.expire_producers(now_ms)

    def truncate_to(self, offset: Offset, now_ms: int) -> Truncated:
        """Cut off everything from `offset` on, a batch that holds it included; the log ends there then.

        Nothing is synced. See `Truncated` for what the caller must do before the next append.
        """
        self._state.ensure_usable()
        return truncate_to(self._state, self._changes, offset, now_ms)

    def truncate_fully(self, start: Offset, now_ms: int, *, log_start: Offset | None = None) -> Truncated:
        """Drop everything; the log is empty then and ends at `start`, which is its beginning without `log_start`."""
        self._state.ensure_usable()
        return truncate_fully(self._state, self._changes, start, now_ms, log_start)

    # ---- segments

    def delete_segments(self, segments: Iterable[LogSegment]) -> tuple[PurePath, ...]:
        """Take segments out of the log, with the snapshots at their bases; return their files, `.deleted` now.

        The caller moves the log start, and must leave a segment. Nothing is synced.
        """
        return self._changes.delete(segments)

    def replace_segments(self, cleaned: Sequence[LogSegment], sources: Sequence[LogSegment]) -> tuple[PurePath, ...]:
        """Replace `sources` by cleaned segments, durable and closed; return the files that are `.deleted` now.

        `sources` are adjacent closed segments, flushed before, and all that is in `cleaned` was in them. The snapshots
        of bases that are no more go too, as in a broker. Durable when it returns; a failure leaves the directory to a
        recovery, and the log unusable.
        """
        self._state.ensure_usable()
        return self._changes.replace(cleaned, sources)

    def close_removed(self) -> None:
        """Close the segments that were taken out so far; for when their files go and no thread reads them any more."""
        self._changes.close_removed()

    # ---- closing

    def close(self) -> Offset:
        """Make everything durable, with a snapshot at the log end; return the recovery point, which is the log end.

        A broker, or `open`, finds a clean log then. Raises as `flush` does, and closes the files in any case.
        """
        state = self._state
        state.ensure_usable()
        try:
            state.snapshots.take(state.producers.state)
            state.segments.active.seal()
            self._durability.flush_segments(INT64_MAX, state.log_end)
            with state.unusable_on_fault():
                state.fs.sync_dir(state.directory)
        finally:
            self.close_abruptly()
        return state.recovery_point

    def close_abruptly(self) -> None:
        """Close the files and do nothing else, as a crash would."""
        self._state.unusable_since = self._state.unusable_since or "closed"
        self.close_removed()
        for segment in self._state.segments:
            segment.close()
