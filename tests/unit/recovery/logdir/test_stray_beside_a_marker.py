"""A stray log beside a clean marker: a broker that shuts down closes no stray, so its indexes stay preallocated."""

from __future__ import annotations

import pytest
from support.log_dirs import MARKER, TOP, Files, live, on_disk, place, plan_of, recover, sound

PARTITIONS = ("orders-0", "pay-3")
STRAY = f"pay-3.{'0a' * 16}-stray"


def stopped() -> Files:
    """Return two partitions that were shut down cleanly, and a stray of an earlier topic of the second one's name."""
    files = sound(PARTITIONS) | {MARKER: b""}
    files |= {name.replace("pay-3", STRAY): data for name, data in files.items() if name.startswith("pay-3/")}
    for role, size in (("index", 8), ("timeindex", 12)):
        files[place(20, role, STRAY)] += bytes(10 * size)
    return files


def test_a_stray_that_was_not_closed_is_the_only_thing_that_changes_and_the_marker_stays() -> None:
    fs = on_disk(stopped())
    plan = plan_of(fs)
    assert plan.before == ()
    assert {partition.partition for partition in plan.partitions if partition.verdicts} == {STRAY}
    recover(fs)
    found = live(fs.contents(str(TOP)))
    assert found[MARKER] == b""
    assert plan_of(fs).is_empty


@pytest.mark.parametrize("role", ["index", "timeindex"])
def test_the_same_in_a_log_that_the_marker_vouches_for_takes_the_marker_away(role: str) -> None:
    files = stopped()
    files[place(20, role)] += bytes(120)
    assert [action.path.name for action in plan_of(on_disk(files)).before] == [MARKER]
