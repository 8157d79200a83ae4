"""The real disk, counting what it has done: a watchdog tells by it work that moves from work that is stuck."""

from __future__ import annotations

import io
from pathlib import PurePath
from typing import TypeVar

from storage.disk.fs import FileStat, OsFs, OsWriteFile, ReadFile, WriteFile

T = TypeVar("T")


class MovingFs(OsFs):
    """Every call counts once it has returned. Several threads may call; a count that gets lost does no harm."""

    def __init__(self) -> None:
        self.calls = 0

    def counted(self, result: T) -> T:
        """Count a call that returned this."""
        self.calls += 1
        return result

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self.counted(super().entries(directory))

    def open_read(self, path: PurePath) -> ReadFile:
        return self.counted(super().open_read(path))

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        return self.counted(self._moving(path, super().create(path, like)))

    def open_append(self, path: PurePath) -> WriteFile:
        return self.counted(self._moving(path, super().open_append(path)))

    def rename(self, source: PurePath, target: PurePath) -> None:
        self.counted(super().rename(source, target))

    def remove(self, path: PurePath) -> None:
        self.counted(super().remove(path))

    def sync_file(self, path: PurePath) -> None:
        self.counted(super().sync_file(path))

    def sync_dir(self, directory: PurePath) -> None:
        self.counted(super().sync_dir(directory))

    def _moving(self, path: PurePath, made: WriteFile) -> WriteFile:
        assert isinstance(made, OsWriteFile)
        return _MovingFile(path, made._raw, self)  # noqa: SLF001 (of the class that it takes the place of)


class _MovingFile(OsWriteFile):
    def __init__(self, path: PurePath, raw: io.FileIO, fs: MovingFs) -> None:
        super().__init__(path, raw)
        self._fs = fs

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._fs.counted(super().append(data))

    def sync(self) -> None:
        self._fs.counted(super().sync())
