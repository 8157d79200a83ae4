"""LogWriter: writes checked batches at the end of a log, in its active segment or a new one."""

from __future__ import annotations

from collections.abc import Sequence

from storage.append.append_check import Checked
from storage.base.refusals import AppendTooLarge, LogUnusable
from storage.base.rows import Data, ProducerEvent
from storage.base.units import INT32_MAX, Offset
from storage.log.durability import Durability
from storage.log.log_state import LogState
from storage.log.log_types import Appended, Rolled
from storage.log.segment_changes import SegmentChanges
from storage.segment.segment import LogSegment
from storage.segment.segment_types import EndNumbers


class LogWriter:
    """The way of every append into the log: `make_room`, then `write`."""

    def __init__(self, state: LogState, changes: SegmentChanges, durability: Durability) -> None:
        self._state, self._changes, self._durability = state, changes, durability

    def make_room(self, checked: Checked, now_ms: int) -> Rolled | None:
        """Note new epochs, and roll if the active segment cannot take the append. Raises `AppendTooLarge`."""
        state = self._state
        for epoch, base_offset in checked.epochs:
            state.epochs.assign(epoch, base_offset)
        limit = state.config.max_segment_bytes
        if checked.size > limit:
            raise AppendTooLarge(f"append of {checked.size} bytes, a segment may have {limit}")
        if not state.segments.active.should_roll(
            checked.size, checked.last_offset, checked.max_timestamp, now_ms,
            max_bytes=limit, max_ms=state.config.max_segment_ms,
        ):  # fmt: skip
            return None
        first = checked.first_offset if checked.is_first_known else checked.last_offset - INT32_MAX
        return self._changes.roll(first, now_ms)

    def write(self, checked: Checked, rolled: Rolled | None) -> Appended:
        """Append the batches to the active segment, and take in what they say of producers."""
        first, last = checked.first_offset, checked.last_offset
        self.put(self._state.segments.active, checked.data, checked.ends, last, checked.events)
        return Appended(first, last, checked.max_timestamp, checked.append_time_ms, rolled=rolled)

    def put(
        self, active: LogSegment, data: Data, ends: Sequence[EndNumbers], last: int, events: Sequence[ProducerEvent]
    ) -> None:
        """Append bytes that end with offset `last` to the active segment; flush if `flush.messages` demands it."""
        state = self._state
        try:
            active.append(data, ends)
        except LogUnusable as fault:
            state.unusable_since = str(fault)
            raise
        state.log_end = Offset(last + 1)
        if events:
            for transaction in state.producers.apply(events):
                active.append_aborted(transaction)
        state.producers.state.map_end_offset = state.log_end
        if state.log_end - state.recovery_point >= state.config.flush_messages:
            self._durability.flush()
