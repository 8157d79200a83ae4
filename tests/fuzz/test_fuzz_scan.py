"""The loops of the C kernel under random and randomly damaged bytes, built with the sanitizers for addresses and more.

`LOGMEND_FAULTS=all` goes on for ten minutes; fuzz_scan.c says how to run it alone.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.command import ROOT
from support.faults import EVERYTHING
from support.sanitizing import sanitized

SECONDS = 600 if EVERYTHING else 4


@pytest.mark.slow
def test_no_bytes_lead_the_kernel_out_of_bounds(tmp_path: Path) -> None:
    program = sanitized(ROOT / "tests/fuzz/fuzz_scan.c", tmp_path)
    done = subprocess.run([program, str(SECONDS), "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = re.search(r"(\d+) rounds, nothing found", done.stdout)
    assert rounds is not None, done.stdout
    assert int(rounds[1]) > 100
