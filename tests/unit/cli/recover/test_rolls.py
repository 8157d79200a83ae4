"""The flags of the roll, and what `plan` and `recover` say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.calling import call
from support.faults import write_tree
from support.log_dirs import END, SOUND, place

ACTIVE = len(SOUND[place(20)])


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "data", SOUND)


def is_rolled(log_dir: Path) -> bool:
    return (log_dir / place(END)).exists()


def test_plan_shows_the_roll_and_its_json_the_segment(log_dir: Path) -> None:
    shown = call("plan", "--roll-from", "1", log_dir)
    assert f"1 active segment of {ACTIVE} B rolled" in shown.stdout
    (plan,) = json.loads(call("plan", "--roll-from", "1", "--json", log_dir).stdout)["plans"]
    assert [partition["roll"] for partition in plan["partitions"]] == [{"base_offset": END, "size": ACTIVE}]
    assert "rolled" not in call("plan", "--roll-from", "1", "--clean-marker", "4.3", log_dir).stdout
    assert not is_rolled(log_dir)


def test_recover_rolls_from_the_size_that_it_is_given_and_says_so(log_dir: Path) -> None:
    done = call("recover", "--roll-from", str(ACTIVE), "--json", log_dir)
    (result,) = json.loads(done.stdout)["results"]
    assert result["hand_over"]["rolls"] == [{"partition": "orders-0", "base_offset": END, "size": ACTIVE}]
    assert result["hand_over"]["broker_scans"] == 0
    assert is_rolled(log_dir)


@pytest.mark.parametrize("words", [(), ("--keep-segments",), ("--roll-from", "1", "--keep-segments"),
                                   ("--roll-from", "1", "--keep-points")])  # fmt: skip
def test_small_segments_stay_and_so_do_all_with_keep_segments_or_keep_points(
    words: tuple[str, ...], log_dir: Path
) -> None:
    assert "rolled" not in call("recover", *words, log_dir).stdout
    assert not is_rolled(log_dir)


def test_apply_rolls_as_the_plan_says(log_dir: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    call("plan", "--roll-from", "1", "--out", plan, log_dir)
    assert "1 active segment" in call("apply", plan).stdout
    assert is_rolled(log_dir)


def test_a_threshold_that_is_no_size_is_refused(log_dir: Path) -> None:
    done = call("recover", "--roll-from", "1MB", log_dir)
    assert done.returncode == 2
    assert "--roll-from 1MB" in done.stderr
