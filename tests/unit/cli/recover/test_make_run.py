"""`make run DIR=…` changes nothing until it is told to."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import ROOT, make_log_dir, sound_log
from support.recovering import tree

pytestmark = pytest.mark.needs("make")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Run make in the checkout, on the command that the tests run; nothing is installed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["make", "--silent", "--old-file=.venv/installed", *words]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


def test_it_shows_the_plan_and_the_command_that_carries_it_out(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    make_log_dir(data, sound_log() + b"torn")
    before = tree(data)
    shown = make("run", f"DIR={data}")
    assert shown.returncode == 0, shown.stderr
    assert "1 cut of 4 B" in shown.stdout
    assert tree(data) == before
    line = shown.stdout.splitlines()[-1].partition("carries it out: ")[2]
    assert line.startswith("make run DIR=")
    done = make(*shlex.split(line)[1:])
    assert done.returncode == 0, done.stderr
    assert "1 cut of 4 B" in done.stdout
    assert tree(data) != before
    assert f"{data}: clean" in done.stdout
