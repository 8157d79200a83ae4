"""LogSegment: the files of one base offset, for appending at the end, reading anywhere and cutting back.

It does what it is told: which bytes belong in a log, and when they must be durable, is for `storage.log.log` and for
compaction to say. Source: Apache Kafka 4.3.0, LogSegment, FileRecords.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final, TypeVar

from storage.base.errors import EnvironmentFault
from storage.base.names import FileRole, FileState, segment_file_name
from storage.base.refusals import LogUnusable
from storage.base.units import INT32_MAX, Offset, Position, TimestampMs
from storage.disk.fs import FileStat, Fs, ReadFile, WriteFile
from storage.index.index_file import NAMES, IndexFile
from storage.index.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexKind,
    OffsetEntry,
    TimeEntry,
    look_up_offset,
    look_up_timestamp,
    truncate_to,
    used_length,
)
from storage.index.txn_index import ENTRY as TXN_ENTRY
from storage.index.txn_index import Aborted, AbortedTxn, collect_aborted, decode_txn_index, encode_txn_index, size_below
from storage.kernel.rows import Data
from storage.reading.segment_walk import BatchPlace, first_batch_reaching, walk_places
from storage.segment.segment_types import EndNumbers, SegmentLimits

T = TypeVar("T", bound=tuple[int, int])
ROLES: Final = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)
"""The files of a segment in the order in which they are renamed: a `.log` never stays behind without its indexes."""


class LogSegment:
    """The files of one base offset. `open` or `create` it; `close` lets go of the files and nothing else.

    One thread may append, flush, truncate, seal and rename; others may read at the same time: what was appended whole
    lies below `size`. What is not flushed may be lost in a crash, in any part; what is flushed is durable, and so is
    the name of the files once the directory was synced, which is left to the caller.
    """

    __slots__ = (
        "_first_timestamp", "_fs", "_largest", "_largest_known", "_last_time", "_log_dirty", "_offset_room", "_out",
        "_reader", "_time_room", "_txns", "_unindexed_bytes", "base_offset", "created_ms", "directory", "jitter_ms",
        "limits", "offset_index", "size", "state", "time_index", "txn_index",
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
        self._fs = fs
        self.directory, self.base_offset, self.state = directory, base_offset, state
        self.limits, self.created_ms, self.jitter_ms = limits, created_ms, jitter_ms
        self.size = 0
        self._largest = -1, int(base_offset)
        self._largest_known = True
        self._first_timestamp: int | None = None
        self._unindexed_bytes = 0
        # What every append asks of the indexes, None until it was worked out.
        self._offset_room: int | None = None
        self._time_room = 0
        self._last_time: int | None = None
        self._out: WriteFile | None = None
        self._reader: ReadFile | None = None
        self._txns: list[AbortedTxn] | None = None
        self._log_dirty = True
        self._use_indexes(listing or {})

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
        """Make the empty `.log` of a new segment; its indexes come with the first flush. No such file may be there."""
        made = cls(fs, directory, base_offset, limits, now_ms, state=state, jitter_ms=jitter_ms)
        made._out = fs.create(made.path(FileRole.LOG))
        return made

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
        """Take a segment as it lies in its directory, of which `listing` are the entries; nothing is read yet.

        `now_ms` counts as the time of its creation. Raises `ReadFault`.
        """
        found = cls(fs, directory, base_offset, limits, now_ms, state=state, jitter_ms=jitter_ms, listing=listing)
        found.size = listing[found.path(FileRole.LOG).name].size
        found._largest_known = False
        return found

    def _use_indexes(self, listing: Mapping[str, FileStat]) -> None:
        def index(role: FileRole, usable: object) -> IndexFile:
            path = self.path(role)
            size = listing[path.name].size if path.name in listing else None
            return IndexFile(self._fs, path, usable, size)  # type: ignore[arg-type]

        self.offset_index = index(FileRole.INDEX, lambda data: used_length(data, IndexKind.OFFSET, self.size))
        self.time_index = index(FileRole.TIME_INDEX, lambda data: used_length(data, IndexKind.TIME))
        self.txn_index = index(FileRole.TXN_INDEX, lambda data: len(data) // TXN_ENTRY.size * TXN_ENTRY.size)

    def __repr__(self) -> str:
        return f"LogSegment({self.path(FileRole.LOG).name}, {self.size} bytes)"

    def path(self, role: FileRole) -> PurePath:
        """Return where the file of this role is, or would be."""
        return self.directory / segment_file_name(self.base_offset, role, self.state)

    # ---- appending

    def append(self, data: Data, batches: Iterable[EndNumbers]) -> None:
        """Write whole batches at the end, `batches` saying what each of them is.

        An index entry is due for each batch that begins more than `index_interval_bytes` behind the last indexed one;
        it has the batch's last offset, which the caller has seen to be in range and above all others. A failed write,
        which is raised, leaves the segment as it was; where it cannot be cut back, `LogUnusable` is raised instead.
        """
        position = self.size
        out = self._out if self._out is not None else self._open_out()
        self._log_dirty = True
        try:
            out.append(data)
        except EnvironmentFault as fault:
            self._cut_back(position, fault)
            raise
        if not self._largest_known:
            self._load_largest()
        largest, waiting, interval = self._largest[0], self._unindexed_bytes, self.limits.index_interval_bytes
        for last_offset, timestamp, size in batches:
            if timestamp > largest:
                largest = timestamp
                self._largest = timestamp, last_offset
            if not position and self._first_timestamp is None:
                self._first_timestamp = timestamp
            if waiting > interval and self._enter(last_offset, position):
                waiting = 0
            waiting += size
            position += size
        self._unindexed_bytes = waiting
        self.size = position

    def _cut_back(self, size: int, fault: EnvironmentFault) -> None:
        try:
            self._fs.truncate(self.path(FileRole.LOG), size)
        except EnvironmentFault:
            raise LogUnusable(f"{self.path(FileRole.LOG)}: {fault}; what was written of it stays") from fault

    def _open_out(self) -> WriteFile:
        self._out = self._fs.open_append(self.path(FileRole.LOG))
        return self._out

    def _enter(self, last_offset: int, position: int) -> bool:
        """Add the batch to the indexes; false if they are full.

        Many small batches in one append can make them so, which only makes them sparse: look-ups stay right.
        """
        if self.is_index_full:
            return False
        self.offset_index.append(OFFSET_ENTRY.pack(last_offset - self.base_offset, position))
        self._offset_room = (self._offset_room or 0) - 1
        if self._last_time is None or self._largest[0] > self._last_time:
            self._append_time()
        return True

    def _append_time(self) -> None:
        """Add the largest timestamp so far to the time index if it is larger than the last one there."""
        timestamp, offset = self._load_largest()
        if self._last_time is None:
            self._last_time = self.last_time_entry().timestamp
        if timestamp > self._last_time:
            self.time_index.append(TIME_ENTRY.pack(timestamp, offset - self.base_offset))
            self._last_time = timestamp
            self._time_room -= 1

    def append_aborted(self, transaction: AbortedTxn) -> None:
        """Add a transaction whose ABORT marker has just been appended."""
        self.transactions().append(transaction)
        self.txn_index.append(encode_txn_index([transaction]))

    @property
    def is_index_full(self) -> bool:
        """Whether one of the indexes takes no entry any more."""
        if self._offset_room is None:
            self._offset_room = self.limits.offset_entries - len(self.offset_index.data) // OFFSET_ENTRY.size
            self._time_room = self.limits.time_entries - len(self.time_index.data) // TIME_ENTRY.size
        return self._offset_room <= 0 or self._time_room <= 0

    def can_hold(self, last_offset: int) -> bool:
        """Tell whether an offset is in the range of the indexes, 0 to 2147483647 above the base offset."""
        return 0 <= last_offset - self.base_offset <= INT32_MAX

    def should_roll(self, added: int, last_offset: int, max_timestamp: int, now_ms: int, *,
                    max_bytes: int, max_ms: int) -> bool:  # fmt: skip
        """Tell whether a new segment must begin before `added` bytes that end with `last_offset`.

        Because of the size, of the age in message time (the clock where the first batch has no timestamp), of a full
        index, or of an offset that is out of range.
        """
        if self.size > max_bytes - added or self.is_index_full or not 0 <= last_offset - self.base_offset <= INT32_MAX:
            return True
        if not self.size:
            return False
        first = self._first_timestamp
        waited = max_timestamp - first if first is not None and first >= 0 else self.waited_ms(max_timestamp, now_ms)
        return waited > max_ms - self.jitter_ms

    def waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """Return how old the segment is when a batch of `max_timestamp` comes: ms, below 0 if time goes backwards."""
        first = self._first_batch_timestamp()
        return max_timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms

    def _first_batch_timestamp(self) -> int | None:
        if self._first_timestamp is None and self.size:
            place = next(walk_places(self.reader(), 0, self.size), None)
            self._first_timestamp = None if place is None else place.max_timestamp
        return self._first_timestamp

    # ---- reading

    def reader(self) -> ReadFile:
        """Return the `.log`, open for reading at any position; it is shared, and closed with the segment."""
        reader = self._reader
        if reader is None:
            with NAMES:
                reader = self._reader = self._reader or self._fs.open_read(self.path(FileRole.LOG))
        return reader

    def find(self, offset: Offset) -> BatchPlace | None:
        """Return the first batch whose last offset is `offset` or more, None if there is none in this segment."""
        reader, index = self._reader or self.reader(), self.offset_index.data
        quick = getattr(reader, "seek_offset", None)
        if quick is not None:
            found: BatchPlace | None = quick(index, self.base_offset, self.size, offset, BatchPlace)
            if found is not None:
                return found
        start = look_up_offset(index, self.base_offset, offset).position
        return first_batch_reaching(reader, start, self.size, offset)

    def offset_behind(self, position: int) -> Offset | None:
        """Return the offset of the first index entry at `position` or behind it, None if there is none."""
        data = self.offset_index.data
        count = len(data) // OFFSET_ENTRY.size
        low = bisect_left(
            range(count), position, key=lambda n: OFFSET_ENTRY.unpack_from(data, n * OFFSET_ENTRY.size)[1]
        )
        if low == count:
            return None
        return Offset(self.base_offset + OFFSET_ENTRY.unpack_from(data, low * OFFSET_ENTRY.size)[0])

    def position_for(self, offset: Offset) -> Position:
        """Return a position at which a search for the batch of `offset` may begin."""
        return look_up_offset(self.offset_index.data, self.base_offset, offset).position

    def find_record(self, timestamp: int, log_start: int, kind: type[T]) -> T | None:
        """Return timestamp and offset of the first record from both on, None where a closer look has to tell."""
        reader = self._reader or self.reader()
        quick = getattr(reader, "seek_time", None)
        if quick is None:
            return None
        times, offsets = self.time_index.data, self.offset_index.data
        found: T | None = quick(times, offsets, self.base_offset, self.size, timestamp, log_start, kind)
        return found

    def look_up_timestamp(self, target: TimestampMs) -> TimeEntry:
        """Return the last entry with a timestamp up to `target`; without one, (-1, base offset)."""
        return look_up_timestamp(self.time_index.data, self.base_offset, target)

    def transactions(self) -> list[AbortedTxn]:
        """Return the entries of the transaction index; not to be changed."""
        if self._txns is None:
            self._txns = decode_txn_index(bytes(self.txn_index.data))
        return self._txns

    def collect_aborted(self, start: Offset, end: Offset) -> Aborted:
        """Return the aborted transactions that matter to a read of the offsets from `start` up to below `end`."""
        return collect_aborted(self.transactions(), start, end)

    def _load_largest(self) -> tuple[int, int]:
        if not self._largest_known:
            entry = self.last_time_entry()
            self._largest, self._largest_known = (entry.timestamp, entry.offset), True
        return self._largest

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a batch, -1 if none has one; of an opened segment as its time index knows it."""
        return self._load_largest()[0]

    @property
    def max_timestamp_offset(self) -> Offset:
        """The last offset of the first batch with that timestamp; without one, the base offset."""
        return Offset(self._load_largest()[1])

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp, where there is none the modification time of the `.log`, as a broker does."""
        largest = self._largest[0] if self._largest_known else self.max_timestamp
        if largest >= 0:
            return largest
        return self._fs.stat(self.path(FileRole.LOG)).mtime_ns // 1_000_000

    def last_time_entry(self) -> TimeEntry:
        """Return the last entry of the time index, (-1, base offset) if it has none."""
        data = self.time_index.data
        if not data:
            return TimeEntry(TimestampMs(-1), self.base_offset)
        timestamp, relative = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY.size)
        return TimeEntry(TimestampMs(timestamp), Offset(self.base_offset + relative))

    def last_index_entry(self) -> OffsetEntry:
        """Return the last entry of the offset index, (base offset, 0) if it has none."""
        data = self.offset_index.data
        if not data:
            return OffsetEntry(self.base_offset, Position(0))
        relative, position = OFFSET_ENTRY.unpack_from(data, len(data) - OFFSET_ENTRY.size)
        return OffsetEntry(Offset(self.base_offset + relative), Position(position))

    def read_next_offset(self) -> Offset:
        """Return the offset behind the last batch, by its header; the base offset of an empty segment."""
        next_offset = self.base_offset
        for place in walk_places(self.reader(), self.last_index_entry().position, self.size):
            next_offset = Offset(place.last_offset + 1)
        return next_offset

    # ---- changing

    def seal(self) -> None:
        """Add the entry that closes the time index: the largest timestamp of all. Harmless if done before."""
        self._append_time()

    def flush(self) -> None:
        """Make all that was appended durable: the log first, then what points into it; the directory is not.

        Raises `WriteFault`; after one from a sync nothing of this segment may be relied on, and no sync repeated.
        """
        self.sync_log()
        self.write_indexes()
        for index in self._indexes():
            index.sync()

    def sync_log(self) -> None:
        """Make the batches durable, and nothing else; raises as `flush` does."""
        if self._log_dirty:
            if self._out is not None:
                self._out.sync()
            else:
                self._fs.sync_file(self.path(FileRole.LOG))
            self._log_dirty = False

    def write_indexes(self) -> None:
        """Bring the index files up to the entries; a transaction index without entries gets no file."""
        for index in self._indexes():
            index.write()

    def _indexes(self) -> tuple[IndexFile, ...]:
        both = self.offset_index, self.time_index
        return (*both, self.txn_index) if self.txn_index.exists or self.txn_index.size else both

    def truncate_to(self, offset: Offset, now_ms: int) -> int:
        """Cut off the first batch that reaches `offset` and all behind it, without a sync; return the bytes cut off."""
        place = self.find(offset)
        kept = self.size if place is None else place.position
        base = self.base_offset
        self.offset_index.truncate(truncate_to(self.offset_index.data, IndexKind.OFFSET, base, offset))
        self.time_index.truncate(truncate_to(self.time_index.data, IndexKind.TIME, base, offset))
        self.txn_index.truncate(size_below(self.transactions(), offset))
        self._txns = self._offset_room = self._last_time = None
        cut, self.size = self.size - kept, kept
        if cut:
            self._fs.truncate(self.path(FileRole.LOG), kept)
            self._log_dirty = True
        if not kept:
            self.created_ms, self._first_timestamp = now_ms, None
        self._unindexed_bytes = 0
        if self._load_largest()[0] >= 0:
            self._read_largest_timestamp()
        return cut

    def _read_largest_timestamp(self) -> None:
        """Find the largest timestamp: that of the last time entry, unless a batch behind it has a larger one."""
        entry = self.last_time_entry()
        self._largest = entry.timestamp, entry.offset
        for place in walk_places(self.reader(), self.position_for(entry.offset), self.size):
            if place.max_timestamp > self._largest[0]:
                self._largest = place.max_timestamp, place.last_offset

    def rename(self, state: FileState) -> None:
        """Give all files the suffix of another state, the `.log` first, without a sync. What is open stays usable."""
        with NAMES:
            source = self.path(FileRole.LOG)
            self.state = state
            self._fs.rename(source, self.path(FileRole.LOG))
            for role, index in zip(ROLES[1:], (self.offset_index, self.time_index, self.txn_index), strict=True):
                index.rename(self.path(role))

    def remove(self) -> None:
        """Take all files away, the `.log` first."""
        self.close()
        self._fs.remove(self.path(FileRole.LOG))
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.remove()

    def has_file(self, role: FileRole) -> bool:
        """Tell whether there is a file of this role."""
        index = {
            FileRole.INDEX: self.offset_index, FileRole.TIME_INDEX: self.time_index, FileRole.TXN_INDEX: self.txn_index,
        }.get(role)  # fmt: skip
        return index is None or index.exists

    def close_for_writing(self) -> None:
        """Let go of what is open for writing, which a closed segment no longer needs; readers go on."""
        out, self._out = self._out, None
        for file in (out, *self._indexes()):
            if file is not None:
                file.close()

    def forget_indexes(self) -> None:
        """Give back the memory of the indexes where the files hold all of them; for segments not read for a while."""
        self.offset_index.forget()
        self.time_index.forget()
        if self.txn_index.exists:
            self.txn_index.forget()
            self._txns = None

    def close(self) -> None:
        """Let go of the files; nothing is written or synced. It may be read, and appended to, again."""
        out, self._out = self._out, None
        reader, self._reader = self._reader, None
        for file in (out, reader, self.offset_index, self.time_index, self.txn_index):
            if file is not None:
                file.close()
