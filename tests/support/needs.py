"""What a test needs of the machine: it is skipped without, but fails where CI is set and the need can be installed.

The marker `needs("strace", root=True)` asks before the fixtures of a test are made, `need` in their middle. In CI
tests/conftest.py lets every skip fail whose reason does not begin with `NOT_HERE`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NoReturn

import pytest
from interop.kafka_lab import KAFKA, jars

NOT_HERE: Final = "not on this machine: "
"""How the reason of a skip begins that nothing that is installed would change."""
CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
_SYSTEM_PATH: Final = "/usr/sbin:/sbin"  # where mkfs is, and not every user's PATH


def impossible(reason: str) -> NoReturn:
    """Skip the test, also in CI: this kernel, file system or user cannot do it, whatever is installed."""
    pytest.skip(NOT_HERE + reason)


def fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With CI set, turn a skip into a failure, lest the gate passes on tests that never ran."""
    if report.outcome != "skipped" or not os.environ.get("CI"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(NOT_HERE):
        report.outcome, report.longrepr = "failed", f"CI is set and this would be skipped: {reason}"


def need_root() -> None:
    """Skip the test where it is not run by root."""
    if os.geteuid() != 0:
        impossible("only root may do this")


def program(*names: str) -> str:
    """Return the path of the first of these programs that is installed; skip the test where none is."""
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    for name in names:
        if place := shutil.which(name, path=path):
            return place
    pytest.skip(f"{' or '.join(names)} is not installed (scripts/tools.sh test brings it)")


def need(*programs: str, root: bool = False) -> None:
    """Skip the test where one of these programs is not installed, or with `root` where it is not run by root."""
    if root:
        need_root()
    for name in programs:
        program(name)


def need_mounts(place: Path) -> None:
    """Skip the test where root may not mount, as in a container."""
    need("mount", "umount", root=True)
    place.mkdir(parents=True, exist_ok=True)
    if reason := _cannot_mount(place):
        impossible(f"this kernel lets root mount nothing: {reason}")


def need_kafka() -> None:
    """Skip the test where Java or Maven are missing, or Maven cannot bring Kafka."""
    need("java", "mvn")
    if reason := _no_kafka():
        pytest.skip(reason)


@functools.cache
def _no_kafka() -> str:
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler@" not in modules:
        return "java has no compiler module (install openjdk-17-jdk-headless): Oracle.java runs from its source"
    try:
        jars()
    except subprocess.CalledProcessError as error:
        return f"Maven could not fetch Kafka {KAFKA}: {error}"
    return ""


@functools.cache
def _cannot_mount(place: Path) -> str:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip()
    subprocess.run(["umount", place], check=True)
    return ""
