"""Questions in SQL: the views are the tables of all audits, and each shipped query answers what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.audit_tables import (
    NOW,
    MemoryTables,
    finding_row,
    run_row,
    segment_row,
    verdict_row,
    write_tables,
)
from support.batches import batch_v2

from audit.spark.views import make_views, query, shipped
from audit.tables.tables import Tables
from cli.audit.sql import table_text
from storage.base.errors import ConfigInvalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tables of two audits, two weeks apart."""
    tables = MemoryTables()
    older = NOW - timedelta(days=14)
    damage = finding_row("batch_crc", "damage", broker="3", log_dir="/d0")
    tables.add(
        "2026-11-06", runs=[run_row("2026-11-06", older)], verdicts=[verdict_row("orders", 0)], findings=[damage]
    )
    verdicts = [
        verdict_row("orders", 0), verdict_row("orders", 1, "one_good_copy"), verdict_row("mail", 0, "divergent"),
        verdict_row("mail", 1, "unreadable"),
    ]  # fmt: skip
    findings = [
        damage, damage, finding_row("above_high_watermark", "note"),
        finding_row("unreadable", "blocking", log_dir="/d9"),
        finding_row("replica_missing", "damage", broker="2", path="", topic="mail", evidence="assigned, not there"),
        finding_row("under_replicated", "damage", broker="", log_dir="", path="", topic="mail", evidence="2 of 3"),
    ]  # fmt: skip
    segments = [
        segment_row("orders", 0, verified_at=NOW - timedelta(days=40), size_bytes=100),
        segment_row("orders", 1, size_bytes=11), segment_row("mail", 0, depth="quick", size_bytes=5),
    ]  # fmt: skip
    run = run_row("2026-11-20", NOW - timedelta(hours=1))
    tables.add("2026-11-20", runs=[run], verdicts=verdicts, findings=findings, segments=segments)
    return write_tables(tables, tmp_path_factory.mktemp("audits"))


def asked(spark: SparkSession, out: Path, name: str) -> list[dict[str, Any]]:
    make_views(spark, Tables(str(out)))
    return [row.asDict() for row in spark.sql(query(name).sql).collect()]


def test_every_shipped_query_says_what_it_asks_and_runs(spark: SparkSession, out: Path) -> None:
    assert [one.name for one in shipped()] == [
        "disagreements", "findings-per-disk", "missing-by-metadata", "oldest-bytes", "one-good-copy",
    ]  # fmt: skip
    assert all(one.question.endswith((".", "?")) for one in shipped())
    assert all(asked(spark, out, one.name) for one in shipped())


def test_views_hold_all_audits_and_last_audit_one(spark: SparkSession, out: Path) -> None:
    make_views(spark, Tables(str(out)))
    counted = spark.sql("SELECT audit_id, count(*) FROM verdicts GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in counted] == [("2026-11-06", 1), ("2026-11-20", 4)]
    assert [row.audit_id for row in spark.table("last_audit").collect()] == ["2026-11-20"]
    assert "generation" not in spark.table("verdicts").columns
    make_views(spark, Tables(str(out)), "2026-11-06")
    assert [row.audit_id for row in spark.table("last_audit").collect()] == ["2026-11-06"]


def test_what_a_crash_left_beside_an_audit_is_not_read(spark: SparkSession, out: Path) -> None:
    there = next((out / "verdicts" / "audit_id=2026-11-20").iterdir())
    left = there.with_name("generation=2")
    left.mkdir()
    (left / "part-0.parquet").write_bytes((there / "part-0.parquet").read_bytes())
    try:
        make_views(spark, Tables(str(out)))
        assert spark.table("verdicts").count() == 5
    finally:
        (left / "part-0.parquet").unlink()
        left.rmdir()


def test_lone_copies_are_told_with_their_broker_and_offsets(spark: SparkSession, out: Path) -> None:
    (row,) = asked(spark, out, "one-good-copy")
    assert (row["topic"], row["partition"], row["good_copy_on"], row["bad_on"]) == ("orders", 1, "1", "2, 3")
    assert (row["first_offset"], row["last_offset"]) == (1_200_311, 1_204_406)


def test_disagreeing_replicas_are_told_one_by_one(spark: SparkSession, out: Path) -> None:
    rows = asked(spark, out, "disagreements")
    assert [(row["topic"], row["bad_on"], row["good_on"], row["first_offset"]) for row in rows] == [
        ("mail", "3", "1, 2", 1_200_000), ("orders", "2", "1", 1_200_311), ("orders", "3", "1", 1_200_311),
    ]  # fmt: skip


def test_findings_are_counted_by_disk_and_week_without_notes(spark: SparkSession, out: Path) -> None:
    rows = asked(spark, out, "findings-per-disk")
    assert [(row["week"], row["broker"], row["log_dir"], row["blocking"], row["damage"]) for row in rows] == [
        (date(2026, 11, 16), "3", "/d9", 1, 0),
        (date(2026, 11, 16), "3", "/d0", 0, 2),
        (date(2026, 11, 16), "2", "/var/lib/kafka/d0", 0, 1),
        (date(2026, 11, 2), "3", "/d0", 0, 1),
    ]


def test_the_oldest_data_of_each_topic_comes_first(spark: SparkSession, out: Path) -> None:
    rows = asked(spark, out, "oldest-bytes")
    assert [(row["topic"], row["bytes"], row["bytes_over_30_days"], row["bytes_never_in_full"]) for row in rows] == [
        ("mail", 5, 0, 5), ("orders", 111, 100, 0),
    ]  # fmt: skip


def test_what_metadata_misses_is_told_from_other_findings(spark: SparkSession, out: Path) -> None:
    rows = asked(spark, out, "missing-by-metadata")
    assert [(row["kind"], row["broker"], row["path"]) for row in rows] == [
        ("replica_missing", "2", None), ("under_replicated", None, None),
    ]  # fmt: skip


def test_an_audit_that_is_not_there_is_a_wrong_usage(spark: SparkSession, out: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no audit 1999 in"):
        make_views(spark, Tables(str(out)), "1999")
    with pytest.raises(ConfigInvalid, match="no query nothing; there are disagreements"):
        query("nothing")


def test_a_table_for_people_has_numbers_to_the_right_and_hostile_names_made_harmless() -> None:
    shown = table_text(["topic", "offset"], [("a\x1b[2J", 5), ("b", None), ("c" * 99, 12345)])
    lines = shown.splitlines()
    assert lines[2].startswith("a\\x1b[2J ")
    assert lines[2].endswith("     5")
    assert lines[4].endswith("…   12345")
    assert len({len(line) for line in (lines[1], lines[2], lines[4])}) == 1


def command(*words: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "audit", "sql", *words], env=environment, cwd=root,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_the_command_answers_from_the_tables_and_from_logs(out: Path, tmp_path: Path) -> None:
    told = command("--out", str(out), "--query", "one-good-copy", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["rows"][0]["good_copy_on"] == "1"
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(batch_v2(0, 2) + batch_v2(2, 3))
    told = command("--batches", str(tmp_path), "SELECT topic, sum(record_count) AS records FROM batches GROUP BY topic")
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[2].split() == ["orders", "5"]


def test_the_command_lists_its_queries_and_refuses_nonsense_without_starting_spark(out: Path) -> None:
    told = command("--list")
    assert told.stdout.splitlines()[4].startswith("one-good-copy")
    assert command("--out", str(out)).returncode == 2
