"""Tables that are replaced whole; plans for healing from them; what a session needs."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.auditing import NOW_MS, Audited, audit
from support.fleets import copy_fleet, plant_lone_copy, plant_missing_tail, plant_rot, sources

from audit.judge.heal import plan_heal, plan_text
from audit.judge.verdicts import VerdictRow
from audit.scan.tasks import utc_now
from audit.spark.session import NoJava, check_java, install_command, session_settings, write_zip
from audit.tables.options import AuditOptions
from audit.tables.schema import TABLES, RunRow, record_batch
from audit.tables.tables import Tables, check_writable, checked_id
from storage.base.errors import ConfigInvalid, WriteFault


def write(tables: Tables, audit_id: str, generation: str, rows: dict[str, list[Any]], *, commit: bool = True) -> None:
    rows = {"runs": [RunRow(audit_id, utc_now(NOW_MS), None, "1", "c", "", "full", 0, 0, 0, None, None)], **rows}
    for name, kind in TABLES.items():
        place = Path(tables.directory(name, audit_id, generation))
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_batches([record_batch(kind, rows.get(name, []))]), place / "part-0.parquet")
    if commit:
        tables.commit(audit_id, generation, {"started_at": audit_id, "status": 0})


def verdict(name: str) -> VerdictRow:
    return VerdictRow("c", "t", 0, None, 1, 1, 1, [], [], None, None, None, 0, 0, 0, name)


def verdicts(tables: Tables, audit_id: str | None = None) -> list[str]:
    return [row["verdict"] for row in tables.read("verdicts", audit_id).to_pylist()]


def test_nothing_is_there_before_the_first_audit(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    assert (tables.committed(), tables.read("verdicts").num_rows, tables.directories("runs")) == ([], 0, [])
    with pytest.raises(ConfigInvalid, match="no audit latest"):
        tables.find("latest")


def test_an_audit_that_was_cut_off_before_its_end_is_not_there(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    write(tables, "a", "1", {"verdicts": [verdict("healthy")]})
    write(tables, "b", "2", {"verdicts": [verdict("degraded")]}, commit=False)
    assert verdicts(tables) == ["healthy"]
    assert tables.audit_ids() == ["a"]


def test_a_rerun_replaces_its_audit_and_until_then_the_old_one_is_read(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    write(tables, "a", "1", {"verdicts": [verdict("healthy")]})
    write(tables, "b", "1", {"verdicts": [verdict("healthy")]})
    write(tables, "a", "2", {"verdicts": [verdict("divergent")]}, commit=False)
    assert verdicts(tables, "a") == ["healthy"]
    tables.commit("a", "2", {"started_at": "a", "status": 3})
    assert verdicts(tables, "a") == ["divergent"]
    assert tables.names(f"{tmp_path}/verdicts/audit_id=a") == ["generation=2"]
    assert tables.find("latest").audit_id == "b"


def test_a_table_is_read_in_pieces_and_columns(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    write(tables, "a", "1", {"verdicts": [verdict("healthy"), verdict("degraded")]})
    found = [row for batch in tables.batches("verdicts", "a", ["verdict"]) for row in batch.to_pylist()]
    assert found == [{"verdict": "healthy"}, {"verdict": "degraded"}]


@pytest.mark.parametrize("wrong", ["", "a/b", "..", "latest", "a b", "-x", "a" * 129])
def test_an_id_that_could_leave_its_directory_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigInvalid):
        checked_id(wrong)


def test_a_place_that_cannot_be_written_is_found_out_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteFault):
        check_writable(str(tmp_path / "file"))


# ---- healing


def audited(root: Path) -> Tables:
    found: Audited = audit(sources(root, "c"), AuditOptions(now_ms=NOW_MS))
    tables = Tables(str(root / "out"))
    rows = {"segments": found.segments, "findings": found.findings, "verdicts": found.verdicts}
    write(tables, "a", "1", rows)
    return tables


def test_a_rotten_range_is_healed_from_a_broker_that_is_sound_there(tmp_path: Path) -> None:
    plant_rot(copy_fleet(tmp_path))
    plan = plan_heal(audited(tmp_path), "latest")
    (rotten,) = plan["heals"]
    assert rotten["why"] == "rotten"
    assert (rotten["broker"], rotten["topic"], rotten["partition"]) == ("2", "ledger", 0)
    assert 391 <= rotten["first_offset"] <= rotten["last_offset"] < 768
    assert rotten["source"]["broker"] in {"0", "1"}
    assert rotten["source"]["log_dir"] == str(tmp_path / rotten["source"]["broker"] / "data")
    assert plan["hopeless"] == []
    assert "broker 2 ledger-0 (rotten): offsets " in plan_text(plan)


def test_a_lost_tail_is_healed_up_to_the_high_watermark(tmp_path: Path) -> None:
    plant_missing_tail(copy_fleet(tmp_path))
    (one,) = plan_heal(audited(tmp_path), "a")["heals"]
    assert (one["why"], one["broker"], one["last_offset"]) == ("lacks", "2", 1010)
    assert one["source"]["broker"] in {"0", "1"}


def test_a_missing_replica_is_healed_as_a_whole_from_the_only_copy(tmp_path: Path) -> None:
    plant_lone_copy(copy_fleet(tmp_path))
    plan = plan_heal(audited(tmp_path), "a")
    assert {(one["broker"], one["source"]["broker"], one["last_offset"]) for one in plan["heals"]} == {
        ("0", "2", None),
        ("1", "2", None),
    }


# ---- sessions


def test_without_java_the_message_has_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="To install it: "):
        check_java({"PATH": str(tmp_path)})
    assert install_command('ID=rocky\nID_LIKE="rhel centos fedora"\n') == "dnf install java-17-openjdk-headless"
    assert "openjdk-17" in install_command("")


@pytest.mark.parametrize(("said", "major"), [('openjdk version "17.0.15"', 17), ('openjdk version "21"', 21)])
def test_a_java_that_spark_runs_on_is_taken(tmp_path: Path, said: str, major: int) -> None:
    (tmp_path / "java").write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    (tmp_path / "java").chmod(0o755)
    assert check_java({"PATH": str(tmp_path)}) == major


@pytest.mark.parametrize("said", ['java version "1.8.0_312"', 'openjdk version "11.0.2"', "what?"])
def test_a_java_that_is_too_old_is_refused(tmp_path: Path, said: str) -> None:
    (tmp_path / "java").write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(NoJava):
        check_java({"PATH": str(tmp_path)})


def test_a_local_session_listens_on_loopback_alone_and_tries_tasks_again() -> None:
    settings = session_settings("local[*]", {"spark.driver.memory": "2g"})
    assert settings["spark.master"] == "local[*,4]"
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert (settings["spark.ui.enabled"], settings["spark.driver.memory"]) == ("false", "2g")
    assert "spark.driver.bindAddress" not in session_settings("spark://host:7077", {})


def test_java_that_compiles_once_has_room_for_its_code() -> None:
    java = session_settings("local[2]", {})["spark.driver.extraJavaOptions"].split()
    assert {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"} <= set(java)


def test_the_zip_for_executors_has_the_code_they_need_and_is_always_the_same(tmp_path: Path) -> None:
    one, other = write_zip(tmp_path / "a.zip"), write_zip(tmp_path / "b.zip")
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {name.partition("/")[0] for name in names} == {"storage", "checkpoint", "recovery", "audit"}
    assert "audit/spark/steps.py" in names
