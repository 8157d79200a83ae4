"""What lies in a partition directory, however damaged, leads the look at it nowhere it should not go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.command import ROOT
from support.faults import EVERYTHING
from support.sanitizing import sanitized
from support.shut_down import SEGMENTS, Segment, make_odd, write_shut_down

from storage.disk.fs import OsFs
from storage.disk.glance import glance

pytest.importorskip("storage.disk._disk", reason="the kernel was not built")
DIRECTORIES = 2000 if EVERYTHING else 100


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("segment", SEGMENTS)
def test_no_directory_leads_a_glance_out_of_bounds(tmp_path: Path, segment: Segment) -> None:
    program = sanitized(ROOT / "tests/fuzz/look_at.c", tmp_path)
    sound = write_shut_down(tmp_path / "data", segment)
    directories, wanted = [], []
    for seed in range(DIRECTORIES):
        directory = tmp_path / "odd" / str(seed) / sound.name
        shutil.copytree(sound, directory)
        make_odd(directory, seed)
        seen = glance(OsFs(), directory, None)
        directories.append(directory)
        wanted.append("odd" if seen is None else f"fine {seen.log_end + seen.newest_snapshot}")
    done = subprocess.run([program, *directories], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wanted
    assert {line.partition(" ")[0] for line in wanted} == {"odd", "fine"}
