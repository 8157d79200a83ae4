"""`config show` tells the settings in force and where each came from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main


def test_every_setting_is_shown_with_its_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "logmend.toml"
    file.write_text('log_dirs = ["/a", "/b"]\n')
    monkeypatch.setenv("LOGMEND_DEPTH", "full")
    assert main(["config", "show", "--origin", "--config", str(file)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"log_dirs /a, /b {file}: log_dirs" in lines
    assert "depth full environment LOGMEND_DEPTH" in lines
    assert "segment_index_bytes 10485760 default" in lines


def test_without_origin_it_says_what_each_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show"]) == 0
    assert "how much of a flushed segment is read" in capsys.readouterr().out


def test_json_has_value_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "config", "show", "/named"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["log_dirs"] == {"value": ["/named"], "origin": "flag"}


def test_a_key_that_is_unknown_is_named_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "logmend.toml"
    file.write_text("depht = 'full'\n")
    assert main(["config", "show", "--config", str(file)]) == 2
    assert "did you mean depth?" in capsys.readouterr().err
