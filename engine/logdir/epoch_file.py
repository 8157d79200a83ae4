"""`leader-epoch-checkpoint` of one open partition: what `storage.log.log` asks for when epochs begin or records go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from checkpoint.leader_epoch import (
    FILE_NAME,
    EpochStart,
    assign,
    read_epochs,
    truncate_from_end,
    truncate_from_start,
    write_epochs,
)
from storage.base.errors import FileVanished
from storage.base.units import Epoch, Offset
from storage.disk.fs import Fs

NO_EPOCH: Final = -1


class EpochFile:
    """The epochs of a partition, in memory and in their file; an `EpochKeeper`.

    A new epoch, and dropping all of them, is durable when the call returns; what truncations drop is written by the
    next `save`, as a broker does: should it get lost, opening drops it again. One thread at a time.
    """

    __slots__ = ("_fs", "_is_dirty", "_path", "entries")

    def __init__(self, fs: Fs, directory: PurePath) -> None:
        """Read the file; none is no epoch. Raises `CheckpointCorrupt`, `UnsupportedFormat` and `ReadFault`."""
        self._fs, self._path = fs, directory / FILE_NAME
        self._is_dirty = False
        try:
            self.entries: Sequence[EpochStart] = tuple(read_epochs(fs, self._path))
        except FileVanished:
            self.entries = ()

    @property
    def newest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Let `epoch` begin at `start_offset`, durably."""
        changed = tuple(assign(self.entries, epoch, start_offset))
        if changed != self.entries:
            self._write(changed)

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Drop the entries that begin at `end_offset` or above."""
        self._change(tuple(truncate_from_end(self.entries, end_offset)))

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Let the epoch in force at `start_offset` begin there, and drop those before."""
        self._change(tuple(truncate_from_start(self.entries, start_offset)))

    def clear(self) -> None:
        """Drop all entries, durably."""
        if self.entries:
            self._write(())

    def save(self) -> None:
        """Write what truncations have dropped since."""
        if self._is_dirty:
            self._write(self.entries)

    def _change(self, entries: Sequence[EpochStart]) -> None:
        self._is_dirty = self._is_dirty or entries != self.entries
        self.entries = entries

    def _write(self, entries: Sequence[EpochStart]) -> None:
        write_epochs(self._fs, self._path, entries)
        self.entries, self._is_dirty = entries, False
