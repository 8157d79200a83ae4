"""Single files of the state directory, which is no log directory: what is kept there may be lost."""

from __future__ import annotations

import contextlib
from pathlib import PurePath

from storage.base.errors import FileVanished
from storage.disk.fs import OsFs


def size_of(path: PurePath) -> int | None:
    """Return the size of a file in bytes, None where there is none. Raises `ReadFault`."""
    try:
        return OsFs().stat(path).size
    except FileVanished:
        return None


def drop(path: PurePath) -> None:
    """Remove a file, where it is there. Raises `WriteFault`."""
    with contextlib.suppress(FileVanished):
        OsFs().remove(path)
