"""Closed segments that are not flushed yet when the scrubber comes by."""

from __future__ import annotations

from pathlib import Path

from support.guarding import ORDERS, Guarded, Place

from daemon.verify.options import ScrubOptions


def test_what_was_not_flushed_when_its_turn_came_is_read_within_the_cycle_after_it_was(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    place.make(ORDERS, 6)
    place.flush(ORDERS, 0)
    made = Guarded(place, tmp_path / "state", scrub=ScrubOptions(cycle_seconds=100, census_seconds=30))
    made.run(100)  # each had its turn
    assert made.verified == []
    place.flush(ORDERS, 600)
    made.told.all.clear()
    made.run(100)
    assert {0, 100, 200, 300, 400} <= set(made.verified)
    made.close()
