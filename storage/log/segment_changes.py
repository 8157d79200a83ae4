"""SegmentChanges: which segments a log consists of: it rolls, deletes and replaces them.

Source: Apache Kafka 4.3.0, LocalLog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath

from storage.base.errors import EnvironmentFault
from storage.base.names import FileState
from storage.base.units import Offset
from storage.log.durability import Durability
from storage.log.log_opening import segment_limits
from storage.log.log_state import LogState
from storage.log.log_types import Rolled
from storage.segment.segment import LogSegment
from storage.segment.swapping import swap_in


class SegmentChanges:
    """Changes the segment list of one log, with the files behind it and the snapshots at their bases."""

    def __init__(self, state: LogState, durability: Durability, draw: Callable[[int], int]) -> None:
        self._state, self._durability, self._draw = state, durability, draw
        self._removed: list[LogSegment] = []
        """Out of the log, but readers may still hold them."""

    def jitter(self) -> int:
        """Return by how many ms the next segment rolls earlier than its age demands."""
        bound = self._state.config.jitter_bound_ms
        return self._draw(bound) if bound else 0

    def _create(self, base: Offset, now_ms: int) -> LogSegment:
        state = self._state
        limits = segment_limits(state.config)
        return LogSegment.create(state.fs, state.directory, base, limits, now_ms, jitter_ms=self.jitter())

    def roll(self, expected: int, now_ms: int) -> Rolled:
        """Begin a new segment at `expected`, or at the log end if that is higher; an empty one only gets younger."""
        state, active = self._state, self._state.segments.active
        base = Offset(max(expected, state.log_end))
        state.producers.state.map_end_offset = base
        if active.size == 0 and base <= active.base_offset:
            self._restart(active, base, now_ms)
            return Rolled(base)
        successor = self._create(base, now_ms)
        try:
            state.snapshots.take(state.producers.state)
        except EnvironmentFault:
            successor.remove()
            state.producers.state.map_end_offset = state.log_end
            raise
        active.seal()
        self._durability.note_rolled(active)
        state.segments.change(add=[successor])
        return Rolled(base)

    def _restart(self, active: LogSegment, base: Offset, now_ms: int) -> None:
        """Let the empty active segment begin at `base`: where it is, or lower if an append behind a gap failed."""
        state, snapshots = self._state, self._state.snapshots
        if base < active.base_offset:
            successor = self._create(base, now_ms)
            state.segments.change(add=[successor], remove=[active])
            active.remove()
            snapshots.remove([offset for offset in snapshots.offsets if offset > base])
            snapshots.after_log_start(state.log_start)
        active.created_ms, active.jitter_ms = now_ms, self.jitter()
        snapshots.take(state.producers.state)

    def delete(self, segments: Iterable[LogSegment]) -> tuple[PurePath, ...]:
        """Take segments out of the log, with the snapshots at their bases; return their files, `.deleted` now."""
        leaving = list(segments)
        self._state.segments.change(remove=leaving)
        files = [path for segment in leaving for path in self._mark_deleted(segment)]
        return (*files, *self._state.snapshots.mark_deleted(segment.base_offset for segment in leaving))

    def delete_all(self, start: Offset, now_ms: int) -> tuple[PurePath, ...]:
        """Leave nothing but an empty segment at `start`; return the files of the others, `.deleted` now."""
        leaving = self._state.segments.all
        # First the names: a segment at `start` itself must make room.
        files = [path for segment in leaving for path in self._mark_deleted(segment)]
        self._state.segments.change(remove=leaving, add=[self._create(start, now_ms)])
        return tuple(files)

    def _mark_deleted(self, segment: LogSegment) -> list[PurePath]:
        segment.rename(FileState.DELETED)
        self._keep_for_readers([segment])
        return segment.paths()

    def replace(self, cleaned: Sequence[LogSegment], sources: Sequence[LogSegment]) -> tuple[PurePath, ...]:
        """Replace `sources` by cleaned segments, durably; return the files that are `.deleted` now."""
        state = self._state
        assert state.segments.active not in sources, "the active segment is appended to"
        with state.unusable_on_fault():
            files = swap_in(state.fs, state.directory, cleaned, sources)
            state.segments.change(add=cleaned, remove=sources)
            self._keep_for_readers(sources)
            bases = {segment.base_offset for segment in cleaned}
            merged = [segment.base_offset for segment in sources if segment.base_offset not in bases]
            return (*files, *state.snapshots.mark_deleted(merged))

    def _keep_for_readers(self, segments: Sequence[LogSegment]) -> None:
        self._durability.forget(segments)
        for segment in segments:
            segment.close_for_writing()
        self._removed += segments

    def close_removed(self) -> None:
        """Close the segments that were taken out so far."""
        for segment in self._removed:
            segment.close()
        self._removed.clear()
