"""The loops of the C kernel under random and randomly damaged bytes, built with the sanitizers for addresses and more.

`LOGMEND_FAULTS=all` goes on for ten minutes; fuzz_scan.c says how to run it alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command import ROOT
from support.faults import EVERYTHING

SECONDS = 600 if EVERYTHING else 4
FLAGS = ["-O1", "-g", "-Wall", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_bytes_lead_the_kernel_out_of_bounds(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run([compiler, *FLAGS, "-o", tmp_path / "empty", tmp_path / "empty.c"], check=False).returncode:
        pytest.skip("the compiler has no sanitizers here")
    built = subprocess.run(
        [compiler, *FLAGS, "-o", tmp_path / "fuzz", ROOT / "tests/fuzz/fuzz_scan.c"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "fuzz", str(SECONDS), "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = re.search(r"(\d+) rounds, nothing found", done.stdout)
    assert rounds is not None, done.stdout
    assert int(rounds[1]) > 100
