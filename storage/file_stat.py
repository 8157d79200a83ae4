"""What a look at a directory tells of each entry."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


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
