"""Partitions that are worked on at the same time end as those worked on one after another."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden
from support.mutate import mutate
from support.recovering import options_of, plan, tree

from recovery.apply.execute import Executed, execute
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from storage.base.errors import WriteFault
from storage.disk.fs import OsFs, WriteFile

OPTIONS = options_of(golden.expected("two-disks")["config"])


def damaged(tmp_path: Path) -> Path:
    log_dir = golden.unpack("two-disks", tmp_path)["0/data/events-5"].parent
    for number, partition in enumerate(sorted(log_dir.glob("events-*"))):
        mutate(partition, number, 1, ["tail_torn", "tail_grown"])
    return log_dir


def carry_out(log_dir: Path, threads: int, fs: OsFs) -> Executed:
    planned = plan_log_dir(fs, log_dir, OPTIONS)
    orders = Orders("0123456789ab", 1, "test")
    return execute(fs, planned.plan, planned.content_of, orders, SilentReporter(), threads=threads)


def contents(log_dir: Path) -> dict[str, tuple[int, str]]:
    return {n: (size, sha) for n, (size, _, _, sha) in tree(log_dir).items() if not n.endswith(".json")}


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    one, many = damaged(tmp_path / "one"), damaged(tmp_path / "many")
    before = contents(one)
    first, second = carry_out(one, 1, OsFs()), carry_out(many, 8, OsFs())
    assert contents(one) == contents(many) != before
    assert (first.actions, first.kept_bytes, len(first.manifests)) == (
        second.actions,
        second.kept_bytes,
        len(second.manifests),
    )
    assert plan(many, OPTIONS).is_empty


class _Failing(OsFs):
    """Refuses to make anything in one partition."""

    def create(self, path, like=None) -> WriteFile:  # type: ignore[no-untyped-def]
        if path.parent.name == "events-3":
            raise WriteFault("opening", path, OSError(5, "EIO"))
        return super().create(path, like)


def test_a_partition_that_fails_is_told_and_the_next_run_finishes_it(tmp_path: Path) -> None:
    log_dir = damaged(tmp_path)
    with pytest.raises(WriteFault, match="events-3"):
        carry_out(log_dir, 8, _Failing())
    carry_out(log_dir, 8, OsFs())
    assert plan(log_dir, OPTIONS).is_empty
