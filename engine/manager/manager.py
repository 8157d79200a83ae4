"""LogManager: owns log directories, opens their logs, keeps their topics, and does one thing to one log at a time.

What concerns all of them is `Online` (which work) and `Upkeep` (what is due by now).

docs/reference/python-api.md describes its use: the order of calls, the thread rule, what a crash leaves. In short,
`open` locks and recovers; then topics, appends and reads in any order, with `run_due` about once a second; `close`
shuts down cleanly. One thread at a time, but for reads of a log that was asked for, which may run beside it.
Source: Apache Kafka 4.3.0, LogManager, ReplicaManager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePath
from types import TracebackType
from typing import Self

from checkpoint.leader_epoch import end_offset_for
from engine.logdir.log_dir import LogDir
from engine.logdir.opening import claim_log_dirs, ensure_online, open_log_dirs
from engine.logdir.partition import Partition
from engine.manager.cleaning import Cleaner
from engine.manager.online import Online
from engine.manager.schedule import Schedule
from engine.manager.topics import Topics
from engine.manager.upkeep import Upkeep
from engine.settings.options import ManagerOptions
from engine.settings.refusals import PartitionOffline, UnknownTopic
from storage.base.errors import EnvironmentFault, FileVanished, LogmendError
from storage.base.names import FileRole
from storage.base.units import INT64_MAX, Epoch, Offset, TopicPartition
from storage.disk.fs import Fs
from storage.disk.wrapped_fs import InheritingFs
from storage.log.log import Log
from storage.log.log_types import Appended, Fetched, Isolation, Truncated
from storage.producers.producers import Origin

Spread = Callable[[Callable[[Partition], LogmendError | None], list[Partition]], Iterable[LogmendError | None]]
"""Calls a function for each partition and returns what it returns, in order, as `map` does."""


class LogManager:
    """The log directories of one process. `topics` creates, lists, alters and deletes; everything else is here."""

    def __init__(self, fs: Fs, log_dirs: Sequence[LogDir], options: ManagerOptions, now_ms: int) -> None:
        """For `open` alone."""
        self.fs, self.log_dirs, self.options = fs, tuple(log_dirs), options
        self._online = Online(self.log_dirs)
        self.topics = Topics(fs, self.log_dirs, options, self._online.fenced)
        self.cleaner = Cleaner(fs, options.cleaner_memory_bytes, options.cleaner_throttle)
        self._upkeep = Upkeep(self._online, self.cleaner, options)
        self._schedule = Schedule(self._upkeep.tasks(), now_ms)

    @classmethod
    def open(cls, fs: Fs, paths: Sequence[PurePath], now_ms: int, options: ManagerOptions | None = None) -> LogManager:
        """Lock the log directories, made if they are missing; recover those not shut down cleanly; open their logs.

        A directory that the disk fails on is offline from the start. Raises, with all locks released and no marker
        gone: `LogDirInUse`, `LogDirHeld`, `LogDirStopped`, `NoLogDir`, `ConfigInvalid` for directories of different
        brokers or a partition that lies in two, and `CorruptData` for the list of topics and for `meta.properties`.
        """
        options = options or ManagerOptions()
        fs = InheritingFs(fs, paths)
        log_dirs = open_log_dirs(fs, paths, options, now_ms)
        manager = cls(fs, log_dirs, options, now_ms)
        try:
            manager.topics.read_lists()
            claim_log_dirs(log_dirs, now_ms)
            manager.topics.load(now_ms)
        except BaseException:
            for log_dir in log_dirs:
                log_dir.go_offline("opening was given up")
            raise
        manager.remove_due(now_ms)
        ensure_online(log_dirs)
        return manager

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- which log

    def partition(self, name: TopicPartition) -> Partition:
        """Return an open partition; raises `UnknownTopic` and `PartitionOffline`."""
        return self._find(name)[1]

    def log(self, name: TopicPartition) -> Log:
        """Return the log of a partition, for reading; raises as `partition` does."""
        return self._find(name)[1].log

    def partitions(self) -> Iterator[tuple[LogDir, Partition]]:
        """Yield the open partitions of the log directories that are online, each with its own."""
        return self._online.partitions()

    def _find(self, name: TopicPartition) -> tuple[LogDir, Partition]:
        place = self._online.find(name)
        if place is not None:
            return place
        topic = self.topics.get(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name.topic, name.partition)
        reasons = [*self.offline.values()]
        raise PartitionOffline(name, reasons[0] if reasons else "no log directory that was opened has it")

    # ---- what is done to one log

    def append(
        self,
        name: TopicPartition,
        batch: bytes | bytearray | memoryview,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended | None:
        """Append a batch as the leader; it is replicated at once, there being no follower. Durable only when flushed.

        Raises as `Log.append_as_leader` does, `UnknownTopic` and `PartitionOffline`. A full disk refuses the append and
        nothing else; any other fault of the disk takes its log directory offline.
        """
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            done = partition.append(batch, now_ms, origin, transaction_version)
            if done is not None:
                partition.log.set_high_watermark(partition.log.log_end)
        return done

    def append_unsynced(
        self,
        name: TopicPartition,
        batch: bytes | bytearray | memoryview,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended | None:
        """Append as `append` does, but let no consumer see it before a `sync`, or a flush, has made it durable."""
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            return partition.append(batch, now_ms, origin, transaction_version)

    def sync(self, names: Iterable[TopicPartition], spread: Spread = map) -> dict[TopicPartition, LogmendError]:
        """Make all batches of these logs durable, and let consumers see them; return what failed, log by log.

        A sync that fails takes its log directory offline. `spread` may use threads: each call is for another log.
        """
        failed: dict[TopicPartition, LogmendError] = {}
        places: list[tuple[LogDir, Partition]] = []
        for name in dict.fromkeys(names):
            try:
                places.append(self._find(name))
            except LogmendError as refusal:
                failed[name] = refusal
        faults = list(spread(_try_sync, [partition for _, partition in places]))
        for (log_dir, partition), fault in zip(places, faults, strict=True):
            if fault is None:
                partition.log.set_high_watermark(partition.log.log_end)
                continue
            failed[partition.name] = fault
            with contextlib.suppress(LogmendError), self.fenced(log_dir):
                raise fault
        return failed

    def write_back(self, name: TopicPartition) -> None:
        """Make durable what was appended so far, as `Log.sync` does, but beside everything else and from any thread.

        Nothing of the log changes, and no consumer sees more: a later sync finds less to do. Raises as `partition`
        does, and `WriteFault`, which the caller passes to `fail`.
        """
        log = self.partition(name).log
        segments = log.segments.between(log.recovery_point, INT64_MAX)
        with contextlib.suppress(FileVanished):  # deleted meanwhile
            for segment in segments:
                self.fs.sync_file(segment.path(FileRole.LOG))
            self.fs.sync_dir(log.directory)

    def fail(self, name: TopicPartition, fault: EnvironmentFault) -> None:
        """Take a log directory offline for a fault that came up beside the manager, in a read or a `write_back`."""
        with contextlib.suppress(LogmendError):
            log_dir, _ = self._find(name)
            log_dir.go_offline(str(fault))

    def read(
        self, name: TopicPartition, start: Offset, max_bytes: int, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> Fetched:
        """Return a range of batches, as `Log.read` does; a fault of the disk takes the log directory offline."""
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            return partition.log.read(start, max_bytes, isolation=isolation)

    def flush(self, name: TopicPartition, now_ms: int) -> Offset:
        """Make a log durable; return its recovery point. A failed sync takes its log directory offline."""
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            partition.flush(now_ms)
        return partition.log.recovery_point

    def end_offset_for_epoch(self, name: TopicPartition, epoch: Epoch) -> tuple[Epoch, Offset] | None:
        """Return the newest leader epoch up to `epoch` and where it ends, None for one above all that are known.

        It tells a follower, or a consumer, from where on what it has is not in the log any more.
        """
        partition = self.partition(name)
        if epoch == partition.leader_epoch:  # it may be due, and not noted before the first append
            return partition.leader_epoch, partition.log.log_end
        return end_offset_for(partition.epochs.entries, epoch, partition.log.log_end)

    def delete_records(self, name: TopicPartition, before: Offset) -> None:
        """Let a log begin at `before`; raises `OffsetOutOfRange` above its end. Durable when this returns."""
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            if partition.log.set_log_start(before):
                partition.log.flush(before)  # no checkpoint may lead the log: its end would be taken back below this
                partition.epochs.save()
                log_dir.write_log_starts()

    def truncate(self, name: TopicPartition, offset: Offset, now_ms: int) -> Truncated:
        """Cut off everything from `offset` on; the next append begins a new leader epoch, so that consumers notice."""
        log_dir, partition = self._find(name)
        with self.fenced(log_dir):
            newest = max(partition.epochs.newest, partition.leader_epoch)
            log_dir.lower_recovery_point(name, offset)  # before: at no time may the checkpoint lead the log
            truncated = partition.log.truncate_to(offset, now_ms)
            # Durable at once: a segment that begins here must not survive a crash that takes the cut before it back.
            self.fs.sync_file(partition.log.segments.active.path(FileRole.LOG))
            self.fs.sync_dir(partition.directory)
            log_dir.write_recovery_points()
            partition.start_epoch(newest + 1)
            log_dir.remove_later(truncated.removed, now_ms + partition.log.config.file_delete_delay_ms)
        return truncated

    def fenced(self, log_dir: LogDir) -> AbstractContextManager[None]:
        """Take the log directory offline if what is done in here fails for good; the error goes on its way."""
        return self._online.fenced(log_dir)

    # ---- schedules: each is a plain function of the time

    def run_due(self, now_ms: int) -> list[LogmendError]:
        """Do what is due by the intervals of the options; return what went wrong.

        A full disk is tried again next time; any other fault of the disk has taken its log directory offline.
        """
        return self._schedule.run_due(now_ms)

    def flush_due(self, now_ms: int) -> list[LogmendError]:
        """Flush logs that have rolled, or whose `flush.ms` have gone by."""
        return self._upkeep.flush_due(now_ms)

    def retain(self, now_ms: int) -> list[LogmendError]:
        """Delete the segments that retention does not keep."""
        return self._upkeep.retain(now_ms)

    def compact(self, now_ms: int) -> list[LogmendError]:
        """Compact every partition that is due, each once, unless the options rule it out."""
        return self._upkeep.compact(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for too long; return their number."""
        return self._upkeep.expire_producers(now_ms)

    def remove_due(self, now_ms: int) -> list[LogmendError]:
        """Remove files and directories whose time of grace is over."""
        return self._upkeep.remove_due(now_ms)

    # ---- the end

    @property
    def offline(self) -> Mapping[PurePath, str]:
        """The log directories that are offline, and why."""
        return self._online.reasons()

    def close(self) -> None:
        """Shut down cleanly: flush and close all logs, write the checkpoints, leave the marker last.

        A directory in which that fails is left as after a crash, and so is one that was offline; the others are closed
        all the same, and the first error is raised then. Harmless when closed already.
        """
        failed: list[LogmendError] = []
        for log_dir in self._online.log_dirs():
            try:
                log_dir.close()
            except LogmendError as fault:
                failed.append(fault)
            log_dir.offline = "closed"
        if failed:
            raise failed[0]


def _try_sync(partition: Partition) -> LogmendError | None:
    try:
        partition.log.sync()
    except LogmendError as fault:
        return fault
    return None
