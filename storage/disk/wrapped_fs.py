"""File systems around another one: every call goes to the inner one, unless a subclass overrides it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from storage.base.errors import FileVanished
from storage.disk.fs import FileKind, FileStat, Fs, ReadFile, Volume, WriteFile

_TEMPORARY: Final = ".tmp"
_FILE_MODE: Final = 0o666


class WrappedFs:
    """An `Fs` that passes every call on to `inner`.

    It does not offer the kernel of the real disk, which would go around the methods that a subclass overrides.
    """

    def __init__(self, inner: Fs) -> None:
        self._inner = inner

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self._inner.entries(directory)

    def stat(self, path: PurePath) -> FileStat:
        return self._inner.stat(path)

    def open_read(self, path: PurePath) -> ReadFile:
        return self._inner.open_read(path)

    def free_bytes(self, directory: PurePath) -> int:
        return self._inner.free_bytes(directory)

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        return self._inner.create(path, like)

    def open_append(self, path: PurePath) -> WriteFile:
        return self._inner.open_append(path)

    def truncate(self, path: PurePath, size: int) -> None:
        self._inner.truncate(path, size)

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._inner.rename(source, target)

    def link(self, source: PurePath, target: PurePath) -> None:
        self._inner.link(source, target)

    def remove(self, path: PurePath) -> None:
        self._inner.remove(path)

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        self._inner.make_dir(directory, like)

    def remove_dir(self, directory: PurePath) -> None:
        self._inner.remove_dir(directory)

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        self._inner.set_mtime(path, mtime_ns)

    def sync_file(self, path: PurePath) -> None:
        self._inner.sync_file(path)

    def sync_dir(self, directory: PurePath) -> None:
        self._inner.sync_dir(directory)

    def volume(self, directory: PurePath) -> Volume | None:
        return self._inner.volume(directory)


class InheritingFs(WrappedFs):
    """`inner`, but new files and directories below one of `tops` get owner, group and mode of the directory above.

    A broker runs as one user, and cannot open what another one leaves in its log directories. They get what the
    process may give. Files get no right to be executed. A `.tmp` takes after the file that it is to
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
