"""Where log directories are read from: paths of this machine, and object stores by their URIs.

One small interface for both, the looking half of `storage.disk.fs`. What the world refuses is raised as it is there.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from storage.base.errors import ConfigInvalid, ReadFault, printable
from storage.disk.fs import FileKind, FileStat, OsFs, ReadFile, ReadFs, ReadOnlyFs, read_fault

_TOLD: Final = 300
"""Characters of what a store says, at most."""
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_uri(name: str) -> bool:
    """Tell whether `name` has a scheme, as in `s3://bucket/dir`."""
    return _SCHEME.match(name) is not None


def open_place(name: str) -> tuple[ReadFs, PurePath]:
    """Return how to read a path or URI, and the path to read there.

    URIs are those of `pyarrow.fs`: s3, gs, abfs, hdfs and file. Raises `ConfigInvalid` for one that is not known.
    """
    if not is_uri(name):
        return ReadOnlyFs(OsFs()), PurePath(name)
    if name.startswith("file://"):
        return ReadOnlyFs(OsFs()), PurePath(unquote(urlsplit(name).path))
    import pyarrow as pa  # noqa: PLC0415 (only URIs need it)
    from pyarrow import fs  # noqa: PLC0415

    try:
        store, path = fs.FileSystem.from_uri(name)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigInvalid(f"{printable(name)}: {printable(error)}") from None
    return ArrowFs(store), PurePosixPath(path)


class StoreFault(ReadFault):
    """A store refused. It has words of its own where a system has a number: no such bucket, access denied."""

    def __init__(self, operation: str, path: PurePath, cause: Exception) -> None:
        super().__init__(operation, path, OSError(errno.EIO, str(cause)))
        self.reason = str(cause)

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.operation} failed: {printable(self.reason[:_TOLD])}"


class ArrowFs:
    """A file system of `pyarrow.fs`, read only. What it does not know (owners, modes) is as harmless as can be."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        from pyarrow import fs  # noqa: PLC0415

        with _raising("listing", directory):
            found = self._store.get_file_info(fs.FileSelector(str(directory)))
        named = {info.base_name: _stat(info) for info in found}
        return dict(sorted(named.items()))

    def stat(self, path: PurePath) -> FileStat:
        with _raising("looking at", path):
            info = self._store.get_file_info(str(path))
            if info.type.name == "NotFound":
                raise FileNotFoundError(errno.ENOENT, "not there")
            return _stat(info)

    def open_read(self, path: PurePath) -> ReadFile:
        with _raising("opening", path):
            return _ArrowFile(self._store.open_input_file(str(path)), path)

    def free_bytes(self, directory: PurePath) -> int:  # noqa: ARG002 (nothing is ever written here)
        return 0


class _ArrowFile:
    def __init__(self, file: Any, path: PurePath) -> None:
        self._file, self._path = file, path

    def read_into(self, position: int, target: memoryview) -> int:
        with _raising("reading", self._path):
            data = self._file.read_at(len(target), position)
            target[: len(data)] = data
            return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _stat(info: Any) -> FileStat:
    kinds = {"File": FileKind.FILE, "Directory": FileKind.DIRECTORY}
    kind = kinds.get(info.type.name, FileKind.OTHER)
    size = info.size or 0
    return FileStat(kind, size, info.mtime_ns or 0, 0, 0, 0o600, 0, 0, 1, size)


@contextmanager
def _raising(operation: str, path: PurePath) -> Iterator[None]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise StoreFault(operation, path, error) from error
        raise read_fault(operation, path, error) from error
    except pa.ArrowException as error:
        raise StoreFault(operation, path, error) from error
