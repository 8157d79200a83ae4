"""A running broker moves a partition between its log directories while they are looked at, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import pytest
from support.calling import call
from support.command import make_log_dir, sound_log

from cli.recover import work
from recovery.logdir.survey import find_duplicates
from recovery.plan.plan import LogDirPlan


@pytest.fixture
def log_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two log directories that hold one partition, as if a broker ran on them."""
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        make_log_dir(home, sound_log())
        assert call("recover", home).returncode == 0
    monkeypatch.setattr(work, "is_in_use", lambda _: True)
    return homes


def test_a_partition_that_was_seen_in_both_and_is_in_one_now_is_no_finding(
    log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = log_dirs[0] / "orders-0"

    def finish_the_move(plans: Sequence[LogDirPlan]) -> dict[str, list[PurePath]]:
        places = find_duplicates(plans)
        old.rename(old.with_name(f"orders-0.{'0a' * 16}-delete"))
        return places

    monkeypatch.setattr(work, "find_duplicates", finish_the_move)
    done = call("verify", *log_dirs)
    assert (done.returncode, "duplicate_partition" in done.stdout) == (0, False), done.stdout


def test_a_partition_that_stays_in_both_is_a_finding(log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_MOVE_SECONDS", 0.2)
    done = call("verify", *log_dirs)
    assert (done.returncode, done.stdout.count("duplicate_partition")) == (1, 2)
