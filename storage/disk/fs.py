"""The one door to the file system: one method, one effect, one point at which a machine can die.

`ReadFs` looks, `Fs` also changes. Whatever only verifies gets a `ReadOnlyFs`: a change there is a type error first.
`tests/support/memory_fs.py` implements the same protocol over a model of what survives a crash. No file is opened,
changed or given a mode through a symbolic link (only a directory that is listed, synced or locked may be reached by
one), and nothing waits on a FIFO: whatever is no plain file is reported. A file with a second name is not written in
place, as the other name's bytes would change. A failing call raises `ReadFault`, `FileVanished`, `WriteFault` or
`DiskFull`, each with operation and path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import stat as stat_bits
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, Protocol, Self, TypeAlias, cast, runtime_checkable

from storage.base.errors import EnvironmentFault, FileVanished, LogDirInUse, PlanStale, ReadFault, printable
from storage.disk import os_files
from storage.disk.buffers import page_aligned
from storage.disk.file_stat import ALL_KINDS, FileKind, FileStat, stat_of
from storage.disk.os_files import Fault, OsReadFile, OsWriteFile, kernel, read_fault, refusal, write_fault
from storage.disk.volume import open_volume

__all__ = ["FileKind", "FileStat", "OsReadFile", "OsWriteFile", "read_fault", "write_fault"]  # exported
_disk, _LOCK_NAME = kernel, ".lock"
# O_NONBLOCK: opening a FIFO must not wait for a writer that never comes. It means nothing for a plain file.
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FLOCK: Final = struct.Struct("@hhqqi0q")  # flock of fcntl(2): type, whence, start, length, process; padded at its end


CHUNK: Final = 1 << 20
"""Bytes that a copy reads at a time."""


class _Closing(Protocol):
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class ReadFile(_Closing, Protocol):
    """An open plain file. Reading has no position of its own."""

    def read_into(self, position: int, target: memoryview) -> int:
        """Fill `target` from `position` on; return the bytes read, fewer only at the end of the file."""


class WriteFile(_Closing, Protocol):
    """An open file that grows at its end."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at the end. After an error the file may hold a part of it."""

    def sync(self) -> None:
        """Make data and size durable. Never call it again after it failed: the kernel may have dropped the pages."""


class Volume(_Closing, Protocol):
    """A file system that can be made durable as a whole; `device` is what a `FileStat` says of all that is on it."""

    device: int

    def sync(self) -> None:
        """Make everything durable that was changed on it until now: content, sizes, times, names."""


class ReadFs(Protocol):
    """Looking at a disk."""

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        """List a directory: name to stat, in sorted order of names; entries that vanish meanwhile are left out.

        `FileVanished` if the directory is gone, `ReadFault` if it is none.
        """

    def stat(self, path: PurePath) -> FileStat: ...

    def open_read(self, path: PurePath) -> ReadFile:
        """Open a plain file; anything else is a `ReadFault` with ELOOP, EISDIR, EINVAL or ENXIO."""

    def free_bytes(self, directory: PurePath) -> int:
        """Return the bytes an unprivileged process may still write to the file system of `directory`."""


class Fs(ReadFs, Protocol):
    """Changing a disk. Nothing but `sync_file`, `sync_dir`, `WriteFile.sync` and `Volume.sync` makes things durable."""

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        """Make a new empty file, with owner and mode of `like` where we may; it must not exist."""

    def open_append(self, path: PurePath) -> WriteFile:
        """Open an existing plain file that has one name only; with more, a `WriteFault` with EMLINK."""

    def truncate(self, path: PurePath, size: int) -> None:
        """Cut a file that has one name only to `size` bytes; `WriteFault` with EINVAL if it holds fewer."""

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Give a file or directory another name in one step; a file at `target` is replaced.

        As POSIX has it, nothing at all happens if both are already names of one file: both stay.
        """

    def link(self, source: PurePath, target: PurePath) -> None:
        """Give a file a second name; `target` must not exist."""

    def remove(self, path: PurePath) -> None:
        """Take away one name of a file, or a symbolic link itself."""

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None: ...

    def remove_dir(self, directory: PurePath) -> None: ...

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None: ...

    def sync_file(self, path: PurePath) -> None: ...

    def sync_dir(self, directory: PurePath) -> None: ...

    def volume(self, directory: PurePath) -> Volume | None:
        """Open the file system of `directory`, to sync all of it at once; None where each file has to be synced."""


class DiskKernel(Protocol):
    """Reads many files of the real disk in one call; `storage/disk/_disk.c`."""

    def parts(self, directory: PurePath, wanted: tuple[tuple[str, int, int], ...], /) -> list[bytes | int]:
        """Return a part of each file (name, position, size), or the number of the error that came up."""


@runtime_checkable
class KernelFs(Protocol):
    """A file system that may have a kernel."""

    def kernel(self) -> DiskKernel | None:
        """Return the kernel; None where it was not built, or another disk than the real one is shown."""


def kernel_of(fs: ReadFs) -> DiskKernel | None:
    """Return the kernel that reads many files of this file system in one call, None if it has none."""
    return fs.kernel() if isinstance(fs, KernelFs) else None


def read_all(fs: ReadFs, path: PurePath, limit: int) -> bytes:
    """Return the content of a small file; `ReadFault` with EFBIG if it holds more than `limit` bytes."""
    size = min(limit + 1, 1 << 16)
    if (disk := kernel_of(fs)) is not None:
        if isinstance(found := disk.parts(path.parent, ((path.name, 0, size),))[0], int):
            raise read_fault("reading", path, refusal(found))
        if len(found) < size:
            return bytes(found)
    buffer, filled = bytearray(size), 0
    with fs.open_read(path) as file:
        while True:
            with memoryview(buffer) as view, view[filled:] as rest:
                filled += file.read_into(filled, rest)
            if filled > limit:
                raise ReadFault(f"reading no more than {limit} bytes", path, refusal(errno.EFBIG))
            if filled < len(buffer):
                return bytes(buffer[:filled])
            buffer.extend(bytes(min(len(buffer), limit + 1 - filled)))


Part: TypeAlias = tuple[str, int, int]
"""Name of a file in some directory, and position and size of a part of it, in bytes."""


def read_parts(fs: ReadFs, directory: PurePath, parts: Sequence[Part]) -> list[bytes | EnvironmentFault]:
    """Return a part of each of some plain files, fewer bytes where the file ends; the fault of those that failed.

    On the real disk it is one call, where the kernel was built.
    """
    kernel = kernel_of(fs)
    if kernel is None:
        return [_read_part(fs, directory / name, position, size) for name, position, size in parts]
    found: list[bytes | int] = kernel.parts(directory, tuple(parts))
    return [
        read_fault("reading", directory / name, refusal(data)) if isinstance(data, int) else data
        for data, (name, _, _) in zip(found, parts, strict=True)
    ]


def _read_part(fs: ReadFs, path: PurePath, position: int, size: int) -> bytes | EnvironmentFault:
    target = bytearray(size)
    try:
        with fs.open_read(path) as file, memoryview(target) as view:
            return bytes(view[: file.read_into(position, view)])
    except EnvironmentFault as fault:
        return fault


def pieces_of(file: ReadFile, path: PurePath, position: int, size: int) -> Iterator[memoryview]:
    """Yield a range of an open file in pieces, each valid until the next; `PlanStale` where the file ends before."""
    buffer = page_aligned(min(CHUNK, size))
    for at in range(position, position + size, CHUNK):
        piece = buffer[: min(CHUNK, position + size - at)]
        if file.read_into(at, piece) < len(piece):
            raise PlanStale(path, "it has shrunk")
        yield piece


def temporary_name(path: PurePath) -> PurePath:
    """Return the name under which a replacement of `path` is written: Kafka's own, which every broker ignores."""
    return path.with_name(path.name + ".tmp")


def replace_atomically(fs: Fs, path: PurePath, data: bytes, like: FileStat | None = None) -> None:
    """Put `data` in place of `path`, durably: a crash leaves the old content or the new, never a mixture.

    A stale temporary file of an earlier crash is dropped first. Four steps: write, sync, rename, sync the directory.
    After an error the temporary file may be left behind.
    """
    temporary = temporary_name(path)
    with contextlib.suppress(FileVanished):
        fs.remove(temporary)
    with fs.create(temporary, like) as file:
        file.append(data)
        file.sync()
    fs.rename(temporary, path)
    fs.sync_dir(path.parent)


@contextlib.contextmanager
def _raising(fault: Fault, operation: str, path: PurePath) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise fault(operation, path, error) from error


def _has_kernel() -> bool:
    return _disk is not None and os_files.LINUX


def _open_plain(path: PurePath, mode: str, like: FileStat | None = None) -> io.FileIO:
    """Open a plain file to create, read or write; raises `OSError`.

    The kind is asked of what was opened, not of the name before: in between it could be swapped.
    """
    if path.name == _LOCK_NAME:
        raise refusal(errno.EBUSY)  # closing it again would drop the lock that this very process may hold
    bits = 0o644 if like is None else 0o600  # nobody else may open it before it has its mode
    safe = _SAFE if mode == "rb" else _SAFE | os.O_APPEND
    opened = open(path, mode, buffering=0, opener=lambda name, flags: os.open(name, flags | safe, bits))  # noqa: SIM115
    raw = cast(io.FileIO, opened)
    try:
        found = os.fstat(raw.fileno())
        if not stat_bits.S_ISREG(found.st_mode):
            raise refusal(errno.EINVAL)
        if mode != "rb" and found.st_nlink > 1:
            raise refusal(errno.EMLINK)
        if like is not None:
            _give(raw.fileno(), like, like.mode & 0o777)
    except BaseException:
        raw.close()
        raise
    return raw


@contextlib.contextmanager
def _directory(path: PurePath, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _give(descriptor: int, like: FileStat, mode: int) -> None:
    """Give something new its model's owner, group and `mode`; raises `OSError`.

    Who may not give files away keeps them: EPERM, or EINVAL for a number that the user namespace does not know. The
    mode comes last, since a change of owner clears bits of it.
    """
    for uid, gid in ((like.uid, -1), (-1, like.gid)):
        try:
            os.chown(descriptor, uid, gid)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise
    os.chmod(descriptor, mode)


class OsFs:
    """The real disk. Stateless; its methods may be called from several threads."""

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        stats: dict[str, FileStat] = {}
        with _raising(read_fault, "listing", directory):
            if _has_kernel():
                return dict(sorted(_disk.entries(directory, FileStat, ALL_KINDS)))
            with os.scandir(directory) as listing:
                for entry in listing:
                    with contextlib.suppress(FileNotFoundError):
                        stats[entry.name] = stat_of(entry.stat(follow_symlinks=False))
        return dict(sorted(stats.items()))

    def kernel(self) -> DiskKernel | None:
        return _disk if type(self) is OsFs and _has_kernel() else None

    def stat(self, path: PurePath) -> FileStat:
        with _raising(read_fault, "looking at it", path):
            return stat_of(os.lstat(path))

    def open_read(self, path: PurePath) -> ReadFile:
        with _raising(read_fault, "opening", path):
            return OsReadFile(path, _open_plain(path, "rb"))

    def free_bytes(self, directory: PurePath) -> int:
        with _raising(read_fault, "asking for free space", directory):
            return shutil.disk_usage(directory).free

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        with _raising(write_fault, "creating", path):
            return OsWriteFile(path, _open_plain(path, "xb", like))

    def open_append(self, path: PurePath) -> WriteFile:
        with _raising(write_fault, "opening", path):
            return OsWriteFile(path, _open_plain(path, "r+b"))

    def truncate(self, path: PurePath, size: int) -> None:
        with _raising(write_fault, f"truncating to {size}", path), _open_plain(path, "r+b") as raw:
            if os.fstat(raw.fileno()).st_size < size:
                raise refusal(errno.EINVAL)  # it would grow by zeros
            raw.truncate(size)

    def rename(self, source: PurePath, target: PurePath) -> None:
        with _raising(write_fault, f"renaming to {printable(target)}", source):
            os.replace(source, target)

    def link(self, source: PurePath, target: PurePath) -> None:
        with _raising(write_fault, f"linking as {printable(target)}", source):
            os.link(source, target, follow_symlinks=False)

    def remove(self, path: PurePath) -> None:
        with _raising(write_fault, "removing", path):
            os.unlink(path)

    def make_dir(self, directory: PurePath, like: FileStat | None = None) -> None:
        with _raising(write_fault, "making the directory", directory):
            os.mkdir(directory, 0o755 if like is None else 0o700)
            if like is not None:
                with _directory(directory, _SAFE) as descriptor:
                    _give(descriptor, like, like.mode)

    def remove_dir(self, directory: PurePath) -> None:
        with _raising(write_fault, "removing the directory", directory):
            os.rmdir(directory)

    def set_mtime(self, path: PurePath, mtime_ns: int) -> None:
        with _raising(write_fault, "setting the modification time", path):
            os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    def sync_file(self, path: PurePath) -> None:
        with _raising(write_fault, "syncing", path), _open_plain(path, "rb") as raw:
            os.fsync(raw.fileno())

    def sync_dir(self, directory: PurePath) -> None:
        with _raising(write_fault, "syncing the directory", directory), _directory(directory) as descriptor:
            os.fsync(descriptor)

    def volume(self, directory: PurePath) -> Volume | None:
        return open_volume(directory) if self.kernel() is not None else None


class ReadOnlyFs:
    """The looking half of another file system; it has no method that changes anything."""

    def __init__(self, inner: ReadFs) -> None:
        self.entries, self.stat = inner.entries, inner.stat
        self.open_read, self.free_bytes = inner.open_read, inner.free_bytes
        self._inner = inner

    def kernel(self) -> DiskKernel | None:
        return kernel_of(self._inner)


# Closing any descriptor of a file drops every POSIX lock that the process has on it. A thread that opens a `.lock`
# therefore takes this turn, and looks at the locks that are held: device and inode of a log directory -> process.
_turn: Final = threading.Lock()
_held: Final[dict[tuple[int, int], int]] = {}


def _identity(directory: PurePath) -> tuple[int, int]:
    return (raw := os.stat(directory)).st_dev, raw.st_ino


def _open_lock(path: PurePath, flags: int) -> int:
    if stat_bits.S_ISREG(os.fstat(descriptor := os.open(path, flags | _SAFE, 0o644)).st_mode):
        return descriptor
    os.close(descriptor)
    raise refusal(errno.EINVAL)


def _take_lock(directory: PurePath) -> int | None:
    """Return a descriptor that holds the lock, None if another process has it; raises `OSError`."""
    path = directory / _LOCK_NAME
    for _ in range(8):
        with (  # a new one belongs to the owner of the directory, so that a broker can open it
            contextlib.suppress(FileExistsError),
            open(_open_lock(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "rb") as made,
        ):
            _give(made.fileno(), stat_of(os.stat(directory)), 0o644)
        descriptor = _open_lock(path, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN) and error.filename is None:  # of lockf: looks have a name
                return None
            raise
        os.close(descriptor)  # removed or replaced before it was locked: a lock on a file that nobody else finds
    return None


@contextlib.contextmanager
def lock_log_dir(directory: PurePath) -> Iterator[None]:
    """Hold `<directory>/.lock` as a broker does, for as long as the context lasts.

    Kafka locks by Java's FileChannel: on Linux a POSIX record lock, beside which `flock` would succeed. Closing another
    descriptor of the file would drop it, so `OsFs` never opens a `.lock`. The file stays: another may just open it.

    Raises `LogDirInUse` if a process, this one included, holds it; `FileVanished` if there is no such directory;
    `WriteFault` if the file is not a plain one or cannot be opened or locked.
    """
    with _turn, _raising(write_fault, "locking", directory / _LOCK_NAME):
        key, me = _identity(directory), os.getpid()
        descriptor = None if _held.get(key) == me else _take_lock(directory)
        if descriptor is None:
            raise LogDirInUse(directory)
        _held[key] = me
    try:
        yield
    finally:
        # The lock is gone even where closing reports an error, and nothing was written: what was done stays done.
        with _turn, contextlib.suppress(OSError):
            _held.pop(key, None)
            os.close(descriptor)


def lock_state(directory: PurePath) -> int | None:
    """Return the process that holds `<directory>/.lock`, None if nobody does; the lock is not taken, not even briefly.

    0 stands for a holder whose number cannot be seen from here: one in another container, or on another machine.
    Raises `FileVanished` if there is no such directory, `ReadFault` if the lock cannot be asked.
    """
    path = directory / _LOCK_NAME
    with _turn, _raising(read_fault, "asking for the lock", path):
        if _held.get(_identity(directory)) == os.getpid():
            return os.getpid()
        try:
            descriptor = _open_lock(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            kind, _, _, _, holder = _FLOCK.unpack(answer)
        finally:
            os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(holder, 0)
