"""Whether several threads would read many partitions faster than one.

They do where a disk has to be waited for, or where much is read of each log: the kernel works without the interpreter's
lock. Where little is read of each, and the page cache has it, as after the kill of a broker with thousands of
partitions, nearly all of the time is Python's, and each short call to the system hands its lock to another thread: two
threads then took half as long again as one, sixteen twice as long (bench/README.md). So a few are asked for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Protocol, runtime_checkable

from storage.base.errors import EnvironmentFault
from storage.disk.fs import ReadFs

MANY = 64
"""Partitions, below which the question is not worth its answer."""
_ASKED: Final = 16
_LITTLE_BYTES: Final = 4 << 20
"""What the kernel reads in the time that Python needs for one partition."""


@runtime_checkable
class _Cached(Protocol):
    """A file that knows which of its bytes the page cache has."""

    def is_in_memory(self, position: int) -> bool: ...


def is_near(fs: ReadFs, directories: Sequence[PurePath], *, whole: bool = False) -> bool:
    """Tell whether the newest logs of these partitions are small and in memory, as far as a sample tells.

    With `whole` all logs of each are about to be read, so all of them count.
    """
    if len(directories) < MANY:
        return False
    step, total = len(directories) // _ASKED, 0
    for directory in directories[::step][:_ASKED]:
        size = _in_memory(fs, directory, whole=whole)
        if size is None:
            return False
        total += size
    return total <= _LITTLE_BYTES * _ASKED


def _in_memory(fs: ReadFs, directory: PurePath, *, whole: bool) -> int | None:
    """Return how much is to be read; None if an end of it is not in memory, or that is not known."""
    try:
        logs = [(name, stat.size) for name, stat in fs.entries(directory).items() if name.endswith(".log")]
        read = [(name, size) for name, size in (logs if whole else logs[-1:]) if size]
        for name, position in [(read[0][0], 0), (read[-1][0], read[-1][1] - 1)] if read else []:
            with fs.open_read(directory / name) as file:
                if not (isinstance(file, _Cached) and file.is_in_memory(position)):
                    return None
        return sum(size for _, size in read)
    except EnvironmentFault:
        return None
