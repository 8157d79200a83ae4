"""`logmend status` and `logmend scrub`: what they print, from which source, and with which exit status they end."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command import environment, logmend, make_log_dir, sound_log, start
from support.http_asking import serving, unix
from support.service_states import (
    DAY,
    NASTY,
    NOW,
    STATES,
    damaged,
    finding,
    hostile,
    log_dir,
    offline,
    recovering,
    scrub,
    service,
    small,
)

from daemon.events.safe_json import dumps
from daemon.http.server import HttpServer
from daemon.status.document import to_document
from daemon.status.headline import Level, headline_of
from daemon.status.model import QuarantineStatus, ServiceStatus
from daemon.status.phrases import span
from daemon.status.text import render
from storage.base.errors import ExitStatus


def lines(state: ServiceStatus, **options: Any) -> list[str]:
    return render(json.loads(dumps(to_document(state))), lambda text, role: text, **options)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[HttpServer]:
    with serving(unix(tmp_path), small) as made:
        yield made


def test_the_state_of_a_directory_in_a_few_lines() -> None:
    assert lines(small()) == [
        "All 10 partitions in 1 log directory read and sound.",
        "logmend 1.0, running for 9 d, process 4711",
        "",
        "/var/lib/kafka/data-1  guard, guarding for 5 d, lock held by process 2417",
        "  flushed     7 s behind: 18.0 MiB in 2 partitions to be read",
        "  scrub       on time, 99 % of 4.0 TiB read within 14 d, 3.2 MiB/s, oldest look 13 d ago",
        "  partitions  10: 10 sound",
        "  disk        911.0 GiB free, 4.0 TiB of logs",
    ]


def test_a_recovery_with_rate_and_time_left() -> None:
    told = lines(recovering())
    assert told[0] == "1 log directory in recovery: 42 % read, about 3 min left."
    assert (
        "  recovery    42 %, 275.0 GiB of 640.0 GiB, 1.8 GiB/s, about 3 min left, 121 of 300 partitions, "
        "4 077 segments left"
    ) in told


def test_a_finding_with_its_offsets_and_the_command() -> None:
    told = lines(damaged())
    start = next(i for i, line in enumerate(told) if "payments-3" in line)
    assert told[start : start + 5] == [
        "  damage: payments-3: batch_crc: stored checksum 0x1c8d77a2, computed 0x90be4f01",
        "    where  /var/lib/kafka/data-1/payments-3/00000000000018273645.log at 536879104, 16.0 KiB",
        "    what   offsets 18311204 to 18311377, next good offset 18311378",
        "    since  3 h ago, last seen 4 min ago, on disk",
        "    next   once the broker is stopped: logmend recover --accept-loss /var/lib/kafka/data-1",
    ]
    assert "  quarantine  4 pieces, 3.0 MiB, the oldest for 6 d" in told


def test_many_findings_are_counted_and_the_worst_come_first() -> None:
    many = tuple(finding(id=str(i), severity="repairable", partition=i) for i in range(30))
    told = lines(service(log_dir(findings=(*many, finding(id="x", severity="blocking", topic="worst")))))
    assert "worst-3" in next(line for line in told if ": batch_crc:" in line)
    assert told[-1] == "  and 11 more findings: logmend status --json lists all of them"
    assert len([line for line in told if ": batch_crc:" in line]) == 20


def test_hostile_names_print_as_single_lines_of_plain_characters() -> None:
    told = lines(hostile())
    assert [line for line in told if not line.isprintable()] == []
    assert sum("once the broker is stopped" in line for line in told) == len(NASTY)


@pytest.mark.parametrize(
    ("state", "level", "text"),
    [
        (small(), Level.GOOD, "All 10 partitions in 1 log directory read and sound"),
        (service(stopping=True), Level.WORKING, "The service is stopping"),
        (service(log_dir(partitions=())), Level.GOOD, "Nothing wrong in 1 log directory; there are no partitions yet"),
        (
            service(log_dir(scrub=scrub(behind_seconds=7200.0))),
            Level.ATTENTION,
            "The scrubber of /var/lib/kafka/data-1 will be 2 h late",
        ),
        (
            service(log_dir(findings=(finding(severity="repairable"),))),
            Level.ATTENTION,
            "1 repairable finding waits for the next recovery",
        ),
        (
            service(log_dir(findings=(finding(),))),
            Level.BAD,
            "1 serious finding in payments-3 needs a person, up to 174 records at stake",
        ),
        (service(log_dir(findings=(finding(severity="note"),), count=10)), Level.GOOD, None),
    ],
)
def test_the_verdict_is_the_worst_that_there_is_to_say(state: ServiceStatus, level: Level, text: str | None) -> None:
    found = headline_of(state)
    assert found.level is level
    assert text is None or found.text == text


def test_spans_are_told_in_the_unit_that_fits() -> None:
    seconds = (0, 59.4, 60, 3599, 3600, 3660, 86399, 86400, 100_000, -5)
    told = ["0 s", "59 s", "1 min", "59 min", "1 h", "1 h 1 min", "23 h 59 min", "1 d", "1 d 3 h", "0 s"]
    assert [span(each) for each in seconds] == told


@pytest.mark.parametrize(("name", "status"), [("small", 0), ("damaged", 1), ("offline", 1), ("recovering", 0)])
def test_the_status_says_whether_a_person_is_needed(tmp_path: Path, name: str, status: int) -> None:
    with serving(unix(tmp_path), STATES[name]):
        done = logmend("status", "--socket", tmp_path / "s.sock")
    assert done.returncode == status
    assert done.stdout.splitlines() == lines(STATES[name]())
    assert done.stderr == ""


def test_json_is_the_document_of_the_service(local: HttpServer) -> None:
    done = logmend("status", "--json", "--socket", local.listen.path)
    told = json.loads(done.stdout)
    assert told.pop("is_answering") is True
    assert told == json.loads(dumps(to_document(small())))


def test_when_the_service_is_dead_what_it_last_wrote_is_shown_with_its_age(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(dumps(to_document(offline())))
    done = logmend("status", "--state-dir", tmp_path)
    assert done.returncode == ExitStatus.ENVIRONMENT
    assert "there is no socket; is `logmend run` running?" in done.stderr
    assert "what follows was written " in done.stderr
    assert done.stdout.startswith("/var/lib/kafka/data-3 is offline")
    told = json.loads(logmend("status", "--json", "--state-dir", tmp_path).stdout)
    assert told["is_answering"] is False


@pytest.mark.parametrize(
    "left", [None, "", "{", "[]", '{"document": "status"}', '{"schema_version": 1, "document": 1}']
)
def test_when_nothing_of_use_was_written_only_the_silence_is_told(tmp_path: Path, left: str | None) -> None:
    if left is not None:
        (tmp_path / "status.json").write_text(left)
    done = logmend("status", "--state-dir", tmp_path)
    assert done.returncode == ExitStatus.ENVIRONMENT
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_a_stale_socket_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s.sock"))
    done = logmend("status", "--socket", tmp_path / "s.sock", "--state-dir", tmp_path)
    assert done.returncode == ExitStatus.ENVIRONMENT
    assert "nobody listens on this socket any more" in done.stderr


def test_a_service_of_another_version_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.status.document.SCHEMA_VERSION", 2)
    with serving(unix(tmp_path), small):
        done = logmend("status", "--socket", tmp_path / "s.sock")
    assert done.returncode == ExitStatus.UNSUPPORTED
    assert "another version" in done.stderr


def test_orders_for_the_scrubber_get_its_answer(tmp_path: Path) -> None:
    def command(name: str, argument: str, directory: str) -> str:
        if directory == "/none":
            raise ValueError("no such log directory: /none")
        return f"{name}\n{directory or 'all'}"

    place = tmp_path / "s.sock"
    with serving(unix(tmp_path), small, command):
        assert logmend("scrub", "now", "--socket", place).stdout == "scrub-now\nall\n"
        assert logmend("scrub", "pause", "--log-dir", "/d", "--socket", place).stdout == "scrub-pause\n/d\n"
        told = json.loads(logmend("scrub", "resume", "--socket", place, "--json").stdout)
        assert told["answer"] == "scrub-resume\nall"
        refused = logmend("scrub", "now", "--log-dir", "/none", "--socket", place)
    assert (refused.returncode, refused.stderr) == (2, "logmend: no such log directory: /none\n")


def test_an_order_to_a_service_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = logmend("scrub", "now", "--socket", tmp_path / "none", "--state-dir", tmp_path)
    assert done.returncode == ExitStatus.ENVIRONMENT
    assert "the service does not answer" in done.stderr


def test_watching_on_a_terminal_draws_again_and_again_and_leaves_the_screen_as_it_was(tmp_path: Path) -> None:
    now = {"state": small()}
    with serving(unix(tmp_path), lambda: now["state"]):
        output, shown = _on_a_terminal(tmp_path / "s.sock")
        seen = _read_until(output, b"All 10 partitions")
        old = now["state"]
        kept = tuple(replace(each, quarantine=QuarantineStatus(3, 99, NOW - DAY)) for each in old.log_dirs)
        now["state"] = replace(old, log_dirs=kept)
        seen += _read_until(output, b"quarantine  3 pieces")
        shown.send_signal(2)
        seen += _read_until(output, b"\x1b[?1049l")
        assert shown.wait(20) == ExitStatus.INTERRUPTED
    os.close(output)
    assert seen.startswith(b"\x1b[?1049h\x1b[?25l")
    assert seen.count(b"\x1b[H\x1b[J") >= 2


def _on_a_terminal(place: Path) -> tuple[int, subprocess.Popen[bytes]]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "status", "--watch", "--every", "0.1", "--socket", str(place)]
    env = environment(TERM="xterm", NO_COLOR="1", COLUMNS="120", LINES="40")
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env, cwd="/")
    os.close(theirs)
    return ours, process


def _read_until(output: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(output, 65536)
    return seen


def test_watching_as_json_prints_a_line_each_time(local: HttpServer) -> None:
    command = [sys.executable, "-m", "cli.main", "status", "--watch", "--json", "--every", "0.1", "--socket"]
    with subprocess.Popen(
        [*command, str(local.listen.path)], stdout=subprocess.PIPE, text=True, env=environment(), cwd="/"
    ) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.terminate()
    assert [each["document"] for each in told] == ["status"] * 3


def test_a_real_service_answers_and_after_its_sudden_end_its_last_words_are_shown(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", sound_log(), recovery_point=6)
    state = tmp_path / "state"
    words = ["run", "--log-dir", tmp_path / "data", "--state-dir", state, "--listen", f"unix:{tmp_path}/s.sock"]
    asking = ["status", "--json", "--state-dir", state, "--socket", tmp_path / "s.sock"]
    with start(*words, stdout=subprocess.DEVNULL) as first:
        told = _status_when(
            asking, lambda told: told["ready"] and told["is_answering"] and (state / "status.json").exists()
        )
        assert [each["path"] for each in told["log_dirs"]] == [str(tmp_path / "data")]
        first.kill()
    done = logmend(*asking)
    assert done.returncode == ExitStatus.ENVIRONMENT
    assert "nobody listens on this socket any more" in done.stderr
    left = json.loads(done.stdout)
    assert (left["is_answering"], left["pid"]) == (False, first.pid)
    with start(*words, stdout=subprocess.DEVNULL) as second:  # the stale socket is in nobody's way
        told = _status_when(asking, lambda told: told["is_answering"])
        assert told["pid"] == second.pid
        second.terminate()
        assert second.wait(30) == 0


def _status_when(asking: list[Any], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for _ in range(60):
        done = logmend(*asking)
        if done.stdout and wanted(told := json.loads(done.stdout)):
            return dict(told)
    raise AssertionError("it never said so")


def test_a_port_comes_beside_the_socket_so_that_status_finds_the_service(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", sound_log(), recovery_point=6)
    state = tmp_path / "state"
    words = ["run", "--log-dir", tmp_path / "data", "--state-dir", state, "--listen", "127.0.0.1:0"]
    with start(*words, stdout=subprocess.DEVNULL) as service:
        told = _status_when(["status", "--json", "--state-dir", state], lambda told: told["is_answering"])
        assert told["pid"] == service.pid
        service.terminate()
        assert service.wait(30) == 0
