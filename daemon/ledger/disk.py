"""Reads logs from the device itself, past the page cache, and leaves that cache as it was.

A verification that reads from memory says nothing about the disk, and one that fills the page cache evicts what a
broker's consumers are about to read. So files are opened with O_DIRECT: the device answers, and the cache stays as it
is. Where a file system refuses that, pages are read through the cache. Those that were not resident before
(RWF_NOWAIT shows it) are dropped right after (POSIX_FADV_DONTNEED); those that were resident stay. From then on it is
uncertain whether the device answered, and `DeviceFile.from_device` is False; a device that answers at once looks the
same. Nothing here can change a file, and nothing opens a `.lock`.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat as stat_bits
import struct
from collections.abc import Callable
from pathlib import PurePath
from typing import Final, NamedTuple, Self

from storage.base.errors import ReadFault
from storage.base.names import FileRole
from storage.disk.fs import OsFs, ReadFile, ReadFs, read_all, read_fault

BLOCK: Final = 4096
"""Alignment that every common device and file system accepts for O_DIRECT."""
CHUNK: Final = 1 << 20
SAFE_TO_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECT: Final = os.O_DIRECT
_LOG: Final = FileRole.LOG.value
_ENTRY: Final = struct.Struct(">ii")
_DIGITS: Final = 20
_PRESSURE: Final = "/proc/pressure/io"


class LogStat(NamedTuple):
    """A `.log` file as it was listed."""

    size: int
    mtime_ns: int
    inode: int


class Listed(NamedTuple):
    """What a partition directory holds: its logs by base offset, and the items that we quarantined there."""

    logs: dict[int, LogStat]
    kept_items: int
    kept_bytes: int
    kept_oldest_ms: int | None


class DeviceFile:
    """An open log, read from the device where that is possible. One thread at a time."""

    def __init__(self, path: PurePath, on_read: Callable[[int], None], *, past_cache: bool = False) -> None:
        """Open it; raises `ReadFault`, `FileVanished`. `past_cache`: drop its cached pages if O_DIRECT is refused."""
        self._path, self._on_read, self._past_cache = path, on_read, past_cache
        self._descriptor, self._direct, size = _open(path)
        self.from_device = True
        """All that was read so far came from the device, for certain."""
        # Aligned, which bytearrays are not; one block more than a small file takes, to see its end.
        self._chunk = mmap.mmap(-1, min(CHUNK, (size // BLOCK + 2) * BLOCK))
        self._at, self._have = 0, 0

    def read_into(self, position: int, target: memoryview) -> int:
        """Do what `ReadFile` says; raises `ReadFault`."""
        left, size_read = target.cast("B"), 0
        while size_read < len(left):
            place = position + size_read
            if not self._at <= place < self._at + self._have:
                self._fetch(place)
                if place >= self._at + self._have:
                    break
            begin = place - self._at
            size = min(self._have - begin, len(left) - size_read)
            left[size_read : size_read + size] = memoryview(self._chunk)[begin : begin + size]
            size_read += size
        return size_read

    def _fetch(self, position: int) -> None:
        """Fill the chunk with the bytes around `position`; empty at the end of the file."""
        self._at, self._have = position // BLOCK * BLOCK, 0
        try:
            while self._have < len(self._chunk):
                count = self._read(self._at + self._have, memoryview(self._chunk)[self._have :])
                self._have += count
                if count == 0 or count % BLOCK:
                    break
        except OSError as error:
            raise read_fault(f"reading at {self._at + self._have}", self._path, error) from error
        self._on_read(self._have)

    def _read(self, position: int, target: memoryview) -> int:
        if self._direct:
            try:
                return os.preadv(self._descriptor, [target], position)
            except OSError as error:
                if error.errno != errno.EINVAL:  # O_DIRECT was taken, but not for this file system or this size
                    raise
            self._through_the_cache()
        return self._read_cached(position, target)

    def _through_the_cache(self) -> None:
        os.close(self._descriptor)
        self._descriptor, self._direct = os.open(self._path, SAFE_TO_READ), False

    def _read_cached(self, position: int, target: memoryview) -> int:
        # Without reading ahead: the pages that it loads would be resident the next time, and stay.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if self._past_cache:
            os.posix_fadvise(self._descriptor, position, len(target), os.POSIX_FADV_DONTNEED)
        try:
            if count := os.preadv(self._descriptor, [target], position, os.RWF_NOWAIT):
                self.from_device = False
                if count == len(target):
                    return count
        except OSError as error:
            self.from_device &= error.errno == errno.EAGAIN  # not resident; else RWF_NOWAIT is not known here
        count = os.preadv(self._descriptor, [target], position)
        os.posix_fadvise(self._descriptor, position, count, os.POSIX_FADV_DONTNEED)
        return count

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):
                os.close(descriptor)
            self._chunk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _open(path: PurePath) -> tuple[int, bool, int]:
    """Return a descriptor of a plain file, whether it goes past the page cache, and the size of the file."""
    if path.name == FileRole.LOCK.value:
        raise ReadFault("opening", path, OSError(errno.EBUSY, "closing it would drop a lock"))
    direct = bool(_DIRECT)
    try:
        try:
            descriptor = os.open(path, SAFE_TO_READ | _DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            descriptor, direct = os.open(path, SAFE_TO_READ), False
        found = os.fstat(descriptor)
        if not stat_bits.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "no plain file")
    except OSError as error:
        raise read_fault("opening", path, error) from error
    return descriptor, direct, found.st_size


class Disk:
    """A `ReadFs` whose files are read from the device; listings and stats come from `fs`.

    `on_read` receives the number of bytes read. One `Disk` a thread.
    """

    def __init__(self, fs: ReadFs | None = None, on_read: Callable[[int], None] = lambda _: None) -> None:
        self._inner = OsFs() if fs is None else fs
        self.entries, self.stat, self.free_bytes = self._inner.entries, self._inner.stat, self._inner.free_bytes
        self._on_read = on_read

    def open_read(self, path: PurePath) -> ReadFile:
        """Open a plain file for reading from the device; raises `ReadFault`, `FileVanished`."""
        return DeviceFile(path, self._on_read)

    def open_again(self, path: PurePath) -> DeviceFile:
        """Open a file for a second look, past the page cache in any case."""
        return DeviceFile(path, self._on_read, past_cache=True)

    def read_small(self, path: PurePath, limit: int) -> bytes:
        """Return the content of a small file through the page cache; raises `ReadFault`, `FileVanished`."""
        return read_all(self._inner, path, limit)

    def is_from_device(self, file: ReadFile) -> bool:
        """Tell whether all bytes read from `file` certainly came from the device."""
        return isinstance(file, DeviceFile) and file.from_device

    def bases(self, directory: PurePath) -> list[int]:
        """Return the base offsets of the live segments, rising, by their names alone."""
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise read_fault("listing", directory, error) from error
        return sorted(int(name[:-4]) for name in names if _is_log(name))

    def floor_position(self, path: PurePath, relative: int) -> int:
        """Return the position of the last entry at or below a relative offset in an `.index`, 0 without one.

        Reads a few entries through the page cache and ignores a preallocated rest. The position is not checked: the
        caller checks the batches there. Raises nothing: without an index, reading begins at 0.
        """
        try:
            descriptor = os.open(path, SAFE_TO_READ)
        except OSError:
            return 0
        try:
            low, high, position = 0, os.fstat(descriptor).st_size // _ENTRY.size, 0
            while low < high:
                middle = (low + high) // 2
                entry = os.pread(descriptor, _ENTRY.size, middle * _ENTRY.size)
                found, place = _ENTRY.unpack(entry) if len(entry) == _ENTRY.size else (0, 0)
                if (found, place) != (0, 0) and found <= relative:
                    low, position = middle + 1, place
                else:
                    high = middle
            return max(position, 0)
        except OSError:
            return 0
        finally:
            os.close(descriptor)

    def listed(self, directory: PurePath) -> Listed:
        """List a partition directory; only its logs and our own items get a stat."""
        logs: dict[int, LogStat] = {}
        items = size = 0
        oldest: int | None = None
        try:
            with os.scandir(directory) as listing:
                for entry in listing:
                    if _is_log(entry.name):
                        with contextlib.suppress(FileNotFoundError):
                            raw = entry.stat(follow_symlinks=False)
                            if stat_bits.S_ISREG(raw.st_mode):
                                logs[int(entry.name[:-4])] = LogStat(raw.st_size, raw.st_mtime_ns, raw.st_ino)
                    elif entry.name.endswith(".logmend"):
                        with contextlib.suppress(FileNotFoundError):
                            raw = entry.stat(follow_symlinks=False)
                            items, size = items + 1, size + raw.st_size
                            oldest = min(raw.st_ctime_ns // 1_000_000, oldest or 1 << 62)
        except OSError as error:
            raise read_fault("listing", directory, error) from error
        return Listed(dict(sorted(logs.items())), items, size, oldest)

    def mark_of(self, directory: str) -> tuple[int, int]:
        """Return inode and modification time of a directory, cheaply: ten thousand calls a minute are common."""
        try:
            found = os.lstat(directory)
        except OSError as error:
            raise read_fault("looking at it", PurePath(directory), error) from error
        return found.st_ino, found.st_mtime_ns

    def directories(self, log_dir: PurePath) -> list[str]:
        """Return the names of the directories in a log directory, without links."""
        try:
            with os.scandir(log_dir) as listing:
                return [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            raise read_fault("listing", log_dir, error) from error


def _is_log(name: str) -> bool:
    digits = name[:-4]
    return len(digits) == _DIGITS and name.endswith(_LOG) and digits.isascii() and digits.isdigit()


def read_pressure() -> float | None:
    """Return the percent of the last ten seconds in which work waited for a disk; None where it is unknown."""
    try:
        descriptor = os.open(_PRESSURE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, 512).decode("ascii", "replace")
        finally:
            os.close(descriptor)
        fields = dict(field.split("=", 1) for field in text.splitlines()[0].split()[1:])
        return float(fields["avg10"])
    except (OSError, ValueError, KeyError, IndexError):
        return None


def draw_fraction() -> float:
    """Return a random number from 0 up to below 1."""
    return int.from_bytes(os.urandom(6), "big") / (1 << 48)
