"""Parts of many files of one directory, for looks that are quick because they read little."""

from __future__ import annotations

import os  # noqa: TID251 (names an error number; asks nothing of a disk)
from collections.abc import Sequence
from pathlib import PurePath
from typing import TypeAlias

from storage.base.errors import EnvironmentFault
from storage.disk.fs import ReadFs, kernel_of, read_fault

Part: TypeAlias = tuple[str, int, int]
"""Name of a file in some directory, and position and size of a part of it, in bytes."""


def read_parts(fs: ReadFs, directory: PurePath, parts: Sequence[Part]) -> list[bytes | EnvironmentFault]:
    """Return a part of each of some plain files, fewer bytes where the file ends; the fault of those that failed.

    On the real disk it is one call, where the kernel of `storage.disk.fs` was built.
    """
    kernel = kernel_of(fs)
    if kernel is None:
        return [_read(fs, directory / name, position, size) for name, position, size in parts]
    found: list[bytes | int] = kernel.parts(directory, tuple(parts))
    return [
        read_fault("reading", directory / name, OSError(data, os.strerror(data))) if isinstance(data, int) else data
        for data, (name, _, _) in zip(found, parts, strict=True)
    ]


def _read(fs: ReadFs, path: PurePath, position: int, size: int) -> bytes | EnvironmentFault:
    target = bytearray(size)
    try:
        with fs.open_read(path) as file, memoryview(target) as view:
            return bytes(view[: file.read_into(position, view)])
    except EnvironmentFault as fault:
        return fault
