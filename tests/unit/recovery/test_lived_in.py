"""What brokers leave that live, stop cleanly or are at work is no alarm; what would mislead a reader still is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePath

import pytest
from golden import golden
from support.command import environment, logmend
from support.needs import need
from support.recovering import plan, recover, recover_and_hand_over, tree

from recovery.logdir.survey import plan_log_dir
from recovery.plan.findings import Severity
from recovery.plan.plan import LogDirPlan, PlanOptions
from storage.base.errors import ExitStatus
from storage.disk.fs import FileStat, OsFs

INTERVALS = (512, 4096, 9000)
DEPTHS = ("quick", "full", "records")
METADATA = "__cluster_metadata-0"
KILLED = [name for name in golden.NAMES if name != "kafka-0.9"]  # which writes no time indexes yet


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    return golden.extract("lived-in", tmp_path) / "0" / "data"


def alarms(plan: LogDirPlan) -> list[str]:
    return [str(finding) for finding in plan.findings if finding.kind.severity is not Severity.NOTE]


def beside_a_broker(log_dir: Path, fs: OsFs | None = None) -> LogDirPlan:
    return plan_log_dir(fs or OsFs(), log_dir, PlanOptions(depth="full"), running=True).plan


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("interval", INTERVALS)
def test_a_broker_that_lived_and_stopped_cleanly_twice_gets_no_alarm(lived_in: Path, depth: str, interval: int) -> None:
    found = plan(lived_in, PlanOptions(depth=depth, index_interval_bytes=interval))
    assert (alarms(found), found.status, found.is_empty) == ([], ExitStatus.CLEAN, True)


def test_the_archive_has_what_it_is_for(lived_in: Path) -> None:
    snapshots = list((lived_in / METADATA).glob("*.checkpoint"))
    assert snapshots
    assert {path.stat().st_mode & 0o777 for path in snapshots} == {0o400}
    assert list(lived_in.rglob("*.deleted"))
    assert len(list((lived_in / METADATA).glob("*.snapshot"))) == 2


def test_a_user_who_owns_read_only_metadata_snapshots_gets_no_alarm_either(lived_in: Path) -> None:
    need("setpriv", root=True)
    drop = ["setpriv", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    for words in (("verify", "--depth", "full"), ("recover", "--clean-marker", "4.3")):
        if words[0] == "recover":
            (lived_in / ".kafka_cleanshutdown").unlink()
        command = [*drop, sys.executable, "-m", "cli.main", *words, str(lived_in)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (lived_in / ".kafka_cleanshutdown").exists()


def test_a_log_that_its_owner_may_only_read_is_an_alarm(lived_in: Path) -> None:
    log = min((lived_in / "orders-0").glob("*.log"))
    log.chmod(0o400)
    assert alarms(plan(lived_in)) == [f"{log}: not_readable: mode 400: its own user may not read and write it"]


def test_a_metadata_snapshot_that_its_owner_may_not_read_is_an_alarm(lived_in: Path) -> None:
    snapshot = min((lived_in / METADATA).glob("*.checkpoint"))
    snapshot.chmod(0o200)
    assert alarms(plan(lived_in)) == [f"{snapshot}: not_readable: mode 200: its own user may not read it"]


def test_files_that_belong_to_the_directory_s_owner_are_judged_for_that_user(lived_in: Path) -> None:
    need(root=True)
    for path in [lived_in, *lived_in.rglob("*")]:
        os.chown(path, 12345, 12345)
    done = logmend("verify", "--depth", "full", lived_in)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["-8273645091827364509.checkpoint.part", ".checkpoint.part", ".checkpoint.deleted"])
def test_a_metadata_snapshot_that_was_not_finished_or_is_deleted_is_a_note(lived_in: Path, name: str) -> None:
    (lived_in / METADATA / f"00000000000000000042-0000000001{name}").write_bytes(b"half")
    found = plan(lived_in, PlanOptions(depth="full"))
    assert (alarms(found), found.is_empty) == ([], True)
    assert name in " ".join(map(str, found.findings))


def test_indexes_that_are_right_stay_whatever_interval_they_were_written_with(lived_in: Path) -> None:
    (lived_in / ".kafka_cleanshutdown").unlink()
    (lived_in / "recovery-point-offset-checkpoint").write_text("0\n0\n")  # all of it is scanned
    before = {name: was for name, was in tree(lived_in).items() if name.endswith("index")}
    recover_and_hand_over(lived_in)
    after = tree(lived_in)
    assert {name: after[name] for name in before} == before


def rotten(data: bytes, kind: str) -> bytes:
    """Return an index of at least three entries with one that misleads a reader."""
    entries = [data[at : at + 8] for at in range(0, len(data), 8)]
    offset, position = (int.from_bytes(entries[1][at : at + 4]) for at in (0, 4))
    entries[1] = {
        "off_batch": offset.to_bytes(4) + (position + 1).to_bytes(4),
        "misordered": entries[2],
        "offset too high": (offset + 100_000).to_bytes(4) + position.to_bytes(4),
        "past_end": offset.to_bytes(4) + (1 << 30).to_bytes(4),
    }[kind]
    return b"".join(entries)


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("kind", ["off_batch", "misordered", "offset too high", "past_end"])
def test_an_entry_that_misleads_a_reader_is_found_and_the_index_rebuilt(
    lived_in: Path, kind: str, *, scanned: bool
) -> None:
    index = min((lived_in / "orders-0").glob("*.index"))
    index.write_bytes(rotten(index.read_bytes(), kind))
    if scanned:
        (lived_in / ".kafka_cleanshutdown").unlink()
        (lived_in / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    options = PlanOptions(depth="full")
    assert any(alarm.startswith(str(index)) for alarm in alarms(plan(lived_in, options)))
    recover(lived_in, options)
    assert alarms(plan(lived_in, options)) == []


def test_a_time_index_that_lacks_the_largest_timestamp_is_found_in_a_closed_segment(lived_in: Path) -> None:
    index = min((lived_in / "orders-0").glob("*.timeindex"))
    index.write_bytes(index.read_bytes()[:-12])
    assert any(
        alarm.startswith(f"{index}: time_index_short") for alarm in alarms(plan(lived_in, PlanOptions(depth="full")))
    )


# ---- beside a running broker


@pytest.mark.parametrize("name", KILLED)
def test_what_a_broker_at_work_has_on_its_disk_is_no_alarm(tmp_path: Path, name: str) -> None:
    golden.extract(name, tmp_path)
    log_dirs = golden.log_dirs(tmp_path)
    assert log_dirs
    for log_dir in log_dirs:
        found = beside_a_broker(log_dir)
        assert (alarms(found), found.status) == ([], ExitStatus.CLEAN)


class Hiding(OsFs):
    """Leaves a file out of the first `looks` listings of its directory, as if a broker were about to rename it."""

    def __init__(self, path: Path, looks: int) -> None:
        super().__init__()
        self.path, self.looks = path, looks

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        listed = super().entries(directory)
        if directory == self.path.parent and self.looks:
            self.looks -= 1
            del listed[self.path.name]
        return listed


@pytest.mark.parametrize(("looks", "alarming"), [(1, False), (2, False), (100, True)])
def test_beside_a_broker_an_alarm_is_what_every_look_sees(lived_in: Path, looks: int, *, alarming: bool) -> None:
    fs = Hiding(min((lived_in / "orders-0").glob("*.index")), looks)
    found = beside_a_broker(lived_in, fs)
    assert bool(alarms(found)) is alarming
    assert found.is_empty is not alarming


def test_rot_is_an_alarm_beside_a_broker_too(lived_in: Path) -> None:
    log = min((lived_in / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    assert any("batch_crc" in alarm for alarm in alarms(beside_a_broker(lived_in)))


def test_a_torn_batch_at_the_end_of_the_active_log_is_one_that_the_broker_writes(lived_in: Path) -> None:
    log = max((lived_in / "orders-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(min((lived_in / "orders-0").glob("*.log")).read_bytes()[:40])
    assert alarms(beside_a_broker(lived_in)) == []


# ---- brokers before 0.11


def test_preallocated_indexes_are_trimmed_for_a_broker_that_would_call_them_corrupt(tmp_path: Path) -> None:
    golden.extract("kafka-0.10", tmp_path)
    (log_dir,) = golden.log_dirs(tmp_path)
    preallocated = [
        path for path in log_dir.rglob("*index") if path.stat().st_size and not path.read_bytes()[-12:].strip(b"\0")
    ]
    assert preallocated
    recover_and_hand_over(log_dir)
    for path in preallocated:
        data = path.read_bytes()
        assert data[-12:].strip(b"\0") or not data, path
    assert plan(log_dir).is_empty


def test_a_broker_that_keeps_leader_epochs_finds_its_preallocated_indexes_as_they_were(tmp_path: Path) -> None:
    golden.extract("kafka-2.8", tmp_path)
    (log_dir,) = golden.log_dirs(tmp_path)
    sizes = {path: path.stat().st_size for path in log_dir.rglob("*.index")}
    recover(log_dir)
    assert {path: path.stat().st_size for path in sizes} == sizes
