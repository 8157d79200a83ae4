"""Open files of the real disk, and the errors that their failures are raised as; `storage.disk.fs` exports them."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Final, Self, TypeAlias, TypeVar

from storage.base.errors import DiskFull, EnvironmentFault, FileVanished, ReadFault, WriteFault

try:
    from storage.disk import _disk as kernel
    from storage.disk._disk import seek_offset, seek_time
except ImportError:  # it may not have been built, or from other sources
    kernel = None  # type: ignore[assignment]

    seek_offset = lambda *_: None  # noqa: E731
    seek_time = lambda *_: None  # noqa: E731

__all__ = ["Fault", "OsReadFile", "OsWriteFile", "kernel", "read_fault", "refusal", "write_fault"]
LINUX: bool = sys.platform == "linux"
"""Whether a descriptor may go to calls of Linux beside those of Python's own file objects."""
_TRUTHFUL: Final = (0xEF53, 0x58465342, 0x9123683E, 0x01021994)
"""By statfs(2): ext4, xfs, btrfs, tmpfs. Their holes take bytes into account that are in the page cache alone."""
_FULL, _GONE = (errno.ENOSPC, errno.EDQUOT), (errno.ENOENT, errno.ESTALE)
Fault: TypeAlias = Callable[[str, PurePath, OSError], EnvironmentFault]
Data = bytes | bytearray | memoryview
T = TypeVar("T", bound=tuple[object, ...])


def read_fault(operation: str, path: PurePath, cause: OSError) -> EnvironmentFault:
    """Return what a failed look at the disk is raised as: `FileVanished` or `ReadFault`."""
    return (FileVanished if cause.errno in _GONE else ReadFault)(operation, path, cause)


def write_fault(operation: str, path: PurePath, cause: OSError) -> EnvironmentFault:
    """Return what a failed change is raised as: `DiskFull`, `FileVanished` or `WriteFault`."""
    gone = FileVanished if cause.errno in _GONE else WriteFault
    return (DiskFull if cause.errno in _FULL else gone)(operation, path, cause)


def refusal(number: int) -> OSError:
    """Return the error of this number."""
    return OSError(number, os.strerror(number))


class _OpenFile:
    _fault: Fault

    def __init__(self, path: PurePath, raw: io.FileIO) -> None:
        self._path, self._raw, self._number = path, raw, raw.fileno()

    def close(self) -> None:
        self._number = -1
        try:
            self._raw.close()
        except OSError as error:
            raise self._fault("closing", self._path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OsReadFile(_OpenFile):
    """Seek, read and close under a lock, so that the segments of one file may be read by several threads."""

    _fault = staticmethod(read_fault)

    def __init__(self, path: PurePath, raw: io.FileIO) -> None:
        super().__init__(path, raw)
        self._turn = threading.Lock()

    def read_into(self, position: int, target: memoryview) -> int:
        left, total = target.cast("B"), 0
        try:
            with self._turn:
                self._raw.seek(position)
                while total < len(left) and (count := self._raw.readinto(left[total:])) != 0:
                    if count is None:  # "try again" is no end of file
                        raise refusal(errno.EAGAIN)
                    total += count
        except OSError as error:
            raise read_fault(f"reading at {position + total}", self._path, error) from error
        return total

    def seek_offset(self, index: Data, base: int, end: int, offset: int, kind: type[T]) -> T | None:
        """See `_disk.seek_offset`; None where `storage.reading.segment_walk` has to look by itself."""
        with self._turn:
            return seek_offset(self._number, index, base, end, offset, kind) if LINUX else None

    def seek_time(
        self, times: Data, offsets: Data, base: int, end: int, timestamp: int, start: int, kind: type[T]
    ) -> T | None:
        """See `_disk.seek_time`; None where `storage.log.log_read` has to look by itself."""
        with self._turn:
            if not LINUX:
                return None
            return seek_time(self._number, times, offsets, base, end, timestamp, start, kind)

    def stored_from(self, position: int) -> tuple[int, int] | None:
        """Return where, from `position` on, the file system has stored something, and where that ends.

        Before and behind it there are zeros; None if nothing follows. All is stored where the file system does not say.
        """
        with self._turn:
            try:
                if LINUX:
                    start = os.lseek(self._number, position, os.SEEK_DATA)
                    return start, os.lseek(self._number, start, os.SEEK_HOLE)
            except (OSError, AttributeError) as error:  # not all systems know of holes
                if getattr(error, "errno", None) == errno.ENXIO:
                    return None
        return position, sys.maxsize

    def tells_every_hole(self) -> bool:
        """Tell whether what `stored_from` says may be believed of bytes that nothing else has."""
        with self._turn:
            try:
                return kernel is not None and kernel.file_system(self._number) in _TRUTHFUL
            except (OSError, AttributeError):
                return False

    def is_in_memory(self, position: int) -> bool:
        """Tell whether the byte at `position` can be had without waiting for a disk; False where that is not told."""
        with self._turn:
            try:
                return LINUX and os.preadv(self._number, [bytearray(1)], position, os.RWF_NOWAIT) > 0
            except (OSError, AttributeError):  # EAGAIN: it would have to be waited for
                return False

    def descriptor(self) -> int:
        """Return the number of the open file, which ends with `close`; -1 where it is none of the real disk's."""
        return self._raw.fileno() if LINUX else -1

    def duplicate(self) -> int:
        """Return another descriptor of the file; `OSError` or `ValueError` once it is closed."""
        with self._turn:
            return os.dup(self._raw.fileno())

    def close(self) -> None:
        with self._turn:
            super().close()


class OsWriteFile(_OpenFile):
    """A file of the real disk, growing at its end."""

    _fault = staticmethod(write_fault)

    def append(self, data: bytes | bytearray | memoryview) -> None:
        try:
            if not LINUX:  # O_APPEND may not be honoured; the old place may be behind the end by now
                self._raw.seek(0, os.SEEK_END)
            count = self._raw.write(data) if type(data) is bytearray else 0
            if count == len(data):
                return  # as nearly always
            left = memoryview(data).cast("B")[count or 0 :]
            while left:
                if not (count := self._raw.write(left)):
                    raise refusal(errno.EIO)  # not for ever with a device that takes nothing and calls it success
                left = left[count:]
        except OSError as error:
            raise write_fault("writing", self._path, error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._raw.fileno())
        except OSError as error:
            raise write_fault("syncing", self._path, error) from error
