"""`plan` and `recover` find the marks of the guard where `run` keeps them, and say what they did not read."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.calling import call
from support.marking import mark_of
from support.runbook_cases import sound

from checkpoint.markers import decode_partition_metadata
from recovery.segment.mark_store import MarkStore
from recovery.segment.marks import FILE_NAME, Mark
from storage.disk.boot import read_boot_id


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound(tmp_path_factory.mktemp("whole") / "data")


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


@pytest.fixture
def state(data: Path, tmp_path: Path) -> Path:
    """Return a state directory with a mark at the end of each log."""
    made = tmp_path / "state"
    made.mkdir()
    marks = [mark for log in sorted(data.glob("*-*/*.log")) if (mark := mark_here(log)) is not None]
    with MarkStore(made) as store:
        store.put(data, marks)
    return made


def mark_here(log: Path) -> Mark | None:
    metadata = log.with_name("partition.metadata")
    topic_id = decode_partition_metadata(metadata.read_bytes()).topic_id.hex() if metadata.exists() else None
    return mark_of(log, topic_id=topic_id, boot_id=read_boot_id(), made_ms=time.time_ns() // 1_000_000 - 4_000)


def result_of(*words: object) -> Any:
    return json.loads(call(*words, "--json").stdout)["results"][0]


def test_recover_says_what_it_did_not_read_and_who_did(data: Path, state: Path) -> None:
    for name in ("plan", "recover"):
        line = call(name, "--state-dir", state, data).stdout.splitlines()[0]
        assert "were verified by the guard up to " in line
        assert "before (--no-marks reads them)" in line
        assert name == "plan" or "clean as far as read: " in line


def test_the_plan_is_the_same_with_marks_and_without(data: Path, state: Path) -> None:
    shown = [call("plan", "--json", "--state-dir", state, *more, data).stdout for more in ((), ("--no-marks",))]
    assert shown[0] == shown[1]
    assert "were verified" not in call("plan", "--state-dir", state, "--no-marks", data).stdout


def test_the_bytes_that_were_read_and_those_that_were_not_are_told_apart(data: Path, state: Path) -> None:
    result = result_of("recover", "--state-dir", state, data)
    assert result["marked_bytes"] == result["read"]["marked"] > 0
    assert result["read"]["marked_age_ms"] >= 4_000
    assert result["marked_bytes"] + result["scanned_bytes"] == result["read"]["unflushed"] + result["read"]["flushed"]


def test_a_time_to_come_is_not_told_as_an_age(data: Path, state: Path) -> None:
    with MarkStore(state) as store:
        store.put(data, [mark._replace(made_ms=1 << 50) for (mark,) in store.read(data).values()])
    assert "were verified by the guard before (" in call("recover", "--state-dir", state, data).stdout


@pytest.mark.parametrize("how", ["file", "systemd"])
def test_the_state_directory_is_found_as_run_does(
    data: Path, state: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "logmend.toml"
    config.write_text(f"state_dir = {json.dumps(str(state))}\n")
    monkeypatch.setenv("STATE_DIRECTORY", str(state) if how == "systemd" else "")
    words = ("--config", config) if how == "file" else ()
    assert result_of("recover", *words, data)["marked_bytes"] > 0


@pytest.mark.parametrize("words", [("--depth", "full"), ("--accept-loss",), ("--clean-marker", "4.3")])
def test_what_is_asked_for_is_read(data: Path, state: Path, words: tuple[str, ...]) -> None:
    assert result_of("recover", "--state-dir", state, *words, data)["marked_bytes"] == 0


def test_a_damaged_store_or_none_is_no_trouble(data: Path, state: Path, tmp_path: Path) -> None:
    (state / FILE_NAME).write_bytes(b"rubbish")
    for place in (state, tmp_path / "nowhere"):
        done = call("plan", "--state-dir", place, data)
        assert "verified by the guard" not in done.stdout
        assert done.stderr == ""
