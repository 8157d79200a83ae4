"""Durability: makes the batches, indexes and names of a log durable, and moves its recovery point."""

from __future__ import annotations

from collections.abc import Iterable

from storage.base.units import INT64_MAX, Offset
from storage.log.log_state import LogState
from storage.segment.segment import LogSegment


class Durability:
    """Flushes and syncs one log, and knows which segments a flush must not forget."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._rolled: list[LogSegment] = []
        """Closed since the last flush: each got a time entry that a recovery point above the segment does not cover."""
        self._named: LogSegment | None = None  # the newest whose name a `sync` made durable

    def note_rolled(self, segment: LogSegment) -> None:
        """Include a segment that was just closed in the next flush."""
        self._rolled.append(segment)

    def forget(self, segments: Iterable[LogSegment]) -> None:
        """Leave segments that are out of the log out of the next flush."""
        removed = {id(segment) for segment in segments}
        self._rolled = [segment for segment in self._rolled if id(segment) not in removed]

    def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to`, or without it the whole log, durable; return the recovery point."""
        state = self._state
        state.ensure_usable()
        target = state.log_end if up_to is None else min(up_to, state.log_end)
        if target > state.recovery_point or self._rolled:
            self.flush_segments(target, target)
        return state.recovery_point

    def flush_segments(self, below: int, target: Offset) -> None:
        """Make the segments with bases below `below` durable; the recovery point rises to `target` then.

        Log files come first, then indexes and snapshots, then the directory, and the recovery point last.
        """
        state = self._state
        unflushed = state.segments.between(state.recovery_point, below)
        segments = [segment for segment in self._rolled if segment not in unflushed] + list(unflushed)
        for segment in segments:
            segment.indexes.write()
        with state.unusable_on_fault():
            for segment in segments:
                segment.flush()
            has_new_names = state.snapshots.sync()
            if has_new_names or any(segment.base_offset >= state.recovery_point for segment in segments):
                state.fs.sync_dir(state.directory)
        for segment in segments:
            if segment is not state.segments.active:
                segment.close_for_writing()
        self._rolled.clear()
        state.recovery_point = max(state.recovery_point, target)

    def sync(self) -> Offset:
        """Make all batches durable, but no index and no recovery point; return the log end."""
        state = self._state
        state.ensure_usable()
        segments = state.segments.between(state.recovery_point, INT64_MAX)
        with state.unusable_on_fault():
            for segment in segments:
                segment.sync_log()
            if self._named is not segments[-1]:
                state.fs.sync_dir(state.directory)
        self._named = segments[-1]
        return state.log_end
