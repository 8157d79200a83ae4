"""The job on a real Spark: the damage planted in copies of three brokers' directories, each a cluster, in one audit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support import killing
from support.auditing import NOW_MS, audit
from support.batches import reseal
from support.fleets import DAMAGED, HEALTHY, copy_fleet, log_of, plant_missing_segment, sources

from audit.spark import job, reading
from audit.spark.host_scan import scan_host
from audit.tables.options import AuditOptions, Source
from audit.tables.schema import BlockRow, FindingRow, SegmentRow, VerdictRow
from audit.tables.tables import Tables
from storage.base.errors import ExitStatus
from storage.batch.batch import parse_header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (*DAMAGED, *HEALTHY)
TABLES = {"segments": SegmentRow, "blocks": BlockRow, "findings": FindingRow, "verdicts": VerdictRow}


class Planted:
    """All copies, and the audit of them."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.out = str(root / "out")
        self.sources: list[Source] = []
        self.expected = {}
        for name in NAMES:
            self.expected[name] = (DAMAGED | HEALTHY)[name](copy_fleet(root / name))
            self.sources += sources(root / name, name)
        options = AuditOptions(out=self.out, audit_id="first", now_ms=NOW_MS, split_bytes=40_000)
        self.result = job.run(spark, self.sources, options)
        self.tables = Tables(self.out)

    def rows(self, table: str, cluster: str) -> list[Any]:
        found = self.tables.read(table, "first")
        kept = found.filter(pc.equal(found["cluster"], cluster)).drop_columns(["audit_id"])
        return [TABLES[table](**row) for row in kept.to_pylist()]


@pytest.fixture
def by_value() -> Iterator[None]:
    from pyspark import cloudpickle  # noqa: PLC0415 (may not be installed)

    cloudpickle.register_pickle_by_value(killing)
    yield
    cloudpickle.unregister_pickle_by_value(killing)


def told(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.deep
def test_spark_says_of_each_cluster_what_the_same_steps_say_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    planted = Planted(spark, tmp_path)
    for name in NAMES:
        chosen = [source for source in planted.sources if source.cluster == name]
        alone = audit(chosen, AuditOptions(now_ms=NOW_MS, out=planted.out))
        seams = [row for row in planted.rows("findings", name) if row.kind == "seam"]
        assert told(planted.rows("findings", name)) == told(alone.findings + seams), name
        assert told(planted.rows("verdicts", name)) == told(alone.verdicts), name
        assert told(planted.rows("segments", name)) == told(alone.segments), name

    result = planted.result
    assert result.status is ExitStatus.ENVIRONMENT
    assert sum(result.verdicts.values()) == planted.tables.read("verdicts", "first").num_rows
    assert result.segments == planted.tables.read("segments", "first").num_rows
    assert [path for path, _ in result.unreadable] == [str(tmp_path / "unreadable" / "1" / "data")]
    assert {row.cluster for row in result.disagreements} >= {"rot", "divergence", "missing-tail", "lost-key"}
    (run,) = planted.tables.read("runs", "first").to_pylist()
    assert (run["status"], run["depth"], run["bytes_listed"]) == (5, "full", result.bytes_listed)


@pytest.mark.deep
def test_an_audit_after_reads_no_more_than_it_must_and_sees_what_changed_under_an_old_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    for name in ("nothing", "rot"):
        DAMAGED.get(name, HEALTHY["nothing"])(copy_fleet(tmp_path / name))
    chosen = [source for name in ("nothing", "rot") for source in sources(tmp_path / name, name)]
    job.run(spark, chosen, AuditOptions(out=out, audit_id="first", now_ms=NOW_MS))
    path = log_of(tmp_path / "nothing", "0", "ledger-0", 1)
    changed, stat = bytearray(path.read_bytes()), path.stat()
    changed[27:35] = (int.from_bytes(changed[27:35]) + 1).to_bytes(8)
    size = parse_header(bytes(changed)).size
    path.write_bytes(reseal(bytes(changed[:size])) + bytes(changed[size:]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    everything = AuditOptions(out=out, audit_id="second", now_ms=NOW_MS + 1000, previous="first", cycle=1)
    second = job.run(spark, chosen, everything)
    assert second.from_previous == 0
    assert ("changed_in_place", "damage") in second.kinds
    little = AuditOptions(out=out, audit_id="third", now_ms=NOW_MS + 2000, previous="second", cycle=10**6)
    third = job.run(spark, chosen, little)
    rows = Tables(out).read("segments", "third").to_pylist()
    read = {
        (row["cluster"], row["broker"], row["directory"])
        for row in rows
        if not (row["from_previous"] or row["is_active"])
    }
    # What has a finding is read again, and last segments are; all else is as it was.
    assert read == {("nothing", "0", "ledger-0"), ("rot", "2", "ledger-0")}
    assert third.kinds == {kind: found for kind, found in second.kinds.items() if kind[0] != "changed_in_place"}
    assert third.verdicts == second.verdicts
    assert third.bytes_read < third.bytes_listed / 2


def same(tables: Tables, one: str, other: str) -> None:
    for name in TABLES:
        first, second = (tables.read(name, audit_id).drop_columns(["audit_id"]) for audit_id in (one, other))
        assert told(first.to_pylist()) == told(second.to_pylist()), name


@pytest.mark.deep
def test_a_killed_worker_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_value: None
) -> None:
    copy_fleet(tmp_path)
    out, chosen = str(tmp_path / "out"), sources(tmp_path, "c")
    job.run(spark, chosen, AuditOptions(out=out, audit_id="calm", now_ms=NOW_MS))
    monkeypatch.setattr(killing.KillOnce, "mark", str(tmp_path / "killed"))
    monkeypatch.setattr(reading, "VerifySegments", killing.KillOnce)
    result = job.run(spark, chosen, AuditOptions(out=out, audit_id="killed", now_ms=NOW_MS))
    assert (tmp_path / "killed").exists()
    assert result.status is ExitStatus.CLEAN
    same(Tables(out), "calm", "killed")

    # A driver that dies when all is verified, and one that goes on where it stopped.
    monkeypatch.undo()
    monkeypatch.setattr(job.plans, "replica_states", lambda *_, **__: 1 / 0)
    options = AuditOptions(out=out, audit_id="restarted", now_ms=NOW_MS)
    with pytest.raises(ZeroDivisionError):
        job.run(spark, chosen, options)
    assert [one.audit_id for one in Tables(out).committed()] == ["calm", "killed"]
    monkeypatch.undo()
    begun = sorted(Path(out, "_staging", "restarted").glob("*/begun/*"))
    times = [path.stat().st_mtime_ns for path in begun]
    monkeypatch.setattr(Tables, "remove", lambda *_: None)
    job.run(spark, chosen, options)
    assert times == [path.stat().st_mtime_ns for path in begun] != []  # nothing was verified a second time
    same(Tables(out), "calm", "restarted")


@pytest.mark.deep
def test_a_segment_that_kills_every_worker_is_named_and_the_rest_is_audited(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_value: None
) -> None:
    copy_fleet(tmp_path)
    monkeypatch.setattr(killing.KillAt, "base_offset", 391)
    monkeypatch.setattr(killing.KillAt, "place", "1/data/ledger-0")
    monkeypatch.setattr(reading, "VerifySegments", killing.KillAt)
    out = str(tmp_path / "out")
    result = job.run(spark, sources(tmp_path, "c"), AuditOptions(out=out, now_ms=NOW_MS, audit_id="a"))
    assert result.status is ExitStatus.ENVIRONMENT
    assert [Path(path).name for path, _ in result.unreadable] == [f"{391:020}.log"]
    assert result.kinds == {("task_failed", "blocking"): 1}
    assert result.segments == 38
    assert isinstance(Tables(out).read("verdicts", "a"), pa.Table)


def test_reports_of_hosts_give_the_verdicts_that_digests_can_give(spark: SparkSession, tmp_path: Path) -> None:
    plant_missing_segment(copy_fleet(tmp_path))
    reports = []
    for source in sources(tmp_path, "c"):
        reports.append(str(tmp_path / f"{source.broker}.parquet"))
        scan_host([source], AuditOptions(now_ms=NOW_MS), PurePath(reports[-1]))
    shutil.rmtree(tmp_path / "0")  # no disk is asked again
    options = AuditOptions(out=str(tmp_path / "out"), audit_id="a", now_ms=NOW_MS, reports=tuple(reports))
    result = job.run(spark, [], options)
    assert result.verdicts == {"healthy": 3, "divergent": 1}
    # Of the metadata, of which broker 1 has not all, nothing can be said without its batches.
    assert result.kinds == {("replica_differs", "damage"): 1, ("not_compared", "note"): 1}
    assert (result.segments, result.bytes_read, result.kernel) == (38, 0, "reports")
