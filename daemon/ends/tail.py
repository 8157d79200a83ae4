"""Reads the end of a log from the page cache and folds it, and leaves that cache as it was.

What a broker has just appended is in memory: reading it costs no disk. What is not in memory is read only where the
disks are not busy, and dropped from the cache again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import PurePath
from typing import Final, NamedTuple, Self

from daemon.ledger.disk import SAFE_TO_READ
from recovery.segment.marks import HEADER_BYTES
from storage.base.errors import FileVanished, LogmendError
from storage.base.rows import BatchRows, Stop
from storage.disk.buffers import page_aligned
from storage.disk.file_stat import stat_of
from storage.disk.fs import FileKind, FileStat, read_fault
from storage.kernel.fold import SegmentFold

WINDOW: Final = 1 << 20
LARGEST_BATCH: Final = 32 << 20
"""A batch that is larger ends the following of its segment: it would take the memory of all others."""
_SIZE_FIELD: Final = slice(8, 12)
_BEFORE_SIZE: Final = 12
_ROWS: Final = 1024


class Stamp(NamedTuple):
    """What shows that a log has changed."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: FileStat) -> Stamp:
        """Return that of a file."""
        return cls(stat.device, stat.inode, stat.size, stat.mtime_ns)


def look_at(path: str) -> Stamp:
    """Return what shows that a log has changed, cheaply: thousands of calls a second; raises `ReadFault`."""
    try:
        stat = os.lstat(path)
    except OSError as error:
        raise read_fault("looking at it", PurePath(path), error) from error
    return Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


class NotInMemory(LogmendError):
    """The bytes would have to come from the disk, which has no time now."""


class TailFile:
    """An open log of a broker. Everything raises `ReadFault` and `FileVanished`; one thread."""

    def __init__(self, path: PurePath, *, memory_only: bool = False) -> None:
        """Open it; with `memory_only`, reading what is not in memory raises `NotInMemory`."""
        self.path, self._memory_only = path, memory_only
        try:
            self._descriptor = os.open(path, SAFE_TO_READ)
        except OSError as error:
            raise read_fault("opening", path, error) from error
        try:
            self.stat = self._stat()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _stat(self) -> FileStat:
        try:
            stat = stat_of(os.fstat(self._descriptor))
        except OSError as error:
            raise read_fault("looking at it", self.path, error) from error
        if stat.kind is not FileKind.FILE:
            raise read_fault("opening", self.path, OSError(errno.EINVAL, "no plain file"))
        return stat

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; return how many bytes there were, fewer only at the end of the file."""
        done = 0
        try:
            done = self._resident(position, target)
            if done < len(target):
                done += self._from_disk(position + done, target[done:])
        except OSError as error:
            raise read_fault(f"reading at {position + done}", self.path, error) from error
        return done

    def _resident(self, position: int, target: memoryview) -> int:
        try:
            return os.preadv(self._descriptor, [target], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                raise
            return 0

    def _from_disk(self, position: int, target: memoryview) -> int:
        if self._memory_only and os.fstat(self._descriptor).st_size > position:
            raise NotInMemory(f"{self.path}: from {position} on it is not in memory")
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # reading ahead would fill the cache
        done = 0
        while done < len(target) and (count := os.preadv(self._descriptor, [target[done:]], position + done)):
            done += count
        os.posix_fadvise(self._descriptor, position, done, os.POSIX_FADV_DONTNEED)
        return done

    def header(self, position: int) -> bytes:
        """Return the header of the batch at `position`; fewer bytes where the file ends before."""
        found = bytearray(HEADER_BYTES)
        size = self.read_into(position, memoryview(found))
        return bytes(found[:size])

    def sync(self) -> None:
        """Make durable what the file holds now."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise read_fault("syncing", self.path, error) from error

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Advance(NamedTuple):
    """Where the chain of sound batches ends after a piece; `header`: of the last one folded, None if none was."""

    position: int
    next_offset: int
    last_position: int
    header: bytes | None
    stop: Stop


class TailReader:
    """The buffers of one thread."""

    def __init__(self) -> None:
        self._window = page_aligned(WINDOW)
        self._rows = BatchRows(_ROWS)

    def fold(self, file: TailFile, fold: SegmentFold, position: int, next_offset: int, end: int) -> Advance:
        """Fold the whole batches between `position` and `end`; raises `FileVanished` if the file ends before `end`."""
        window, last_position, header, stop = self._window, position, None, Stop.END
        while position < end:
            view = window[: min(len(window), end - position)]
            if file.read_into(position, view) < len(view):
                raise FileVanished("reading", file.path, OSError(errno.ENODATA, "it has become shorter"))
            folded = fold.scan(view, self._rows, position=position, next_offset=next_offset)
            stop = folded.stop
            if not folded.size:
                larger = _size_of(view) if stop is Stop.NEED_MORE else 0
                if len(view) < larger <= min(end - position, LARGEST_BATCH):
                    window = page_aligned(larger)
                    continue
                break
            place = folded.last_position - position
            header, last_position = bytes(view[place : place + HEADER_BYTES]), folded.last_position
            position, next_offset = position + folded.size, folded.next_offset
            if stop not in (Stop.END, Stop.NEED_MORE, Stop.ROWS_FULL):
                break
        return Advance(position, next_offset, last_position, header, stop)


def _size_of(data: memoryview) -> int:
    """Return the size that the batch at the beginning claims."""
    return _BEFORE_SIZE + int.from_bytes(data[_SIZE_FIELD], "big", signed=True) if len(data) >= _BEFORE_SIZE else 0
