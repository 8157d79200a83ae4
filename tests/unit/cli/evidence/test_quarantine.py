"""The quarantine can be listed, shown, restored, and deleted when the operator says so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.batches import batch_v2
from support.command import make_log_dir, sound_log
from support.recovering import kept_by_us, tree

from cli.evidence.quarantine import log_dir_of
from cli.main import main

TORN = sound_log() + batch_v2(6, 2)[:50]


@pytest.fixture
def recovered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the `.log` of a log directory that was recovered."""
    log = make_log_dir(tmp_path, TORN)
    assert main(["recover", str(tmp_path)]) == 0
    capsys.readouterr()
    return log


def listed(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["quarantine", "list", "--json", str(log_dir)]) == 0
    kept: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["kept"]
    return kept


def test_a_list_has_a_line_for_each_plan_and_partition(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quarantine", "list", str(recovered.parents[1])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("orders-0" in line for line in lines)
    assert "kept" in lines[-1]


def test_show_names_the_bytes_that_were_cut(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quarantine", "show", "--partition", "orders-0", str(recovered.parents[1])]) == 0
    shown = capsys.readouterr().out
    assert f"{recovered.name} at {len(sound_log())}" in shown
    assert "sha256" in shown


def test_restore_puts_the_very_bytes_back(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = recovered.parents[1]
    plan_id = listed(log_dir, capsys)[0]["manifest"]["plan_id"]
    assert main(["quarantine", "restore", "--plan", plan_id, str(log_dir)]) == 0
    assert recovered.read_bytes() == TORN
    assert "next: logmend verify" in capsys.readouterr().out
    assert all(one["manifest"]["plan_id"] != plan_id for one in listed(log_dir, capsys))


def test_restoring_all_also_puts_the_recovery_points_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = make_log_dir(tmp_path, TORN)
    before = tree(tmp_path)
    assert main(["recover", str(tmp_path)]) == 0
    assert "1 recovery point raised" in capsys.readouterr().out
    assert tree(tmp_path)["recovery-point-offset-checkpoint"] != before["recovery-point-offset-checkpoint"]
    assert main(["quarantine", "restore", "--all", str(tmp_path)]) == 0
    assert tree(tmp_path) == before
    assert log.read_bytes() == TORN


def test_restore_needs_a_plan_by_name(recovered: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["quarantine", "restore", str(recovered.parents[1])])
    assert ended.value.code == 2


def test_a_plan_that_is_not_there_is_wrong_usage(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quarantine", "restore", "--plan", "0" * 12, str(recovered.parents[1])]) == 2
    assert "no manifest of plan 000000000000" in capsys.readouterr().err


def test_restore_refuses_where_a_broker_has_gone_on(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = recovered.parents[1]
    plan_id = listed(log_dir, capsys)[0]["manifest"]["plan_id"]
    went_on = recovered.read_bytes() + batch_v2(6, 1, leader_epoch=9)
    recovered.write_bytes(went_on)
    assert main(["quarantine", "restore", "--plan", plan_id, str(log_dir)]) == 7
    assert recovered.read_bytes() == went_on


def test_expire_lets_go_only_of_what_is_old_enough(
    recovered: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = recovered.parents[1]
    assert main(["quarantine", "expire", "--older-than", "1", str(log_dir)]) == 0
    assert listed(log_dir, capsys) != []
    later = time.time_ns() + 2 * 86_400 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert main(["quarantine", "expire", "--older-than", "1", str(log_dir)]) == 0
    assert [path.name for path in log_dir.rglob("*") if kept_by_us(path.name)] == []
    assert recovered.read_bytes() == sound_log()


@pytest.mark.parametrize("days", ["-1", "x", "1.5", "9" * 30])
def test_an_age_is_a_number_of_days(recovered: Path, days: str) -> None:
    assert main(["quarantine", "expire", f"--older-than={days}", str(recovered.parents[1])]) == 2


def test_expire_never_takes_everything_without_a_word(recovered: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["quarantine", "expire", str(recovered.parents[1])])
    assert ended.value.code == 2


def test_a_manifest_that_cannot_be_read_is_reported(recovered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (recovered.parent / "0123456789ab.logmend.json").write_text("{}")
    assert main(["quarantine", "list", str(recovered.parents[1])]) == 1
    assert "0123456789ab.logmend.json" in capsys.readouterr().err


def test_the_lock_is_that_of_the_log_directory_whatever_that_is_called(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data-0", TORN)
    assert log_dir_of(log.parent) == tmp_path / "data-0"
    assert log_dir_of(tmp_path / "data-0") == tmp_path / "data-0"
