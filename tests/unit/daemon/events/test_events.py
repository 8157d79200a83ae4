"""What the service says: one event is one line whatever a name holds, and telling never waits and never raises."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Mapping
from pathlib import Path, PurePath

import pytest
from support.service_states import NASTY, ONE_BYTE

from daemon.events.events import FORMATS, EventLog, stamp
from daemon.events.names import EVENTS


def told(form: str, event: str = "log_dir_offline", level: str = "debug", **fields: object) -> str:
    stream = io.StringIO()
    log = EventLog(form, level, stream=stream, now=lambda: 1_800_000_000.123)
    log.tell(event, **fields)
    log.close()
    return stream.getvalue()


def test_console_logfmt_and_json_say_the_same() -> None:
    fields: dict[str, object] = {"log_dir": PurePath("/d"), "reason": "read failed", "pid": None}
    assert told("console", **fields).split() == [
        "2027-01-15T08:00:00.123Z", "[error", "]", "log_dir_offline", "log_dir=/d", "reason='read", "failed'",
    ]  # fmt: skip
    assert told("logfmt", **fields) == (
        'timestamp=2027-01-15T08:00:00.123Z level=error event=log_dir_offline log_dir=/d reason="read failed"\n'
    )
    assert json.loads(told("json", **fields)) == {
        "timestamp": "2027-01-15T08:00:00.123Z",
        "level": "error",
        "event": "log_dir_offline",
        "log_dir": "/d",
        "reason": "read failed",
    }


@pytest.mark.parametrize("form", ["console", "logfmt", "json"])
def test_an_event_is_one_line_without_a_character_that_acts(form: str) -> None:
    for name in [*ONE_BYTE, *NASTY]:
        line = told(form, log_dir=name, reason=name)
        assert line.endswith("\n")
        acting = [c for c in line[:-1] if not c.isprintable()]
        assert acting == [], ascii(name)


def test_in_json_names_are_what_they_are_on_the_disk() -> None:
    for name in [*ONE_BYTE, *NASTY]:
        line = told("json", log_dir=name)
        assert line.isascii()
        assert json.loads(line)["log_dir"] == name


def test_a_very_long_field_is_cut() -> None:
    assert len(told("logfmt", reason="x" * 1_000_000)) < 5000


def test_the_journal_gets_a_field_for_each_field(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "j"))
        journal.settimeout(10)
        log = EventLog("journald", "debug", journal=str(tmp_path / "j"))
        log.tell("finding_opened", topic="evil\nPRIORITY=0", partition=3, path=PurePath("/d/\x1b"))
        entry = journal.recv(65536).decode()
        log.close()
    fields = dict(line.split("=", 1) for line in entry.splitlines())
    assert fields["PRIORITY"] == "3"
    assert fields["LOGMEND_EVENT"] == "finding_opened"
    assert fields["LOGMEND_TOPIC"] == "evil\\nPRIORITY=0"
    assert fields["LOGMEND_PARTITION"] == "3"
    assert fields["MESSAGE"] == "finding_opened topic=evil\\nPRIORITY=0 partition=3 path=/d/\\x1b"


def test_where_there_is_no_journal_lines_are_logfmt(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = EventLog("journald", "info", stream=stream, journal=str(tmp_path / "none"))
    log.tell("service_ready", seconds=1)
    log.close()
    assert "event=service_ready seconds=1\n" in stream.getvalue()


def test_events_below_the_level_are_counted_and_not_written() -> None:
    stream = io.StringIO()
    log = EventLog("logfmt", "warning", stream=stream)
    log.tell("range_verified", topic="t", bytes=5)
    log.tell("range_verified", topic="t", bytes=7)
    log.tell("log_dir_absent", log_dir="/d")
    log.close()
    assert log.counters() == {"range_verified": 2, "range_verified_bytes": 12, "log_dir_absent": 1}
    assert stream.getvalue().count("\n") == 1


def test_the_level_can_change_while_it_runs() -> None:
    stream = io.StringIO()
    log = EventLog("logfmt", "error", stream=stream)
    log.tell("service_ready", seconds=1)
    log.level = "info"
    log.tell("service_ready", seconds=2)
    log.close()
    assert "seconds=2" in stream.getvalue()


def test_an_event_that_nobody_knows_is_told_as_such() -> None:
    line = told("logfmt", "no_such_event", reason="x")
    assert "event=event_unknown" in line
    assert "no_such_event" in line


def test_the_notifier_hears_every_event_whatever_the_level_and_its_faults_end_nothing() -> None:
    heard: list[tuple[str, Mapping[str, object]]] = []

    def notify(event: str, fields: Mapping[str, object]) -> None:
        heard.append((event, fields))
        raise RuntimeError("a fault of the notifier")

    log = EventLog("logfmt", "error", notify, stream=io.StringIO())
    log.tell("finding_closed", id="a")
    log.tell("finding_opened", id="b")
    log.close()
    assert [(event, fields["id"]) for event, fields in heard] == [("finding_closed", "a"), ("finding_opened", "b")]


class Stuck(io.StringIO):
    """A stream whose reader has stopped reading."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.entered = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.go_on.wait(30)
        return super().write(text)


def test_telling_waits_for_nobody_and_what_is_dropped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.events.events._QUEUE", 100)
    stream = Stuck()
    log = EventLog("logfmt", "info", stream=stream)
    log.tell("service_ready", seconds=0)
    assert stream.entered.wait(10)
    for number in range(250):
        log.tell("service_ready", seconds=number)
    assert log.counters()["service_ready"] == 251
    stream.go_on.set()
    log.close(10)
    assert "event=events_dropped count=150" in stream.getvalue()
    assert log.counters()["events_dropped"] == 150


def test_a_closed_stream_raises_nothing() -> None:
    stream = io.StringIO()
    log = EventLog("logfmt", "info", stream=stream)
    stream.close()
    log.tell("service_ready", seconds=1)
    log.close()
    log.tell("service_ready", seconds=2)
    assert log.counters() == {"service_ready": 2}


def test_many_threads_may_tell_at_the_same_time() -> None:
    stream = io.StringIO()
    log = EventLog("logfmt", "debug", stream=stream)
    threads = [
        threading.Thread(target=lambda: [log.tell("range_verified", bytes=1) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close(10)
    assert log.counters() == {"range_verified": 800, "range_verified_bytes": 800}
    lines = stream.getvalue().splitlines()
    assert len(lines) == 800
    assert len({line.split(" ", 1)[1] for line in lines}) == 1


def test_the_latest_events_can_be_shown_without_the_noise() -> None:
    log = EventLog("logfmt", "error", stream=io.StringIO())
    for number in range(300):
        log.tell("range_verified", bytes=1)
        log.tell("scrub_started", segments=number)
    log.close()
    recent = log.recent()
    assert len(recent) == 200
    assert {each.event for each in recent} == {"scrub_started"}
    assert recent[-1].fields["segments"] == 299


def test_the_time_is_that_of_the_event_in_utc() -> None:
    assert stamp(0) == "1970-01-01T00:00:00.000Z"
    assert stamp(1_800_000_000_999) == "2027-01-15T08:00:00.999Z"


@pytest.mark.parametrize("form", FORMATS)
def test_every_registered_event_can_be_told_in_every_format(form: str, tmp_path: Path) -> None:
    stream = io.StringIO()
    log = EventLog(form, "debug", stream=stream, journal=str(tmp_path / "none"))
    for name, kind in EVENTS.items():
        log.tell(name, **dict.fromkeys(kind.fields, "x"))
    log.close(10)
    assert stream.getvalue().count("\n") == len(EVENTS)
