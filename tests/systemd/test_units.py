"""The units as systemd itself reads them; test_boot.py tries them on a machine that boots."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "systemd"
HOOK = UNITS / "logmend-recover.service"
EXPOSURE = {
    "logmend-recover.service": 0.8,
    "logmend.service": 1.5,
    "logmend-guard.service": 0.8,
    "logmend-failed@.service": 0.8,
}
"""The most that `systemd-analyze security` may say of each."""

needs_systemd = pytest.mark.needs("systemd-analyze")


def installed(tmp_path: Path, name: str) -> Path:
    """Return a copy of a unit whose programs exist here, as a person who installs it would make them."""
    unit = tmp_path / name.replace("@.", "@kafka.service.")
    command = tmp_path / "logmend"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    text = (UNITS / name).read_text()
    unit.write_text(re.sub("/opt/logmend/bin/logmend|/etc/logmend/on-failure|/bin/kill", str(command), text))
    return unit


def test_every_unit_is_looked_at() -> None:
    assert {path.name for path in UNITS.glob("*.service")} == set(EXPOSURE)


@needs_systemd
@pytest.mark.parametrize("name", sorted(EXPOSURE))
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path, name: str) -> None:
    kafka = tmp_path / "kafka.service"
    kafka.write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", str(installed(tmp_path, name)), str(kafka)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", ["logmend.conf", "logmend-pre.conf"])
def test_systemd_finds_nothing_wrong_with_the_drop_ins_of_the_broker(tmp_path: Path, name: str) -> None:
    kafka = tmp_path / "kafka.service"
    kafka.write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "kafka.service.d" / name
    drop_in.parent.mkdir()
    drop_in.write_text((UNITS / "kafka.service.d" / name).read_text().replace("/opt/logmend/bin/logmend", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", str(kafka)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", sorted(EXPOSURE))
def test_a_unit_is_exposed_to_little(tmp_path: Path, name: str) -> None:
    threshold = f"--threshold={round(EXPOSURE[name] * 10)}"
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", threshold, str(installed(tmp_path, name))],
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


def test_no_unit_runs_as_root_or_with_a_capability() -> None:
    for name in EXPOSURE:
        lines = (UNITS / name).read_text().splitlines()
        assert "User=kafka" in lines
        assert "CapabilityBoundingSet=" in lines
        assert "AmbientCapabilities=" in lines


def test_the_guard_may_write_below_no_log_directory() -> None:
    lines = (UNITS / "logmend-guard.service").read_text().splitlines()
    assert "ReadOnlyPaths=/var/lib/kafka" in lines
    assert [line for line in lines if line.startswith("ReadWritePaths=")] == []
