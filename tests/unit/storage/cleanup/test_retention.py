"""Which segments are deleted, for which reason, and the report of each."""

from __future__ import annotations

import pytest

from storage.base.config import LogConfig
from storage.cleanup.retention import LogEnds, Reason, RetainedSegment, Retention, RetentionPolicy, retain

NOW = 1_700_000_000_000


def segments(count: int, *, size: int = 100, records: int = 5, last_size: int | None = None) -> list[RetainedSegment]:
    """So many segments of five offsets each, the oldest written `count` seconds ago."""
    return [
        RetainedSegment(
            n * records,
            size if n + 1 < count or last_size is None else last_size,
            NOW - (count - n) * 1000,
            (n + 1) * records if n + 1 < count else None,
        )
        for n in range(count)
    ]


def ends(log_end: int, *, log_start: int = 0, high_watermark: int | None = None) -> LogEnds:
    return LogEnds(log_start, log_end, log_end if high_watermark is None else high_watermark)


def reasons(result: Retention) -> list[Reason | None]:
    return [verdict.reason for verdict in result.verdicts]


def test_a_log_is_cut_down_to_its_size_but_never_below() -> None:
    policy = RetentionPolicy(retention_bytes=200)
    result = retain(segments(3), policy, ends(15), NOW)
    assert reasons(result) == [Reason.SIZE, None, None]
    assert result.log_start == 5
    assert not result.needs_roll
    assert reasons(retain(segments(3), RetentionPolicy(retention_bytes=201), ends(15), NOW)) == [None] * 3


def test_with_a_size_of_0_everything_goes_and_the_log_is_rolled() -> None:
    result = retain(segments(3), RetentionPolicy(retention_bytes=0), ends(15), NOW)
    assert reasons(result) == [Reason.SIZE] * 3
    assert result.needs_roll
    assert result.log_start == 15


def test_a_segment_goes_once_it_is_older_than_the_limit_and_not_before() -> None:
    assert reasons(retain(segments(3), RetentionPolicy(retention_ms=1999), ends(15), NOW)) == [
        Reason.TIME, Reason.TIME, None,
    ]  # fmt: skip
    assert reasons(retain(segments(3), RetentionPolicy(retention_ms=2000), ends(15), NOW)) == [Reason.TIME, None, None]


def test_a_timestamp_in_the_future_keeps_a_segment_and_all_behind_it() -> None:
    found = segments(3)
    found[0] = found[0]._replace(largest_timestamp=NOW + 1)
    result = retain(found, RetentionPolicy(retention_ms=0), ends(15), NOW)
    assert reasons(result) == [None] * 3
    assert result.verdicts[0].checks[-1].text == f"its largest timestamp {NOW + 1} lies 1 ms in the future"


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, 0), (24, 4), (25, 5), (30, 6), (100, 20)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, gone: int) -> None:
    result = retain(segments(20), RetentionPolicy(retention_ms=0), ends(100, high_watermark=high_watermark), NOW)
    assert len(result.deletable) == gone


def test_an_empty_active_segment_never_goes_and_one_with_a_record_does() -> None:
    policy = RetentionPolicy(retention_ms=0)
    assert len(retain(segments(10, last_size=0), policy, ends(45), NOW).deletable) == 9
    assert len(retain(segments(10, last_size=1), policy, ends(46), NOW).deletable) == 10


def test_without_delete_only_what_lies_below_the_log_start_offset_goes() -> None:
    policy = RetentionPolicy(deletes=False, retention_bytes=0, retention_ms=0)
    result = retain(segments(3), policy, ends(15, log_start=5), NOW)
    assert reasons(result) == [Reason.LOG_START, None, None]
    assert result.log_start == 5
    assert reasons(retain(segments(3), policy, ends(15, log_start=4), NOW)) == [None] * 3


def test_the_log_start_offset_never_takes_the_active_segment() -> None:
    result = retain(segments(3), RetentionPolicy(), ends(15, log_start=15), NOW)
    assert reasons(result) == [Reason.LOG_START, Reason.LOG_START, None]
    assert result.log_start == 15


def test_the_size_is_that_of_what_the_log_start_offset_has_left() -> None:
    result = retain(segments(5), RetentionPolicy(retention_bytes=200), ends(25, log_start=10), NOW)
    assert reasons(result) == [Reason.LOG_START, Reason.LOG_START, Reason.SIZE, None, None]


def test_time_comes_after_size_on_what_that_has_left() -> None:
    result = retain(segments(5), RetentionPolicy(retention_bytes=400, retention_ms=3000), ends(25), NOW)
    assert reasons(result) == [Reason.SIZE, Reason.TIME, None, None, None]


def test_every_check_is_told_with_its_numbers() -> None:
    policy = RetentionPolicy(retention_bytes=150, retention_ms=2500)
    result = retain(segments(3), policy, ends(15, high_watermark=9), NOW)
    assert [(check.holds, check.text) for check in result.verdicts[0].checks] == [
        (False, "its next segment begins at 5, above the log start offset 0"),
        (True, "the log is 150 bytes above retention.bytes 150, the segment has only 100"),
    ]
    assert [check.text for check in result.verdicts[1].checks] == [
        "it ends at 10, above the high watermark 9",
    ]
    assert result.verdicts[2].checks == ()
    young = retain(segments(2), RetentionPolicy(retention_bytes=150, retention_ms=5000), ends(10), NOW).verdicts[0]
    assert [check.text for check in young.checks[1:]] == [
        "the log is 50 bytes above retention.bytes 150, the segment has 100",
        f"its largest timestamp {NOW - 2000} is 2000 ms old, not more than retention.ms 5000",
    ]


def test_a_policy_comes_from_the_settings() -> None:
    assert RetentionPolicy.of(LogConfig()) == RetentionPolicy(True, None, 604_800_000)
    chosen = {"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "7"}
    assert RetentionPolicy.of(LogConfig.from_properties(chosen)) == RetentionPolicy(False, 7, None)


def test_a_log_without_a_limit_keeps_everything() -> None:
    result = retain(segments(4), RetentionPolicy(), ends(20), NOW + 10**12)
    assert reasons(result) == [None] * 4
    assert result.log_start == 0
