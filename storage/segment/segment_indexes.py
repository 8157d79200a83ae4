"""SegmentIndexes: the offset index, the time index and the transaction index of one segment.

Source: Apache Kafka 4.3.0, OffsetIndex, TimeIndex, TransactionIndex.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import PurePath

from storage.base.names import FileRole
from storage.base.units import Offset, Position, TimestampMs
from storage.disk.fs import FileStat, Fs
from storage.index.index_file import IndexFile
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
from storage.segment.segment_types import SegmentLimits

INDEX_ROLES = (FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)


class OffsetIndex:
    """Entries of offset and position, at most `capacity`. `room`: how many more, None until `count_room` tells."""

    __slots__ = ("_base", "_capacity", "file", "room")

    def __init__(self, file: IndexFile, base_offset: Offset, capacity: int) -> None:
        self.file, self._base, self._capacity = file, base_offset, capacity
        self.room: int | None = None

    @property
    def data(self) -> bytearray:
        """The entries as in the file."""
        return self.file.data

    def count_room(self) -> int:
        """Return how many more entries it takes."""
        self.room = room = self._capacity - len(self.data) // OFFSET_ENTRY.size
        return room

    def append(self, offset: int, position: int) -> None:
        """Add an entry, if it is not full."""
        self.file.append(OFFSET_ENTRY.pack(offset - self._base, position))
        if self.room is not None:
            self.room -= 1

    def last(self) -> OffsetEntry:
        """Return the last entry, (base offset, 0) without one."""
        data = self.data
        if not data:
            return OffsetEntry(self._base, Position(0))
        relative, position = OFFSET_ENTRY.unpack_from(data, len(data) - OFFSET_ENTRY.size)
        return OffsetEntry(Offset(self._base + relative), Position(position))

    def position_for(self, offset: Offset) -> Position:
        """Return a position at which a search for the batch of `offset` may begin."""
        return look_up_offset(self.data, self._base, offset).position

    def offset_behind(self, position: int) -> Offset | None:
        """Return the offset of the first entry at `position` or behind it, None if there is none."""
        data = self.data
        count = len(data) // OFFSET_ENTRY.size
        low = bisect_left(
            range(count), position, key=lambda n: OFFSET_ENTRY.unpack_from(data, n * OFFSET_ENTRY.size)[1]
        )
        if low == count:
            return None
        return Offset(self._base + OFFSET_ENTRY.unpack_from(data, low * OFFSET_ENTRY.size)[0])

    def truncate(self, offset: Offset) -> None:
        """Drop the entries from `offset` on."""
        self.file.truncate(truncate_to(self.data, IndexKind.OFFSET, self._base, offset))
        self.room = None


class TimeIndex:
    """Entries of timestamp and offset, both rising, at most `capacity`; `room` as in `OffsetIndex`."""

    __slots__ = ("_base", "_capacity", "_last", "file", "room")

    def __init__(self, file: IndexFile, base_offset: Offset, capacity: int) -> None:
        self.file, self._base, self._capacity = file, base_offset, capacity
        self.room: int | None = None
        self._last: int | None = None

    @property
    def data(self) -> bytearray:
        """The entries as in the file."""
        return self.file.data

    def count_room(self) -> int:
        """Return how many more entries it takes before the one that closes it."""
        self.room = room = self._capacity - len(self.data) // TIME_ENTRY.size
        return room

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is above that of the last one."""
        if self._last is None:
            self._last = self.last().timestamp
        if timestamp <= self._last:
            return
        self.file.append(TIME_ENTRY.pack(timestamp, offset - self._base))
        self._last = timestamp
        if self.room is not None:
            self.room -= 1

    def last(self) -> TimeEntry:
        """Return the last entry, (-1, base offset) without one."""
        data = self.data
        if not data:
            return TimeEntry(TimestampMs(-1), self._base)
        timestamp, relative = TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY.size)
        return TimeEntry(TimestampMs(timestamp), Offset(self._base + relative))

    def look_up(self, target: TimestampMs) -> TimeEntry:
        """Return the last entry with a timestamp up to `target`; without one, (-1, base offset)."""
        return look_up_timestamp(self.data, self._base, target)

    def truncate(self, offset: Offset) -> None:
        """Drop the entries from `offset` on."""
        self.file.truncate(truncate_to(self.data, IndexKind.TIME, self._base, offset))
        self.room = self._last = None


class TransactionIndex:
    """The aborted transactions whose markers are in the segment."""

    __slots__ = ("_all", "file")

    def __init__(self, file: IndexFile) -> None:
        self.file = file
        self._all: list[AbortedTxn] | None = None

    def all(self) -> list[AbortedTxn]:
        """Return the entries; not to be changed."""
        if self._all is None:
            self._all = decode_txn_index(bytes(self.file.data))
        return self._all

    def append(self, transaction: AbortedTxn) -> None:
        """Add a transaction whose ABORT marker has just been appended."""
        self.all().append(transaction)
        self.file.append(encode_txn_index([transaction]))

    def collect(self, start: Offset, end: Offset) -> Aborted:
        """Return the transactions that matter to a read of the offsets from `start` up to below `end`."""
        return collect_aborted(self.all(), start, end)

    def truncate(self, offset: Offset) -> None:
        """Drop the transactions that reach `offset`."""
        self.file.truncate(size_below(self.all(), offset))
        self._all = None

    def forget(self) -> None:
        """Release the memory of the entries if the file has all of them."""
        if self.file.exists:
            self.file.forget()
            self._all = None


class SegmentIndexes:
    """The indexes of one segment. `size_of_log` returns the size that positions must be below."""

    __slots__ = ("offsets", "times", "transactions")

    def __init__(
        self,
        fs: Fs,
        path_of: Callable[[FileRole], PurePath],
        base_offset: Offset,
        limits: SegmentLimits,
        listing: Mapping[str, FileStat],
        size_of_log: Callable[[], int],
    ) -> None:
        def index(role: FileRole, usable: Callable[[bytes], int]) -> IndexFile:
            path = path_of(role)
            return IndexFile(fs, path, usable, listing[path.name].size if path.name in listing else None)

        offsets = index(FileRole.INDEX, lambda data: used_length(data, IndexKind.OFFSET, size_of_log()))
        times = index(FileRole.TIME_INDEX, lambda data: used_length(data, IndexKind.TIME))
        transactions = index(FileRole.TXN_INDEX, lambda data: len(data) // TXN_ENTRY.size * TXN_ENTRY.size)
        self.offsets = OffsetIndex(offsets, base_offset, limits.offset_entries)
        self.times = TimeIndex(times, base_offset, limits.time_entries)
        self.transactions = TransactionIndex(transactions)

    @property
    def is_full(self) -> bool:
        """Whether the offset index or the time index takes no more entries."""
        offsets, times = self.offsets.room, self.times.room  # every append asks: no calls where it is known
        has_room = (self.offsets.count_room() if offsets is None else offsets) > 0
        return not has_room or (self.times.count_room() if times is None else times) <= 0

    def _files(self) -> tuple[IndexFile, IndexFile, IndexFile]:
        return self.offsets.file, self.times.file, self.transactions.file

    def _due(self) -> tuple[IndexFile, ...]:
        """Return the indexes that have a file, or get one: a transaction index without entries gets none."""
        offsets, times, transactions = self._files()
        return (offsets, times, transactions) if transactions.exists or transactions.size else (offsets, times)

    def has_file(self, role: FileRole) -> bool:
        """Return whether the index of this role has a file."""
        return dict(zip(INDEX_ROLES, self._files(), strict=True))[role].exists

    def write(self) -> None:
        """Write the entries that the files lack."""
        for file in self._due():
            file.write()

    def sync(self) -> None:
        """Write, and make the files durable. Raises `WriteFault`."""
        for file in self._due():
            file.sync()

    def truncate(self, offset: Offset) -> None:
        """Drop the entries from `offset` on, without a sync."""
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        self.transactions.truncate(offset)

    def rename(self, path_of: Callable[[FileRole], PurePath]) -> None:
        """Give the files that exist other names."""
        for role, file in zip(INDEX_ROLES, self._files(), strict=True):
            file.rename(path_of(role))

    def remove(self) -> None:
        """Remove the files that exist."""
        for file in self._files():
            file.remove()

    def forget(self) -> None:
        """Release the memory of entries that the files hold."""
        self.offsets.file.forget()
        self.times.file.forget()
        self.transactions.forget()

    def close(self) -> None:
        """Close the files; nothing is written, and the entries stay readable."""
        for file in self._files():
            file.close()
