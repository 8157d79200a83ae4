"""The units as systemd itself reads them; that they boot and work is not tried here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "systemd"
HOOK = UNITS / "logmend-recover.service"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def installed(tmp_path: Path) -> Path:
    """Return a copy of the hook whose paths exist here, as a person who installs it would make them."""
    unit = tmp_path / HOOK.name
    command = tmp_path / "logmend"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit.write_text(HOOK.read_text().replace("/opt/logmend/bin/logmend", str(command)))
    return unit


def test_systemd_finds_nothing_wrong_with_the_hook(tmp_path: Path) -> None:
    kafka = tmp_path / "kafka.service"
    kafka.write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", str(installed(tmp_path)), str(kafka)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_hook_is_exposed_to_less_than_one_of_ten(tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=10", str(installed(tmp_path))],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level[^:]*: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert done.returncode == 0, found[0]


def test_the_broker_waits_for_the_hook_and_starts_after_a_held_partition() -> None:
    text = HOOK.read_text()
    assert "Before=kafka.service" in text
    assert "RequiredBy=kafka.service" in text
    assert "SuccessExitStatus=3" in text
