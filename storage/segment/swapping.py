"""Puts cleaned segments in place of others, so that every crash leaves the old state or the new one.

Before it there are `.cleaned` files, which mean nothing yet; once there are `.swap` files alone, every load finishes
what was begun. Source: Apache Kafka 4.3.0, LocalLog.replaceSegments, LogLoader.completeSwapOperations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from storage.base.errors import FileVanished
from storage.base.names import FileRole, FileState, segment_file_name
from storage.base.units import Offset
from storage.disk.fs import Fs
from storage.segment.segment import LogSegment

_CLEANED_IN_THE_ORDER_OF_REMOVAL: Final = (FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX, FileRole.LOG)


def swap_in(
    fs: Fs, directory: PurePath, cleaned: Sequence[LogSegment], sources: Sequence[LogSegment]
) -> tuple[PurePath, ...]:
    """Put cleaned segments, which are durable, in place of their sources; return the files that are `.deleted` now.

    The directory is synced between the steps, which a broker leaves to the file system's own order: else a source might
    be gone while the swap of its successor, of which a load makes the new state, is not known yet. Of several cleaned
    segments the highest becomes `.swap` first, since a load takes a `.swap` above a `.cleaned` for unfinished.
    Afterwards the swap is durable. The files returned may be removed at any time; a load removes them too.
    """
    fs.sync_dir(directory)
    in_order = sorted(cleaned, key=lambda segment: segment.base_offset)
    for segment in reversed(in_order):
        segment.rename(FileState.SWAP)
        fs.sync_dir(directory)
    replaced = []
    for segment in sources:
        segment.rename(FileState.DELETED)
        replaced += segment.paths()
    fs.sync_dir(directory)
    for segment in in_order:
        segment.rename(FileState.LIVE)
        fs.sync_dir(directory)  # a load takes away what is in place between two `.swap`
    return tuple(replaced)


def remove_cleaned(fs: Fs, directory: PurePath, base_offset: Offset) -> None:
    """Take away what an earlier attempt has left of a `.cleaned` segment."""
    for role in _CLEANED_IN_THE_ORDER_OF_REMOVAL:
        with contextlib.suppress(FileVanished):
            fs.remove(directory / segment_file_name(base_offset, role, FileState.CLEANED))
