"""A file without what the real disk's files can do beside reading: the kernel's ways around it are held against it."""

from __future__ import annotations

from typing import Self

from storage.disk.fs import ReadFile


class Plain:
    """A file that offers nothing but reading."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file

    def read_into(self, position: int, target: memoryview) -> int:
        return self._file.read_into(position, target)

    def close(self) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...
