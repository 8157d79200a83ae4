"""One index file of a segment: its entries in memory, the file behind them written on demand.

A file is exactly as long as its entries; a broker preallocates, accepts ours, and resizes those of the last segment on
load. Entries wait in memory until `write`: what lies above the recovery point is rebuilt after a crash anyway, and the
recovery point moves only behind a `sync`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from storage.base.errors import EnvironmentFault
from storage.disk.fs import Fs, WriteFile, read_all
from storage.disk.second_names import shorten

NAMES: Final = threading.RLock()
"""Held while a file of a segment is opened by its name for the first time, and while it gets another name."""
_LIMIT: Final = 1 << 31
Usable = Callable[[bytes], int]
"""Bytes of the beginning of a file that are entries; a broker's file may be longer."""


class IndexFile:
    """The entries of one index, `data`, and what of them is in the file. One writer; readers may come at any time.

    `size_on_disk` is None for a file that does not exist yet: it is created by the first `write`.
    """

    __slots__ = ("_data", "_dirty", "_file", "_fs", "_on_disk", "_usable", "_written", "path")

    def __init__(self, fs: Fs, path: PurePath, usable: Usable, size_on_disk: int | None = None) -> None:
        self.path = path
        self._fs, self._usable = fs, usable
        self._on_disk = size_on_disk
        self._written = size_on_disk or 0
        self._data: bytearray | None = bytearray() if not size_on_disk else None
        self._file: WriteFile | None = None
        self._dirty = True  # also what an earlier process wrote may not be durable yet

    @property
    def data(self) -> bytearray:
        """The entries, read from the file when they are first asked for. Raises `ReadFault`."""
        data = self._data  # of one look: another thread may give the memory back
        return self._load() if data is None else data

    def _load(self) -> bytearray:
        with NAMES:
            if self._data is None:
                found = read_all(self._fs, self.path, _LIMIT)
                kept = self._usable(found)
                self._on_disk, self._written = len(found), kept
                self._data = bytearray(found[:kept])
            return self._data

    @property
    def size(self) -> int:
        """The bytes of the entries; an index that was not looked into yet counts as it lies on disk."""
        return self._written if self._data is None else len(self._data)

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._on_disk is not None

    def append(self, entry: bytes) -> None:
        """Add an entry in memory."""
        data = self._data
        (self._load() if data is None else data).extend(entry)

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes of entries, in memory and in the file."""
        data = self.data
        if size < len(data):
            self._data = data[:size]  # not in place: another thread may be looking up an entry
        self._written = min(self._written, size)
        if self._on_disk is not None and self._on_disk > self._written:
            if shorten(self._fs, self.path, self._written):
                self.close()
            self._on_disk = self._written
            self._dirty = True

    def write(self) -> None:
        """Bring the file up to the entries. After a failure, which is raised, it can be tried again."""
        if self._data is None:
            return
        data = self._data
        if self._on_disk is not None and self._on_disk > self._written:
            self.truncate(len(data))  # what a broker had preallocated, or what a failed write left
        if self._file is None and (self._on_disk is None or self._written < len(data)):
            self._file = self._fs.create(self.path) if self._on_disk is None else self._fs.open_append(self.path)
            self._on_disk = self._written
            self._dirty = True
        if self._file is None or self._written == len(data):
            return
        self._dirty = True
        try:
            self._file.append(bytes(memoryview(data)[self._written :]))
        except EnvironmentFault:
            self._on_disk = len(data)  # at most; it is cut back before the next attempt
            raise
        self._on_disk = self._written = len(data)

    def sync(self) -> None:
        """Write, and make the file durable. A sync that fails must not be tried again: the log is done for."""
        self.write()
        if not self._dirty:
            return
        if self._file is not None:
            self._file.sync()
        elif self._on_disk is not None:
            self._fs.sync_file(self.path)
        self._dirty = False

    def close(self) -> None:
        """Close the file; nothing is written. The entries stay readable."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def forget(self) -> None:
        """Release the memory of the entries if all of them are in the file; the next use reads them again."""
        if self._data is not None and self._on_disk == self._written == len(self._data) > 0:
            self._data = None

    def rename(self, path: PurePath) -> None:
        """Give the file another name, if there is a file."""
        if self._on_disk is not None:
            self._fs.rename(self.path, path)
        self.path = path

    def remove(self) -> None:
        """Take the file away, if there is one."""
        self.close()
        if self._on_disk is not None:
            self._fs.remove(self.path)
            self._on_disk, self._written = None, 0
