"""Where `--quarantine` keeps copies: directories durable before anything is cut, and leading nowhere else."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest
from support.batches import batch_v2
from support.log_dirs import OPTIONS, SOUND, TOP, damaged, on_disk, place, plan_of, recover
from support.recovering import plan, tree
from support.recovering import recover as recover_on_disk
from support.wrapped_fs import TracingFs

from recovery.apply.execute import execute
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from storage.base.errors import WriteFault
from storage.disk.fs import OsFs

KEPT = PurePath("/kept")
TORN = damaged(lambda files: files.update({place(20): SOUND[place(20)] + batch_v2(30, 2)[:40]}))


def test_directories_that_an_earlier_attempt_made_are_synced_as_well() -> None:
    fs = on_disk(TORN)
    plan_id = plan_of(fs).plan_id
    for made in (KEPT, KEPT / plan_id, KEPT / plan_id / "orders-0"):
        fs.make_dir(made)
    traced = TracingFs(fs)
    recover(traced, quarantine_dir=KEPT)
    calls = [(call.method, call.path) for call in traced.calls]
    cut = calls.index(("truncate", TOP / place(20)))
    assert {("sync_dir", KEPT), ("sync_dir", KEPT / plan_id)} <= set(calls[:cut])


@pytest.mark.parametrize("level", [1, 2])
def test_a_link_below_the_place_is_refused_before_anything_changes(tmp_path: Path, level: int) -> None:
    home, kept, away = tmp_path / "data", tmp_path / "kept", tmp_path / "away"
    for name, data in TORN.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    names = [plan(home, OPTIONS).plan_id, "orders-0"]
    (away / "orders-0").mkdir(parents=True)
    kept.joinpath(*names[: level - 1]).mkdir(parents=True)
    kept.joinpath(*names[:level]).symlink_to(away)
    was = tree(home)
    with pytest.raises(WriteFault, match="keeping copies in it"):
        recover_on_disk(home, OPTIONS, quarantine_dir=kept)
    assert tree(home) == was
    assert list(away.rglob("*.logmend*")) == []


def test_partitions_that_are_worked_on_at_a_time_share_the_place(tmp_path: Path) -> None:
    home, kept = tmp_path / "data", tmp_path / "kept"
    kept.mkdir()
    for number in range(12):
        (home / f"orders-{number}").mkdir(parents=True)
        (home / f"orders-{number}" / PurePath(place(0)).name).write_bytes(batch_v2(0, 2) + b"torn")
    points = "".join(f"orders {number} 0\n" for number in range(12))
    (home / "recovery-point-offset-checkpoint").write_text(f"0\n12\n{points}")
    planned = plan_log_dir(OsFs(), home, OPTIONS)
    orders = Orders(planned.plan.plan_id, 1, "test", kept)
    execute(OsFs(), planned.plan, planned.content_of, orders, SilentReporter(), threads=8)
    assert len(list(kept.rglob("*.json"))) == 12
