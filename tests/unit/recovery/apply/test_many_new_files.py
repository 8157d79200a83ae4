"""Files that have to be made: each costs the same, however many there are."""

from __future__ import annotations

from pathlib import PurePath

from support.log_dirs import OPTIONS, SOUND, TOP, on_disk, plan_of
from support.wrapped_fs import TracingFs

from recovery.apply.execute import execute
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders


def test_a_directory_is_not_listed_for_each_of_them() -> None:
    files = {name: data for name, data in SOUND.items() if not name.endswith(("index", "snapshot"))}
    fs = on_disk({**files, "recovery-point-offset-checkpoint": b"0\n0\n"})
    planned = plan_log_dir(fs, TOP, OPTIONS)
    made = [action for action in planned.plan.partitions[0].actions if not getattr(action, "replaces", True)]
    assert len(made) > 5
    traced = TracingFs(fs, looks=True)
    execute(traced, planned.plan, planned.content_of, Orders(planned.plan.plan_id, 1, "test"), SilentReporter())
    lists = [call for call in traced.calls if call.method == "entries" and call.path == PurePath(TOP / "orders-0")]
    assert len(lists) == 1
    assert plan_of(fs).is_empty
