"""A finished compaction that is not yet in place, beside a clean marker: the marker vouches for every other log."""

from __future__ import annotations

import pytest
from support.damages import KINDS, flip
from support.log_dirs import MARKER, OPTIONS, TOP, Files, damaged, live, on_disk, place, plan_of, recover, sound

PARTITIONS = ("orders-0", "pay-3", "users-1")


def stopped(kind: str) -> Files:
    """Return three partitions that were shut down cleanly, flushed to their ends, the first of them with a swap."""
    return damaged(KINDS[kind], files=sound(PARTITIONS, point=30) | {MARKER: b""})


@pytest.mark.parametrize("kind", ["swap_not_yet_in_place", "swap_half_renamed"])
def test_only_the_segments_of_the_swap_are_read_and_the_marker_stays(kind: str) -> None:
    files = stopped(kind)
    fs = on_disk(files)
    plan = plan_of(fs)
    assert plan.before == ()
    assert {partition.partition for partition in plan.partitions if partition.verdicts} == {"orders-0"}
    read = {partition.partition: partition.scanned_bytes for partition in plan.partitions}
    assert read == {"orders-0": sum(len(files[n]) for n in files if n.endswith(".log.swap")), "pay-3": 0, "users-1": 0}
    recover(fs)
    found = live(fs.contents(str(TOP)))
    assert found[MARKER] == b""
    assert not [name for name in found if name.endswith(".swap")]
    assert plan_of(fs).is_empty


def test_rot_in_a_swap_beside_a_marker_is_held_and_the_marker_stays() -> None:
    files = stopped("swap_not_yet_in_place")
    flip(files, place(0) + ".swap", 100)
    fs = on_disk(files)
    plan = plan_of(fs)
    assert plan.is_held
    recover(fs)
    assert fs.contents(str(TOP)) == files


def test_what_else_has_to_change_beside_a_swap_takes_the_marker_with_it() -> None:
    files = stopped("swap_not_yet_in_place")
    flip(files, place(20, "snapshot", "pay-3"), 30)
    del files[place(10, "index", "pay-3")]
    assert [action.path.name for action in plan_of(on_disk(files), OPTIONS).before] == [MARKER]
