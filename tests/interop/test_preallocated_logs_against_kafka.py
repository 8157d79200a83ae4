"""`preallocate`: zeros behind the log while Kafka has it open, none once it was rolled or closed; ours has none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from interop.engine_pair import NAME, START_MS, Pair
from interop.kafka_lab import Oracle
from support.recovering import plan, recover

from engine.manager.manager import LogManager
from storage.batch.record import Record, encode_batch
from storage.disk.fs import OsFs

SEGMENT = 100_000
CONFIG = {"preallocate": "true", "internal.segment.bytes": str(SEGMENT)}


def batch(number: int) -> bytes:
    return encode_batch([Record(0, START_MS + number, key=b"k", value=b"v" * 500)])


def filled(oracle: Oracle, directory: Path) -> Pair:
    pair = Pair(oracle, directory, CONFIG)
    for number in range(250):
        pair.append(batch(number), 0, follower=False)
    return pair


def sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(directory.glob("*.log"))]


def test_the_files_of_both_are_equal_once_they_are_closed(oracle: Oracle, tmp_path: Path) -> None:
    pair = filled(oracle, tmp_path)
    oracle(op="tasks", log="pair")
    ours, theirs = sizes(pair.ours), sizes(pair.theirs)
    assert ours[:-1] == theirs[:-1]
    assert theirs[-1] == SEGMENT > ours[-1] > 0
    pair.close()
    pair.open()
    pair.append(batch(251), 0, follower=False)
    pair.close()
    assert sizes(pair.ours) == sizes(pair.theirs)


@pytest.mark.parametrize("flushed", [0, 100])
def test_zeros_that_a_killed_broker_leaves_are_cut_and_no_record_with_them(
    flushed: int, oracle: Oracle, tmp_path: Path
) -> None:
    pair = filled(oracle, tmp_path / "pair")
    oracle(op="flush", log="pair", force_active=True)
    log_dir = tmp_path / "data"
    shutil.copytree(pair.theirs, log_dir / NAME)
    oracle.ask(op="close", log="pair", abruptly=True)
    pair.log.close_abruptly()
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {flushed}\n")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
    (log_dir / NAME / "partition.metadata").write_text("version: 0\ntopic_id: abcdefghijklmnopqrstuw\n")
    zeros: list[Any] = [path for path in (log_dir / NAME).glob("*.log") if path.read_bytes().endswith(bytes(5000))]
    assert len(zeros) == 1
    recover(log_dir)
    assert plan(log_dir).is_empty
    assert [path.read_bytes() for path in sorted((log_dir / NAME).glob("*.log"))] == [
        path.read_bytes() for path in sorted(pair.ours.glob("*.log"))
    ]
    with LogManager.open(OsFs(), [log_dir], START_MS) as manager:
        assert [partition.log.log_end for _, partition in manager.partitions()] == [250]
