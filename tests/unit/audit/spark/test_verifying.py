"""Jobs that fail, and which tasks are to blame, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.spark.steps import Staging
from audit.spark.verifying import Driver, evenly, grouped, numbered, task_size


class Failed(Exception):
    pass


class Cluster:
    """Runs tasks in order; those in `deadly` end the job. Task 10 n + m is segment m of task n."""

    def __init__(self, root: Path, deadly: set[int], parts: int = 3) -> None:
        self.staging = Staging(str(root), str(root / "_staging"))
        self.staging.prepare()
        self.deadly, self.parts, self.jobs, self.ran = deadly, parts, 0, []
        self.driver = Driver(self.staging, self.run_job, self.split, (Failed,))

    def run_job(self, tasks: frozenset[int] | None) -> list[int]:
        self.jobs += 1
        for task in sorted(tasks or ()):
            self.staging.mark(task)
            if task in self.deadly or any(task * 10 + part in self.deadly for part in range(self.parts)):
                raise Failed(f"Job aborted\nLost task {task}: the worker was killed")
            self.ran.append(task)
            self.staging.write(task, [])
        return sorted(tasks or ())

    def split(self, task: int) -> list[int]:
        return [] if self.parts == 1 else [task * 10 + part for part in range(self.parts)]


def test_tasks_that_all_succeed_are_one_job_for_each_wave(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, set())
    assert cluster.driver.run(range(1, 6), wave=2).failed == {}
    assert (cluster.jobs, cluster.ran) == (3, [1, 2, 3, 4, 5])


def test_what_has_a_result_is_not_run_again(tmp_path: Path) -> None:
    Cluster(tmp_path, set()).driver.run([1, 2], wave=9)
    again = Cluster(tmp_path, set())
    again.driver.run([1, 2, 3], wave=9)
    assert again.ran == [3]


def test_one_segment_that_kills_is_found_out_and_all_others_are_done(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {31})
    failed = cluster.driver.run(range(1, 6), wave=9).failed
    assert failed == {31: "Lost task 31: the worker was killed"}
    assert sorted(cluster.ran) == [1, 2, 4, 5, 30, 32]


def test_a_task_of_one_segment_is_named_itself(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {3}, parts=1)
    assert set(cluster.driver.run(range(1, 6), wave=9).failed) == {3}


def test_where_nothing_works_at_all_the_audit_fails(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, set(range(100)))
    with pytest.raises(Failed):
        cluster.driver.run(range(1, 50), wave=9)
    assert cluster.jobs < 10


def test_small_directories_share_a_task_and_large_ones_have_a_group_of_their_own() -> None:
    assert grouped([10, 20, 30, 500, 10], 100) == [(0, 0), (0, 10), (0, 30), (1, 0), (2, 0)]


def test_tasks_beside_one_another_are_of_different_groups() -> None:
    assert list(numbered([(0, 2), (1, 3)])) == [(0, 0, 0), (1, 0, 1), (0, 1, 2), (1, 1, 3), (1, 2, 4)]


def test_a_group_is_cut_into_tasks_of_one_size_that_together_hold_all_of_it() -> None:
    assert evenly(0, 100) == (1, 1)
    assert evenly(110, 100) == (1, 110)
    assert evenly(111, 100) == (2, 56)
    assert evenly(825, 100) == (8, 104)
    for cost in range(1, 2000, 7):
        count, size = evenly(cost, 100)
        assert (count - 1) * size < cost <= count * size
        assert size <= 110


def test_a_task_is_smaller_where_slots_would_be_idle_but_never_tiny() -> None:
    gib = 1 << 30
    assert task_size(1000 * gib, 4, 4 * gib) == 4 * gib
    assert task_size(12 * gib, 4, 4 * gib) == gib
    assert task_size(gib, 4, 4 * gib) == 256 << 20
    assert task_size(0, 4, 4 * gib) == 256 << 20
