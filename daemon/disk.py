"""Reads log files from the device, past the page cache and without putting anything into it."""

from __future__ import annotations

from storage.fs import OsFs, ReadFs


class Disk:
    """The reading side of the real disk, for whoever verifies."""

    def __init__(self, fs: ReadFs | None = None) -> None:
        self.fs: ReadFs = fs or OsFs()
