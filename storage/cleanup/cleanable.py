"""Which log is to be compacted next, and up to where: pure, from what is known of its segments.

Source: Apache Kafka 4.3.0, LogCleanerManager, LogToClean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from storage.base.config import LogConfig
from storage.base.units import Offset


class DirtySegment(NamedTuple):
    """A segment as the choice sees it: bytes of the `.log`, and ms.

    `largest_timestamp` is that of the batches, where none has one the modification time of the `.log`.
    `first_timestamp` is the largest of the first batch, None where there is no batch; -1 if that has none.
    """

    base_offset: Offset
    size: int
    largest_timestamp: int
    first_timestamp: int | None


class LogState(NamedTuple):
    """What else is to be known: `checkpoint` is the entry of `cleaner-offset-checkpoint`, None if there is none."""

    log_start: Offset
    log_end: Offset
    last_stable: Offset
    checkpoint: Offset | None


class Cleanable(NamedTuple):
    """The range of a log that may be compacted, how dirty it is, and whether that is enough.

    `first_dirty` is where cleaning goes on; with `resets_checkpoint` the checkpoint was of no use and is to be
    rewritten with it at once. `first_uncleanable` is the base of the segment up to which may be cleaned, exclusive.
    Bytes are of whole segments: one that holds `first_dirty` in its middle counts as clean and as cleanable.
    `overdue_ms` is how long the oldest dirty batch has waited beyond `max.compaction.lag.ms`, 0 if it has not.
    """

    first_dirty: Offset
    first_uncleanable: Offset
    resets_checkpoint: bool
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes by all that would be read, 0 for a log without bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Tell whether it is to be compacted: too dirty, or overdue."""
        if self.clean_bytes + self.cleanable_bytes == 0:
            return False
        return self.dirty_ratio > min_dirty_ratio or (self.overdue_ms > 0 and self.cleanable_bytes > 0)


def assess(segments: Sequence[DirtySegment], state: LogState, config: LogConfig, now_ms: int) -> Cleanable:
    """Return what of a log can be compacted at the time `now_ms`; `segments` are all of it, the last one active."""
    first_dirty, resets = _first_dirty(state)
    closed, active = segments[:-1], segments[-1]
    dirty = _from(closed, first_dirty, active.base_offset)
    bounds = [state.last_stable, active.base_offset]
    if config.min_compaction_lag_ms > 0:
        bounds += _first_too_young(dirty, now_ms - config.min_compaction_lag_ms)
    uncleanable = max(first_dirty, min(bounds))
    base = next((s.base_offset for s in _from(closed, uncleanable, active.base_offset)), active.base_offset)
    start = _floor(segments, min(first_dirty, base))
    return Cleanable(
        first_dirty,
        base,
        resets,
        sum(s.size for s in segments if s.base_offset < first_dirty),
        sum(s.size for s in segments if start <= s.base_offset < base),
        _overdue_ms(dirty, now_ms - config.max_compaction_lag_ms),
    )


def _first_dirty(state: LogState) -> tuple[Offset, bool]:
    if state.checkpoint is None:
        return state.log_start, False
    if not state.log_start <= state.checkpoint <= state.log_end:
        return state.log_start, True
    return state.checkpoint, False


def _floor(segments: Iterable[DirtySegment], offset: int) -> int:
    """Return the base of the segment that holds `offset`, or would; without one, `offset`."""
    return max((s.base_offset for s in segments if s.base_offset <= offset), default=offset)


def _from(closed: Sequence[DirtySegment], offset: Offset, active_base: Offset) -> list[DirtySegment]:
    """Return the closed segments from the one that holds `offset` on."""
    if offset >= active_base:
        return []
    start = _floor(closed, offset)
    return [segment for segment in closed if segment.base_offset >= start]


def _first_too_young(dirty: Iterable[DirtySegment], latest_ms: int) -> list[Offset]:
    return [segment.base_offset for segment in dirty if segment.largest_timestamp > latest_ms][:1]


def _overdue_ms(dirty: Iterable[DirtySegment], latest_ms: int) -> int:
    first = min(
        (s.first_timestamp for s in dirty if s.first_timestamp is not None and s.first_timestamp > 0), default=None
    )
    return max(latest_ms - first, 0) if first is not None else 0


Log = TypeVar("Log")


def choose(candidates: Iterable[tuple[Log, Cleanable, float]]) -> Log | None:
    """Return the dirtiest of the logs that are due, None if none is.

    A candidate is a log, what `assess` says of it and its `min.cleanable.dirty.ratio`. Those that are in progress,
    paused or uncleanable are left out by the caller. Being overdue gives no precedence.
    """
    due = [(log, cleanable) for log, cleanable, ratio in candidates if cleanable.is_due(ratio)]
    return max(due, key=lambda item: item[1].dirty_ratio)[0] if due else None
