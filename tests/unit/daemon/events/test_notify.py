"""Notifications: which findings, what the command gets, and that nobody waits for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.waiting import until

from daemon.events.notify import Notifier


class Told:
    """A notifier whose command writes down what it gets."""

    def __init__(self, tmp_path: Path, code: str = "", severity: str = "damage", seconds: float = 30.0) -> None:
        self.file = tmp_path / "told"
        script = tmp_path / "notify.py"
        script.write_text(
            f"import sys\ndata = sys.stdin.read()\nopen({str(self.file)!r}, 'a').write(data)\n{code}\n", "utf-8"
        )
        self.failed: list[dict[str, Any]] = []
        self.notifier = Notifier([sys.executable, "-S", str(script), "$HOME; echo"], severity, seconds, self._fail)

    def _fail(self, **fields: Any) -> None:
        self.failed.append(fields)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path)
    yield made
    made.notifier.close()


def test_a_finding_reaches_the_command_as_one_line_of_json(told: Told) -> None:
    told.notifier("finding_opened", {"severity": "damage", "path": PurePath("/a\nb"), "id": "x1", "size": 3})
    (line,) = until(lambda: told.lines)
    assert line == {
        "schema_version": 1,
        "document": "notification",
        "event": "finding_opened",
        "severity": "damage",
        "path": "/a\nb",
        "id": "x1",
        "size": 3,
    }


def test_lesser_findings_and_other_events_are_not_told_of_but_a_directory_that_goes_offline_is(told: Told) -> None:
    for severity in ("note", "repairable", "damage", "blocking"):
        told.notifier("finding_opened", {"severity": severity})
    told.notifier("segment_verified", {})
    told.notifier("log_dir_offline", {"log_dir": "/a"})
    until(lambda: len(told.lines) == 3)
    assert [line.get("severity", line["event"]) for line in told.lines] == ["damage", "blocking", "log_dir_offline"]


def test_another_severity_and_no_command_take_effect_at_once(told: Told) -> None:
    told.notifier.severity = "note"
    told.notifier("finding_opened", {"severity": "note"})
    until(lambda: told.lines)
    told.notifier.command = ()
    told.notifier("finding_opened", {"severity": "blocking"})
    told.notifier.close()
    assert len(told.lines) == 1


def test_a_command_that_fails_is_told_of_with_what_it_said(tmp_path: Path) -> None:
    told = Told(tmp_path, "sys.stderr.write('no \\x1b[31m route'); sys.exit(3)")
    told.notifier("finding_opened", {"severity": "damage", "id": "x1"})
    (failure,) = until(lambda: told.failed)
    assert failure == {"command": sys.executable, "reason": "exit status 3: no \\x1b[31m route", "id": "x1"}
    told.notifier.close()


def test_a_command_that_hangs_is_ended_with_all_that_it_started_and_the_next_has_its_turn(tmp_path: Path) -> None:
    hang = (
        "import json, os, time\n"
        "if json.loads(data)['id'] == 'first':\n"
        "    os.fork()\n"
        f"    open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "    time.sleep(600)\n"
    )
    told = Told(tmp_path, hang, seconds=3.0)
    told.notifier("finding_opened", {"severity": "damage", "id": "first"})
    told.notifier("finding_opened", {"severity": "damage", "id": "second"})
    (failure,) = until(lambda: told.failed)
    assert failure["reason"] == "ended after 3 s"
    until(lambda: [line["id"] for line in told.lines] == ["first", "second"])
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    until(lambda: not any(is_running(pid) for pid in pids))
    told.notifier.close()


def is_running(pid: str) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nobody_waits_however_many_there_are(tmp_path: Path) -> None:
    told = Told(tmp_path, "import time; time.sleep(600)", seconds=600)
    for number in range(150):
        told.notifier("finding_opened", {"severity": "damage", "id": str(number)})
    assert {failure["reason"] for failure in told.failed} == {"100 notifications are waiting already"}
    assert len(told.failed) in (49, 50)
    told.notifier.seconds = 0.1
    told.notifier.close()


def test_a_program_that_is_not_there_is_a_failure_and_no_more() -> None:
    failed: list[dict[str, Any]] = []
    notifier = Notifier(["/nowhere/page"], "damage", 1, lambda **fields: failed.append(fields))
    notifier("finding_opened", {"severity": "damage"})
    (failure,) = until(lambda: failed)
    assert "No such file" in failure["reason"]
    notifier.close()
