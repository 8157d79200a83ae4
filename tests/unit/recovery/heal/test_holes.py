"""Holes at the seams of segments: the batches that prove them lie in other files."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.log_dirs import OPTIONS, SOUND, TOP, Files, live, place, segment
from support.memory_fs import MemoryFs

from recovery.apply.execute import execute
from recovery.heal.healing import Healing, plan_healing, recovery_points
from recovery.heal.replica import DirectorySource, Replicas, ReplicaUnusable
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from storage.base.errors import ExitStatus, PlanStale

REPLICA = PurePath("/replica")
FIRST, LAST = slice(0, 1), slice(-1, None)


def healed(files: Files) -> tuple[Files, Healing]:
    """Heal from a sound replica; no high watermark is on either disk."""
    fs = MemoryFs({str(TOP / name): data for name, data in files.items()})
    for name, data in SOUND.items():
        fs.plant(REPLICA / name, content=data)
    plan = plan_log_dir(fs, TOP, OPTIONS._replace(depth="full")).plan
    healing = plan_healing(fs, plan, Replicas((DirectorySource(fs, REPLICA),)), recovery_points(fs, TOP))
    execute(
        fs, healing.plan, lambda _: b"", Orders(healing.plan.plan_id, 1, "test"), SilentReporter(),
        healed=healing.contents,
    )  # fmt: skip
    return live(fs.contents(str(TOP))), healing


def rotten(base: int, batches: slice) -> bytes:
    """Return a segment whose chosen batches are zeros."""
    here = segment(base)
    chosen = range(len(here))[batches]
    return b"".join(bytes(len(batch)) if number in chosen else batch for number, batch in enumerate(here))


@pytest.mark.parametrize(
    "logs",
    [
        {0: rotten(0, LAST), 10: rotten(10, FIRST)},
        {0: rotten(0, slice(None)), 10: rotten(10, slice(None))},
        {10: rotten(10, LAST)},
        {20: rotten(20, FIRST)},
        {0: rotten(0, slice(2, None)), 10: rotten(10, slice(None)), 20: rotten(20, slice(0, 4))},
        {10: b"".join(segment(10)[:2])},
        {0: b"".join(segment(0)[:3]), 10: rotten(10, FIRST)},
    ],
    ids=[
        "both sides of a seam",
        "two whole segments",
        "an end",
        "a begin",
        "across two seams",
        "cut",
        "cut beside a rotten begin",
    ],
)
def test_a_hole_at_a_seam_is_proven_by_the_nearest_batches_of_other_segments(logs: dict[int, bytes]) -> None:
    files = SOUND | {place(base): data for base, data in logs.items()}
    now, healing = healed(files)
    assert [note.reason for note in healing.notes if not note.healed] == []
    assert {base: now[place(base)] == SOUND[place(base)] for base in logs} == dict.fromkeys(logs, True)


def lying(base: int, number: int, *by: int) -> bytes:
    """Return a segment in which base offsets in a row are wrong, which no checksum covers."""
    batches = segment(base)
    for at, more in enumerate(by, number):
        batches[at] = (int.from_bytes(batches[at][:8], "big") + more).to_bytes(8, "big") + batches[at][8:]
    return b"".join(batches)


@pytest.mark.parametrize("by", [1, 128, 1 << 24, 1 << 41, -1])
@pytest.mark.parametrize("number", range(len(segment(0))))
def test_a_wrong_base_offset_is_put_right_alone_and_beside_a_hole(number: int, by: int) -> None:
    for beside in (None, *(at for at in (number - 1, number + 1) if 0 <= at < len(segment(10)))):
        log = lying(10, number, by)
        if beside is not None:
            start = len(b"".join(segment(10)[:beside]))
            log = log[: start + 30] + b"rot" + log[start + 33 :]
        now, healing = healed(SOUND | {place(10): log})
        assert now[place(10)] == SOUND[place(10)], (beside, healing.notes)


@pytest.mark.parametrize("by", [(1, 1), (2, 2), (128, 128), (-1, 1), (1 << 24, 1 << 41), (1, 1, 1)])
@pytest.mark.parametrize("number", range(3))
def test_wrong_base_offsets_in_a_row_are_put_right(number: int, by: tuple[int, ...]) -> None:
    now, healing = healed(SOUND | {place(10): lying(10, number, *by)})
    assert now[place(10)] == SOUND[place(10)], healing.notes


def test_where_only_the_replica_could_tell_which_base_offset_is_wrong_nothing_is_changed() -> None:
    files = SOUND | {place(10): lying(10, 0, 1, 2)}
    now, healing = healed(files)
    assert now == files
    assert [note.healed for note in healing.notes] == [False]


def test_wrong_base_offsets_on_both_sides_of_a_seam_are_put_right() -> None:
    now, _ = healed(SOUND | {place(0): lying(0, 4, 64), place(10): lying(10, 0, 1 << 41)})
    assert {base: now[place(base)] == SOUND[place(base)] for base in (0, 10)} == {0: True, 10: True}


def test_the_end_of_the_last_segment_is_not_proven() -> None:
    files = SOUND | {place(20): rotten(20, LAST)}
    now, healing = healed(files)
    assert now[place(20)] == files[place(20)]
    assert ["--heal-uncommitted" in note.reason for note in healing.notes] == [True]


def test_a_replica_that_changes_before_it_is_written_stops_the_work_and_leaves_the_log() -> None:
    files = SOUND | {place(10): rotten(10, slice(1, 2))}
    fs = MemoryFs({str(TOP / name): data for name, data in files.items()})
    for name, data in SOUND.items():
        fs.plant(REPLICA / name, content=data)
    plan = plan_log_dir(fs, TOP, OPTIONS._replace(depth="full")).plan
    healing = plan_healing(fs, plan, Replicas((DirectorySource(fs, REPLICA),)), recovery_points(fs, TOP))
    orders = Orders(healing.plan.plan_id, 1, "test")
    other, torn = b"".join(segment(10)[2:]), rotten(10, slice(1, 2))
    for content, error in ((other, PlanStale), (torn, ReplicaUnusable)):
        fs.remove(REPLICA / place(10))
        fs.plant(REPLICA / place(10), content=content)
        with pytest.raises(error):
            execute(fs, healing.plan, lambda _: b"", orders, SilentReporter(), healed=healing.contents)
        assert fs.contents(str(TOP)) == files
    assert (PlanStale.status, ReplicaUnusable.status) == (ExitStatus.STALE, ExitStatus.ENVIRONMENT)
