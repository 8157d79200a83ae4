"""Every exception that logmend raises on purpose, each with the exit status it leads to.

`CorruptData` and its kin say what is wrong with bytes; `EnvironmentFault` and its kin say what the world refused to do.
The two are never turned into one another: an input/output error is not corruption, and nothing is cut because of one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from enum import IntEnum
from pathlib import PurePath
from typing import Final


class ExitStatus(IntEnum):
    """The exit status of the command; docs/reference/exit-status.md says what each means for the directory."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    HELD = 3
    UNSUPPORTED = 4
    ENVIRONMENT = 5
    IN_USE = 6
    STALE = 7
    BUG = 70
    INTERRUPTED = 130
    TERMINATED = 143


_WORST_FIRST: Final = (
    ExitStatus.INTERRUPTED,
    ExitStatus.TERMINATED,
    ExitStatus.BUG,
    ExitStatus.USAGE,
    ExitStatus.ENVIRONMENT,
    ExitStatus.UNSUPPORTED,
    ExitStatus.STALE,
    ExitStatus.IN_USE,
    ExitStatus.HELD,
    ExitStatus.FINDINGS,
    ExitStatus.CLEAN,
)


def worst(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """Return the status that several together end with; none at all is clean."""
    return min(statuses, key=_WORST_FIRST.index, default=ExitStatus.CLEAN)


def printable(text: object) -> str:
    """Return `text` with everything a terminal, a log line or a page could act upon made visible.

    Names come from the disk and may hold any byte. Control characters, bidirectional marks, lone surrogates (bytes that
    are not UTF-8) and the backslash itself are written as Python escapes: the result is one line and unambiguous.
    """
    plain = str(text)
    if plain.isascii() and plain.isprintable() and "\\" not in plain:
        return plain
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in plain)


class LogmendError(Exception):
    """The root of them. `status` is the exit status when it reaches the command line."""

    status = ExitStatus.BUG


class CorruptData(LogmendError):
    """Bytes that break their format. Prints as `path at position: reason`."""

    status = ExitStatus.FINDINGS

    def __init__(self, reason: str, *, path: PurePath | None = None, position: int | None = None) -> None:
        super().__init__(reason, path, position)
        self.reason, self.path, self.position = reason, path, position

    def __str__(self) -> str:
        where = printable(self.path) if self.path is not None else ""
        if self.position is not None:
            where = f"{where} at {self.position}".lstrip()
        return f"{where}: {self.reason}" if where else self.reason


class BatchCorrupt(CorruptData):
    """A record batch, or a record inside one, that breaks the format."""


class IndexCorrupt(CorruptData):
    """An offset, time or transaction index that breaks the format."""


class SnapshotCorrupt(CorruptData):
    """A producer snapshot that breaks the format."""


class CheckpointCorrupt(CorruptData):
    """A checkpoint, a properties file or a marker that breaks the format."""


class UnsupportedFormat(CorruptData):
    """A magic, codec or file version that this release does not know: maybe a newer broker's, so never damage."""

    status = ExitStatus.UNSUPPORTED


class EnvironmentFault(LogmendError):
    """The operating system refused: which operation, on which path, and its error number."""

    status = ExitStatus.ENVIRONMENT

    def __init__(self, operation: str, path: PurePath, cause: OSError) -> None:
        super().__init__(operation, path, cause)
        self.operation, self.path = operation, path
        self.errno = cause.errno or 0

    def __str__(self) -> str:
        name = errno.errorcode.get(self.errno, str(self.errno))
        return f"{printable(self.path)}: {self.operation} failed: {os.strerror(self.errno)} ({name})"


class ReadFault(EnvironmentFault):
    """A listing, a stat or a read failed."""


class FileVanished(ReadFault):
    """The file was there when it was listed and is gone; on a live log that is retention or compaction, not damage."""


class WriteFault(EnvironmentFault):
    """A write, a rename, a sync or another change failed."""


class DiskFull(WriteFault):
    """A write failed because no space, or no quota, is left."""


_ALL_OF_A_PLAN: Final = "copies, new files and the start of a broker"


class NoRoom(LogmendError):
    """There is no room for all that a plan needs: bytes needed and free there. Raised before anything was changed.

    `helps`: with the copies on another volume, the rest would fit.
    """

    status = ExitStatus.ENVIRONMENT

    def __init__(
        self, directory: PurePath, needed: int, free: int, *, what: str = _ALL_OF_A_PLAN, helps: bool = False
    ) -> None:
        super().__init__(directory, needed, free)
        self.directory, self.needed, self.free, self.what, self.helps = directory, needed, free, what, helps

    def __str__(self) -> str:
        return f"{printable(self.directory)}: needs {self.needed} bytes for {self.what}, {self.free} are free"


class LogDirInUse(LogmendError):
    """Another process, most likely a broker, holds the lock of a log directory."""

    status = ExitStatus.IN_USE

    def __init__(self, directory: PurePath) -> None:
        super().__init__(directory)
        self.directory = directory

    def __str__(self) -> str:
        return f"{printable(self.directory)}: in use: its .lock is held by a running broker or another logmend"


class PlanStale(LogmendError):
    """A file is no longer as the plan saw it; nothing of the plan has been done for it."""

    status = ExitStatus.STALE

    def __init__(self, path: PurePath, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason} since the plan was made; make a new one with `logmend plan`"


class ReplicaUnusable(LogmendError):
    """A replica offered what must not be taken."""

    status = ExitStatus.HELD


class ConfigInvalid(LogmendError):
    """A flag, a key or a value that cannot be used: names it, and what is allowed."""

    status = ExitStatus.USAGE
