"""A held partition stays held: whatever else a recovery does, the evidence that the data had been flushed remains."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden
from support.recovering import plan, recover

from recovery.logdir.log_dir import MARKER, RECOVERY_POINTS

LEDGER = "ledger-1"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Broker 2 of three, whose metadata log wants derived files, with rot in the last segment of a topic."""
    golden.extract("three-brokers", tmp_path)
    directory = tmp_path / "2" / "data"
    segment = max((directory / LEDGER).glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 1
    segment.write_bytes(data)
    return directory


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / LEDGER).glob("*.log"))}


def held(directory: Path) -> set[str]:
    return {found.partition for found in plan(directory).partitions if found.held}


def test_the_marker_stays_while_a_partition_that_it_vouches_for_is_held(log_dir: Path) -> None:
    (log_dir / MARKER).write_text('{"version":0,"brokerEpoch":7}')
    before = logs(log_dir)
    assert held(log_dir) == {LEDGER}
    assert recover(log_dir).actions > 0
    assert (log_dir / MARKER).exists()
    assert held(log_dir) == {LEDGER}
    assert plan(log_dir).is_empty
    assert logs(log_dir) == before


def test_the_marker_stays_when_only_the_metadata_log_changes_which_it_never_vouched_for(log_dir: Path) -> None:
    for path in log_dir.glob("ledger-*"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    (log_dir / MARKER).write_text("")
    assert [p.partition for p in plan(log_dir).partitions if p.actions] == ["__cluster_metadata-0"]
    assert plan(log_dir).before == ()


def test_lost_recovery_points_are_not_written_anew_while_a_partition_is_held(log_dir: Path) -> None:
    (log_dir / MARKER).unlink(missing_ok=True)
    (log_dir / RECOVERY_POINTS).unlink()
    before = logs(log_dir)
    assert held(log_dir) == {LEDGER}
    assert recover(log_dir).actions > 0
    assert held(log_dir) == {LEDGER}
    assert plan(log_dir).is_empty
    assert logs(log_dir) == before


def test_flushed_data_is_held_although_a_rotten_base_offset_before_it_puts_it_behind_the_recovery_point(
    tmp_path: Path,
) -> None:
    golden.extract("groups", tmp_path)
    directory = tmp_path / "0" / "data"
    (directory / MARKER).unlink(missing_ok=True)
    (segment,) = (directory / "__consumer_offsets-1").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[106] ^= 1 << 6  # the second batch: offset 1 becomes 274877906945
    data[512:1024] = bytes(512)
    segment.write_bytes(data)
    (found,) = (p for p in plan(directory).partitions if p.partition == "__consumer_offsets-1")
    assert found.held
    assert found.cuts == ()
