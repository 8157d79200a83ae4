"""A file system on which new files and directories get the owner of their directory.

A broker runs as one user, and cannot open what another one leaves in its log directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from storage.base.errors import FileVanished
from storage.disk.fs import FileKind, FileStat, Fs, WriteFile
from storage.disk.wrapped_fs import WrappedFs

_TEMPORARY: Final = ".tmp"
_FILE_MODE: Final = 0o666


class InheritingFs(WrappedFs):
    """`inner`, but new files and directories below one of `tops` get owner, group and mode of the directory above.

    They get what the process may give. Files get no right to be executed. A `.tmp` takes after the file that it is to
    replace, if there is one. A directory that is reached by a symbolic link has nothing to inherit. `like` wins.
    """

    def __init__(self, inner: Fs, tops: Iterable[PurePath]) -> None:
        super().__init__(inner)
        self._tops = frozenset(tops)

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
