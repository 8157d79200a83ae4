"""`logmend run` as a process: without a file, with signals, with another one beside it, on a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import batch_v2
from support.command import ROOT, environment, logmend, make_log_dir, start
from support.needs import impossible
from support.service_parts import Listening
from support.waiting import until

from storage.disk.fs import lock_log_dir

SLOW_DISK = """
import time
import storage.disk.os_files
read = storage.disk.os_files.OsReadFile.read_into
def slowly(self, position, target):
    time.sleep(1 if position else 0)
    return read(self, position, target)
storage.disk.os_files.OsReadFile.read_into = slowly
"""
STUCK_DRAIN = """
import os, threading
import engine.logdir.log_dir
def close(self):
    open(os.environ["DRAINING"], "x").close()
    threading.Event().wait()
engine.logdir.log_dir.LogDir.close = close
"""
MARKER = ".kafka_cleanshutdown"


class Daemon:
    """A service in a process of its own, ended at the end."""

    def __init__(self, tmp_path: Path, *words: object, state: str = "state", **env: str) -> None:
        self.state = tmp_path / state
        self.log = tmp_path / f"{state}.log"
        claims = ("--init", "--take-over")
        command = ["run", "--state-dir", self.state, "--log-format", "json", "--log-level", "debug", *claims, *words]
        self.process = start(*command, env=environment(**env), stderr=self.log)

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def shown(self) -> dict[str, str]:
        """The states of the log directories in status.json."""
        try:
            found = json.loads((self.state / "status.json").read_text())
        except FileNotFoundError:
            return {"": "starting"}
        return {each["path"]: each["state"] for each in found["log_dirs"]}

    def until(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait for an event and return it."""

        def look() -> dict[str, Any] | None:
            found = [each for each in self.events if each["event"] == event]
            if len(found) < times:
                assert self.process.poll() is None, self.log.read_text()
                return None
            return found[times - 1]

        found = until(look, 60)
        assert found is not None
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    made: list[Daemon] = []
    yield made
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(30)


def test_without_any_file_a_directory_is_guarded_and_another_one_is_ours(tmp_path: Path, daemons: list[Daemon]) -> None:
    make_log_dir(tmp_path / "guarded", batch_v2(0, 2), recovery_point=2)
    daemons.append(it := Daemon(tmp_path, "--log-dir", tmp_path / "guarded", "--own", tmp_path / "own"))
    it.until("service_ready")
    assert it.until("listening")["listen"] == f"unix:{it.state}/logmend.sock"
    assert until(lambda: it.shown if "starting" not in it.shown.values() else None) == {
        str(tmp_path / "guarded"): "guarding",
        str(tmp_path / "own"): "serving",
    }
    assert (it.state.stat().st_mode & 0o777) == 0o700
    before = time.monotonic()
    assert it.end() == 0
    assert time.monotonic() - before < 5
    assert (tmp_path / "own" / MARKER).exists()
    assert sorted(path.name for path in (tmp_path / "guarded").iterdir()) == [
        "orders-0",
        "recovery-point-offset-checkpoint",
    ]
    last = json.loads((it.state / "status.json").read_text())
    assert [each["state"] for each in last["log_dirs"]] == ["stopped", "stopped"]
    assert not (it.state / "logmend.sock").exists()


def test_two_of_them_with_one_state_directory_are_one_too_many(tmp_path: Path, daemons: list[Daemon]) -> None:
    (tmp_path / "a").mkdir()
    daemons.append(first := Daemon(tmp_path, "--log-dir", tmp_path / "a"))
    first.until("service_ready")
    second = logmend("run", "--state-dir", first.state, "--log-dir", tmp_path / "a")
    assert second.returncode == 6
    assert first.end() == 0


def test_two_of_them_on_one_directory_the_second_never_takes_what_the_first_owns(
    tmp_path: Path, daemons: list[Daemon]
) -> None:
    own = tmp_path / "own"
    daemons.append(first := Daemon(tmp_path, "--own", own))
    first.until("service_ready")
    daemons.append(guard := Daemon(tmp_path, "--log-dir", own, state="guard"))
    guard.until("service_ready")
    assert guard.until("broker_appeared")["pid"] == first.process.pid
    daemons.append(second := Daemon(tmp_path, "--own", own, state="second"))
    assert "in use" in second.until("log_dir_offline")["reason"]
    assert second.end() == 6
    assert first.end() == 0
    assert (own / MARKER).exists()
    assert guard.end() == 0


def test_sighup_reads_the_file_again_and_a_wrong_one_is_refused(tmp_path: Path, daemons: list[Daemon]) -> None:
    (tmp_path / "a").mkdir()
    config = tmp_path / "l.toml"
    config.write_text(f'[[log_dir]]\npath = "{tmp_path}/a"\n')
    daemons.append(it := Daemon(tmp_path, "--config", config))
    it.until("service_ready")
    config.write_text(f'[[log_dir]]\npath = "{tmp_path}/b"\n[scrub]\ncycle = "7d"\n')
    it.process.send_signal(signal.SIGHUP)
    told = it.until("config_reloaded")
    assert (told["changed"], told["waiting"]) == ("scrub.cycle", "log_dir")
    config.write_text("[scrub]\ncicle = 3\n")
    it.process.send_signal(signal.SIGHUP)
    assert "unknown key scrub.cicle = 3" in it.until("config_refused")["reason"]
    assert it.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_does_not_wait_for_the_drain(
    tmp_path: Path, daemons: list[Daemon], number: signal.Signals, status: int
) -> None:
    (tmp_path / "stuck").mkdir()
    (tmp_path / "stuck" / "sitecustomize.py").write_text(STUCK_DRAIN)
    places = f"{tmp_path / 'stuck'}:{ROOT}"
    begun = tmp_path / "draining"
    daemons.append(it := Daemon(tmp_path, "--own", tmp_path / "own", PYTHONPATH=places, DRAINING=str(begun)))
    it.until("service_ready")
    it.process.send_signal(signal.SIGTERM)
    until(begun.exists)
    assert it.process.poll() is None, "the first one waits for the drain"
    assert it.end(number) == status
    assert not (tmp_path / "own" / MARKER).exists()
    assert "service_stopped" not in [each["event"] for each in it.events]
    with lock_log_dir(PurePath(tmp_path / "own")):
        pass


def test_a_recovery_that_runs_ends_at_once_with_sigterm_and_leaves_what_a_crash_leaves(
    tmp_path: Path, daemons: list[Daemon]
) -> None:
    one = batch_v2(0, 1)[8:]
    data = b"".join(number.to_bytes(8, "big") + one for number in range(500_000))
    log = make_log_dir(tmp_path / "own", data)
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_DISK)
    places = f"{tmp_path / 'slow'}:{ROOT}"
    daemons.append(it := Daemon(tmp_path, "--own", tmp_path / "own", "-j", "1", PYTHONPATH=places))
    it.until("recovery_started")
    before = time.monotonic()
    assert it.end() == 0
    assert time.monotonic() - before < 5
    assert it.shown == {str(tmp_path / "own"): "stopped"}
    assert "recovery_finished" not in [each["event"] for each in it.events]
    assert not (tmp_path / "own" / MARKER).exists()
    assert log.read_bytes() == data


def test_systemd_sees_it_ready_and_stopping(tmp_path: Path, daemons: list[Daemon]) -> None:
    (tmp_path / "a").mkdir()
    systemd = Listening(tmp_path / "notify")
    daemons.append(
        it := Daemon(tmp_path, "--log-dir", tmp_path / "a", NOTIFY_SOCKET=systemd.address, WATCHDOG_USEC="4000000")
    )
    until(lambda: systemd.count("READY=1"))
    until(lambda: systemd.count("WATCHDOG=1") >= 2)
    assert "STATUS=guarding 1" in systemd.said
    assert it.end() == 0
    assert "STOPPING=1" in systemd.said
    systemd.close()


def test_what_is_wrong_at_the_start_is_a_usage_error(tmp_path: Path) -> None:
    state = ("--state-dir", tmp_path / "state")
    nothing = logmend("run", *state)
    assert (nothing.returncode, "no log directory" in nothing.stderr) == (2, True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    other = logmend("run", *state, "--own", tmp_path / "home")
    assert (other.returncode, "is it a log directory?" in other.stderr) == (2, True)
    twice = logmend("run", *state, "--own", tmp_path / "x", "--log-dir", tmp_path / "x")
    assert (twice.returncode, "twice" in twice.stderr) == (2, True)


@pytest.mark.needs("mount", "umount", root=True)
def test_a_full_state_directory_stops_nothing(tmp_path: Path, daemons: list[Daemon]) -> None:
    make_log_dir(tmp_path / "a", batch_v2(0, 2), recovery_point=2)
    state = tmp_path / "state"
    state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", state], check=False)
    if mounted.returncode:
        impossible("no tmpfs can be mounted")
    with contextlib.suppress(OSError):
        (state / "ballast").write_bytes(b"x" * 65536)
    try:
        daemons.append(it := Daemon(tmp_path, "--log-dir", tmp_path / "a", "--own", tmp_path / "own"))
        it.until("service_ready")
        assert "No space left" in it.until("status_not_written")["reason"]
        (state / "ballast").unlink()
        until((state / "status.json").exists, 60)
        assert it.end() == 0
        assert (tmp_path / "own" / MARKER).exists()
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@pytest.mark.needs("mount", "umount", root=True)
def test_a_guarded_volume_that_is_unmounted_is_absent_and_comes_back(tmp_path: Path, daemons: list[Daemon]) -> None:
    place, volume = tmp_path / "a", tmp_path / "volume"
    place.mkdir()
    volume.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", volume], check=False).returncode:
        impossible("no tmpfs can be mounted")
    try:
        make_log_dir(volume, batch_v2(0, 2), recovery_point=2)
        mount = ["mount", "--bind", volume, place]  # with all that is on it at once
        subprocess.run(mount, check=True)
        daemons.append(it := Daemon(tmp_path, "--log-dir", place))
        it.until("service_ready")
        subprocess.run(["umount", "-l", place], check=True)
        gone = it.until("log_dir_absent")
        assert gone["log_dir"] == str(place)
        until(lambda: it.shown == {str(place): "absent"})
        subprocess.run(mount, check=True)
        it.until("log_dir_back")
        until(lambda: it.shown == {str(place): "guarding"})
        assert it.end() == 0
    finally:
        for mounted in (place, volume):
            subprocess.run(["umount", "-l", mounted], check=False)


def test_a_lock_that_somebody_takes_while_we_guard_is_theirs(tmp_path: Path, daemons: list[Daemon]) -> None:
    (tmp_path / "a").mkdir()
    daemons.append(it := Daemon(tmp_path, "--log-dir", tmp_path / "a"))
    it.until("service_ready")
    with lock_log_dir(PurePath(tmp_path / "a")):
        assert it.until("broker_appeared")["pid"] == os.getpid()
    it.until("broker_gone")
    assert it.end() == 0


def test_config_check_looks_at_the_whole_file(tmp_path: Path) -> None:
    config = tmp_path / "l.toml"
    config.write_text(f'jobs = 2\n[[log_dir]]\npath = "{tmp_path}/a"\nmode = "own"\n[scrub]\ncycle = "3d"\n')
    good = logmend("config", "check", config)
    assert (good.returncode, good.stderr) == (0, "")
    assert f"in order; log directories: {tmp_path}/a (own)" in good.stdout
    told = json.loads(logmend("config", "check", config, "--json").stdout)
    assert told["log_dirs"] == [{"path": f"{tmp_path}/a", "mode": "own"}]
    for text, said in (
        ("jobs = 0", r"jobs \(.*\): 0 is not a whole number from 1 to 256"),
        ("scrubs = 1", r"unknown key scrubs = 1; did you mean scrub\?"),
        ('[scrub]\ncycle = "3"', r"scrub\.cycle: '3' is not a span"),
        ('server_properties = "/nowhere"', r"server\.properties /nowhere: cannot be read: No such file"),
    ):
        config.write_text(text)
        bad = logmend("config", "check", config)
        assert bad.returncode == 2
        assert re.search(said, bad.stderr), bad.stderr
