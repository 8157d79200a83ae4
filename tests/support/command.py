"""Starts the real command in a process of its own, on log directories made by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.batches import batch_v2

ROOT = Path(__file__).resolve().parents[2]
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a test's command: ours without settings of logmend."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOGMEND_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def start(
    *words: object,
    env: Mapping[str, str] | None = None,
    stdout: int = subprocess.PIPE,
    stderr: Path | None = None,
) -> subprocess.Popen[str]:
    """Start `logmend` with these words; the caller waits for it. Standard error goes to a pipe, or to a file."""
    command = [sys.executable, "-m", "cli.main", *map(str, words)]
    env = env or environment()
    if stderr is None:
        return subprocess.Popen(command, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd="/")
    with stderr.open("w") as file:
        return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=file, text=True, cwd="/")


def logmend(*words: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `logmend` with these words to its end."""
    command = [sys.executable, "-m", "cli.main", *map(str, words)]
    return subprocess.run(
        command, env=env or environment(), capture_output=True, text=True, check=False, timeout=300, cwd="/"
    )


def sound_log(batches: int = 3) -> bytes:
    """Return `batches` batches of two records each."""
    return b"".join(batch_v2(2 * number, 2) for number in range(batches))


def make_log_dir(directory: Path, log: bytes, *, recovery_point: int = 0, partition: str = "orders-0") -> Path:
    """Make a log directory with one partition of one segment; return the `.log`."""
    home = directory / partition
    home.mkdir(parents=True)
    path = home / "00000000000000000000.log"
    path.write_bytes(log)
    topic, _, number = partition.rpartition("-")
    (directory / RECOVERY_POINTS).write_text(f"0\n1\n{topic} {number} {recovery_point}\n")
    return path
