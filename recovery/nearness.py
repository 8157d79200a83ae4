"""Whether several threads would read many partitions faster than one.

They do where a disk has to be waited for, or where much is read of each log: the kernel works without the interpreter's
lock. Where little is read of each, and the page cache has it, as after the kill of a broker with thousands of
partitions, nearly all of the time is Python's, and each short call to the system hands its lock to another thread: two
threads then took half as long again as one, sixteen twice as long (bench/README.md). So a few are asked for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from storage.errors import EnvironmentFault
from storage.fs import ReadFs

MANY = 64
"""Partitions, below which the question is not worth its answer."""
_ASKED: Final = 16
_LITTLE_BYTES: Final = 2 << 20
"""What the kernel reads in the time that Python needs for one partition."""


def is_near(fs: ReadFs, directories: Sequence[PurePath]) -> bool:
    """Tell whether the newest logs of these partitions are small and in memory, as far as a sample tells."""
    if len(directories) < MANY:
        return False
    step, total = len(directories) // _ASKED, 0
    for directory in directories[::step][:_ASKED]:
        size = _newest_in_memory(fs, directory)
        if size is None:
            return False
        total += size
    return total <= _LITTLE_BYTES * _ASKED


def _newest_in_memory(fs: ReadFs, directory: PurePath) -> int | None:
    """Return the size of the newest log; None if its end is not in memory, or that is not known."""
    try:
        sizes = {name: stat.size for name, stat in fs.entries(directory).items() if name.endswith(".log")}
        if not sizes:
            return 0
        name = max(sizes)
        if not sizes[name]:
            return 0
        with fs.open_read(directory / name) as file:
            is_in_memory: Callable[[int], bool] = getattr(file, "is_in_memory", lambda _: False)
            return sizes[name] if is_in_memory(sizes[name] - 1) else None
    except EnvironmentFault:
        return None
