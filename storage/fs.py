"""The one door to the file system: one method, one effect, one point at which a machine can die.

`ReadFs` looks, `Fs` also changes. Whatever only verifies is handed a `ReadOnlyFs`, so that a change there is a type
error before it could be an accident. `tests/support/memory_fs.py` implements the same protocol over a model of what survives
a crash. Nothing here follows a symbolic link or waits on a FIFO: a log directory holds plain files, and whatever else
lies there is reported, not opened.

A failing call raises `ReadFault`, `FileVanished`, `WriteFault` or `DiskFull`, each with operation and path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat as stat_bits
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final, Protocol, Self

from storage.errors import DiskFull, EnvironmentFault, FileVanished, LogDirInUse, ReadFault, WriteFault

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_LOCK_NAME: Final = ".lock"


class FileKind(Enum):
    """What a directory entry is, without following links."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    OTHER = "special file"


@dataclass(frozen=True, slots=True)
class FileStat:
    """One entry as `lstat` saw it: bytes, nanoseconds since 1970, permission bits, numeric owner."""

    kind: FileKind
    size: int
    mtime_ns: int
    inode: int
    device: int
    mode: int
    uid: int
    gid: int
    links: int
    allocated: int
    """Bytes of disk behind the file; less than `size` where it is sparse."""


class ReadFile(Protocol):
    """An open plain file. Reading has no position of its own."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; return the bytes read, fewer only at the end of the file."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class WriteFile(Protocol):
    """An open file that grows at its end."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at the end. After an error the file may hold a part of it."""

    def sync(self) -> None:
        """Make data and size durable. Never call it again after it failed: the kernel may have dropped the pages."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class ReadFs(Protocol):
    """Looking at a disk."""

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        """List a directory: name to stat, in sorted order of names; entries that vanish meanwhile are left out."""

    def stat(self, path: PurePath) -> FileStat: ...

    def open_read(self, path: PurePath) -> ReadFile:
        """Open a plain file; anything else is a `ReadFault` with ELOOP, EISDIR or EINVAL."""

    def free_bytes(self, directory: PurePath) -> int:
        """Return the bytes an unprivileged process may still write to the file system of `directory`."""


class Fs(ReadFs, Protocol):
    """Changing a disk. Nothing but `sync_file`, `sync_dir` and `WriteFile.sync` makes anything durable."""

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        """Make a new empty file, with owner and mode of `like` where we may; it must not exist."""

    def open_append(self, path: PurePath) -> WriteFile: ...

    def truncate(self, path: PurePath, size: int) -> None: ...

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Give a file another name in one step; a `target` that exists is replaced."""

    def link(self, source: PurePath, target: PurePath) -> None:
        """Give a file a second name; `target` must not exist."""

    def remove(self, path: PurePath) -> None: ...

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None: ...

    def remove_dir(self, directory: PurePath) -> None: ...

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None: ...

    def sync_file(self, path: PurePath) -> None: ...

    def sync_dir(self, directory: PurePath) -> None: ...


def read_all(fs: ReadFs, path: PurePath, limit: int) -> bytes:
    """Return the content of a small file; `ReadFault` with EFBIG if it holds more than `limit` bytes."""
    with fs.open_read(path) as file:
        buffer = bytearray(min(limit, fs.stat(path).size) + 1)
        count = file.read_into(0, memoryview(buffer))
        if count > limit:
            raise ReadFault(f"reading more than {limit} bytes", path, OSError(errno.EFBIG, os.strerror(errno.EFBIG)))
        if count == len(buffer):  # it grew between stat and read
            return read_all(fs, path, limit)
        return bytes(buffer[:count])


def temporary_name(path: PurePath) -> PurePath:
    """Return the name under which a replacement of `path` is written: Kafka's own, which every broker ignores."""
    return path.with_name(path.name + ".tmp")


def replace_atomically(fs: Fs, path: PurePath, data: bytes, like: FileStat | None = None) -> None:
    """Put `data` in place of `path`, durably: a crash leaves the old content or the new, never a mixture.

    A stale temporary file of an earlier crash is dropped first. Four steps: write, sync, rename, sync the directory.
    """
    temporary = temporary_name(path)
    with contextlib.suppress(FileVanished):
        fs.remove(temporary)
    with fs.create(temporary, like) as file:
        file.append(data)
        file.sync()
    fs.rename(temporary, path)
    fs.sync_dir(path.parent)


def _kind(mode: int) -> FileKind:
    if stat_bits.S_ISREG(mode):
        return FileKind.FILE
    if stat_bits.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.SYMLINK if stat_bits.S_ISLNK(mode) else FileKind.OTHER


def _file_stat(raw: os.stat_result) -> FileStat:
    return FileStat(
        kind=_kind(raw.st_mode),
        size=raw.st_size,
        mtime_ns=raw.st_mtime_ns,
        inode=raw.st_ino,
        device=raw.st_dev,
        mode=stat_bits.S_IMODE(raw.st_mode),
        uid=raw.st_uid,
        gid=raw.st_gid,
        links=raw.st_nlink,
        allocated=getattr(raw, "st_blocks", 0) * 512,
    )


def _reading(operation: str, path: PurePath, cause: OSError) -> EnvironmentFault:
    return (FileVanished if cause.errno in _GONE else ReadFault)(operation, path, cause)


def _writing(operation: str, path: PurePath, cause: OSError) -> EnvironmentFault:
    if cause.errno in _FULL:
        return DiskFull(operation, path, cause)
    return (FileVanished if cause.errno in _GONE else WriteFault)(operation, path, cause)


def _opener(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a FIFO must not wait for a writer that never comes. It means nothing for a plain file.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)


class _OpenFile:
    def __init__(self, path: PurePath, raw: io.FileIO) -> None:
        self._path, self._raw = path, raw

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _OsReadFile(_OpenFile):
    """Seek and read under a lock, so that the segments of one file may be read by several threads."""

    def __init__(self, path: PurePath, raw: io.FileIO) -> None:
        super().__init__(path, raw)
        self._turn = threading.Lock()

    def read_into(self, position: int, target: memoryview) -> int:
        done = 0
        try:
            with self._turn:
                self._raw.seek(position)
                while done < len(target):
                    count = self._raw.readinto(target[done:])
                    if not count:
                        break
                    done += count
        except OSError as error:
            raise _reading(f"reading at {position + done}", self._path, error) from error
        return done


class _OsWriteFile(_OpenFile):
    def append(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._raw.write(left) or 0 :]
        except OSError as error:
            raise _writing("writing", self._path, error) from error

    def sync(self) -> None:
        try:
            os.fsync(self._raw.fileno())
        except OSError as error:
            raise _writing("syncing", self._path, error) from error


class OsFs:
    """The real disk."""

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        found: dict[str, FileStat] = {}
        try:
            with os.scandir(directory) as listing:
                for entry in listing:
                    with contextlib.suppress(FileNotFoundError):
                        found[entry.name] = _file_stat(entry.stat(follow_symlinks=False))
        except OSError as error:
            raise _reading("listing", directory, error) from error
        return dict(sorted(found.items()))

    def stat(self, path: PurePath) -> FileStat:
        try:
            return _file_stat(os.lstat(path))
        except OSError as error:
            raise _reading("looking at it", path, error) from error

    def open_read(self, path: PurePath) -> ReadFile:
        raw = self._open(path, "rb", _reading)
        return _OsReadFile(path, raw)

    def free_bytes(self, directory: PurePath) -> int:
        try:
            room = os.statvfs(directory)
        except OSError as error:
            raise _reading("asking for free space", directory, error) from error
        return room.f_bavail * room.f_frsize

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        raw = self._open(path, "xb", _writing)
        if like is not None:
            self._own(path, like)
        return _OsWriteFile(path, raw)

    def open_append(self, path: PurePath) -> WriteFile:
        raw = self._open(path, "r+b", _writing)
        raw.seek(0, os.SEEK_END)
        return _OsWriteFile(path, raw)

    def truncate(self, path: PurePath, size: int) -> None:
        raw = self._open(path, "r+b", _writing)
        try:
            with raw:
                raw.truncate(size)
        except OSError as error:
            raise _writing(f"truncating to {size}", path, error) from error

    def rename(self, source: PurePath, target: PurePath) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise _writing(f"renaming to {target.name}", source, error) from error

    def link(self, source: PurePath, target: PurePath) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            raise _writing(f"linking as {target.name}", source, error) from error

    def remove(self, path: PurePath) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            raise _writing("removing", path, error) from error

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        try:
            os.mkdir(directory, 0o755 if like is None else like.mode)
        except OSError as error:
            raise _writing("making the directory", directory, error) from error
        if like is not None:
            self._own(directory, like)

    def remove_dir(self, directory: PurePath) -> None:
        try:
            os.rmdir(directory)
        except OSError as error:
            raise _writing("removing the directory", directory, error) from error

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        try:
            os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
        except OSError as error:
            raise _writing("setting the modification time", path, error) from error

    def sync_file(self, path: PurePath) -> None:
        raw = self._open(path, "rb", _writing)
        try:
            with raw:
                os.fsync(raw.fileno())
        except OSError as error:
            raise _writing("syncing", path, error) from error

    def sync_dir(self, directory: PurePath) -> None:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _writing("syncing the directory", directory, error) from error

    @staticmethod
    def _open(path: PurePath, mode: str, fault: object) -> io.FileIO:
        raise_as = _reading if fault is _reading else _writing
        try:
            raw = open(path, mode, buffering=0, opener=_opener)  # noqa: SIM115 (the caller's file object owns it)
            assert isinstance(raw, io.FileIO)
            if not stat_bits.S_ISREG(os.fstat(raw.fileno()).st_mode):
                raw.close()
                raise OSError(errno.EINVAL, "not a plain file")
        except OSError as error:
            raise raise_as("opening", path, error) from error
        return raw

    @staticmethod
    def _own(path: PurePath, like: FileStat) -> None:
        """Give a new file its model's owner and mode.

        Who may not give files away keeps them. The mode comes last, since a change of owner clears bits of it.
        """
        with contextlib.suppress(PermissionError):
            os.chown(path, like.uid, like.gid, follow_symlinks=False)
        with contextlib.suppress(PermissionError):
            os.chmod(path, like.mode)


class ReadOnlyFs:
    """The looking half of another file system; it has no method that changes anything."""

    def __init__(self, inner: ReadFs) -> None:
        self._inner = inner

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self._inner.entries(directory)

    def stat(self, path: PurePath) -> FileStat:
        return self._inner.stat(path)

    def open_read(self, path: PurePath) -> ReadFile:
        return self._inner.open_read(path)

    def free_bytes(self, directory: PurePath) -> int:
        return self._inner.free_bytes(directory)


@contextlib.contextmanager
def lock_log_dir(directory: PurePath) -> Iterator[None]:
    """Hold `<directory>/.lock` as a broker does, for as long as the context lasts.

    Kafka locks by Java's FileChannel, which is a POSIX record lock on Linux: `flock` would succeed beside it. The one
    descriptor is never reopened, since closing any other descriptor of that file would drop the lock. The file is left
    behind, as brokers up to 3.7 do: removing it could take away the lock of a process that is just opening it.

    Raises `LogDirInUse` if somebody holds it, `WriteFault` if the file cannot be opened or locked.
    """
    path = directory / _LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _writing("opening", path, error) from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise LogDirInUse(directory) from error
            raise _writing("locking", path, error) from error
        yield
    finally:
        os.close(descriptor)
