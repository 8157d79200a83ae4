"""Makes a whole file system durable: one wait for all that was written, where each file would have one of its own.

Only on kinds of file systems under which we have cut the power (tests/power), and only where nobody else is at work:
what others have written has to reach the disk as well before it returns.
Source: Linux, fs/sync.c, fs/ext4/super.c, fs/xfs/xfs_super.c, fs/xfs/xfs_file.c.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import PurePath
from typing import Final, Self

from storage.disk.os_files import kernel, write_fault

_KINDS: Final = (0xEF53, 0x58465342)
"""By statfs(2): ext2, ext3 and ext4, which one driver serves; xfs."""
_TELLS_OF_ERRORS: Final = (5, 8)
"""Since this Linux syncfs fails where a page that was written before could not be."""
_FLAGS: Final = os.O_CLOEXEC | os.O_NONBLOCK


class OsVolume:
    """An open file system of the real disk; `device` as a look at any of its files has it.

    It is opened before the writes that it syncs: then an error in between is reported here, and not to another process.
    """

    def __init__(self, directory: PurePath, descriptor: int, nameless: int) -> None:
        self._directory, self._descriptor, self._nameless = directory, descriptor, nameless
        self.device = os.fstat(descriptor).st_dev

    def sync(self) -> None:
        """Make everything durable that was changed until now: content, sizes, times, names."""
        try:
            kernel.sync_file_system(self._descriptor)
            # Where its log had nothing to write, xfs leaves data in the disk's own cache; and up to Linux 5.16 an
            # error of the log is not passed on. To sync a file, any file, flushes that cache and meets that error.
            os.fsync(self._nameless)
        except OSError as error:
            raise write_fault("syncing the file system", self._directory, error) from error

    def close(self) -> None:
        for descriptor in (self._nameless, self._descriptor):
            with contextlib.suppress(OSError):  # nothing was written by them
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_volume(directory: PurePath) -> OsVolume | None:
    """Return the file system of `directory`; None where a sync of all of it promises less than one of each file."""
    flags = getattr(os, "O_TMPFILE", None)
    if flags is None or not _may_be_asked() or _linux() < _TELLS_OF_ERRORS:
        return None
    with contextlib.ExitStack() as opened:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
            opened.callback(os.close, descriptor)
            if kernel.file_system(descriptor) not in _KINDS:
                return None
            nameless = os.open(directory, os.O_WRONLY | flags | _FLAGS, 0o600)
        except OSError:  # where it matters, syncing each file will say so, and of which
            return None
        opened.pop_all()
    return OsVolume(directory, descriptor, nameless)


def _may_be_asked() -> bool:
    """Tell whether the call is there, and no filter of a container or a service refuses it."""
    if not hasattr(kernel, "sync_file_system"):
        return False
    try:
        kernel.sync_file_system(-1)
    except OSError as error:
        return error.errno == errno.EBADF
    return False


def _linux() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())
