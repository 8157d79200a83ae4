"""A finished compaction that is not yet in place, beside a clean marker: the marker vouches for every other log."""

from __future__ import annotations

import pytest
from support.damages import KINDS, flip
from support.log_dirs import MARKER, OPTIONS, TOP, Change, Files, damaged, live, on_disk, place, plan_of, recover, sound

from recovery.plan.plan import PlanOptions
from storage.base.errors import ExitStatus

PARTITIONS = ("orders-0", "pay-3", "users-1")


def stopped(kind: str) -> Files:
    """Return three partitions that were shut down cleanly, flushed to their ends, the first of them with a swap."""
    return damaged(KINDS[kind], files=sound(PARTITIONS, point=30) | {MARKER: b""})


def finished(files: Files) -> None:
    """Turn the first two segments into a finished compaction of them, with indexes that fit, not yet in place."""
    KINDS["swap_not_yet_in_place"](files)
    fs = on_disk(files)
    recover(fs)
    new = live(fs.contents(str(TOP)))
    for part in ("log", "index", "timeindex", "txnindex"):
        files.pop(place(0, part) + ".swap", None)
        if place(0, part) in new:
            files[place(0, part) + ".swap"] = new[place(0, part)]


def sources_marked(files: Files) -> None:
    """Add to the finished compaction that the broker has renamed its sources."""
    finished(files)
    for base in (0, 10):
        for part in ("log", "index", "timeindex", "txnindex"):
            if place(base, part) in files:
                files[place(base, part) + ".deleted"] = files.pop(place(base, part))


def uncommitted(files: Files) -> None:
    """Stop the renaming behind the first file: the others still are `.cleaned`."""
    finished(files)
    for part in ("index", "timeindex", "txnindex"):
        files[place(0, part) + ".cleaned"] = files.pop(place(0, part) + ".swap", b"")


KINDS_OF_STOPS = [finished, sources_marked, uncommitted, KINDS["swap_half_renamed"]]


def stopped_in(change: Change) -> Files:
    return damaged(change, files=sound(PARTITIONS, point=30) | {MARKER: b""})


@pytest.mark.parametrize("change", KINDS_OF_STOPS)
def test_what_a_clean_stop_interrupted_is_a_note_and_stays(change: Change) -> None:
    files = stopped_in(change)
    fs = on_disk(files)
    plan = plan_of(fs)
    assert plan.is_empty
    assert plan.status is ExitStatus.CLEAN
    assert {f.path.name.rsplit(".", 1)[1] for f in plan.findings if f.kind.value == "leftover_compaction"} == {"swap"}
    recover(fs)
    assert fs.contents(str(TOP)) == files


@pytest.mark.parametrize("change", KINDS_OF_STOPS)
@pytest.mark.parametrize("options", [OPTIONS._replace(clean_marker=True), OPTIONS], ids=["marker", "other changes"])
def test_a_recovery_that_leaves_a_marker_or_changes_something_finishes_it(change: Change, options: PlanOptions) -> None:
    files = stopped_in(change)
    if not options.clean_marker:
        del files[place(10, "index", "pay-3")]
    fs = on_disk(files)
    recover(fs, options)
    assert not [name for name in live(fs.contents(str(TOP))) if name.endswith(".swap")]
    assert plan_of(fs, options).is_empty


def test_one_that_a_broker_would_delete_with_the_only_copy_of_its_records_is_no_note() -> None:
    files = stopped_in(uncommitted)
    for part in ("log", "index", "timeindex", "txnindex"):
        files.pop(place(0, part), None)
    fs = on_disk(files)
    assert plan_of(fs).status is ExitStatus.FINDINGS
    recover(fs)
    assert files[place(0) + ".swap"] in fs.contents(str(TOP)).values()


@pytest.mark.parametrize("change", KINDS_OF_STOPS)
def test_without_the_marker_it_is_finished(change: Change) -> None:
    files = stopped_in(change)
    del files[MARKER]
    fs = on_disk(files)
    assert "leftover_swap" in {finding.kind.value for finding in plan_of(fs).findings}
    recover(fs)
    assert not [name for name in live(fs.contents(str(TOP))) if name.endswith(".swap")]


def test_one_with_an_index_that_does_not_fit_is_put_in_place_beside_the_marker_and_only_its_log_is_read() -> None:
    files = stopped("swap_not_yet_in_place")
    fs = on_disk(files)
    plan = plan_of(fs)
    assert plan.before == ()
    assert {partition.partition for partition in plan.partitions if partition.verdicts} == {"orders-0"}
    read = {partition.partition: partition.scanned_bytes for partition in plan.partitions}
    assert read == {"orders-0": len(files[place(0) + ".swap"]), "pay-3": 0, "users-1": 0}
    recover(fs)
    left = live(fs.contents(str(TOP)))
    assert left[MARKER] == b""
    assert not [name for name in left if name.endswith(".swap")]
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
