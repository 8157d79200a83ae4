"""Where many small things have to be durable: one sync of the file system that they are on, instead of thousands.

A recovery of a thousand partitions makes some ten files and directories durable in each, one after the other, for the
order is what keeps a crash from doing harm. A disk does a few hundred such syncs a second, or a few thousand. To sync
all of a file system takes about as long as one of them, if nobody else writes to it, and every log can then take its
next step. Below a few dozen, and where `Fs.volume` promises nothing, each file is synced as ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, TypeVar

from recovery.plan.plan import RecoveryPlan, ReplaceFile
from storage.disk.fs import FileKind, Fs, ReadFs, Volume
from storage.disk.pool import run_all
from storage.disk.syncing import GroupedFs, GroupSync

R = TypeVar("R")
Work = Callable[[Fs, RecoveryPlan], R]
_FEWEST = 32
"""Syncs that may be saved, below which each file has its own."""
_ALWAYS: Final = 3
"""Of one partition: its manifest, and its directory twice."""
_MOST_THREADS: Final = 64
_OPEN_FILES: Final = 512


def each_partition(
    fs: Fs, log_dir: PurePath, work: Work[R], partitions: Sequence[RecoveryPlan], threads: int, *, together: bool
) -> Iterable[R]:
    """Do the work on each partition, side by side; what fails first is raised once all that was begun has ended."""
    syncs = sum(_ALWAYS + len(partition.actions) for partition in partitions)
    here: list[RecoveryPlan] = []
    others: list[RecoveryPlan] = []
    with shared_volume(fs, log_dir, syncs if together else 0) as volume:
        for each in partitions:
            (here if is_on(fs, volume, each.directory) else others).append(each)
        done = _in_a_group(fs, volume, work, here) if volume is not None and here else []
    if threads < 2 or len(others) < 2:
        return [*done, *(work(fs, each) for each in others)]
    return done + run_all(lambda each: work(fs, each), others, threads, "apply")


def _in_a_group(fs: Fs, volume: Volume, work: Work[R], partitions: Sequence[RecoveryPlan]) -> list[R]:
    group = GroupSync(volume)
    grouped = GroupedFs(fs, group)
    most_open = max(1, *map(_replaced, partitions))
    threads = min(_MOST_THREADS, len(partitions), max(_OPEN_FILES // most_open, 1))
    return group.run(lambda each: work(grouped, each), partitions, threads)


def _replaced(partition: RecoveryPlan) -> int:
    return sum(isinstance(action, ReplaceFile) for action in partition.actions)


@contextlib.contextmanager
def shared_volume(fs: Fs, directory: PurePath, syncs: int) -> Iterator[Volume | None]:
    """Give the file system of `directory`, if it can be synced as a whole and so many syncs are worth it."""
    volume = fs.volume(directory) if syncs >= _FEWEST else None
    if volume is None:
        yield None
        return
    with volume:
        yield volume


def is_on(fs: ReadFs, volume: Volume | None, directory: PurePath) -> bool:
    """Tell whether what is done in a directory is done on this volume: it may be a link, or mounted there."""
    if volume is None:
        return False
    found = fs.stat(directory)
    return found.kind is FileKind.DIRECTORY and found.device == volume.device
