"""Copies ranges of files and writes new ones, durably."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from storage.base.errors import FileVanished
from storage.disk.fs import CHUNK, FileKind, FileStat, Fs, ReadFs, pieces_of

if TYPE_CHECKING:
    import hashlib

_PREALLOCATED: Final = (".index", ".timeindex")


def write_new(fs: Fs, path: PurePath, pieces: Iterable[bytes], like: FileStat, *, private: bool) -> None:
    """Write a file durably; one of that name that an earlier attempt left is replaced."""
    drop(fs, path)
    if private:  # it holds customers' data: readable by the owner of the log alone
        like = FileStat(FileKind.FILE, 0, 0, 0, 0, 0o600, like.uid, like.gid, 1, 0)
    with fs.create(path, like) as file:
        for piece in pieces:
            file.append(piece)
        file.sync()


def range_of(fs: ReadFs, source: PurePath, position: int, size: int, digest: hashlib._Hash) -> Iterator[bytes]:
    """Yield a range of a file in pieces, which go into the digest; `PlanStale` where it is shorter than that."""
    with fs.open_read(source) as file:
        for piece in pieces_of(file, source, position, size):
            digest.update(piece)
            yield bytes(piece)


def data_end(fs: ReadFs, path: PurePath, size: int) -> int:
    """Return where the zeroes at the end of an index begin, a preallocated one has little else; of others the size."""
    end = size
    if end == 0 or path.suffix not in _PREALLOCATED:
        return end
    with fs.open_read(path) as file:
        while end > 0:
            start = (end - 1) // CHUNK * CHUNK
            part = bytearray(end - start)
            data = part[: file.read_into(start, memoryview(part))].rstrip(b"\0")
            if data:
                return start + len(data)
            end = start
    return 0


def drop(fs: Fs, path: PurePath) -> None:
    """Remove a file that may be there."""
    with contextlib.suppress(FileVanished):
        fs.remove(path)
