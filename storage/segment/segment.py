"""LogSegment: the files of one base offset, for appending at the end, reading anywhere and cutting back.

Which bytes belong in a log, and when they must be durable, is decided by `storage.log` and by compaction.
Source: Apache Kafka 4.3.0, LogSegment, FileRecords.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final, TypeVar

from storage.base.names import FileRole, FileState, segment_file_name
from storage.base.rows import Data
from storage.base.units import INT32_MAX, Offset, TimestampMs
from storage.disk.fs import FileStat, Fs, OsReadFile, ReadFile
from storage.index.index_file import NAMES
from storage.index.indexes import TimeEntry
from storage.index.txn_index import AbortedTxn
from storage.reading.segment_walk import BatchPlace, first_batch_reaching, walk_places
from storage.segment.log_file import LogFile
from storage.segment.segment_indexes import INDEX_ROLES, SegmentIndexes
from storage.segment.segment_types import EndNumbers, SegmentLimits

T = TypeVar("T", bound=tuple[int, int])
ROLES: Final = (FileRole.LOG, *INDEX_ROLES)
"""The files of a segment in the order in which they are renamed: a `.log` never stays behind without its indexes."""


class LogSegment:
    """A `.log` with its indexes. `open` or `create` it; `close` closes the files and does nothing else.

    One thread may append, flush, truncate, seal and rename; others may read at the same time: what was appended whole
    lies below `size`. What is not flushed may be lost in a crash, in any part; what is flushed is durable, and so is
    the name of the files once the caller has synced the directory.
    """

    __slots__ = (
        "_first_timestamp", "_largest", "_log", "_unindexed_bytes", "base_offset", "created_ms", "directory",
        "indexes", "jitter_ms", "limits", "state",
    )  # fmt: skip

    def __init__(
        self,
        fs: Fs,
        directory: PurePath,
        base_offset: Offset,
        limits: SegmentLimits,
        created_ms: int,
        *,
        state: FileState = FileState.LIVE,
        jitter_ms: int = 0,
        listing: Mapping[str, FileStat] | None = None,
    ) -> None:
        """For `create` and `open` alone; `listing` is that of the directory, None for a segment without files."""
        self.directory, self.base_offset, self.state = directory, base_offset, state
        self.limits, self.created_ms, self.jitter_ms = limits, created_ms, jitter_ms
        path = self.path(FileRole.LOG)
        log = self._log = LogFile(fs, path, 0 if listing is None else listing[path.name].size)
        self.indexes = SegmentIndexes(fs, self.path, base_offset, limits, listing or {}, lambda: log.size)
        self._largest: tuple[int, int] | None = (-1, base_offset) if listing is None else None
        self._first_timestamp: int | None = None
        self._unindexed_bytes = 0

    @classmethod
    def create(
        cls,
        fs: Fs,
        directory: PurePath,
        base_offset: Offset,
        limits: SegmentLimits,
        now_ms: int,
        *,
        state: FileState = FileState.LIVE,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """Create the empty `.log` of a new segment, which must not exist; its indexes come with the first flush."""
        segment = cls(fs, directory, base_offset, limits, now_ms, state=state, jitter_ms=jitter_ms)
        segment._log.create()
        return segment

    @classmethod
    def open(
        cls,
        fs: Fs,
        directory: PurePath,
        base_offset: Offset,
        limits: SegmentLimits,
        now_ms: int,
        *,
        listing: dict[str, FileStat],
        state: FileState = FileState.LIVE,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """Return the segment whose files `listing`, that of the directory, has; nothing is read yet.

        `now_ms` counts as the time of its creation. Raises `ReadFault`.
        """
        return cls(fs, directory, base_offset, limits, now_ms, state=state, jitter_ms=jitter_ms, listing=listing)

    def __repr__(self) -> str:
        return f"LogSegment({self.path(FileRole.LOG).name}, {self.size} bytes)"

    def path(self, role: FileRole) -> PurePath:
        """Return the path of the file of this role, whether it exists or not."""
        return self.directory / segment_file_name(self.base_offset, role, self.state)

    @property
    def size(self) -> int:
        """Bytes of the `.log` that were appended whole."""
        return self._log.size

    # ---- appending

    def append(self, data: Data, batches: Iterable[EndNumbers]) -> None:
        """Write whole batches at the end, `batches` saying what each of them is.

        An index entry is due for each batch that begins more than `index_interval_bytes` behind the last indexed one;
        it has the batch's last offset, which the caller has seen to be in range and above all others. A failed write,
        which is raised, leaves the segment as it was; where it cannot be cut back, `LogUnusable` is raised instead.
        Many small batches in one append can fill an index, which only makes it sparse: look-ups stay right.
        """
        log, indexes, interval = self._log, self.indexes, self.limits.index_interval_bytes
        log.append(data)
        position, largest, waiting = log.size, self._largest or self.largest(), self._unindexed_bytes
        for last_offset, timestamp, size in batches:
            if timestamp > largest[0]:
                largest = self._largest = timestamp, last_offset
            if not position and self._first_timestamp is None:
                self._first_timestamp = timestamp
            if waiting > interval and not indexes.is_full:
                indexes.offsets.append(last_offset, position)
                indexes.times.append(*largest)
                waiting = 0
            waiting += size
            position += size
        self._unindexed_bytes = waiting
        log.size = position

    def append_aborted(self, transaction: AbortedTxn) -> None:
        """Add a transaction whose ABORT marker has just been appended."""
        self.indexes.transactions.append(transaction)

    def can_hold(self, last_offset: int) -> bool:
        """Tell whether an offset is in the range of the indexes, 0 to 2147483647 above the base offset."""
        return 0 <= last_offset - self.base_offset <= INT32_MAX

    def should_roll(self, added: int, last_offset: int, max_timestamp: int, now_ms: int, *,
                    max_bytes: int, max_ms: int) -> bool:  # fmt: skip
        """Tell whether a new segment must begin before `added` bytes that end with `last_offset`.

        Because of the size, of the age in message time (the clock where the first batch has no timestamp), of a full
        index, or of an offset that is out of range.
        """
        size = self._log.size
        if size > max_bytes - added or self.indexes.is_full or not 0 <= last_offset - self.base_offset <= INT32_MAX:
            return True
        if not size:
            return False
        first = self._first_timestamp
        waited = max_timestamp - first if first is not None and first >= 0 else self.waited_ms(max_timestamp, now_ms)
        return waited > max_ms - self.jitter_ms

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return how old the segment is when a batch of `max_timestamp` comes: ms, below 0 if time goes backwards."""
        if self._first_timestamp is None:
            self._first_timestamp = self.first_timestamp()
        first = self._first_timestamp
        return max_timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms

    # ---- reading

    def reader(self) -> ReadFile:
        """Return the `.log`, open for reading at any position; it is shared, and closed with the segment."""
        return self._log.reader()

    def batches(self, start: int = 0) -> Iterator[BatchPlace]:
        """Yield the batches from position `start`, a batch border, to the end, by their headers.

        Raises `BatchCorrupt` at a header that cannot be followed, and `ReadFault`.
        """
        return walk_places(self._log.reader(), start, self._log.size)

    def find(self, offset: Offset) -> BatchPlace | None:
        """Return the first batch whose last offset is `offset` or more, None if there is none in this segment."""
        reader, index = self._log.reader(), self.indexes.offsets
        if isinstance(reader, OsReadFile):
            match = reader.seek_offset(index.data, self.base_offset, self.size, offset, BatchPlace)
            if match is not None:
                return match
        return first_batch_reaching(reader, index.position_for(offset), self.size, offset)

    def find_record(self, timestamp: int, log_start: int, kind: type[T]) -> T | None:
        """Return timestamp and offset of the first record from both on, None where decoding has to tell."""
        reader = self._log.reader()
        if not isinstance(reader, OsReadFile):
            return None
        times, offsets = self.indexes.times.data, self.indexes.offsets.data
        return reader.seek_time(times, offsets, self.base_offset, self.size, timestamp, log_start, kind)

    def read_next_offset(self) -> Offset:
        """Return the offset behind the last batch, by its header; the base offset of an empty segment."""
        next_offset = self.base_offset
        for batch in self.batches(self.indexes.offsets.last().position):
            next_offset = Offset(batch.last_offset + 1)
        return next_offset

    def first_timestamp(self) -> int | None:
        """Return the largest timestamp of the first batch, by its header; None for an empty segment."""
        batch = next(self.batches(), None) if self.size else None
        return None if batch is None else batch.max_timestamp

    def largest(self) -> TimeEntry:
        """Return the largest timestamp, with the last offset of the first batch that has it; (-1, base offset) without.

        Of an opened segment as its time index knows it.
        """
        if self._largest is None:
            self._largest = self.indexes.times.last()
        timestamp, offset = self._largest
        return TimeEntry(TimestampMs(timestamp), Offset(offset))

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp; without one the modification time of the `.log`, as a broker does."""
        timestamp = self.largest().timestamp
        return timestamp if timestamp >= 0 else self._log.modified_ms()

    # ---- changing

    def seal(self) -> None:
        """Add the entry that closes the time index: the largest timestamp of all. Harmless if done before."""
        self.indexes.times.append(*self.largest())

    def flush(self) -> None:
        """Make all that was appended durable: the log first, then what points into it; the directory is not.

        Raises `WriteFault`; after one from a sync nothing of this segment may be relied on, and no sync repeated.
        """
        self._log.sync()
        self.indexes.write()
        self.indexes.sync()

    def sync_log(self) -> None:
        """Make the batches durable, and nothing else; raises as `flush` does."""
        self._log.sync()

    def truncate_to(self, offset: Offset, now_ms: int) -> int:
        """Cut off the first batch that reaches `offset` and all behind it, without a sync; return the bytes cut off."""
        batch, before = self.find(offset), self.size
        end = before if batch is None else batch.position
        self.indexes.truncate(offset)
        self._log.truncate(end)
        if not end:
            self.created_ms, self._first_timestamp = now_ms, None
        self._unindexed_bytes = 0
        if self.largest().timestamp >= 0:
            self._largest = self._read_largest()
        return before - end

    def _read_largest(self) -> tuple[int, int]:
        """Return the last time entry, or what a batch behind it has if that is larger."""
        entry = self.indexes.times.last()
        largest: tuple[int, int] = entry
        for batch in self.batches(self.indexes.offsets.position_for(entry.offset)):
            if batch.max_timestamp > largest[0]:
                largest = batch.max_timestamp, batch.last_offset
        return largest

    def rename(self, state: FileState) -> None:
        """Give all files the suffix of another state, the `.log` first, without a sync. What is open stays usable."""
        with NAMES:
            self.state = state
            self._log.rename(self.path(FileRole.LOG))
            self.indexes.rename(self.path)

    def paths(self) -> list[PurePath]:
        """Return the paths of the files that exist."""
        return [self.path(role) for role in ROLES if role is FileRole.LOG or self.indexes.has_file(role)]

    def remove(self) -> None:
        """Remove all files, the `.log` first."""
        self.close()
        self._log.remove()
        self.indexes.remove()

    def close_for_writing(self) -> None:
        """Close what is open for writing, which a closed segment no longer needs; readers go on."""
        self._log.close_for_writing()
        self.indexes.close()

    def close(self) -> None:
        """Close the files; nothing is written or synced. It may be read, and appended to, again."""
        self._log.close()
        self.indexes.close()
