"""The log directories that work: which log lies in which, and what happens when the disk fails on one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from engine.logdir.log_dir import LogDir
from engine.logdir.partition import Partition
from engine.settings.refusals import PartitionOffline
from storage.base.errors import DiskFull, EnvironmentFault, LogmendError
from storage.base.refusals import LogUnusable
from storage.base.units import TopicPartition


class Online:
    """The log directories of a manager. One that fails goes offline, and the others carry on."""

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self._log_dirs = log_dirs

    def log_dirs(self) -> Iterator[LogDir]:
        """Yield the log directories that are online."""
        return (log_dir for log_dir in self._log_dirs if log_dir.offline is None)

    def partitions(self) -> Iterator[tuple[LogDir, Partition]]:
        """Yield their open partitions, each with its log directory."""
        for log_dir in self.log_dirs():
            yield from ((log_dir, partition) for partition in log_dir)

    def find(self, name: TopicPartition) -> tuple[LogDir, Partition] | None:
        """Return an open partition, None where no log directory has it; raises `PartitionOffline`."""
        for log_dir in self._log_dirs:
            partition = log_dir.partitions.get(name)
            if partition is not None:
                if log_dir.offline is not None:
                    raise PartitionOffline(name, log_dir.offline)
                return log_dir, partition
        return None

    def reasons(self) -> Mapping[PurePath, str]:
        """Return the log directories that are offline, and why."""
        return {log_dir.path: log_dir.offline for log_dir in self._log_dirs if log_dir.offline is not None}

    @contextlib.contextmanager
    def fenced(self, log_dir: LogDir) -> Iterator[None]:
        """Take the log directory offline if what is done in here fails for good; the error goes on its way."""
        try:
            yield
        except DiskFull as fault:
            if any(partition.is_dead for partition in log_dir):  # it was a sync
                log_dir.go_offline(str(fault))
            raise
        except (EnvironmentFault, LogUnusable) as fault:
            log_dir.go_offline(str(fault))
            raise

    def each_log_dir(self, work: Callable[[LogDir], object]) -> list[LogmendError]:
        """Do `work` in each log directory that is online; return what went wrong."""
        failed: list[LogmendError] = []
        for log_dir in self.log_dirs():
            try:
                with self.fenced(log_dir):
                    work(log_dir)
            except LogmendError as fault:
                failed.append(fault)
        return failed

    def each_partition(
        self,
        work: Callable[[LogDir, Partition], object],
        among: Iterable[tuple[LogDir, Partition]] | None = None,
    ) -> list[LogmendError]:
        """Do `work` to each open partition; one that fails does not stop the others.

        Those that `work` lets others close meanwhile are left out.
        """
        failed: list[LogmendError] = []
        for log_dir, partition in list(self.partitions() if among is None else among):
            if log_dir.offline is None and log_dir.partitions.get(partition.name) is partition:
                try:
                    with self.fenced(log_dir):
                        work(log_dir, partition)
                except LogmendError as fault:
                    failed.append(fault)
        return failed
