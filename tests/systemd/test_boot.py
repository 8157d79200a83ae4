"""The units on a machine that boots: the hook before the broker, the guard beside it, the watchdog, our own logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.machine import Machine

UNITS = Path(__file__).resolve().parents[2] / "systemd"
STAND_IN = Path(__file__).with_name("stand_in_broker.py")
BATCHES = 600_000
"""In a log that takes several reads."""
SLOW_DISK = """
import os, time
if os.path.exists("/opt/test/slow") and "NOTIFY_SOCKET" in os.environ:
    import storage.disk.os_files
    read = storage.disk.os_files.OsReadFile.read_into
    def slowly(self, position, target):
        if position:
            time.sleep(0.15)
        return read(self, position, target)
    storage.disk.os_files.OsReadFile.read_into = slowly
    storage.disk.os_files.OsReadFile.descriptor = lambda self: -1  # or nothing is read
"""
SOUND = b"".join(batch_v2(2 * number, 2) for number in range(3))
NAME = "00000000000000000000.log"
POINTS = "recovery-point-offset-checkpoint"
KAFKA = f"""[Service]
ExecStart=/usr/bin/python3 {"/opt/test/stand_in_broker.py"} /var/lib/kafka/data /var/lib/kafka/note
User=kafka
"""

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.deep,
    pytest.mark.usefixtures("machines"),
]


def long_log(batches: int) -> bytes:
    """Return a log of many small batches; their offsets lie outside the checksum."""
    one = batch_v2(0, 1)[8:]
    return b"".join(number.to_bytes(8, "big") + one for number in range(batches))


def put_units(machine: Machine) -> None:
    """Put the units there as they are shipped, and drop-ins for what must not take minutes."""
    for path in UNITS.glob("logmend*.service"):
        machine.put(f"/etc/systemd/system/{path.name}", path.read_bytes())
    machine.put("/etc/systemd/system/kafka.service", KAFKA)
    machine.put(
        "/etc/systemd/system/kafka.service.d/logmend.conf", (UNITS / "kafka.service.d/logmend.conf").read_bytes()
    )
    machine.put("/usr/lib/sysusers.d/logmend.conf", (UNITS / "logmend.sysusers").read_bytes())
    machine.put("/usr/lib/tmpfiles.d/logmend.conf", (UNITS / "logmend.tmpfiles").read_bytes())
    machine.put("/usr/lib/tmpfiles.d/test.conf", "Z /var/lib/kafka - kafka kafka -\n")
    machine.put("/opt/test/stand_in_broker.py", STAND_IN.read_bytes())
    quick = "[Service]\nWatchdogSec=8\nRestartSec=200ms\n"
    for name in ("logmend.service.d", "logmend-guard.service.d"):
        machine.put(f"/etc/systemd/system/{name}/quick.conf", quick)
    # Shorter than the recovery takes: it has to ask for more.
    machine.put("/etc/systemd/system/logmend-recover.service.d/short.conf", "[Service]\nTimeoutStartSec=3\n")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine that was cut off while its broker wrote; `logmend-recover` and `logmend-guard` are enabled."""
    made = Machine(tmp_path_factory.mktemp("machine"), start_up=SLOW_DISK)
    put_units(made)
    made.put("/etc/kafka/server.properties", "log.dirs=/var/lib/kafka/data\n")
    made.put("/etc/logmend/logmend.toml", 'server_properties = "/etc/kafka/server.properties"\n')
    made.put(f"/var/lib/kafka/data/{POINTS}", "0\n2\norders 0 0\nmany 0 0\n")
    made.put(f"/var/lib/kafka/data/orders-0/{NAME}", SOUND + batch_v2(6, 2)[:-5])
    made.put(f"/var/lib/kafka/data/many-0/{NAME}", long_log(BATCHES))
    made.put("/etc/logmend/own.toml", '[[log_dir]]\npath = "/var/lib/kafka/own"\nmode = "own"\n')
    made.put("/opt/test/slow", "")
    made.put("/var/lib/kafka/own/logmend-topics.json", '{"version": 1, "topics": {}}')
    made.put(f"/var/lib/kafka/own/many-0/{NAME}", long_log(BATCHES))
    made.put("/var/lib/kafka/own/many-0/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    made.put("/etc/logmend/on-failure", '#!/bin/sh\necho "told that $1 failed"\n', 0o755)
    made.put(
        "/etc/systemd/system/logmend-guard.service.d/told.conf",
        "[Unit]\nOnFailure=logmend-failed@%n.service\n",
    )
    made.put(
        "/etc/systemd/system/logmend.service.d/own.conf",
        "[Service]\nExecStart=\nExecStart=/opt/logmend/bin/logmend run --config /etc/logmend/own.toml\n",
    )
    made.enable("logmend-recover.service", "kafka.service.requires")
    made.enable("kafka.service", "multi-user.target.wants")
    made.enable("logmend-guard.service", "multi-user.target.wants")
    try:
        made.boot(settled=False)
        yield made
    finally:
        made.end()


def test_while_the_hook_recovers_status_shows_how_far_it_is_and_no_time_out_ends_it(machine: Machine) -> None:
    look = "until systemctl status logmend-recover | grep -F ' %, ' ; do sleep 0.02; done"
    line = machine.run("timeout", "90", "/bin/sh", "-c", look)
    assert re.search(r'Status: "/var/lib/kafka/data: [0-9.]+ .iB of [0-9.]+ .iB, \d+ %, .*partitions', line), line


def test_the_broker_starts_after_the_hook_on_a_repaired_directory(machine: Machine) -> None:
    machine.until(lambda: machine.show("kafka", "ActiveState") == "active", 60)
    assert machine.show("logmend-recover", "Result") == "success"
    note = json.loads(machine.until(lambda: machine.run("cat", "/var/lib/kafka/note", check=False)))
    assert note["sizes"][f"orders-0/{NAME}"] == len(SOUND)
    ended = int(machine.show("logmend-recover", "ExecMainExitTimestampMonotonic"))
    began = int(machine.show("logmend-recover", "ExecMainStartTimestampMonotonic"))
    assert note["monotonic"] * 1e6 >= ended
    assert ended - began > 3_000_000, "it was over before its time-out: that it asked for more was not seen"
    assert machine.show("logmend-recover", "StatusText") == "/var/lib/kafka/data: done"
    assert machine.show("kafka", "TimeoutStopUSec") == "5min"


def test_the_guard_is_ready_says_how_it_is_and_sees_the_log_directories_read_only(machine: Machine) -> None:
    machine.run("rm", "-f", "/opt/test/slow")
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    assert "guarding 1" in machine.until(lambda: machine.show("logmend-guard", "StatusText"))
    pid = machine.show("logmend-guard", "MainPID")
    inside = f"touch /proc/{pid}/root/var/lib/kafka/data/orders-0/x 2>&1 || true"
    assert "Read-only file system" in machine.run("/bin/sh", "-c", inside)
    status = Path(f"/proc/{machine.outer_pid(int(pid))}/status").read_text()
    assert re.search(r"(?m)^CapEff:\s+0+$", status)
    assert re.search(r"(?m)^CapBnd:\s+0+$", status)
    assert re.search(r"(?m)^NoNewPrivs:\s+1$", status)


def test_a_service_that_stands_still_is_ended_by_the_watchdog_and_started_again(machine: Machine) -> None:
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    before = machine.show("logmend-guard", "MainPID")
    machine.run("systemctl", "kill", "--kill-who=main", "-s", "STOP", "logmend-guard")
    machine.until(lambda: machine.show("logmend-guard", "NRestarts") == "1", 60)
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    assert machine.show("logmend-guard", "MainPID") != before
    assert "watchdog" in machine.journal("-u", "logmend-guard").lower()


def test_a_service_that_is_killed_is_started_again(machine: Machine) -> None:
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    before, restarts = machine.show("logmend-guard", "MainPID"), int(machine.show("logmend-guard", "NRestarts"))
    machine.run("systemctl", "kill", "--kill-who=main", "-s", "KILL", "logmend-guard")
    machine.until(lambda: int(machine.show("logmend-guard", "NRestarts")) == restarts + 1)
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    assert machine.show("logmend-guard", "MainPID") != before
    assert machine.show("kafka", "ActiveState") == "active"


def test_a_reload_reads_the_file_again_and_a_wrong_one_changes_nothing(machine: Machine) -> None:
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "active")
    pid = machine.show("logmend-guard", "MainPID")
    machine.run("/bin/sh", "-c", "printf '[log]\\nlevel = \"debug\"\\n' >> /etc/logmend/logmend.toml")
    machine.run("systemctl", "reload", "logmend-guard")
    machine.until(lambda: "config_reloaded" in machine.journal("-u", "logmend-guard"))
    machine.run("/bin/sh", "-c", "printf 'levle = 3\\n' >> /etc/logmend/logmend.toml")
    machine.run("systemctl", "reload", "logmend-guard")
    machine.until(lambda: "unknown key log.levle" in machine.journal("-u", "logmend-guard"))
    assert machine.show("logmend-guard", "MainPID") == pid
    machine.run("/bin/sh", "-c", "sed -i '/levle/d' /etc/logmend/logmend.toml")


def test_a_unit_that_fails_for_good_is_told_of(machine: Machine) -> None:
    machine.run("/bin/sh", "-c", "echo 'nonsense = 1' >> /etc/logmend/logmend.toml")
    machine.run("systemctl", "restart", "logmend-guard", check=False)
    machine.until(lambda: machine.show("logmend-guard", "ActiveState") == "failed")
    unit = "logmend-failed@logmend-guard.service.service"
    machine.until(lambda: "told that logmend-guard.service failed" in machine.journal("-u", unit))
    assert machine.show("logmend-guard", "ExecMainStatus") == "2"
    machine.run("/bin/sh", "-c", "sed -i '/nonsense/d' /etc/logmend/logmend.toml")
    machine.run("systemctl", "reset-failed", "logmend-guard")
    machine.run("systemctl", "start", "logmend-guard")


def test_a_directory_of_ours_is_recovered_telling_how_far_opened_and_shut_down_cleanly(machine: Machine) -> None:
    machine.run("touch", "/opt/test/slow")
    machine.run("systemctl", "start", "--no-block", "logmend")
    said = machine.until(lambda: re.search("recovering .*", machine.show("logmend", "StatusText")))
    how_far = r"recovering /var/lib/kafka/own: \d+ %.*, [0-9.]+ .iB of [0-9.]+ .iB, .*0 of 1 partition"
    machine.until(lambda: re.match(how_far, machine.show("logmend", "StatusText")))
    assert machine.show("logmend", "ActiveState") == "activating", said
    machine.run("rm", "/opt/test/slow")
    machine.until(lambda: machine.show("logmend", "ActiveState") == "active")
    assert machine.show("logmend-guard", "ActiveState") == "inactive", "the two units exclude one another"
    assert "serving 1" in machine.until(lambda: machine.show("logmend", "StatusText"))
    machine.run("systemctl", "stop", "logmend")
    assert machine.show("logmend", "Result") == "success"
    assert machine.run("stat", "-c", "%U", "/var/lib/kafka/own/.kafka_cleanshutdown").strip() == "kafka"
    machine.run("systemctl", "start", "logmend-guard")


def test_the_recovery_may_be_part_of_the_brokers_own_start(machine: Machine) -> None:
    machine.run("systemctl", "stop", "kafka", "logmend-recover")
    machine.run("systemctl", "mask", "--runtime", "logmend-recover")
    (drop_in,) = (path for path in (UNITS / "kafka.service.d").iterdir() if "ExecStartPre=" in path.read_text())
    place = f"/etc/systemd/system/kafka.service.d/{drop_in.name}"
    machine.run("/bin/sh", "-c", f"cat > {place} <<'END'\n{drop_in.read_text()}END\n")
    log = f"/var/lib/kafka/data/orders-0/{NAME}"
    machine.run("/bin/sh", "-c", f"head -c 30 {log} > /tmp/torn; cat /tmp/torn >> {log}; rm -f /var/lib/kafka/note")
    machine.run("rm", "-f", "/var/lib/kafka/data/.kafka_cleanshutdown")
    machine.run("rm", "-f", "/etc/systemd/system/kafka.service.requires/logmend-recover.service")
    machine.run("systemctl", "daemon-reload")
    assert "ExecStartPre=/opt/logmend" in machine.run("systemctl", "cat", "kafka")
    machine.run("systemctl", "start", "kafka")
    note = json.loads(machine.until(lambda: machine.run("cat", "/var/lib/kafka/note", check=False)))
    assert note["sizes"][f"orders-0/{NAME}"] == len(SOUND)
