"""One log directory that is ours: its lock, its checkpoints, its marker, and the partitions in it.

Opened in three steps, so that nothing is changed in one directory if another one is refused: `recover`, `claim`,
`open_partition`. Source: Apache Kafka 4.3.0, LogManager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final

from checkpoint.leader_epoch import FILE_NAME as EPOCHS
from checkpoint.leader_epoch import read_epochs
from checkpoint.markers import CLEAN_SHUTDOWN, write_clean_shutdown
from checkpoint.offsets import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from engine.logdir.epoch_file import NO_EPOCH, EpochFile
from engine.logdir.partition import Partition
from engine.logdir.partitions import mark_deleted, remove_directory
from engine.logdir.recovering import needs_a_look, recover_log_dir, refuse_tiered
from engine.settings.identity import is_absent
from engine.settings.options import ManagerOptions
from recovery.plan.plan import LogDirPlan
from storage.base.config import LogConfig
from storage.base.errors import CorruptData, EnvironmentFault, ExitStatus, FileVanished, LogmendError, printable
from storage.base.names import METADATA_TOPIC, DirectoryName, DirectoryState, parse_directory_name
from storage.base.units import Epoch, Offset, TopicPartition
from storage.disk.fs import FileKind, Fs
from storage.log.log import Log
from storage.log.log_read import newest_epoch
from storage.log.log_types import LogSetup

_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_UNKNOWN_BROKER_EPOCH: Final = -1

Points = dict[TopicPartition, Offset]


class LogDir:
    """A log directory that is ours. `offline`: why it takes no change any more, None while it does.

    `status`: what that is for the exit status. `recovered`: the plan that was carried out, None where none was needed.

    The checkpoints keep what they hold of partitions that are not open here: those of a broker that serves them again
    some day. One thread at a time.
    """

    def __init__(self, fs: Fs, path: PurePath, options: ManagerOptions) -> None:
        self._fs, self.path, self.options = fs, path, options
        self.offline: str | None = None
        self.status = ExitStatus.CLEAN
        self.recovered: LogDirPlan | None = None
        self.partitions: dict[TopicPartition, Partition] = {}
        self._lock = contextlib.ExitStack()
        self._points: dict[str, Points] = {name: {} for name in _CHECKPOINTS}
        self._written: dict[str, Points] = {}
        self._waiting: list[tuple[int, PurePath]] = []
        self._is_clean = False
        self._cut: set[str] = set()
        self._epochs_before: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"LogDir({self.path}, {self.offline or f'{len(self.partitions)} partitions'})"

    # ---- opening

    def lock(self) -> None:
        """Take the lock; raises `LogDirInUse` and `WriteFault`."""
        self._lock.enter_context(self.options.lock(self.path))

    def release(self) -> None:
        """Release the lock."""
        self._lock.close()

    def directories(self) -> list[DirectoryName]:
        """Return the directories of partitions, in any state; the metadata log is left out.

        Raises `CorruptData` for a directory that is none of a partition, `ReadFault`.
        """
        entries = self._fs.entries(self.path)
        names = [name for name, stat in entries.items() if stat.kind is FileKind.DIRECTORY and not name.startswith(".")]
        parsed = [parse_directory_name(name) for name in names if name not in _STRANGERS]
        return [directory for directory in parsed if directory.partition.topic != METADATA_TOPIC]

    def recover(self, now_ms: int) -> None:
        """Recover the directory, unless it was shut down cleanly. A marker of that stays.

        Raises as `recover_log_dir` does, and `LogDirTiered` before anything is changed.
        """
        partitions = [directory for directory in self.directories() if directory.state is None]
        refuse_tiered(self._fs, self.path, partitions)
        live = [self.path / d.name for d in partitions]
        self._is_clean = not is_absent(self._fs, self.path / CLEAN_SHUTDOWN)
        if self._is_clean and not any(needs_a_look(self._fs, directory) for directory in live):
            return
        self._epochs_before = {directory.name: self._newest_epoch(directory) for directory in live}
        plan = self.recovered = recover_log_dir(self._fs, self.path, self.options, now_ms)
        self._cut = {partition.partition for partition in plan.partitions if partition.cuts}
        self._is_clean = not is_absent(self._fs, self.path / CLEAN_SHUTDOWN)

    def _newest_epoch(self, directory: PurePath) -> int:
        try:
            entries = read_epochs(self._fs, directory / EPOCHS)
        except (FileVanished, CorruptData):
            return NO_EPOCH
        return entries[-1].epoch if entries else NO_EPOCH

    def claim(self, now_ms: int) -> None:
        """Read the checkpoints and take the marker away, durably: from here on a crash leaves an unclean directory."""
        for name in _CHECKPOINTS:
            with contextlib.suppress(FileVanished):
                self._points[name] = read_offsets(self._fs, self.path / name)
                self._written[name] = dict(self._points[name])
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
            self._write(name)  # a recovery that finds none would take everything for never flushed
        with contextlib.suppress(FileVanished):
            self._fs.remove(self.path / CLEAN_SHUTDOWN)
        self._fs.sync_dir(self.path)
        delay = self.options.defaults.file_delete_delay_ms
        deleted = [self.path / d.name for d in self.directories() if d.state is DirectoryState.DELETE]
        # They have waited since they were given that name; else who opens for a moment only would never remove any.
        self._waiting += [(min(self._fs.stat(path).mtime_ns // 1_000_000, now_ms) + delay, path) for path in deleted]

    def open_partition(self, name: str, config: LogConfig, now_ms: int, *, has_settings: bool) -> Partition:
        """Open the log in the directory `name`. Raises as `Log.open` does, and `CheckpointCorrupt`.

        After an unclean shutdown records may be gone that consumers have seen, so a new leader epoch begins: at once
        where something was cut, elsewhere with the next append or, lest it be forgotten, with the shutdown. It is above
        all that were noted before and after a recovery, and above those in the log, of which the file may be lost.
        """
        partition, directory = parse_directory_name(name).partition, self.path / name
        epochs = EpochFile(self._fs, directory)
        noted = epochs.newest  # opening drops what begins at the log end
        log = Log.open(
            self._fs, directory, config,
            LogSetup(epochs, self.options.producer_expiration_ms, self.options.draw_jitter),
            now_ms=now_ms,
            log_start=self._points[LOG_START_OFFSETS].get(partition, Offset(0)),
            recovery_point=self._points[RECOVERY_POINTS].get(partition, Offset(0)),
            is_clean=self._is_clean,
        )  # fmt: skip
        log.set_high_watermark(log.log_end)
        in_log = newest_epoch(log.segments)
        newest = max(noted, in_log, self._epochs_before.get(name, NO_EPOCH))
        goes_on = newest == NO_EPOCH or (self._is_clean and in_log <= noted)
        leader_epoch = Epoch(max(newest, 0) if goes_on else newest + 1)
        opened = Partition(partition, log, epochs, leader_epoch, has_settings, now_ms)
        if name in self._cut:
            epochs.assign(leader_epoch, log.log_end)
        self.partitions[partition] = opened
        return opened

    # ---- checkpoints: from what the logs say is durable, so that they lag and never lead

    def write_recovery_points(self) -> None:
        """Write the recovery points of the open partitions."""
        self._write(RECOVERY_POINTS, {name: p.log.recovery_point for name, p in self.partitions.items()})

    def lower_recovery_point(self, name: TopicPartition, offset: Offset) -> None:
        """Say of a partition that is to be cut that nothing from `offset` on is flushed any more."""
        point = self._points[RECOVERY_POINTS].get(name, Offset(0))
        self._write(RECOVERY_POINTS, {name: min(point, offset)})

    def write_log_starts(self) -> None:
        """Write the log start offsets that lie above the first segment's base; the others speak for themselves."""
        points = self._points[LOG_START_OFFSETS]
        for name, partition in self.partitions.items():
            points.pop(name, None)
            if partition.log.log_start > partition.log.segments.all[0].base_offset:
                points[name] = partition.log.log_start
        self._write(LOG_START_OFFSETS)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks of the open partitions."""
        self._write(HIGH_WATERMARKS, {name: p.log.high_watermark for name, p in self.partitions.items()})

    def cleaned_up_to(self, partition: TopicPartition) -> Offset | None:
        """Return what the cleaner's checkpoint says."""
        return self._points[CLEANER_OFFSETS].get(partition)

    def write_cleaned(self, partition: TopicPartition, offset: Offset) -> None:
        """Note up to where a partition has been compacted; what was written there must be durable."""
        self._write(CLEANER_OFFSETS, {partition: offset})

    def _write(self, name: str, changes: Points | None = None) -> None:
        points = self._points[name]
        points.update(changes or {})
        if self._written.get(name) != points:
            write_offsets(self._fs, self.path / name, points)
            self._written[name] = dict(points)

    # ---- removing

    def delete(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Put partitions out of the way; what is in them goes after the delay of the defaults."""
        due = now_ms + self.options.defaults.file_delete_delay_ms
        names = list(partitions)
        for name in names:
            if (opened := self.partitions.pop(name, None)) is not None:
                opened.let_go()
            self._points[CLEANER_OFFSETS].pop(name, None)
        self._write(CLEANER_OFFSETS)
        for name in names:
            waiting = mark_deleted(self._fs, self.path, name, self.options.draw_id())
            self._fs.set_mtime(waiting, now_ms * 1_000_000)
            self._waiting.append((due, waiting))
            for checkpoint in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
                self._points[checkpoint].pop(name, None)
        self._write(RECOVERY_POINTS)
        self._write(LOG_START_OFFSETS)

    def remove_later(self, paths: Iterable[PurePath], due_ms: int) -> None:
        """Remove `.deleted` files once it is `due_ms`."""
        self._waiting += [(due_ms, path) for path in paths]

    def remove_due(self, now_ms: int) -> int:
        """Remove what has waited long enough; return how many files and directories."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        if due:
            for partition in self:
                partition.close_removed()
        self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        for path in due:
            if path.parent == self.path:
                remove_directory(self._fs, path)
            else:
                with contextlib.suppress(FileVanished):  # its topic was deleted meanwhile
                    self._fs.remove(path)
        return len(due)

    # ---- the end

    def close(self) -> None:
        """Shut down cleanly, in a broker's order: high watermarks, logs, the other checkpoints, at last the marker.

        The first error is raised once all logs have had their turn; there is no marker then, nor checkpoints, and the
        next opening recovers.
        """
        failed: list[LogmendError] = []
        try:
            self.write_high_watermarks()
            for partition in self.partitions.values():
                try:
                    partition.close()
                except LogmendError as fault:
                    failed.append(fault)
            if failed:
                raise failed[0]
            self.write_recovery_points()
            self.write_log_starts()
            write_clean_shutdown(self._fs, self.path / CLEAN_SHUTDOWN, _UNKNOWN_BROKER_EPOCH)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files and release the lock without a write, as a crash would."""
        for partition in self.partitions.values():
            with contextlib.suppress(EnvironmentFault):
                partition.let_go()
        self.release()

    def go_offline(self, reason: str, status: ExitStatus = ExitStatus.ENVIRONMENT) -> None:
        """Give the directory up: no sync, no checkpoint, no marker; what was not flushed is as after a crash."""
        if self.offline is None:
            place = printable(self.path)
            self.offline = reason if reason.startswith(f"{place}: ") else f"{place}: {reason}"
            self.status = status
            self.abandon()

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self.partitions.values()))


_STRANGERS: Final = ("remote-log-index-cache", "lost+found")
