"""Reads the log of a partition as its files are: nothing is locked, recovered or changed.

Each `refresh` finds the log end again. A log that is being written to may end in half a batch, which is not seen until
it is whole; a file that was removed meanwhile is listed again. What a crash left behind the last batch, and an index
that does not fit the log, are left out.
"""

from __future__ import annotations

import contextlib
from pathlib import PurePath
from typing import Final, cast

from checkpoint.offsets import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from engine.client.view_producers import ViewedProducers
from storage.base.errors import BatchCorrupt, CorruptData, EnvironmentFault, printable
from storage.base.names import FileRole, FileState, parse_directory_name, parse_file_name
from storage.base.refusals import OffsetOutOfRange
from storage.base.units import Offset
from storage.disk.fs import FileKind, FileStat, Fs, ReadFs
from storage.log.log_read import fetch, find_by_time
from storage.log.log_types import Fetched, Isolation, TimestampOffset
from storage.segment.segment import LogSegment
from storage.segment.segment_list import SegmentList
from storage.segment.segment_types import SegmentLimits

_LIMITS: Final = SegmentLimits()  # only for appending
_PREFIX_BYTES: Final = 17  # up to the magic byte


class LogView:
    """The log in a directory as it looked at the last `refresh`. One thread at a time."""

    def __init__(self, fs: ReadFs, directory: PurePath) -> None:
        """Look at it once. Raises `ReadFault`."""
        self._fs, self.directory = fs, directory
        self._segments = SegmentList()
        self._log_start = self._checkpointed(LOG_START_OFFSETS)
        self.log_start = self.log_end = Offset(0)
        self.damage = ""
        """Why the log ends before its last file does, empty where it does not."""
        self._producers: ViewedProducers | None = None
        self.refresh()

    def _checkpointed(self, name: str) -> Offset:
        with contextlib.suppress(CorruptData, EnvironmentFault):
            found = read_offsets(self._fs, self.directory.parent / name)
            return found.get(parse_directory_name(self.directory.name).partition, Offset(0))
        return Offset(0)

    def refresh(self) -> None:
        """Look at the files again. Raises `ReadFault`."""
        listing = self._fs.entries(self.directory)
        names = [parse_file_name(name) for name, stat in listing.items() if stat.kind is FileKind.FILE]
        bases = [
            name.base_offset for name in names
            if name is not None and name.role is FileRole.LOG and name.state is FileState.LIVE and name.is_canonical
        ]  # fmt: skip
        # Segments are only read from; what they can do besides is never asked of them.
        fs = cast("Fs", self._fs)
        self.close()
        self._segments = SegmentList(
            LogSegment.open(fs, self.directory, base, _LIMITS, 0, listing=listing) for base in bases if base is not None
        )
        if not self._segments.all:
            self.log_start = self.log_end = self._log_start
            return
        self._forget_a_wrong_index(fs, listing)
        self._find_end()
        self.log_start = min(max(self._log_start, self._segments.all[0].base_offset), self.log_end)

    def _forget_a_wrong_index(self, fs: Fs, listing: dict[str, FileStat]) -> None:
        """Look into the newest segment without its indexes if their last entry is not where its batch is."""
        active = self._segments.active
        last = active.indexes.offsets.last()
        if not last.position:
            return
        with contextlib.suppress(BatchCorrupt):
            batch = next(active.batches(last.position), None) if last.position < active.size else None
            if batch is not None and batch.last_offset == last.offset:
                return
        active.close()
        log = active.path(FileRole.LOG).name
        bare = LogSegment.open(fs, self.directory, active.base_offset, _LIMITS, 0, listing={log: listing[log]})
        self._segments = SegmentList([*self._segments.all[:-1], bare])

    def _find_end(self) -> None:
        """Set the log end behind the last batch that can be followed, and why it is not at the end of the file."""
        active = self._segments.active
        self.log_end, self.damage = active.base_offset, ""
        try:
            for batch in active.batches(active.indexes.offsets.last().position):
                self.log_end = Offset(batch.last_offset + 1)
        except BatchCorrupt as fault:
            at = fault.position or 0
            header = memoryview(bytearray(_PREFIX_BYTES))
            if any(header[: active.reader().read_into(at, header)]):  # zeros are the room of a preallocated log
                self.damage = f"{printable(active.path(FileRole.LOG))}: no batch at position {at}: {fault.reason}"

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, oldest first; only to be read from, until the next `refresh`."""
        return self._segments.all

    def producers(self) -> ViewedProducers:
        """Return what is known of the producers at the log end. Raises `BatchCorrupt` and `ReadFault`."""
        viewed = self._producers
        if viewed is None or viewed.state.map_end_offset > self.log_end:  # the log was cut meanwhile
            flushed = self._checkpointed(RECOVERY_POINTS)
            viewed = self._producers = ViewedProducers(self._fs, self.directory, self.log_start, flushed)
        viewed.follow(self.segments, self.log_end)
        return viewed

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset that is not decided yet: that of the earliest open transaction, else the log end."""
        return max(self.producers().state.last_stable_offset(self.log_end), self.log_start)

    def read(self, start: Offset, max_bytes: int, *, isolation: Isolation = Isolation.LOG_END) -> Fetched:
        """Return a range of a file with the batches from `start` on, as `Log.read` does; all counts as replicated."""
        if not self.log_start <= start <= self.log_end:
            raise OffsetOutOfRange(
                f"offset {start}; the log has those from {self.log_start} up to below {self.log_end}"
            )
        end = self.log_end
        if isolation is not Isolation.COMMITTED:
            return fetch(self._segments, start, max_bytes, bound=None, end=end, min_one=True)
        bound = self.last_stable_offset
        found = fetch(self._segments, start, max_bytes, bound=bound, end=end, min_one=True, with_aborted=True)
        recent = [each for each in self.producers().aborted if each.last_offset >= start]
        return found._replace(aborted=tuple({*(found.aborted or ()), *recent}))

    def offset_for_time(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record of at least this timestamp, as `Log.offset_for_time` does."""
        return find_by_time(self._segments, self.log_start, self.log_end, timestamp)

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.close()
