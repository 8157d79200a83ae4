"""A hand-over rolls large active segments as Kafka does, and no others; undone, the directory is as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch_v2
from support.faults import read_tree, write_tree
from support.log_dirs import (
    END,
    OPTIONS,
    POINTS,
    SOUND,
    STARTS,
    TOP,
    Files,
    checkpoint,
    live,
    on_disk,
    place,
    plan_of,
    recover,
)
from support.memory_fs import MemoryFs
from support.recovering import tree

from checkpoint.offsets import decode_offsets
from recovery.apply.hand_over import hand_over
from recovery.evidence.kept import find_kept
from recovery.evidence.quarantine import restore
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import rolling_segments
from recovery.plan.results import HandedOver
from storage.base.errors import NoRoom, PlanStale
from storage.base.units import INT64_MAX
from storage.disk.fs import Fs, OsFs

ROLL = OPTIONS._replace(roll_from=1)
ACTIVE = len(SOUND[place(20)])
NEW = [place(END, suffix) for suffix in ("log", "index", "timeindex")]


def killed(files: Files = SOUND) -> Files:
    """Return the directory as a killed broker leaves it: with preallocated indexes of the active segment."""
    return files | {place(20, suffix): files[place(20, suffix)] + bytes(2400) for suffix in ("index", "timeindex")}


def handed_over(fs: Fs, options: Any = ROLL, **more: Any) -> HandedOver:
    recover(fs, options)
    return hand_over(fs, plan_of(fs, options), Orders("", 2, "test"), SilentReporter(), **more)


def contents(fs: MemoryFs) -> Files:
    return live(fs.contents(str(TOP)))


def test_a_roll_leaves_trimmed_indexes_and_an_empty_segment_at_the_log_end_that_the_point_names() -> None:
    fs = on_disk(killed())
    done = handed_over(fs)
    assert done.rolls == (("orders-0", END, ACTIVE),)
    assert done.broker_scans == 0
    found = contents(fs)
    assert {name: found[name] for name in NEW} == dict.fromkeys(NEW, b"")
    assert {name: data for name, data in found.items() if name not in (*NEW, POINTS)} == {
        name: data for name, data in SOUND.items() if name != POINTS
    }
    assert set(decode_offsets(found[POINTS]).values()) == {END}


def test_the_segment_that_a_roll_ends_has_the_closing_entry_that_a_killed_broker_had_not_written() -> None:
    files, name = killed(), place(20, "timeindex")
    fs = on_disk(files | {name: SOUND[name][:-12] + bytes(2400)})
    assert len(handed_over(fs).rolls) == 1
    assert contents(fs)[name] == SOUND[name]


def test_after_a_roll_there_is_nothing_to_do_and_nothing_to_roll() -> None:
    fs = on_disk(killed())
    handed_over(fs)
    for depth in ("quick", "full", "records"):
        plan = plan_of(fs, ROLL._replace(depth=depth))
        assert plan.is_empty
        assert [str(finding) for finding in plan.findings] == []
        assert rolling_segments(plan) == {}
    effects = fs.effects
    assert handed_over(fs).rolls == ()
    assert fs.effects == effects


def test_an_active_segment_below_the_threshold_is_not_rolled_and_one_at_it_is() -> None:
    for threshold, rolled in ((ACTIVE, 1), (ACTIVE + 1, 0), (None, 0)):
        done = handed_over(on_disk(killed()), OPTIONS._replace(roll_from=threshold))
        assert len(done.rolls) == rolled
        assert done.broker_scans == (0 if rolled else ACTIVE)


def renamed(name: str) -> Files:
    return {path.replace("orders-0/", f"{name}/"): data for path, data in killed().items()}


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "orders-0.0123456789abcdef0123456789abcdef-future",
                                  "orders-0.0123456789abcdef0123456789abcdef-delete",
                                  "orders-0.0123456789abcdef0123456789abcdef-stray"])  # fmt: skip
def test_the_metadata_log_and_directories_on_their_way_are_never_rolled(name: str) -> None:
    fs = on_disk(renamed(name))
    assert handed_over(fs).rolls == ()
    assert not any(place(END, partition=name) == path for path in contents(fs))


def test_a_held_partition_is_not_rolled() -> None:
    files = killed()
    rotten = bytearray(files[place(10)])
    rotten[100] ^= 1
    fs = on_disk(files | {place(10): bytes(rotten)})
    done = handed_over(fs, ROLL._replace(depth="full"))
    assert done.rolls == ()
    assert NEW[0] not in contents(fs)


def test_a_log_of_which_all_records_are_deleted_is_not_rolled() -> None:
    assert handed_over(on_disk(killed() | {STARTS: checkpoint({"orders-0": END})})).rolls == ()


def test_a_log_that_may_have_a_remote_tier_is_not_rolled() -> None:
    starts = killed() | {STARTS: checkpoint({"orders-0": 0})}  # which a broker notes for tiered logs only
    assert handed_over(on_disk(starts)).rolls == ()


def test_a_log_that_ends_at_the_last_of_all_offsets_is_not_rolled() -> None:
    for base, rolls in ((INT64_MAX - 2, 0), (INT64_MAX - 3, 1)):
        tops = {POINTS: checkpoint({"orders-0": 0}), STARTS: checkpoint({})}
        fs = on_disk(tops | {place(base): batch_v2(base, 2)})
        recover(fs, ROLL)
        (partition,) = plan_of(fs, ROLL).partitions
        assert partition.loaded is not None
        assert partition.loaded.log_end == base + 2
        assert len(rolling_segments(plan_of(fs, ROLL))) == rolls


def test_an_active_segment_that_is_flushed_is_rolled_too_for_a_broker_scans_it_as_well() -> None:
    fs = on_disk(killed() | {POINTS: checkpoint({"orders-0": END})})
    done = handed_over(fs)
    assert (done.rises, len(done.rolls)) == ((), 1)


def test_a_torn_tail_is_cut_first_and_the_new_segment_begins_where_the_log_ends_then() -> None:
    files = killed()
    fs = on_disk(files | {place(20): files[place(20)][:-10]})
    assert handed_over(fs).rolls[0].base_offset == END - 3
    assert contents(fs)[place(END - 3)] == b""


def test_beside_a_marker_no_segment_is_rolled_and_where_it_is_refused_it_is() -> None:
    marked = ROLL._replace(clean_marker=True)
    done = handed_over(on_disk(killed()), marked, marker=True)
    assert (done.marker, done.rolls) == (True, ())
    done = handed_over(on_disk(killed()), marked._replace(topics=("orders",)), marker=True)
    assert (done.marker, len(done.rolls)) == (False, 1)


class Narrow(MemoryFs):
    """A disk with room for the new points and the start of a broker, and not for what a roll takes beside them."""

    room = 60 << 10

    def free_bytes(self, path: Any) -> int:
        return self.room


def test_without_room_for_manifests_the_points_rise_and_no_segment_is_rolled() -> None:
    fs = Narrow({str(TOP / name): data for name, data in SOUND.items()})
    done = handed_over(fs)
    assert (len(done.rises), done.rolls) == (1, ())
    assert done.broker_scans == ACTIVE
    assert NEW[0] not in contents(fs)
    fs.room = 1 << 10
    with pytest.raises(NoRoom):
        handed_over(on_narrow())


def on_narrow() -> Narrow:
    fs = Narrow({str(TOP / name): data for name, data in SOUND.items()})
    fs.room = 1 << 10
    return fs


def on_a_real_disk(directory: Path) -> tuple[Path, dict[str, tuple[int, int, int, str]]]:
    log_dir = write_tree(directory / "data", killed())
    for path in log_dir.rglob("*.*index"):
        os.utime(path, ns=(1, 1_600_000_000_123_456_789))
    before = tree(log_dir)
    fs = OsFs()
    plan = plan_log_dir(fs, log_dir, ROLL).plan
    assert plan.is_empty
    assert len(hand_over(fs, plan, Orders("", 2, "test"), SilentReporter()).rolls) == 1
    return log_dir, before


def test_a_roll_is_undone_bit_for_bit(tmp_path: Path) -> None:
    log_dir, before = on_a_real_disk(tmp_path)
    assert NEW[0] in read_tree(log_dir)
    restore(OsFs(), find_kept(OsFs(), [log_dir])[0])
    assert tree(log_dir) == before


def test_a_roll_is_not_undone_once_a_broker_has_appended(tmp_path: Path) -> None:
    log_dir, _ = on_a_real_disk(tmp_path)
    (log_dir / NEW[0]).write_bytes(SOUND[place(0)])
    appended = tree(log_dir)
    with pytest.raises(PlanStale, match=r"30\.log"):
        restore(OsFs(), find_kept(OsFs(), [log_dir])[0])
    assert tree(log_dir) == appended
