"""The installed command with a Spark of its own, on disks that die, places that may not be read, and drivers killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from power.disk import mounted, need_disk
from spark.conftest import CHEAP
from support.auditing import NOW_MS, audit
from support.command import environment
from support.fleets import copy_fleet, sources
from support.needs import need
from support.waiting import until

from audit.tables.options import AuditOptions
from audit.tables.schema import FindingRow, SegmentRow, VerdictRow
from audit.tables.tables import Tables

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TABLES = {"segments": SegmentRow, "findings": FindingRow, "verdicts": VerdictRow}
SOMEBODY = 12345
SETTINGS = ("--master", "local[2]", *(word for name, value in CHEAP.items() for word in ("--conf", f"{name}={value}")))
WITHOUT_RIGHTS = ("setpriv", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def command(root: Path, out: Path, audit_id: str, *brokers: tuple[str, Path]) -> list[str]:
    pairs = [word for broker, place in brokers for word in ("--log-dir", f"{broker}={place}")]
    return [sys.executable, "-m", "cli.main", "audit", *pairs, "--cluster", "c", "--out", str(out),
            "--audit-id", audit_id, *SETTINGS, "--conf", f"spark.local.dir={root}"]  # fmt: skip


def brokers(root: Path) -> list[tuple[str, Path]]:
    return [(source.broker, Path(source.log_dir)) for source in sources(root, "c")]


def rows(out: Path, audit_id: str, table: str) -> list[str]:
    """Return the rows of an audit without its name and its times."""
    found = Tables(str(out)).read(table, audit_id)
    dropped = [name for name in found.column_names if name.endswith("_at") or name == "audit_id"]
    return sorted(map(repr, found.drop_columns(dropped).to_pylist()))


def test_a_dead_disk_and_a_forbidden_directory_are_named_and_the_rest_is_audited(tmp_path: Path) -> None:
    need("setpriv", root=True)
    need_disk("ext4", tmp_path)
    copy_fleet(tmp_path)
    places = dict(brokers(tmp_path))
    for path in [places["1"], *places["1"].rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)
    with mounted("ext4", tmp_path) as disk:
        subprocess.run(["cp", "-r", places["2"], disk.place / "data"], check=True)
        disk.unmount()
        disk.mount()  # so that nothing of it is in memory
        disk.cut_power(2)
        asked = [("0", places["0"]), ("1", places["1"]), ("2", disk.place / "data")]
        words = [*WITHOUT_RIGHTS, *command(tmp_path, tmp_path / "out", "sick", *asked)]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = done.stdout + done.stderr
    for place in (places["1"], disk.place / "data"):
        assert str(place) in said
    assert "EACCES" in said
    assert "EIO" in said
    tables = Tables(str(tmp_path / "out"))
    read = tables.read("segments", "sick").to_pylist()
    assert {row["broker"] for row in read if row["valid_bytes"]} == {"0"}
    alone = audit([source for source in sources(tmp_path, "c") if source.broker == "0"], AuditOptions(now_ms=NOW_MS))
    assert len([row for row in read if row["broker"] == "0"]) == len(alone.segments)
    assert not [row for row in read if row["broker"] == "1"], "what lies in a forbidden directory cannot be listed"
    assert {row["verdict"] for row in tables.read("verdicts", "sick").to_pylist()} == {"unreadable"}


def test_a_driver_killed_with_all_its_workers_is_gone_on_with_by_the_next_run(tmp_path: Path) -> None:
    copy_fleet(tmp_path)
    out = tmp_path / "out"
    words = command(tmp_path, out, "killed", *brokers(tmp_path))
    killed = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                              start_new_session=True)  # fmt: skip
    await_one(killed, out / "_staging" / "killed", "*/begun/*")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    (first,) = (out / "_staging" / "killed").iterdir()
    assert Tables(str(out)).committed() == []
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    (one,) = Tables(str(out)).committed()
    assert one.generation == first.name, "it went on with what the first had done"
    calm = audit(sources(tmp_path, "c"))
    assert len(rows(out, "killed", "segments")) == len(calm.segments)
    verdicts = {
        (r["topic"], r["partition"], r["verdict"]) for r in Tables(str(out)).read("verdicts", "killed").to_pylist()
    }
    assert verdicts == {(row.topic, row.partition, row.verdict) for row in calm.verdicts}
    again = command(tmp_path, out, "calm", *brokers(tmp_path))
    assert subprocess.run(again, env=environment(), capture_output=True, check=False, cwd="/").returncode == 0
    for table in TABLES:
        assert rows(out, "killed", table) == rows(out, "calm", table), table


def await_one(process: subprocess.Popen[bytes], place: Path, pattern: str) -> None:
    """Return when there is a file like this; the process must not end before."""
    until(lambda: any(place.glob(pattern)) or process.poll() is not None, 300)
    assert process.poll() is None, "it ended before it was killed"
