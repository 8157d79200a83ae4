"""What to try after an error."""

from __future__ import annotations

import errno
from typing import Final

from recovery.report.command_line import Flags, command
from storage.base.errors import (
    DiskFull,
    EnvironmentFault,
    FileVanished,
    LogDirInUse,
    LogmendError,
    NoRoom,
    UnsupportedFormat,
    WriteFault,
    printable,
)

MORE_DESCRIPTORS: Final = "raise the limit of open files (ulimit -n, LimitNOFILE= of systemd) and run it again"
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM)
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def next_step(error: LogmendError, flags: Flags = Flags()) -> str:  # noqa: B008 (it is a constant)
    """Return the next thing to try, empty where the error's own text says so."""
    match error:
        case LogDirInUse():
            look = command("verify", *flags.of("verify"), error.directory)
            return f"stop the broker first; to look without writing: {look}"
        case DiskFull() | NoRoom():
            return _room(error, flags)
        case FileVanished():
            return "check the name, or whether its volume is mounted; where a broker is running, try again"
        case EnvironmentFault() if error.errno in _NO_DESCRIPTORS:
            return MORE_DESCRIPTORS
        case EnvironmentFault() if error.errno in _NOT_ALLOWED:
            return "run it as the user that the broker runs as"
        case EnvironmentFault() if error.errno == errno.EROFS:
            return "the file system is mounted read-only; verify and plan work there"
        case WriteFault():
            return "the log directory is as after a crash; see to the cause and run recover again"
        case EnvironmentFault():
            return "see what the kernel says of this disk (dmesg); nothing was cut because of it"
        case UnsupportedFormat():
            return "a newer logmend may know it; nothing was cut because of it"
        case _:
            return ""


def _room(error: DiskFull | NoRoom, flags: Flags) -> str:
    if isinstance(error, DiskFull):
        return f"make room on the disk of {printable(error.path.parent)}, for bytes and for files, and run it again"
    if error.helps:
        words = command("recover", *flags.of("recover"), "--quarantine", "DIR", error.directory)
        return f"to keep the copies in a directory on another volume: {words}"
    ways = "enlarge the volume, give back blocks reserved for root (tune2fs -m), or remove files that are not Kafka's"
    return f"make room for {error.needed - error.free} bytes more and run it again: {ways}"
