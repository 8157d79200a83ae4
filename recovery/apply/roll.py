"""Rolls the active segment of a partition as Kafka does, in the terms of a plan: it can be undone like any other.

The log and its producer snapshot at the log end are durable by then, and the time index has its closing entry: that is
what a clean log has. What is left of Kafka's roll is to trim the indexes and to begin an empty segment.
Source: Apache Kafka 4.3.0, UnifiedLog.roll, LogSegment.onBecomeInactiveSegment, LogLoader.loadSegmentFiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from recovery.plan.digest import sha256_of
from recovery.plan.plan import (
    Action,
    LogDirPlan,
    Quarantine,
    RecoveryPlan,
    ReplaceFile,
    TruncateTo,
    rolling_segments,
)
from storage.base.errors import FileVanished
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset, TopicPartition
from storage.disk.fs import Fs, temporary_name

_REASON: Final = "the active segment is rolled"
_NEW: Final = (FileRole.INDEX, FileRole.TIME_INDEX, FileRole.LOG)
"""The log last: a loader drops an index without a log, and rebuilds the index that a log lacks."""
_EMPTY: Final = sha256_of(b"")


def rolling_partitions(plan: LogDirPlan) -> dict[TopicPartition, RecoveryPlan]:
    """Return the partitions to be rolled: without a snapshot at the log end a broker reads all for its producers."""
    return {
        name: partition
        for name, partition in rolling_segments(plan).items()
        if partition.seen is not None and partition.seen.has_end_snapshot
    }


def roll(partition: RecoveryPlan) -> RecoveryPlan:
    """Return the plan that rolls the active segment of a partition in which nothing else is to be done."""
    assert partition.roll is not None
    assert partition.seen is not None  # an empty plan of a log that can be loaded has it
    directory = partition.directory
    actions: list[Action] = []
    for name, size, old_size in partition.seen.trims:
        actions.append(Quarantine(directory / name, size, old_size - size, zeroes=True, reason=_REASON))
        actions.append(TruncateTo(directory / name, size, old_size))
    actions += (ReplaceFile(path, 0, _EMPTY, replaces=False, reason=_REASON) for path in _new_files(partition))
    return partition._replace(
        verdicts=(), preconditions=(), actions=tuple(actions), cuts=(), loaded=None, roll=None, seen=None
    )


def take_back(fs: Fs, partitions: Iterable[RecoveryPlan]) -> None:
    """Remove the new segments of rolls for which the disk had no room: a part of one would be a leftover."""
    for partition in partitions:
        for path in reversed(_new_files(partition)):
            for name in (path, temporary_name(path)):
                with contextlib.suppress(FileVanished):
                    fs.remove(name)
        fs.sync_dir(partition.directory)


def _new_files(partition: RecoveryPlan) -> list[PurePath]:
    assert partition.roll is not None
    base = Offset(partition.roll.base_offset)
    return [partition.directory / segment_file_name(base, role) for role in _NEW]
