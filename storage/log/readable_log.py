"""ReadableLog: what an open log answers without changing anything.

`read` and `offset_for_time` may run in other threads beside the one that changes the log: they see what was appended
whole. Source: Apache Kafka 4.3.0, UnifiedLog.read, UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from storage.base.refusals import OffsetOutOfRange
from storage.base.units import Offset
from storage.log.log_read import fetch, find_by_time
from storage.log.log_types import Fetched, Isolation, TimestampOffset
from storage.producers.producer_state import ProducerState
from storage.producers.producers import Producers
from storage.segment.segment_list import SegmentList


class ReadableLog:
    """Segments, ends and producers of a log, as whoever changes it leaves them; see the module."""

    def __init__(self) -> None:
        self.segments = SegmentList()
        self.log_start = self.log_end = self.recovery_point = self.high_watermark = Offset(0)
        self.producers = Producers(ProducerState())

    def read(
        self,
        start: Offset,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.LOG_END,
        min_one: bool = True,
    ) -> Fetched:
        """Return a range of a file with the batches from `start` on, at most `max_bytes` of it.

        With `min_one` the first batch is whole however large it is. Empty where nothing below the bound of `isolation`
        is left. Raises `OffsetOutOfRange` for a `start` below the log start or above the log end, and `ReadFault`.
        """
        end = self.log_end
        if not self.log_start <= start <= end:
            raise OffsetOutOfRange(f"offset {start}; the log has those from {self.log_start} up to below {end}")
        if isolation is Isolation.LOG_END:
            return fetch(self.segments, start, max_bytes, bound=None, end=end, min_one=min_one)
        is_committed = isolation is Isolation.COMMITTED
        bound = self.last_stable_offset if is_committed else self.high_watermark
        return fetch(self.segments, start, max_bytes, bound=bound, end=end, min_one=min_one, with_aborted=is_committed)

    def offset_for_time(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record of at least this timestamp in ms, as far as time indexes lead to it.

        -1 asks for the log end, -2 for the log start, -3 for the first record of the largest timestamp. None if there
        is no such record. Raises `BatchCorrupt`, `UnsupportedFormat` and `ReadFault`.
        """
        return find_by_time(self.segments, self.log_start, self.log_end, timestamp)

    @property
    def last_stable_offset(self) -> Offset:
        """The first offset that a committed read may not see; at most the high watermark."""
        first = self.producers.first_unstable_offset()
        return self.high_watermark if first is None else min(self.high_watermark, max(first, self.log_start))

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self.segments)
