"""Log: the segments of one partition, appended to by a leader or a follower, rolled, flushed, truncated and read.

The protocol around it:

- **Opening** is for directories that are clean: recovery has been there, or a broker or `close` left it so.
- **Epochs** are kept by an `EpochKeeper`, which the log calls before it writes what makes a call needed.
- **Durability**: `flush`, `sync` and `close` make things durable. A checkpoint may lag behind `recovery_point`, which
  `flush` and `close` return, and never lead it; after a truncation it is written at once.
- **Threads**: one at a time may change the log. `read` and `offset_for_time` may run beside it in other threads: they
  see what was appended whole.
- **Failures**: an append that is refused, or that the disk refuses, leaves the log as it was, but for an epoch that was
  noted and a segment that was rolled for it, as in a broker. A sync that fails, or a write that cannot be taken back,
  is the end: what changes the log raises `LogUnusable` from then on.

Source: Apache Kafka 4.3.0, UnifiedLog, LocalLog, LogLoader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Final

from storage.base.config import LogConfig
from storage.base.errors import EnvironmentFault
from storage.base.names import FileState
from storage.base.refusals import AppendTooLarge, OffsetOutOfRange, UnexpectedOffset
from storage.base.units import INT32_MAX, INT64_MAX, Epoch, Offset
from storage.disk.fs import Fs
from storage.kernel.rows import BatchRows, Data
from storage.log.append_check import Checked, Leading, check_follower_append, check_leader_append
from storage.log.appendable_log import AppendableLog
from storage.log.log_opening import open_segments, segment_limits
from storage.log.log_types import Appended, LogSetup, Rolled, Truncated
from storage.log.producer_files import ProducerFiles, rebuild
from storage.producers.producer_state import ProducerState
from storage.producers.producers import Origin, Producers
from storage.segment.segment import ROLES, LogSegment
from storage.segment.segment_list import SegmentList
from storage.segment.swapping import swap_in

_ROWS: Final = 1024
_CLIENT: Final = Origin.CLIENT


class Log(AppendableLog):
    """The log of one partition; see the module. Offsets are exclusive ends where they are called end or point."""

    def __init__(self, fs: Fs, directory: PurePath, config: LogConfig, setup: LogSetup) -> None:
        """For `open` alone."""
        super().__init__(directory, config)
        self._fs, self._setup = fs, setup
        self._files = ProducerFiles(fs, directory, ())
        self._rolled: list[LogSegment] = []
        """Closed since the last flush: they got an entry that even a recovery point behind them does not cover."""
        self._removed: list[LogSegment] = []
        """Out of the log, but maybe not out of the hands of readers."""
        self._epoch: int | None = None
        self.removed_on_open: tuple[PurePath, ...] = ()
        """Files that end in `.deleted` since a log below its own start was emptied; they go as after a truncation."""
        self._rows: BatchRows | None = None
        self._named: LogSegment | None = None  # the newest whose name a `sync` made durable

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
        """Load a clean directory; a log that has no segment yet gets one at `log_start`.

        `log_start` and `recovery_point` are those of the checkpoints. With `is_clean` all that is there counts as
        flushed: there was a marker of a clean shutdown. The high watermark begins at the log start. What a broker would
        find out from the batches behind the newest producer snapshot is found out the same way; `.deleted` files go.
        Raises `LogUnusable` where recovery has to run first, `BatchCorrupt` where a batch does not parse after all,
        `ReadFault` and `WriteFault`.
        """
        log = cls(fs, directory, config, setup)
        found = open_segments(fs, directory, segment_limits(config), now_ms, log_start, log._jitter)
        log.segments = SegmentList(found.segments)
        log._files = ProducerFiles(fs, directory, found.snapshots)
        end = log.segments.active.read_next_offset()
        if end < log_start:  # cut in the middle of a batch; all that the files hold was given up before
            log.removed_on_open = log.truncate_fully(log_start, now_ms).removed
            end = log_start
        log.log_end = end
        log.log_start = log.high_watermark = max(log_start, log.segments.all[0].base_offset)
        log.recovery_point = max(end if is_clean else min(recovery_point, end), log.log_start)
        setup.epochs.truncate_from_end(end)
        setup.epochs.truncate_from_start(log_start)
        log._files.remove_strays([segment.base_offset for segment in log.segments])
        had_snapshot = bool(log._files.offsets)  # before those at or below the log start go
        log._load_producers(now_ms)
        if is_clean and not had_snapshot:
            # A broker that finds a clean log without any snapshot believes it to be older than snapshots are.
            log._files.last_taken = 0
            log._files.take(log.producers.state)
        return log

    def _load_producers(self, now_ms: int) -> None:
        """Bring the producers to the log end: as they are, if they are there, else from snapshots and the log."""
        self.producers = rebuild(
            self._files, self.producers, self.segments.all, self.log_start, self.log_end,
            now_ms=now_ms, expiration_ms=self._setup.producer_expiration_ms,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start} to {self.log_end})"

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
        if self._end_reason is not None:
            self._usable()
        if origin is _CLIENT and leader_epoch == self._epoch:
            done = self._append_as_it_is(data, leader_epoch, now_ms)
            if done is not None:
                return done
        leading = Leading(self.config, self.log_end, leader_epoch, now_ms, origin)
        with memoryview(data) as view:
            checked = check_leader_append(view, leading)
        if checked is None:
            return None
        active, rolled = self._make_room(checked, now_ms)
        for event in checked.events:
            if origin is Origin.CLIENT and (seen := self.producers.find_duplicate(event)) is not None:
                return Appended(seen.first_offset, seen.last_offset, seen.timestamp, is_duplicate=True, rolled=rolled)
            self.producers.check(event, origin, transaction_version)
        return self._write(active, checked, rolled)

    def append_as_follower(self, data: Data, *, leader_epoch: int, now_ms: int) -> Appended | None:
        """Append batches as a leader has them, with their offsets and times; None if there is no whole one.

        Batches of an epoch above `leader_epoch` are left out with all behind them. Raises `UnexpectedOffset` if they
        begin below the log end, what `check_follower_append` raises, `InvalidTransaction`, `AppendTooLarge` and
        `WriteFault`.
        """
        self._usable()
        if self._rows is None:
            self._rows = BatchRows(_ROWS)
        with memoryview(data) as view:
            checked = check_follower_append(view, self._rows, leader_epoch)
            if checked is None:
                return None
            if checked.first_offset < self.log_end:
                raise UnexpectedOffset(checked.first_offset, checked.last_offset, self.log_end)
            self.producers.check_replicated(checked.events)
            active, rolled = self._make_room(checked, now_ms)
            return self._write(active, checked, rolled)

    def _make_room(self, checked: Checked, now_ms: int) -> tuple[LogSegment, Rolled | None]:
        """Note new epochs, and return the segment that the append goes to, a new one if that is due."""
        for epoch, base_offset in checked.epochs:
            if epoch != self._epoch:
                self._assign_epoch(epoch, base_offset)
        limit = self.config.max_segment_bytes
        if checked.size > limit:
            raise AppendTooLarge(f"append of {checked.size} bytes, a segment may have {limit}")
        active = self.segments.active
        if not active.should_roll(
            checked.size, checked.last_offset, checked.max_timestamp, now_ms,
            max_bytes=limit, max_ms=self.config.max_segment_ms,
        ):  # fmt: skip
            return active, None
        first = checked.first_offset if checked.is_first_known else checked.last_offset - INT32_MAX
        rolled = self._roll(first, now_ms)
        return self.segments.active, rolled

    def _assign_epoch(self, epoch: int, base_offset: int) -> None:
        self._epoch = None  # should the call fail, nobody knows what is noted
        if epoch < 0:  # batches of magic 0 and 1
            self._setup.epochs.clear()
        else:
            self._setup.epochs.assign(Epoch(epoch), Offset(base_offset))
        self._epoch = epoch

    def _write(self, active: LogSegment, checked: Checked, rolled: Rolled | None) -> Appended:
        first, last = checked.first_offset, checked.last_offset
        self._put(active, checked.data, checked.ends, last, checked.events)
        return Appended(first, last, checked.max_timestamp, checked.append_time_ms, rolled=rolled)

    # ---- rolling and flushing

    def roll(self, now_ms: int) -> Rolled:
        """Begin a new segment at the log end; an empty active one only gets younger."""
        self._usable()
        return self._roll(0, now_ms)

    def _roll(self, expected: int, now_ms: int) -> Rolled:
        active = self.segments.active
        base = Offset(max(expected, self.log_end))
        self.producers.state.map_end_offset = base
        if active.size == 0 and base <= active.base_offset:
            self._begin_anew(active, base, now_ms)
            return Rolled(base)
        made = self._new_segment(base, now_ms)
        try:
            self._files.take(self.producers.state)
        except EnvironmentFault:
            made.remove()
            self.producers.state.map_end_offset = self.log_end
            raise
        active.seal()
        self._rolled.append(active)
        self.segments.change(add=[made])
        return Rolled(base)

    def _begin_anew(self, active: LogSegment, base: Offset, now_ms: int) -> None:
        """Let the empty active segment begin at `base`: where it is, or lower if an append behind a gap failed."""
        if base < active.base_offset:
            made = self._new_segment(base, now_ms)
            self.segments.change(add=[made], remove=[active])
            active.remove()
            self._files.remove([offset for offset in self._files.offsets if offset > base])
            self._files.after_log_start(self.log_start)
        active.created_ms, active.jitter_ms = now_ms, self._jitter()
        self._files.take(self.producers.state)

    def _new_segment(self, base: Offset, now_ms: int) -> LogSegment:
        limits = segment_limits(self.config)
        return LogSegment.create(self._fs, self.directory, base, limits, now_ms, jitter_ms=self._jitter())

    def _jitter(self) -> int:
        bound = self.config.jitter_bound_ms
        return self._setup.draw(bound) if bound else 0

    def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to`, or without it the whole log, durable; return the recovery point.

        Log files come first, then indexes and snapshots, then the directory; only then the recovery point moves. Raises
        `DiskFull` and `WriteFault`; if it is not an index that could not be written but a sync that failed, the log is
        unusable from then on.
        """
        self._usable()
        target = self.log_end if up_to is None else min(up_to, self.log_end)
        if target > self.recovery_point or self._rolled:
            self._flush(target, target)
        return self.recovery_point

    def sync(self) -> Offset:
        """Make all batches durable, but no index and no recovery point; return the log end. Raises as `flush` does."""
        self._usable()
        segments = self.segments.between(self.recovery_point, INT64_MAX)
        with self._or_end():
            for segment in segments:
                segment.sync_log()
            if self._named is not segments[-1]:
                self._fs.sync_dir(self.directory)
        self._named = segments[-1]
        return self.log_end

    def _flush(self, below: int, target: Offset) -> None:
        """Make the segments with bases below `below` durable, as far as they are not: all below `target` is then."""
        unflushed = self.segments.between(self.recovery_point, below)
        segments = [segment for segment in self._rolled if segment not in unflushed] + list(unflushed)
        for segment in segments:
            segment.write_indexes()
        with self._or_end():
            for segment in segments:
                segment.flush()
            has_new_names = self._files.sync()
            if has_new_names or any(segment.base_offset >= self.recovery_point for segment in segments):
                self._fs.sync_dir(self.directory)
        for segment in segments:
            if segment is not self.segments.active:
                segment.close_for_writing()
        self._rolled.clear()
        self.recovery_point = max(self.recovery_point, target)

    @contextmanager
    def _or_end(self) -> Iterator[None]:
        """Whatever fails in here is a sync: the kernel may have dropped the pages, and says so only once."""
        try:
            yield
        except EnvironmentFault as fault:
            self._end_reason = str(fault)
            raise

    # ---- ends

    def set_high_watermark(self, offset: Offset) -> Offset:
        """Note what is replicated, within log start and log end; return what it is now."""
        self.high_watermark = max(min(offset, self.log_end), self.log_start)
        self.producers.forget_decided(self.high_watermark)
        return self.high_watermark

    def set_log_start(self, offset: Offset) -> bool:
        """Let the log begin at `offset`, if that is above its start; tell whether it was.

        Nothing is removed: retention does that. Raises `OffsetOutOfRange` above the high watermark.
        """
        self._usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"log start {offset} above the high watermark {self.high_watermark}")
        if offset <= self.log_start:
            return False
        self.log_start = offset
        self._setup.epochs.truncate_from_start(offset)
        self.producers.forget_decided(offset)
        self.producers.state.advance(offset)
        self._files.after_log_start(offset)
        return True

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for too long; return their number."""
        return self.producers.expire(now_ms, self._setup.producer_expiration_ms)

    def truncate_to(self, offset: Offset, now_ms: int) -> Truncated:
        """Cut off everything from `offset` on, a batch that holds it included; the log ends there then.

        Nothing is synced. See `Truncated` for what the caller must do before the next append.
        """
        self._usable()
        if offset >= self.log_end:
            self._cut_epochs(self.log_end)
            return Truncated(self.log_end, self.recovery_point, ())
        if offset < self.segments.all[0].base_offset:
            return self.truncate_fully(offset, now_ms)
        later = [segment for segment in self.segments if segment.base_offset > offset]
        removed = self.delete_segments(later)
        self.segments.active.truncate_to(offset, now_ms)
        self.log_end = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._cut_epochs(offset)
        self.log_start = min(offset, self.log_start)
        self._load_producers(now_ms)
        if self.high_watermark >= offset:
            self.set_high_watermark(offset)
        return Truncated(self.log_end, self.recovery_point, removed)

    def truncate_fully(self, start: Offset, now_ms: int, *, log_start: Offset | None = None) -> Truncated:
        """Drop everything; the log is empty then and ends at `start`, which is its beginning unless told otherwise."""
        self._usable()
        old = self.segments.all
        removed: list[PurePath] = []
        for segment in old:  # the one of that very name has to make room first
            removed += self._rename_deleted(segment)
        self._rolled.clear()
        self.segments.change(remove=old, add=[self._new_segment(start, now_ms)])
        self.log_end, self.recovery_point = start, min(self.recovery_point, start)
        self._epoch = None
        self._setup.epochs.clear()
        self._files.remove(list(self._files.offsets))
        self.producers = Producers(ProducerState((), start))
        self.log_start = start if log_start is None else log_start
        self._load_producers(now_ms)
        self.high_watermark = start
        return Truncated(start, self.recovery_point, tuple(removed))

    def _cut_epochs(self, end: Offset) -> None:
        self._epoch = None
        self._setup.epochs.truncate_from_end(end)

    def delete_segments(self, segments: Iterable[LogSegment]) -> tuple[PurePath, ...]:
        """Take segments out of the log, with the snapshots at their bases; return their files, `.deleted` now.

        Whoever calls it moves the log start, and sees to it that a segment is left. Nothing is synced.
        """
        gone = list(segments)
        self.segments.change(remove=gone)
        removed: list[PurePath] = []
        for segment in gone:
            removed += self._rename_deleted(segment)
        return (*removed, *self._files.mark_deleted(segment.base_offset for segment in gone))

    def replace_segments(self, cleaned: Sequence[LogSegment], sources: Sequence[LogSegment]) -> tuple[PurePath, ...]:
        """Put cleaned segments, durable and closed, in place of `sources`; return the files that are `.deleted` now.

        `sources` are closed segments one behind another, flushed before, and all that is in `cleaned` was in them. The
        snapshots of bases that are no more go too, as in a broker. Durable when it returns; what fails in here leaves
        the directory to a recovery, and the log unusable.
        """
        self._usable()
        assert self.segments.active not in sources, "the active segment is appended to"
        with self._or_end():
            gone = swap_in(self._fs, self.directory, cleaned, sources)
            self.segments.change(add=cleaned, remove=sources)
            self._let_go(sources)
            bases = {segment.base_offset for segment in cleaned}
            merged = [segment.base_offset for segment in sources if segment.base_offset not in bases]
            return (*gone, *self._files.mark_deleted(merged))

    def _let_go(self, segments: Sequence[LogSegment]) -> None:
        """Take note that segments are out of the list; readers may still have them."""
        self._rolled = [segment for segment in self._rolled if segment not in segments]
        for segment in segments:
            segment.close_for_writing()
        self._removed += segments

    def _rename_deleted(self, segment: LogSegment) -> list[PurePath]:
        segment.rename(FileState.DELETED)
        self._let_go([segment])
        return [segment.path(role) for role in ROLES if segment.has_file(role)]

    def close_removed(self) -> None:
        """Let go of the segments that were taken out so far; for when their files go and nobody reads them any more."""
        for segment in self._removed:
            segment.close()
        self._removed.clear()

    # ---- closing

    def close(self) -> Offset:
        """Make everything durable, with a snapshot at the log end; return the recovery point, which is the log end.

        A broker, or `open`, finds a clean log then. Raises as `flush` does, and lets go of the files in any case.
        """
        self._usable()
        try:
            self._files.take(self.producers.state)
            self.segments.active.seal()
            self._flush(INT64_MAX, self.log_end)
            with self._or_end():
                self._fs.sync_dir(self.directory)
        finally:
            self.close_abruptly()
        return self.recovery_point

    def close_abruptly(self) -> None:
        """Let go of the files and nothing else, as a crash would."""
        self._end_reason = self._end_reason or "closed"
        self.close_removed()
        for segment in self.segments:
            segment.close()
