"""Changes files that may have a second name, as in a backup made by `cp -al`, without changing that one."""

from __future__ import annotations

import contextlib
from pathlib import PurePath

from storage.base.errors import FileVanished
from storage.disk.fs import FileStat, Fs, pieces_of, temporary_name


def cut_file(fs: Fs, path: PurePath, size: int) -> None:
    """Cut a file to `size` bytes durably; it keeps its modification time, and a file with a second name stays whole.

    Retention of old formats goes by the time of the last write.
    """
    stat = fs.stat(path)
    if not _shorten(fs, path, stat, size):
        fs.set_mtime(path, stat.mtime_ns)
        fs.sync_file(path)


def shorten(fs: Fs, path: PurePath, size: int) -> bool:
    """Cut a file to `size` bytes; tell whether it is another file now, which its writer has to open again."""
    return _shorten(fs, path, fs.stat(path), size)


def _shorten(fs: Fs, path: PurePath, stat: FileStat, size: int) -> bool:
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
    with fs.open_read(path) as source, fs.create(temporary, stat) as target:
        for piece in pieces_of(source, path, 0, size):
            target.append(piece)
        target.sync()
    fs.set_mtime(temporary, stat.mtime_ns)
    fs.sync_file(temporary)
    fs.rename(temporary, path)
    fs.sync_dir(path.parent)
