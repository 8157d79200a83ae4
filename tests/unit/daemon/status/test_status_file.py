"""status.json: written on change, whole, and no more often than needed; and the small things around it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePath

import pytest
from support.service_parts import Listening, MovedClock, Told
from support.waiting import until

from daemon.service.moving_fs import MovingFs
from daemon.service.systemd import Systemd
from daemon.status.file import FILE_NAME, StatusFile
from daemon.status.model import ServiceStatus
from storage.disk.fs import OsFs

EMPTY = ServiceStatus("1", "c", 1, 0, 0, ready=True, stopping=False, log_dirs=())


class Written:
    """A status file, and how often it was made."""

    def __init__(self, state_dir: Path) -> None:
        self.clock, self.events, self.made = MovedClock(), Told(), 0
        self.path = state_dir / FILE_NAME
        self.file = StatusFile(OsFs(), PurePath(state_dir), self._encode, self.clock, self.events)

    def _encode(self, status: ServiceStatus) -> bytes:
        self.made += 1
        return f"{status.pid} {status.now_ms}".encode()

    def write(self, pid: int = 1, *, is_last: bool = False) -> None:
        self.file.write(replace(EMPTY, pid=pid, now_ms=self.clock.now_ms()), is_last=is_last)


def test_it_is_written_on_change_but_not_more_often_than_every_few_seconds(tmp_path: Path) -> None:
    it = Written(tmp_path)
    it.write(1)
    it.write(2)
    assert (it.made, it.path.read_text()[0]) == (1, "1")
    it.clock.advance(5)
    it.write(2)
    assert (it.made, it.path.read_text()[0]) == (2, "2")
    it.clock.advance(5)
    it.write(2)
    assert it.made == 2
    it.write(3, is_last=True)
    assert it.path.read_text()[0] == "3"


def test_without_a_change_it_still_tells_once_a_minute_that_somebody_lives(tmp_path: Path) -> None:
    it = Written(tmp_path)
    for _ in range(30):
        it.write()
        it.clock.advance(5)
    assert it.made == 3


def test_a_directory_that_cannot_be_written_is_told_of_once_and_tried_again(tmp_path: Path) -> None:
    it = Written(tmp_path / "gone")
    for _ in range(3):
        it.write()
        it.clock.advance(5)
    assert it.events.names == ["status_not_written"]
    (tmp_path / "gone").mkdir()
    it.write()
    assert it.path.exists()
    (tmp_path / "gone" / FILE_NAME).unlink()
    (tmp_path / "gone").rmdir()
    it.clock.advance(5)
    it.write(7)
    assert it.events.names == ["status_not_written"] * 2


def test_the_disk_counts_what_it_has_done(tmp_path: Path) -> None:
    fs = MovingFs()
    path = PurePath(tmp_path / "a")
    seen = [fs.calls]

    def moved() -> bool:
        seen.append(fs.calls)
        return seen[-1] > seen[-2]

    with fs.create(path) as file:
        assert moved()
        file.append(b"abc")
        assert moved()
        file.sync()
        assert moved()
    with fs.open_append(path) as file:
        file.append(b"d")
    assert moved()
    fs.sync_file(path)
    fs.sync_dir(path.parent)
    fs.rename(path, path.with_name("b"))
    assert moved()
    assert (tmp_path / "b").read_bytes() == b"abcd"
    fs.remove(path.with_name("b"))
    assert moved()


def test_systemd_is_found_in_the_environment_and_its_watchdog_only_if_it_is_for_us(tmp_path: Path) -> None:
    assert not Systemd.of({}).is_there
    there = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "3000000"}
    assert Systemd.of(there).watchdog_seconds == 3
    assert Systemd.of({**there, "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 3
    assert Systemd.of({**there, "WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert Systemd.of({"WATCHDOG_USEC": "3000000"}).watchdog_seconds is None
    assert Systemd.of({**there, "WATCHDOG_USEC": "x"}).watchdog_seconds is None


@pytest.mark.parametrize("address", ["/nowhere/socket", "@nobody-listens-here", "/" + "x" * 200])
def test_nobody_there_to_hear_is_no_fault(address: str) -> None:
    systemd = Systemd(address)
    systemd.ready()
    systemd.status("a")
    assert systemd.is_there


def test_a_status_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    listening = Listening(tmp_path / "s")
    Systemd(listening.address).status("a\nWATCHDOG=1" + "x" * 5000)
    (line,) = until(lambda: listening.said)
    assert line.startswith("STATUS=a WATCHDOG=1xxx")
    assert len(line) < 1100
    listening.close()
