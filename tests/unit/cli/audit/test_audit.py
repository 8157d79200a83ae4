"""`logmend audit` and its commands as a person types them, without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.audit_tables import healthy_fleet, write_tables
from support.command import environment, logmend
from support.fleets import copy_fleet, plant_rot

from cli.audit.audit import size_of
from storage.base.errors import ConfigInvalid


def test_without_java_it_says_how_to_install_one_and_ends_with_5(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "meta.properties").touch()
    env = environment(PATH=str(tmp_path / "bin"))
    env.pop("JAVA_HOME", None)
    done = logmend("audit", "--log-dir", f"1={tmp_path}", "--out", tmp_path / "out", env=env)
    assert done.returncode == 5
    assert "Spark needs Java 17 or 21" in done.stderr
    assert "To install it: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log-dir", "1=/a"], "--out DIR is missing"),
        (["--out", "o"], "--manifest FILE, or --log-dir BROKER=PATH"),
        (["--out", "o", "--log-dir", "/a"], "BROKER=PATH is wanted"),
        (["--out", "o", "--log-dir", "1=/a", "--manifest", "m.csv"], "not both"),
        (["--out", "o", "--log-dir", "1=/a", "--audit-id", "../x"], "audit id"),
        (["--out", "o", "--log-dir", "1=/a", "--task-bytes", "many"], "not a size such as"),
        (["--out", "o", "--log-dir", "1=/a", "--cycle", "0"], "--cycle: 1 or more"),
        (["plan-heal", "nowhere"], "no audit"),
    ],
)
def test_wrong_usage_is_said_in_a_line_and_ends_with_2(words: list[str], said: str) -> None:
    done = logmend("audit", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("words", [["--out", "o"], ["scan", "-o", "r.parquet"]], ids=["audit", "scan"])
def test_a_directory_without_logs_is_a_mistake_as_for_verify(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "above" / "data").mkdir(parents=True)
    (tmp_path / "above" / "data" / "meta.properties").touch()
    for name, said in (("empty", "is empty, so nothing was read"), ("above", f"{tmp_path / 'above' / 'data'}")):
        done = logmend("audit", *words, "--log-dir", f"1={tmp_path / name}")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr


def test_a_size_has_a_unit() -> None:
    assert [size_of("-x", text) for text in ("5", "2k", "3M", "4GiB", "1t")] == [5, 2048, 3 << 20, 4 << 30, 1 << 40]
    for wrong in ("", "0", "-1", "1.5g", "g"):
        with pytest.raises(ConfigInvalid):
            size_of("-x", wrong)


def test_a_scan_of_a_host_writes_its_report_and_needs_no_java(tmp_path: Path) -> None:
    plant_rot(copy_fleet(tmp_path))
    report = tmp_path / "r.parquet"
    words = [word for broker in "02" for word in ("--log-dir", f"{broker}={tmp_path / broker / 'data'}")]
    done = logmend("audit", "scan", *words, "-o", report, "--json", env=environment(PATH=os.devnull))
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["document"], told["findings"]) == ("audit_scan", 1)
    assert report.stat().st_size > 1000


def test_without_templates_a_report_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    env = environment()
    tables = write_tables(healthy_fleet(), tmp_path / "out")
    done = logmend("audit", "report", tables, env={**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "jinja2 is missing: pip install 'logmend[audit]'" in done.stderr
