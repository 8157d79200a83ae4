"""What of a log may be compacted, and which log is first."""

from __future__ import annotations

import pytest

from storage.base.config import LogConfig
from storage.cleanup.cleanable import Cleanable, DirtySegment, LogState, assess, choose

NOW = 1_700_000_000_000


def segments(count: int, *, size: int = 100) -> list[DirtySegment]:
    """So many segments of ten offsets each, written a second apart, the last one active."""
    return [DirtySegment(n * 10, size, NOW - (count - n) * 1000, NOW - (count - n) * 1000 - 5) for n in range(count)]


def state(checkpoint: int | None = None, *, log_start: int = 0, log_end: int = 50, stable: int = 50) -> LogState:
    return LogState(log_start, log_end, stable, checkpoint)


def assessed(found: list[DirtySegment], at: LogState, **settings: object) -> Cleanable:
    return assess(found, at, LogConfig(**settings), NOW)  # type: ignore[arg-type]


def test_the_range_ends_at_the_active_segment() -> None:
    found = assessed(segments(5), state())
    assert (found.first_dirty, found.first_uncleanable) == (0, 40)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (0, 400, 1.0)


def test_the_range_ends_at_the_segment_of_the_last_stable_offset() -> None:
    assert assessed(segments(5), state(stable=25)).first_uncleanable == 20
    assert assessed(segments(5), state(stable=20)).first_uncleanable == 20


def test_the_range_ends_before_the_first_segment_that_is_too_young() -> None:
    found = assessed(segments(5), state(), min_compaction_lag_ms=3500)
    assert found.first_uncleanable == 20
    assert assessed(segments(5), state(), min_compaction_lag_ms=3000).first_uncleanable == 30
    assert assessed(segments(5), state(), min_compaction_lag_ms=10_000).cleanable_bytes == 0


def test_a_segment_that_holds_the_checkpoint_in_its_middle_counts_twice() -> None:
    found = assessed(segments(5), state(15))
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 300)
    assert assessed(segments(5), state(20)).dirty_ratio == 0.5


@pytest.mark.parametrize(
    ("log_start", "checkpoint", "first_dirty", "resets"),
    [(10, 15, 15, False), (20, 15, 20, True), (20, 61, 20, True), (20, 60, 60, False), (10, 0, 10, True)],
)
def test_a_checkpoint_outside_of_the_log_is_reset_to_its_start(
    log_start: int, checkpoint: int, first_dirty: int, resets: bool
) -> None:
    found = assessed(segments(5), state(checkpoint, log_start=log_start, log_end=60))
    assert (found.first_dirty, found.resets_checkpoint) == (first_dirty, resets)


def test_without_a_checkpoint_cleaning_begins_at_the_log_start() -> None:
    assert assessed(segments(5), state(None, log_start=7))[:3] == (7, 40, False)


def test_a_checkpoint_in_the_active_segment_leaves_nothing_to_clean() -> None:
    found = assessed([DirtySegment(0, 100, NOW, NOW)], state(3, log_end=10))
    assert (found.first_dirty, found.first_uncleanable, found.cleanable_bytes) == (3, 0, 0)
    assert not found.is_due(0)


def test_a_log_is_overdue_once_its_oldest_dirty_batch_has_waited_too_long() -> None:
    found = assessed(segments(5), state(20), max_compaction_lag_ms=2900)
    assert found.overdue_ms == 105
    assert found.is_due(1.0)
    assert not assessed(segments(5), state(20), max_compaction_lag_ms=3005).is_due(1.0)
    assert not assessed(segments(5), state(40), max_compaction_lag_ms=1).is_due(1.0)


def test_segments_without_batches_or_timestamps_are_never_overdue() -> None:
    found = [DirtySegment(0, 0, NOW, None), DirtySegment(0, 10, NOW, -1), DirtySegment(5, 10, NOW, 1)]
    assert assessed(found, state(), max_compaction_lag_ms=1).overdue_ms == 0


def test_a_log_is_due_above_the_ratio_and_not_at_it() -> None:
    assert not assessed(segments(5), state(20)).is_due(0.5)
    assert assessed(segments(5), state(20)).is_due(0.49)


def test_a_log_of_no_bytes_is_never_due() -> None:
    assert not assessed(segments(3, size=0), state(log_end=20), max_compaction_lag_ms=1).is_due(0.0)


def cleanable(clean: int, dirty: int, overdue: int = 0) -> Cleanable:
    return Cleanable(0, 10, False, clean, dirty, overdue)


def test_the_dirtiest_of_the_logs_that_are_due_is_chosen() -> None:
    logs = [("a", cleanable(60, 40), 0.1), ("b", cleanable(30, 70), 0.1), ("c", cleanable(0, 100), 1.0)]
    assert choose(logs) == "b"
    assert choose([("a", cleanable(60, 40), 0.5)]) is None


def test_being_overdue_makes_a_log_due_and_gives_it_no_precedence() -> None:
    overdue = ("late", cleanable(90, 10, overdue=10**9), 0.5)
    assert choose([overdue]) == "late"
    assert choose([overdue, ("dirty", cleanable(30, 70), 0.5)]) == "dirty"
