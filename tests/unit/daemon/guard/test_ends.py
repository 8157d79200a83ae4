"""The guard follows the ends of logs, and marks how far a recovery need not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.guarding import ORDERS as NAME
from support.guarding import Guarded, Place, batches, tree

from recovery.segment.mark_store import read_marks
from recovery.segment.marks import Mark


def marks(guarded: Guarded, base: int = 300) -> tuple[Mark, ...]:
    """Return the marks that a recovery would get now."""
    return read_marks(guarded.state, guarded.place.path).marks.get((NAME, base), ())


def size(place: Place, base: int = 300) -> int:
    return place.log(NAME, base).stat().st_size


def test_what_is_appended_is_marked_within_five_seconds(guarded: Guarded, place: Place) -> None:
    guarded.run(5)
    assert [mark.position for mark in marks(guarded) if not mark.is_durable] == [size(place)]
    place.append(NAME, 300, batches(400, 5))
    guarded.run(5)
    (latest, *_) = marks(guarded)
    assert (latest.position, latest.next_offset) == (size(place), 450)
