"""The meter: rate, time left and the line that tells of them."""

from __future__ import annotations

import pytest

from recovery.report.meter import Meter, duration


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_line_says_done_total_rate_time_left_and_where() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.start("/data", 0, 3)
    meter.expect(100 * 1024)
    for _ in range(5):
        clock.now += 1
        meter.add(10 * 1024)
    meter.current = "orders-0"
    assert meter.line() == ("/data: 50.0 KiB of 100.0 KiB, 50 %, 10.0 KiB/s, ETA 5 s, 0 of 3 partitions, orders-0")


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.start("/data", 10**9, 1)
    for size in [1000] * 60 + [10] * 30:
        clock.now += 1
        meter.add(size)
    assert meter.rate == pytest.approx(10, rel=0.05)


def test_without_movement_there_is_no_time_left_to_tell() -> None:
    meter = Meter(Clock())
    meter.start("/data", 1000, 1)
    assert meter.seconds_left is None
    assert "ETA" not in meter.line()


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (65, "1 min 05 s"), (7800, "2 h 10 min")])
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_segments_are_counted_down_and_never_below_none() -> None:
    meter = Meter(Clock())
    meter.start("/data", 0, 2)
    meter.expect_lists(2)
    meter.listed(10, 3)
    meter.segments_done += 2
    assert (meter.segments_left, meter.unlisted) == (1, 1)
    meter.listed(0, 0)
    meter.listed(0, 0)
    meter.segments_done += 2
    assert (meter.segments_left, meter.unlisted) == (0, 0)
