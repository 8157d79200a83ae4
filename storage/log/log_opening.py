"""Finds the segments and snapshots of a directory that a log is opened on.

Source: Apache Kafka 4.3.0, LogLoader, for directories that need no recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final, NamedTuple

from storage.base.config import LogConfig
from storage.base.names import FileName, FileRole, FileState, parse_file_name
from storage.base.refusals import LogUnusable
from storage.base.units import Offset
from storage.disk.fs import FileKind, FileStat, Fs
from storage.disk.second_names import replace_by_copy
from storage.segment.segment import LogSegment
from storage.segment.segment_types import SegmentLimits

_WRITTEN: Final = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)
"""What grows in the last segment of a log."""
_REMOVED: Final = (FileState.DELETED, FileState.CLEANED)
"""Files that no broker reads any more, or not yet."""


class Found(NamedTuple):
    """The segments of a log, at least one, and the end offsets of its snapshots."""

    segments: list[LogSegment]
    snapshots: list[int]


def segment_limits(config: LogConfig) -> SegmentLimits:
    """Return how large segments and indexes get with these settings."""
    return SegmentLimits(config.index_interval_bytes, config.segment_index_bytes)


def open_segments(
    fs: Fs,
    directory: PurePath,
    limits: SegmentLimits,
    now_ms: int,
    log_start: Offset,
    jitter: Callable[[], int],
) -> Found:
    """Open every segment in the directory; without any, make one at `log_start`.

    Files that end in `.deleted` or `.cleaned` are removed. A file of the last segment with a second name, maybe that of
    a backup, becomes a copy, as it is about to be written.

    Raises `LogUnusable` if a compaction was cut off, or an index has no log: recovery has to run first.
    """
    listing = fs.entries(directory)
    names = [name for name in map(parse_file_name, _plain(listing)) if name is not None]
    for name in names:
        if name.state is FileState.SWAP:
            raise LogUnusable(f"{directory / name.name}: a replacement that was cut off; recovery has to run first")
    for name in names:
        if name.state in _REMOVED and name.role is not FileRole.METADATA_SNAPSHOT:
            fs.remove(directory / name.name)
    bases = _numbers(names, FileRole.LOG)
    for name in names:
        stat = listing[name.name]
        if bases and name.base_offset == bases[-1] and name.role in _WRITTEN and stat.links > 1:
            replace_by_copy(fs, directory / name.name, stat, stat.size)
    segments = [
        LogSegment.open(fs, directory, base, limits, now_ms, listing=listing, jitter_ms=jitter()) for base in bases
    ]
    if not segments:
        segments.append(LogSegment.create(fs, directory, log_start, limits, now_ms, jitter_ms=jitter()))
    return Found(segments, [int(offset) for offset in _numbers(names, FileRole.SNAPSHOT)])


def _plain(listing: dict[str, FileStat]) -> list[str]:
    return [name for name, stat in listing.items() if stat.kind is FileKind.FILE]


def _numbers(names: list[FileName], role: FileRole) -> list[Offset]:
    found = [name for name in names if name.role is role and name.state is FileState.LIVE and name.is_canonical]
    return sorted(name.base_offset for name in found if name.base_offset is not None)
