"""C built with the sanitizers for addresses and undefined behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.needs import program

FLAGS = ["-O1", "-g", "-Wall", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def sanitized(source: Path, into: Path) -> Path:
    """Return the program that a C file is built to, with the sanitizers; the test is skipped where there are none."""
    compiler = program("gcc", "clang")
    (into / "empty.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run([compiler, *FLAGS, "-o", into / "empty", into / "empty.c"], check=False).returncode:
        pytest.skip("the C compiler comes without its sanitizers")
    built = subprocess.run(
        [compiler, *FLAGS, "-o", into / source.stem, source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return into / source.stem
