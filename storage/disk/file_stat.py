"""What a look at a directory tells of each entry."""

from __future__ import annotations

import stat as bits
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import os  # noqa: TID251 (names what a look gives; looks at nothing)


class FileKind(Enum):
    """What a directory entry is, without following links."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    OTHER = "special file"


class FileStat(NamedTuple):
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


ALL_KINDS: Final = (FileKind.FILE, FileKind.DIRECTORY, FileKind.SYMLINK, FileKind.OTHER)
_KINDS: Final = dict(zip((bits.S_IFREG, bits.S_IFDIR, bits.S_IFLNK), ALL_KINDS, strict=False))


def stat_of(raw: os.stat_result) -> FileStat:
    """Return what a look by the system's call tells."""
    mode, blocks = raw.st_mode, getattr(raw, "st_blocks", 0)
    kind, permissions = _KINDS.get(bits.S_IFMT(mode), FileKind.OTHER), bits.S_IMODE(mode)
    size, times, place = raw.st_size, raw.st_mtime_ns, (raw.st_ino, raw.st_dev)
    return FileStat(kind, size, times, *place, permissions, raw.st_uid, raw.st_gid, raw.st_nlink, blocks * 512)
