"""LogFile: the `.log` of one segment, which grows at its end and is read anywhere."""

from __future__ import annotations

from pathlib import PurePath

from storage.base.errors import EnvironmentFault
from storage.base.refusals import LogUnusable
from storage.base.rows import Data
from storage.disk.fs import Fs, ReadFile, WriteFile
from storage.disk.second_names import shorten
from storage.index.index_file import NAMES


class LogFile:
    """A file by its path, opened when it is first needed. One writer; readers may come at any time.

    `size` counts what readers may see: the segment moves it once it knows what it has appended.
    """

    __slots__ = ("_fs", "_is_dirty", "_out", "_reader", "path", "size")

    def __init__(self, fs: Fs, path: PurePath, size: int = 0) -> None:
        self._fs, self.path, self.size = fs, path, size
        self._out: WriteFile | None = None
        self._reader: ReadFile | None = None
        self._is_dirty = True  # what an earlier process wrote may not be durable either

    def create(self) -> None:
        """Create the file; none may exist at its path."""
        self._out = self._fs.create(self.path)

    def append(self, data: Data) -> None:
        """Write at the end, without moving `size`; a failed write, which is raised, is taken back.

        Raises `LogUnusable` instead where it cannot be taken back.
        """
        out = self._out
        if out is None:
            out = self._out = self._fs.open_append(self.path)
        self._is_dirty = True
        try:
            out.append(data)
        except EnvironmentFault as fault:
            self._take_back(fault)
            raise

    def _take_back(self, fault: EnvironmentFault) -> None:
        try:
            self._fs.truncate(self.path, self.size)
        except EnvironmentFault:
            raise LogUnusable(f"{self.path}: {fault}; what was written of it stays") from fault

    def reader(self) -> ReadFile:
        """Return the file open for reading at any position; it is shared, and closed with the segment."""
        reader = self._reader
        if reader is None:
            with NAMES:
                reader = self._reader = self._reader or self._fs.open_read(self.path)
        return reader

    def modified_ms(self) -> int:
        """Return the modification time. Raises `ReadFault`."""
        return self._fs.stat(self.path).mtime_ns // 1_000_000

    def sync(self) -> None:
        """Make the content durable if it may not be. Raises `WriteFault`."""
        if not self._is_dirty:
            return
        if self._out is not None:
            self._out.sync()
        else:
            self._fs.sync_file(self.path)
        self._is_dirty = False

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, without a sync; readers see no more at once."""
        is_cut, self.size = size < self.size, size
        if is_cut:
            if shorten(self._fs, self.path, size):
                self.close()
            self._is_dirty = True

    def rename(self, path: PurePath) -> None:
        """Give the file another name; what is open stays usable."""
        source, self.path = self.path, path
        self._fs.rename(source, path)

    def remove(self) -> None:
        """Remove the file."""
        self._fs.remove(self.path)

    def close_for_writing(self) -> None:
        """Close what is open for writing; readers go on."""
        out, self._out = self._out, None
        if out is not None:
            out.close()

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        self.close_for_writing()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
