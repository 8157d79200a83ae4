"""What logs need done as time goes by: flushes, cleanup policies, expiry, checkpoints; each a function of the time.

Source: Apache Kafka 4.3.0, LogManager, ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.logdir.log_dir import LogDir
from engine.logdir.partition import Partition
from engine.manager.cleaning import Cleaner
from engine.manager.online import Online
from engine.manager.schedule import Task
from engine.settings.options import ManagerOptions
from storage.base.errors import LogmendError


class Upkeep:
    """The periodic tasks on all logs that are online. Each returns what went wrong; one failure stops no other log."""

    def __init__(self, online: Online, cleaner: Cleaner, options: ManagerOptions) -> None:
        self._online, self._cleaner, self._options = online, cleaner, options

    def tasks(self) -> list[tuple[int, Task]]:
        """Return the tasks with their intervals, in the order in which they run."""

        def expire(now_ms: int) -> list[LogmendError]:
            self.expire_producers(now_ms)
            return []

        def in_each(work: Callable[[LogDir], object]) -> Task:
            return lambda _: self._online.each_log_dir(work)

        intervals = self._options.intervals
        return [
            (intervals.flush_ms, self.flush_due),
            (intervals.retention_ms, self.retain),
            (intervals.compaction_ms, self.compact),
            (intervals.producers_ms, expire),
            (intervals.removal_ms, self.remove_due),
            # After what moves the points, so that one call writes what it has done.
            (intervals.recovery_points_ms, in_each(LogDir.write_recovery_points)),
            (intervals.log_starts_ms, in_each(LogDir.write_log_starts)),
            (intervals.high_watermarks_ms, in_each(LogDir.write_high_watermarks)),
        ]

    def flush_due(self, now_ms: int) -> list[LogmendError]:
        """Flush logs that have rolled, or whose `flush.ms` have gone by."""
        return self._online.each_partition(lambda _, partition: partition.flush_due(now_ms))

    def retain(self, now_ms: int) -> list[LogmendError]:
        """Delete the segments that retention does not keep."""

        def one(log_dir: LogDir, partition: Partition) -> None:
            removed = partition.retain(now_ms)
            log_dir.remove_later(removed, now_ms + partition.log.config.file_delete_delay_ms)

        return self._online.each_partition(one)

    def compact(self, now_ms: int) -> list[LogmendError]:
        """Compact every partition that is due, the dirtiest first, each once; return what went wrong.

        Where the options say that nothing is to be compacted, nothing is.
        One that is damaged stays as it is, and is tried again after a while; `Cleaner.uncleanable` says which and why.
        """
        if not self._options.compacts:
            return []
        due: list[tuple[float, LogDir, Partition]] = []

        def judge(log_dir: LogDir, partition: Partition) -> None:
            ratio = self._cleaner.due_ratio(log_dir, partition, now_ms)
            if ratio is not None:
                due.append((ratio, log_dir, partition))
            self._options.cleaner_throttle(0)  # with many partitions this takes long as well

        failed = self._online.each_partition(judge)
        ordered = [(d, p) for _, d, p in sorted(due, key=lambda entry: -entry[0])]
        return failed + self._online.each_partition(lambda d, p: self._cleaner.clean(d, p, now_ms), ordered)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for too long; return their number."""
        return sum(partition.log.expire_producers(now_ms) for _, partition in self._online.partitions())

    def remove_due(self, now_ms: int) -> list[LogmendError]:
        """Remove files and directories whose time of grace is over."""
        return self._online.each_log_dir(lambda log_dir: log_dir.remove_due(now_ms))
