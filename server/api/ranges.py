"""SharedFiles: the files of which ranges wait to be sent, each open once however many ranges wait.

A segment's file may be closed while a range of it is being sent: compaction replaced it, or retention deleted it. So a
range has a descriptor of its own, shared with the other ranges of that file and closed with the last of them.
"""

from __future__ import annotations

import os
from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from storage.disk.fs import ReadFile
from wire.segments import FileRange, Segment

SMALL: Final = 32 << 10
"""Bytes up to which a range is read at once: that is cheaper than two more system calls."""


@runtime_checkable
class Duplicable(Protocol):
    """A file whose descriptor can be had a second time, for the kernel to send from; files in memory have none."""

    def duplicate(self) -> int:
        """Return a descriptor of its own for the same file; the caller closes it."""


class _Shared:
    """A descriptor, and how many ranges need it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._count = descriptor, 0

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def taken(self) -> _Shared:
        self._count += 1
        return self

    def fileno(self) -> int:
        return self._descriptor

    def read_into(self, position: int, target: memoryview) -> int:
        done = 0
        while done < len(target) and (count := os.preadv(self._descriptor, [target[done:]], position + done)):
            done += count
        return done

    def close(self) -> None:
        self._count -= 1
        if not self._count:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class SharedFiles:
    """Open files by the `ReadFile` of their segment; for the thread of the loop."""

    def __init__(self) -> None:
        self._files: WeakKeyDictionary[ReadFile, _Shared] = WeakKeyDictionary()

    def segment(self, file: ReadFile, position: int, size: int, *, small: int = SMALL) -> Segment:
        """Return a range of a file to be sent: the bytes themselves if there are at most `small`.

        Raises `ReadFault`, `OSError`, and `ValueError` where the file was closed meanwhile.
        """
        if size <= small or not isinstance(file, Duplicable):
            buffer = memoryview(bytearray(size))
            if file.read_into(position, buffer) < size:
                raise OSError("a file is shorter than it was")
            return buffer
        shared = self._files.get(file)
        if shared is None or not shared.is_open:
            shared = self._files[file] = _Shared(file.duplicate())
        return FileRange(shared.taken(), position, size)
