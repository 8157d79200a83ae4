"""Many partitions that wait for the same syncs end as those do that wait for their own."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.damages import KINDS
from support.log_dirs import OPTIONS, POINTS, SOUND, TOP, Files, checkpoint, damaged, on_disk
from support.memory_fs import MemoryFs, TracingFs
from support.needs import impossible

from recovery.apply import together
from recovery.apply.execute import Executed, execute
from recovery.apply.hand_over import hand_over
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from storage.disk.fs import FileStat, Fs, OsFs

MANY = 12
PARTITIONS = [f"orders-{number}" for number in range(MANY)]


def many(*kinds: str) -> Files:
    """Return a log directory with many partitions, damaged in these ways in turns."""
    files: Files = {name: data for name, data in SOUND.items() if "/" not in name}
    for number, partition in enumerate(PARTITIONS):
        one = damaged(KINDS[kinds[number % len(kinds)]], files=SOUND)
        files |= {
            name.replace("orders-0/", f"{partition}/"): data
            for name, data in one.items()
            if name.startswith("orders-0/")
        }
    return files | {POINTS: checkpoint(dict.fromkeys(PARTITIONS, 20))}


def carry_out(fs: Fs, top: PurePath = TOP, *, is_together: bool = True, threads: int = 4, **more: Any) -> Executed:
    planned = plan_log_dir(fs, top, OPTIONS)
    orders = Orders("0123456789ab", 1, "test", **more)
    return execute(
        fs, planned.plan, planned.content_of, orders, SilentReporter(), threads=threads, together=is_together
    )


@pytest.mark.parametrize("kinds", [["indexes_wrong"], ["torn_tail", "damage_with_later_segments", "indexes_wrong"]])
def test_all_ends_as_with_a_sync_for_each_file(kinds: list[str]) -> None:
    files = many(*kinds)
    one, other = on_disk(files), on_disk(files)
    first, second = carry_out(one), carry_out(other, is_together=False)
    assert one.contents(str(TOP)) == other.contents(str(TOP)) != files
    assert (first.actions, first.kept_bytes, first.synced) == (second.actions, second.kept_bytes, second.synced)
    assert first.manifests == second.manifests
    assert [left.to_fs(one).contents(str(TOP)) for left in one.crash_states()] == [one.contents(str(TOP))]


def test_a_few_syncs_of_all_stand_for_many() -> None:
    fs, alone = (TracingFs(on_disk(many("torn_tail"))) for _ in range(2))
    carry_out(fs)
    carry_out(alone, is_together=False)
    of_one = [call for call in fs.calls if call.method in ("sync", "sync_file", "sync_dir")]
    assert all(call.path.parent in (TOP, TOP.parent) for call in of_one), "in the log directory itself there are a few"
    assert fs.methods().count("sync_volume") <= 12
    assert sum(call.method in ("sync", "sync_file", "sync_dir") for call in alone.calls) > 100


@pytest.mark.parametrize("more", [{"is_together": False}, {"quarantine_dir": PurePath("/keep")}], ids=["alone", "keep"])
def test_without_being_asked_or_with_copies_elsewhere_each_is_synced(more: dict[str, Any]) -> None:
    disk = on_disk(many("torn_tail"))
    disk.make_dir(PurePath("/keep"))
    fs = TracingFs(disk)
    carry_out(fs, **more)
    assert "sync_volume" not in fs.methods()


def test_a_few_files_are_synced_one_by_one() -> None:
    fs = TracingFs(on_disk(damaged(KINDS["torn_tail"], files=SOUND)))
    carry_out(fs)
    assert "sync_volume" not in fs.methods()
    assert "sync_file" in fs.methods()


class Mounted(MemoryFs):
    """Partitions with an odd number lie on another device."""

    def stat(self, path: PurePath) -> FileStat:
        found = super().stat(path)
        return found._replace(device=2) if path.name in PARTITIONS[1::2] else found


def test_what_lies_on_another_device_is_synced_file_by_file() -> None:
    disk = Mounted()
    for name, data in many("indexes_wrong").items():
        disk.plant(TOP / name, content=data)
    fs = TracingFs(disk)
    carry_out(fs)
    synced = {call.path.parent.name for call in fs.calls if call.method == "sync"}
    assert synced & set(PARTITIONS) == set(PARTITIONS[1::2])
    assert [left.to_fs(disk).contents(str(TOP)) for left in disk.crash_states()] == [disk.contents(str(TOP))]


def test_a_partition_that_is_reached_by_a_link_is_synced_file_by_file(tmp_path: Path) -> None:
    log_dir, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for name, data in many("indexes_wrong").items():
        (log_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (log_dir / name).write_bytes(data)
    os.rename(log_dir / "orders-3", elsewhere)
    (log_dir / "orders-3").symlink_to(elsewhere)
    if OsFs().volume(log_dir) is None:
        impossible("no ext4 or xfs, or a Linux that is too old")
    fs = TracingFs(OsFs())
    carry_out(fs, log_dir)
    assert "sync_volume" in fs.methods()
    assert {c.path.parent.name for c in fs.calls if c.method == "sync_file"} & set(PARTITIONS) <= {"orders-3"}
    assert {c.path.name for c in fs.calls if c.method == "sync_dir"} & set(PARTITIONS) <= {"orders-3"}
    assert plan_log_dir(OsFs(), log_dir, OPTIONS).plan.is_empty


def handed_over(fs: MemoryFs) -> TracingFs:
    carry_out(fs)
    plan = plan_log_dir(fs, TOP, OPTIONS).plan
    traced = TracingFs(fs)
    done = hand_over(traced, plan, Orders(plan.plan_id, 2, "test"), SilentReporter(), threads=4)
    assert len(done.rises) == MANY
    return traced


def test_a_hand_over_of_many_syncs_all_before_the_points_rise() -> None:
    traced = handed_over(on_disk(many("torn_tail")))
    (place,) = (number for number, call in enumerate(traced.calls) if call.method == "sync_volume")
    assert place < traced.place("rename", "recovery-point-offset-checkpoint.tmp")
    assert "sync_file" not in traced.methods()


def test_a_hand_over_syncs_what_lies_on_another_device_by_itself() -> None:
    disk = Mounted()
    for name, data in many("torn_tail").items():
        disk.plant(TOP / name, content=data)
    traced = handed_over(disk)
    directories = {call.path.name for call in traced.calls if call.method == "sync_dir"} - {TOP.name}
    assert directories == set(PARTITIONS[1::2])
    files = {call.path.parent.name for call in traced.calls if call.method == "sync_file"}
    assert files == directories


def test_no_more_files_are_open_at_once_than_a_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = together.GroupSync.run

    def run(self: Any, call: Any, items: Any, threads: int) -> Any:
        seen.append(threads)
        return real(self, call, items, threads)

    monkeypatch.setattr(together.GroupSync, "run", run)
    monkeypatch.setattr(together, "_OPEN_FILES", 12)
    disk = on_disk(many("indexes_wrong"))
    plan = plan_log_dir(disk, TOP, OPTIONS).plan
    carry_out(disk)
    assert set(seen) == {12 // max(len(partition.actions) for partition in plan.partitions)}
