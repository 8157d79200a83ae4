"""Changes files that may have a second name, as in a backup made by `cp -al`, without changing that one."""

from __future__ import annotations

import contextlib
from pathlib import PurePath
from typing import Final

from storage.base.errors import FileVanished, PlanStale
from storage.disk.buffers import page_aligned
from storage.disk.fs import FileStat, Fs, temporary_name

_CHUNK: Final = 1 << 20


def cut_file(fs: Fs, path: PurePath, size: int) -> None:
    """Cut a file to `size` bytes durably; it keeps its modification time, and a file with a second name stays whole.

    Retention of old formats goes by the time of the last write.
    """
    stat = fs.stat(path)
    if not shorten(fs, path, size):
        fs.set_mtime(path, stat.mtime_ns)
        fs.sync_file(path)


def shorten(fs: Fs, path: PurePath, size: int) -> bool:
    """Cut a file to `size` bytes; tell whether it is another file now, which its writer has to open again."""
    stat = fs.stat(path)
    if stat.links > 1:
        replace_by_copy(fs, path, stat, size)
    else:
        fs.truncate(path, size)
    return stat.links > 1


def replace_by_copy(fs: Fs, path: PurePath, stat: FileStat, size: int) -> None:
    """Put a copy of the first `size` bytes in place of a file, durably; the file lives on under its other names.

    A crash leaves the one or the other. Owner, mode and modification time are those of `stat`.
    """
    temporary = temporary_name(path)
    with contextlib.suppress(FileVanished):
        fs.remove(temporary)
    buffer = page_aligned(min(_CHUNK, size) or 1)
    with fs.open_read(path) as source, fs.create(temporary, stat) as target:
        for at in range(0, size, _CHUNK):
            piece = buffer[: min(_CHUNK, size - at)]
            if source.read_into(at, piece) < len(piece):
                raise PlanStale(path, "it has shrunk")
            target.append(piece)
        target.sync()
    fs.set_mtime(temporary, stat.mtime_ns)
    fs.sync_file(temporary)
    fs.rename(temporary, path)
    fs.sync_dir(path.parent)
