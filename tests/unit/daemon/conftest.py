"""A log directory of one partition, and a guard on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.guarding import ORDERS, Guarded, Place

from daemon.events.names import EVENTS
from daemon.verify.options import ScrubOptions


@pytest.fixture
def segments() -> int:
    return 4


@pytest.fixture
def scrub() -> ScrubOptions:
    return ScrubOptions()


@pytest.fixture
def place(tmp_path: Path, segments: int) -> Place:
    made = Place(tmp_path / "data")
    made.make(ORDERS, segments)
    return made


@pytest.fixture
def guarded(place: Place, tmp_path: Path, scrub: ScrubOptions) -> Iterator[Guarded]:
    made = Guarded(place, tmp_path / "state", scrub=scrub)
    made.run(5)
    yield made
    assert made.told.names() <= EVENTS.keys()
    for event, fields in made.told.all:
        assert fields.keys() <= set(EVENTS[event].fields), event
    made.close()
