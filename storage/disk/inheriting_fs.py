"""A file system on which new files and directories get the owner of their directory.

A broker runs as one user, and cannot open what another one leaves in its log directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from storage.base.errors import FileVanished
from storage.disk.fs import FileKind, FileStat, Fs, WriteFile

_TEMPORARY: Final = ".tmp"
_FILE_MODE: Final = 0o666


class InheritingFs:
    """`inner`, but what is made below one of `tops` gets owner, group and mode of the directory above, where we may.

    Files get no right to be run. A `.tmp` takes after the file whose place it is to take, if there is one. A directory
    that is reached by a symbolic link alone has nothing to inherit. Who says `like` gets that.
    """

    def __init__(self, inner: Fs, tops: Iterable[PurePath]) -> None:
        self._inner, self._tops = inner, frozenset(tops)
        self.entries, self.stat = inner.entries, inner.stat
        self.open_read, self.free_bytes = inner.open_read, inner.free_bytes
        self.open_append, self.truncate = inner.open_append, inner.truncate
        self.rename, self.link, self.remove = inner.rename, inner.link, inner.remove
        self.remove_dir, self.set_mtime = inner.remove_dir, inner.set_mtime
        self.sync_file, self.sync_dir, self.volume = inner.sync_file, inner.sync_dir, inner.volume

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        return self._inner.create(path, like or self._model_of_file(path))

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        self._inner.make_dir(directory, like or self._above(directory))

    def _model_of_file(self, path: PurePath) -> FileStat | None:
        above = self._above(path)
        if above is None:
            return None
        if path.suffix == _TEMPORARY:
            try:
                old = self._inner.stat(path.with_suffix(""))
            except FileVanished:
                pass
            else:
                if old.kind is FileKind.FILE:
                    return old
        return above._replace(kind=FileKind.FILE, mode=above.mode & _FILE_MODE)

    def _above(self, path: PurePath) -> FileStat | None:
        if self._tops.isdisjoint(path.parents):
            return None
        above = self._inner.stat(path.parent)
        return above if above.kind is FileKind.DIRECTORY else None
