"""Compaction: keeps the newest record of each key, and rewrites the closed segments of a log without the others.

One round: the offset map is filled from the first dirty offset on, as far as it takes; all segments up to there are
grouped, and each group becomes one segment, written beside the log as `.cleaned` and then swapped in for its sources.
What a crash leaves is the old state or the new one of each group: `.cleaned` files mean nothing yet, and once there are
only `.swap` files, every load finishes the swap.

Unlike a broker's cleaner it verifies every batch before it reads its records, since a batch that is rewritten gets a
new checksum: rot would be sealed under it. A log with an unsound batch is `Uncleanable`, and stays as it is.
Source: Apache Kafka 4.3.0, Cleaner, LocalLog.replaceSegments.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt, CorruptData, LogmendError, UnsupportedFormat
from storage.base.names import FileRole, FileState
from storage.base.rows import BatchRows, Stop
from storage.base.units import INT32_MAX, Offset
from storage.batch.batch import HEADER_V2, BatchHeader, parse_header
from storage.batch.payload import control_kind
from storage.cleanup.cleaned_batch import BatchCleaner, LastRecord, Rules, put_keys
from storage.cleanup.cleaned_txns import CleanedTransactions
from storage.cleanup.offset_map import OffsetMap
from storage.disk.buffers import page_aligned
from storage.disk.fs import Fs
from storage.index.txn_index import AbortedTxn
from storage.kernel.scan import scan_batches
from storage.producers.producer_state import ProducerEntry
from storage.segment.segment import LogSegment
from storage.segment.segment_types import BatchEnd, SegmentLimits
from storage.segment.swapping import remove_cleaned

IO_BUFFER_BYTES: Final = 524_288
"""`log.cleaner.io.buffer.size` as it is by default: half of it is read at once, half of it written."""
_ROWS: Final = 4096


class Uncleanable(CorruptData):
    """A closed segment holds what must not be rewritten: path and position of the batch, and what is wrong with it."""


class OffsetsOverflow(LogmendError):
    """Offsets of `segment` do not fit 31 bits above its base: it must be split, and the round started again."""

    def __init__(self, segment: LogSegment, offset: int) -> None:
        super().__init__(f"offset {offset} is out of the range of a segment of {segment.base_offset}")
        self.segment = segment


class Round(NamedTuple):
    """What one round is to clean, as `assess` found it; `now_ms` is one time for all of it."""

    first_dirty: Offset
    first_uncleanable: Offset
    now_ms: int


@dataclass
class Cleaned:
    """What a round did. `next_dirty` goes into the cleaner's checkpoint, now that all of it is durable."""

    next_dirty: Offset
    bytes_read: int = 0
    bytes_written: int = 0
    records_written: int = 0
    records_without_key: int = 0
    """Dropped, since without a key nothing could ever take their place."""


def last_records_of(entries: Iterable[ProducerEntry]) -> dict[int, LastRecord]:
    """Return what compaction must know of the active producers of a log."""
    return {
        entry.producer_id: LastRecord(
            Offset(entry.last_offset) if entry.last_offset >= 0 else None, entry.producer_epoch
        )
        for entry in entries
    }


Swap = Callable[[LogSegment, Sequence[LogSegment]], None]
"""Puts a cleaned segment in place of its sources: `Log.replace_segments`."""


def _take_no_time(_: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How the log of one directory is compacted.

    `last_records` returns what the log knows of its active producers, and is called for each group. `throttle` receives
    the size of every piece read or written; it may wait, and may raise a `LogmendError` to end the round: the segment
    that was being written goes, groups that were swapped in stay, and the next round does it all again.
    """

    fs: Fs
    directory: PurePath
    config: LogConfig
    swap: Swap
    last_records: Callable[[], Mapping[int, LastRecord]]
    throttle: Callable[[int], None] = _take_no_time
    io_buffer_bytes: int = IO_BUFFER_BYTES

    def run(self, segments: Sequence[LogSegment], task: Round, offsets: OffsetMap) -> Cleaned:
        """Compact `segments`, all of the log in ascending order, and return what was done.

        The last of them is active and never touched: the range must end at its base or before.
        Raises `Uncleanable` and `UnsupportedFormat` with path and position, `OffsetsOverflow`, `ReadFault` and
        `WriteFault`; and what `throttle` raises. The segment that was being written is gone then.
        """
        return _Run(self, segments, task, offsets).run()


class _Run:
    """One round."""

    def __init__(self, how: Compaction, segments: Sequence[LogSegment], task: Round, offsets: OffsetMap) -> None:
        self._how, self._segments, self._task, self._offsets = how, segments, task, offsets
        self._source = _Source(how.io_buffer_bytes // 2, how.throttle)
        self._transactions = CleanedTransactions()
        self._cleaner = BatchCleaner(offsets, self._transactions)
        self._done = Cleaned(task.first_dirty)

    def run(self) -> Cleaned:
        task, segments = self._task, self._segments
        assert task.first_uncleanable <= segments[-1].base_offset, "the active segment is appended to"
        self._offsets.clear()
        if task.first_dirty >= task.first_uncleanable:
            return self._done
        legacy_horizon_ms = self._legacy_horizon_ms()
        self._fill_map()
        end = Offset(self._offsets.latest + 1)
        cleanable = [segment for segment in segments if segment.base_offset < end]
        for group in group_segments(cleanable, self._how.config, task.first_uncleanable):
            self._clean_group(group, legacy_horizon_ms)
        self._done.next_dirty = end
        self._done.bytes_read = self._source.bytes_read
        self._done.records_without_key = self._cleaner.records_without_key
        return self._done

    def _legacy_horizon_ms(self) -> int:
        """Return the time before which a segment must have been written for its old tombstones to go, 0 for never."""
        clean = [segment for segment in self._segments if segment.base_offset < self._task.first_dirty]
        return self._mtime_ns(clean[-1]) // 1_000_000 - self._how.config.delete_retention_ms if clean else 0

    def _mtime_ns(self, segment: LogSegment) -> int:
        return self._how.fs.stat(segment.path(FileRole.LOG)).mtime_ns

    # ---- the offset map

    def _fill_map(self) -> None:
        start, end = self._task.first_dirty, self._task.first_uncleanable
        first = _floor(self._segments, start)
        dirty = [segment for segment in self._segments[first:] if segment.base_offset < end]
        transactions = CleanedTransactions()
        transactions.add(collect_aborted(self._segments[first:], start, end))
        for number, segment in enumerate(dirty):
            behind = dirty[number + 1].base_offset if number + 1 < len(dirty) else end
            if not self._fill_from(segment, transactions):
                return
            self._offsets.latest = behind - 1

    def _fill_from(self, segment: LogSegment, transactions: CleanedTransactions) -> bool:
        """Put the keys of a segment into the map; return False if it is full before the end of the segment."""
        start = self._task.first_dirty
        with self._source.blaming_batch():
            for header, batch in self._source.batches(segment, segment.indexes.offsets.position_for(start)):
                if header.is_control:
                    transactions.meet_marker(header.producer_id, header.last_offset, control_kind(header, batch))
                elif not transactions.meet_data(
                    header.producer_id, header.last_offset, is_transactional=header.is_transactional
                ) and not put_keys(header, batch, self._offsets, start):
                    return False
                if header.last_offset >= start:
                    self._offsets.latest = header.last_offset
        return True

    # ---- writing

    def _clean_group(self, sources: Sequence[LogSegment], legacy_horizon_ms: int) -> None:
        how, base = self._how, sources[0].base_offset
        remove_cleaned(how.fs, how.directory, base)
        limits = SegmentLimits(how.config.index_interval_bytes, how.config.segment_index_bytes)
        cleaned = LogSegment.create(how.fs, how.directory, base, limits, self._task.now_ms, state=FileState.CLEANED)
        try:
            self._fill_cleaned(cleaned, sources, legacy_horizon_ms)
            self._finish(cleaned, self._mtime_ns(sources[-1]))
        except LogmendError:
            cleaned.close()
            with contextlib.suppress(LogmendError):  # the next round, or the next load, removes what is left
                remove_cleaned(how.fs, how.directory, base)
            raise
        how.swap(cleaned, sources)

    def _fill_cleaned(self, cleaned: LogSegment, sources: Sequence[LogSegment], legacy_horizon_ms: int) -> None:
        last_records = self._how.last_records()
        for number, segment in enumerate(sources):
            is_last = number + 1 == len(sources)
            end = segment.read_next_offset() if is_last else sources[number + 1].base_offset
            behind = self._segments[_floor(self._segments, segment.base_offset) :]
            self._transactions.add(collect_aborted(behind, segment.base_offset, end))
            rules = Rules(
                self._task.now_ms,
                self._how.config.delete_retention_ms,
                self._task.first_uncleanable,
                last_records,
                legacy_tombstones_stay=self._mtime_ns(segment) // 1_000_000 > legacy_horizon_ms,
            )
            self._clean_segment(segment, cleaned, rules)

    def _clean_segment(self, segment: LogSegment, cleaned: LogSegment, rules: Rules) -> None:
        pending = _Pending(cleaned, self._how.io_buffer_bytes // 2, self._how.throttle)
        with self._source.blaming_batch():
            for header, batch in self._source.batches(segment, 0):
                kept = self._cleaner.clean(header, batch, rules)
                if kept is not None:
                    if not cleaned.can_hold(kept.end.last_offset):
                        raise OffsetsOverflow(segment, kept.end.last_offset)
                    pending.add(kept.data, kept.end)
                    self._done.records_written += kept.records
        pending.write()
        self._done.bytes_written += pending.bytes_written
        for transaction in self._transactions.kept:
            cleaned.append_aborted(transaction)
        self._transactions.kept.clear()

    def _finish(self, cleaned: LogSegment, mtime_ns: int) -> None:
        """Make the segment durable, with the modification time of the last source, by which old formats are retained.

        The times are set before the syncs, so that they are durable too; to whole milliseconds, as a broker does.
        """
        cleaned.seal()
        cleaned.indexes.write()
        for role in (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX):
            self._how.fs.set_mtime(cleaned.path(role), mtime_ns // 1_000_000 * 1_000_000)
        cleaned.flush()
        cleaned.close()


@dataclass
class _Pending:
    """Batches that are written together, at most about `limit` bytes."""

    target: LogSegment
    limit: int
    throttle: Callable[[int], None]
    bytes_written: int = 0
    _data: bytearray = field(default_factory=bytearray)
    _ends: list[BatchEnd] = field(default_factory=list)

    def add(self, data: bytes | memoryview, end: BatchEnd) -> None:
        if self._data and len(self._data) + len(data) > self.limit:
            self.write()
        self._data += data
        self._ends.append(end)

    def write(self) -> None:
        if not self._data:
            return
        self.target.append(self._data, self._ends)
        self.bytes_written += len(self._data)
        self.throttle(len(self._data))
        self._data, self._ends = bytearray(), []


class _Source:
    """Reads segments through one buffer, and hands on batches whose checksums hold."""

    def __init__(self, window: int, throttle: Callable[[int], None]) -> None:
        self._window = max(window, HEADER_V2.size)
        self._buffer = page_aligned(self._window)
        self._rows = BatchRows(_ROWS)
        self._throttle = throttle
        self._path, self._position = PurePath(), 0
        self.bytes_read = 0

    def batches(self, segment: LogSegment, start: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield header and bytes of the batches from position `start`, a batch border, to the end.

        The bytes are good until the next one. Raises `Uncleanable` where they are not sound, or do not follow.
        """
        self._path = segment.path(FileRole.LOG)
        if len(self._buffer) > self._window:
            self._buffer = page_aligned(self._window)
        position, next_offset, size = start, int(segment.base_offset), self._window
        while position < segment.size:
            self._position = position
            window = self._read(segment, position, min(size, segment.size - position))
            scanned = scan_batches(window, self._rows, position=position, next_offset=next_offset)
            if not scanned.count:
                size = self._size_of_large(window, scanned.stop, segment.size - position)
                continue
            self._throttle(scanned.size)
            self.bytes_read += scanned.size
            for row in range(scanned.count):
                self._position = self._rows.position[row]
                at = self._position - position
                batch = window[at : at + self._rows.size[row]]
                yield parse_header(batch), batch
            next_offset = self._rows.last_offset[scanned.count - 1] + 1
            position, size = position + scanned.size, self._window

    def _read(self, segment: LogSegment, position: int, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = page_aligned(size)
        window = self._buffer[:size]
        if segment.reader().read_into(position, window) < size:
            raise self._uncleanable(f"the file ends before {position + size}")
        return window

    def _size_of_large(self, window: memoryview, stop: Stop, left: int) -> int:
        """Return how much is to be read for the batch that the window does not hold."""
        if stop is Stop.UNKNOWN_MAGIC:
            raise UnsupportedFormat(f"magic {window[16]}", path=self._path, position=self._position)
        if stop is not Stop.NEED_MORE:
            raise self._uncleanable(f"no sound batch: {stop.name}")
        if len(window) == left:
            raise self._uncleanable(f"{left} bytes that are no whole batch")
        size = parse_header(window).size
        if size > left:
            raise self._uncleanable(f"a batch of {size} bytes, {left} are left")
        return size

    def _uncleanable(self, reason: str) -> Uncleanable:
        return Uncleanable(reason, path=self._path, position=self._position)

    @contextlib.contextmanager
    def blaming_batch(self) -> Iterator[None]:
        """Say of a fault in the last batch that was handed on where that batch is."""
        try:
            yield
        except UnsupportedFormat as fault:
            raise UnsupportedFormat(fault.reason, path=self._path, position=self._position) from fault
        except BatchCorrupt as fault:
            raise self._uncleanable(fault.reason) from fault


def group_segments(
    segments: Sequence[LogSegment], config: LogConfig, first_uncleanable: Offset
) -> list[list[LogSegment]]:
    """Return consecutive segments in groups, each small enough to become one segment.

    A group keeps to the limits of `.log` and indexes by what its segments have now, and to the range of relative
    offsets by what its last segment could hold at most.
    """
    groups: list[list[LogSegment]] = []
    sizes = (0, 0, 0)
    limits = (config.max_segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else first_uncleanable
        own = (segment.size, segment.indexes.offsets.file.size, segment.indexes.times.file.size)
        added = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        fits = all(size <= limit for size, limit in zip(added, limits, strict=True))
        if groups and fits and (not segment.size or end - 1 - groups[-1][0].base_offset <= INT32_MAX):
            groups[-1].append(segment)
            sizes = added
        else:
            groups.append([segment])
            sizes = own
    return groups


def collect_aborted(segments: Iterable[LogSegment], start: Offset, end: Offset) -> list[AbortedTxn]:
    """Return the aborted transactions that overlap the offsets from `start` up to below `end`.

    `segments` are those from the one that holds `start` on; a marker may lie in any of them.
    """
    found: list[AbortedTxn] = []
    for segment in segments:
        part = segment.indexes.transactions.collect(start, end)
        found += part.transactions
        if part.is_complete:
            break
    return found


def _floor(segments: Sequence[LogSegment], offset: Offset) -> int:
    """Return the place of the segment that holds `offset`, or would."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
