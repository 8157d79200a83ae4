"""`logmend explain`: the sums of retention and compaction, epochs, producers, open transactions, holes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import batch_v2
from support.calling import call
from support.managers import NOW, P0, append, batch

from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from storage.disk.fs import OsFs

SMALL = {"internal.segment.bytes": "200"}


def make(log_dir: Path, **settings: str) -> None:
    """Make a log of three segments and an open transaction, under these settings."""
    with LogManager.open(OsFs(), [PurePath(log_dir)], NOW, ManagerOptions()) as manager:
        manager.topics.create("orders", 1, SMALL | {k.replace("_", "."): v for k, v in settings.items()}, NOW)
        for number in range(5):
            append(manager, f"v{number}", key=b"k", timestamp=NOW + number)
        manager.append(P0, batch("t", key=b"k", producer_id=7, producer_epoch=1, base_sequence=0, flags=0x10), NOW)


def explain(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = call("explain", *words)
    assert done.returncode == status, done.stderr
    return done


def told(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explain(*words, "--json").stdout)
    assert (found["document"], found["status"]) == ("explain", 0)
    return found


def test_each_segment_is_told_with_the_very_numbers_of_retention(tmp_path: Path) -> None:
    make(tmp_path, retention_ms="1000", retention_bytes="100000")
    found = told(tmp_path / "orders-0")
    assert (found["partition"], found["log_start"], found["log_end"], found["settings_known"]) == (
        "orders-0",
        0,
        6,
        True,
    )
    first, *_, last = found["segments"]
    assert first["retention"] == "may go: its largest timestamp is older than retention.ms"
    assert f"its largest timestamp {NOW + 1} is" in first["because"][-1]
    assert "more than retention.ms 1000" in first["because"][-1]
    assert "fewer than retention.bytes 100000" in first["because"][-2]
    assert last["next_base"] is None
    assert "never compacted: cleanup.policy is delete" in first["compaction"]


def test_what_compaction_waits_for_is_told_with_its_ratio(tmp_path: Path) -> None:
    make(tmp_path, cleanup_policy="compact")
    found = told(tmp_path / "orders-0")["segments"]
    assert [each["retention"] for each in found] == ["stays"] * len(found)
    assert "1.000, above min.cleanable.dirty.ratio 0.5" in found[0]["compaction"]
    assert found[-1]["compaction"] == "not compacted: it is the active segment"
    with LogManager.open(OsFs(), [PurePath(tmp_path)], NOW, ManagerOptions()) as manager:
        assert manager.compact(NOW) == []
    assert "compacted: the cleaner has been up to 4" in told(tmp_path / "orders-0")["segments"][0]["compaction"]


def test_producers_epochs_and_open_transactions_are_told(tmp_path: Path) -> None:
    make(tmp_path)
    found = told(tmp_path / "orders-0")
    assert [(each["producer_id"], each["last_offset"]) for each in found["producers"]] == [(7, 5)]
    assert found["open_transactions"] == [{"producer_id": 7, "first_offset": 5}]
    assert found["epochs"] == [{"epoch": 0, "start_offset": 0}]
    assert found["last_stable_offset"] == 5
    text = explain(tmp_path / "orders-0").stdout
    assert "open transaction of producer 7 since offset 5" in text
    assert "epoch 0 from offset 0" in text


def test_producers_are_found_without_a_snapshot_too(tmp_path: Path) -> None:
    make(tmp_path)
    for snapshot in (tmp_path / "orders-0").glob("*.snapshot"):
        snapshot.unlink()
    assert [each["producer_id"] for each in told(tmp_path / "orders-0")["producers"]] == [7]


def test_a_segment_alone_and_a_name_in_a_log_directory_can_be_asked_for(tmp_path: Path) -> None:
    make(tmp_path)
    (only,) = told(tmp_path / "orders-0" / f"{2:020d}.log")["segments"]
    assert only["base_offset"] == 2
    assert len(told("orders-0", "--log-dir", tmp_path)["segments"]) == 3


def test_nothing_is_changed_and_no_lock_is_needed(tmp_path: Path) -> None:
    make(tmp_path)
    with LogManager.open(OsFs(), [PurePath(tmp_path)], NOW, ManagerOptions()):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        explain(tmp_path / "orders-0", "--holes")
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_topic_that_is_not_listed_is_told_by_the_defaults(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "logmend-topics.json").unlink()
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=77\n")
    found = told(tmp_path / "orders-0", "--server-properties", properties)
    assert (found["settings_known"], found["settings"]["retention.ms"]) == (False, 77)


def test_holes_are_told_with_the_next_good_offset(tmp_path: Path) -> None:
    rotten = bytearray(batch_v2(10, 2))
    rotten[-1] ^= 1
    home = tmp_path / "orders-0"
    home.mkdir()
    (home / f"{0:020d}.log").write_bytes(
        b"".join([batch_v2(0, 2), batch_v2(5, 1), bytes(rotten), batch_v2(12, 1), b"rubbish"])
    )
    (home / f"{20:020d}.log").write_bytes(batch_v2(20, 1))
    found = told(home, "--holes")["holes"]
    assert [(each["base_offset"], each["offset"], each["next_offset"], each["reason"]) for each in found] == [
        (0, 2, 5, "the offsets jump"),
        (0, 6, 12, "no sound batch: BAD_CRC"),
        (0, 13, None, "no sound batch: NEED_MORE"),
        (20, 13, 20, "the next segment begins behind the last batch"),
    ]
    assert "next good offset 12" in explain(home, "--holes").stdout


def test_without_holes_that_is_said(tmp_path: Path) -> None:
    make(tmp_path)
    assert "  no holes\n" in explain(tmp_path / "orders-0", "--holes").stdout


@pytest.mark.parametrize("target", ["nothing-0", "orders-0/leader-epoch-checkpoint", "."])
def test_what_is_neither_partition_nor_segment_is_wrong_usage(tmp_path: Path, target: str) -> None:
    make(tmp_path)
    assert explain(tmp_path / target, status=2).stderr
    assert explain(tmp_path / "orders-0" / f"{9:020d}.log", status=2).stderr
