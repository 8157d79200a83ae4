"""Handing over makes durable what may not be, and goes by what the last look has seen."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.damages import KINDS
from support.log_dirs import OPTIONS, SOUND, TOP, damaged, on_disk, recover
from support.memory_fs import TracingFs

from recovery.apply.hand_over import hand_over
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan, to_plain

PARTITION = TOP / "orders-0"


def handed_over(threads: int) -> tuple[TracingFs, LogDirPlan]:
    """Recover, look again and hand over; return the calls of the last step, and the plan that it went by."""
    disk = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
    recover(disk)
    plan = plan_log_dir(disk, TOP, OPTIONS).plan
    fs = TracingFs(disk, looks=True)
    hand_over(fs, plan, Orders(plan.plan_id, 2, "test"), SilentReporter(), threads=threads)
    return fs, plan


@pytest.mark.parametrize("threads", [1, 4])
def test_all_from_the_segment_of_the_recovery_point_on_is_synced_before_the_points_rise(threads: int) -> None:
    fs, plan = handed_over(threads)
    (partition,) = (p for p in plan.partitions if p.partition == "orders-0")
    assert partition.loaded is not None
    assert partition.loaded.recovery_point < partition.loaded.log_end
    rise = fs.place("rename", "recovery-point-offset-checkpoint.tmp")
    synced = {call.path for call in fs.calls[:rise] if call.method == "sync_file"}
    names, point = fs.entries(PARTITION), partition.loaded.recovery_point
    first = max(int(name[:20]) for name in names if name.endswith(".log") and int(name[:20]) <= point)
    numbered = {name for name in names if name[:20].isdigit() and int(name[:20]) >= first}
    assert {path.name for path in synced if path.parent == PARTITION} >= numbered
    assert any(call.method == "sync_dir" and call.path == PARTITION for call in fs.calls[:rise])


def test_no_partition_is_listed_again() -> None:
    fs, _ = handed_over(1)
    assert [call for call in fs.calls if call.method == "entries" and call.path == PARTITION] == []


def test_what_a_look_has_seen_is_no_part_of_the_plan() -> None:
    _, plan = handed_over(1)
    assert any(partition.seen is not None for partition in plan.partitions)
    assert "seen" not in to_plain(plan)["partitions"][0]


def test_what_carrying_out_the_plan_has_synced_is_not_synced_again_and_all_else_is() -> None:
    everything, _ = synced_by_hand_over(skipped=False)
    rest, done = synced_by_hand_over(skipped=True)
    assert everything & done
    assert rest == everything - done


def synced_by_hand_over(*, skipped: bool) -> tuple[set[PurePath], set[PurePath]]:
    """Return the files of the partition that a hand-over syncs, and those that carrying out the plan has synced."""
    disk = on_disk(damaged(KINDS["torn_tail"], files=SOUND))
    done = recover(disk).synced
    plan = plan_log_dir(disk, TOP, OPTIONS).plan
    fs = TracingFs(disk, looks=True)
    synced = done if skipped else set[PurePath]()
    hand_over(fs, plan, Orders(plan.plan_id, 2, "test"), SilentReporter(), synced=synced)
    return {call.path for call in fs.calls if call.method == "sync_file" and call.path.parent == PARTITION}, done
