"""Truncation: cuts the end of a log off, or all of it, and what is known of it with that.

Source: Apache Kafka 4.3.0, UnifiedLog.truncateTo, UnifiedLog.truncateFullyAndStartAt.
"""

from __future__ import annotations

from storage.base.units import Offset
from storage.log.log_state import LogState
from storage.log.log_types import Truncated
from storage.log.segment_changes import SegmentChanges
from storage.producers.producer_state import ProducerState
from storage.producers.producers import Producers


def truncate_to(state: LogState, changes: SegmentChanges, offset: Offset, now_ms: int) -> Truncated:
    """Cut off everything from `offset` on; see `Log.truncate_to`."""
    if offset >= state.log_end:
        state.epochs.truncate_from_end(state.log_end)
        return Truncated(state.log_end, state.recovery_point, ())
    if offset < state.segments.all[0].base_offset:
        return truncate_fully(state, changes, offset, now_ms)
    removed = changes.delete(segment for segment in state.segments if segment.base_offset > offset)
    state.segments.active.truncate_to(offset, now_ms)
    state.log_end = offset
    state.recovery_point = min(state.recovery_point, offset)
    state.epochs.truncate_from_end(offset)
    state.log_start = min(offset, state.log_start)
    state.load_producers(now_ms)
    if state.high_watermark >= offset:
        state.set_high_watermark(offset)
    return Truncated(state.log_end, state.recovery_point, removed)


def truncate_fully(
    state: LogState, changes: SegmentChanges, start: Offset, now_ms: int, log_start: Offset | None = None
) -> Truncated:
    """Drop everything; see `Log.truncate_fully`."""
    removed = changes.delete_all(start, now_ms)
    state.log_end, state.recovery_point = start, min(state.recovery_point, start)
    state.epochs.clear()
    state.snapshots.remove(list(state.snapshots.offsets))
    state.producers = Producers(ProducerState((), start))
    state.log_start = start if log_start is None else log_start
    state.load_producers(now_ms)
    state.high_watermark = start
    return Truncated(start, state.recovery_point, removed)
