"""Files that go away between listing and reading: a running broker's retention, compaction and rolls."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.log_dirs import OPTIONS, SOUND, TOP, damaged, on_disk, place
from support.wrapped_fs import WrappedFs

from recovery.logdir.survey import plan_log_dir, plan_partition_dir
from recovery.plan.findings import Damage
from recovery.plan.plan import LogDirPlan
from storage.base.errors import ExitStatus
from storage.disk.fs import Fs, ReadFile

LOG = place(20)


class Busy(WrappedFs):
    """A disk on which another process truncates a log right before it is opened, the first `times` times."""

    def __init__(self, inner: Fs, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def open_read(self, path: PurePath) -> ReadFile:
        if path == TOP / LOG and self.times > 0:
            self.times -= 1
            self.inner.truncate(path, self.inner.stat(path).size - 1)
        return super().open_read(path)


def planned(times: int) -> LogDirPlan:
    return plan_log_dir(Busy(on_disk(SOUND), times), TOP, OPTIONS).plan


def test_a_log_that_is_cut_while_it_is_read_is_looked_at_again() -> None:
    kinds = {finding.kind for finding in planned(1).findings}
    assert Damage.TORN_TAIL in kinds
    assert not kinds & {Damage.VANISHED, Damage.READ_ERROR}


def test_a_log_that_changes_at_every_look_is_not_clean() -> None:
    plan = planned(100)
    assert (plan.is_empty, plan.stopped, plan.status) == (True, True, ExitStatus.ENVIRONMENT)
    assert "at each of 3 looks" in "".join(str(finding) for finding in plan.findings)


@pytest.mark.parametrize(("times", "status"), [(1, ExitStatus.FINDINGS), (100, ExitStatus.ENVIRONMENT)])
def test_neither_is_a_partition_that_is_looked_at_alone(times: int, status: ExitStatus) -> None:
    fs = Busy(on_disk(damaged()), times)
    assert plan_partition_dir(fs, TOP / "orders-0", OPTIONS).plan.status is status


def test_a_partition_that_was_deleted_meanwhile_is_none() -> None:
    class Deleting(WrappedFs):
        def open_read(self, path: PurePath) -> ReadFile:
            for name in self.inner.entries(TOP / "orders-0") if path == TOP / LOG else ():
                self.inner.remove(TOP / "orders-0" / name)
            if path == TOP / LOG:
                self.inner.remove_dir(TOP / "orders-0")
            return super().open_read(path)

    plan = plan_log_dir(Deleting(on_disk(SOUND)), TOP, OPTIONS).plan
    assert [finding.kind for finding in plan.findings] == [Damage.VANISHED]
    assert plan.status is ExitStatus.CLEAN
