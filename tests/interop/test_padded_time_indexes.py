"""KAFKA-10207: a closed segment whose time index kept its zero padding looks as old as 1970, and retention deletes it.

A broker that starts does not look into the indexes of closed segments below the recovery point, so neither a restart
nor its own recovery helps. Here the records are five minutes old and are to be kept for a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import golden
from interop.kafka_lab import Oracle
from support.recovering import options_of, recover

NAME, KEY = "two-disks", "0/data/events-5"
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
ENTRY = 12
STANDING_STILL_MS = 1_700_000_000_000


@pytest.fixture
def clock(oracle: Oracle) -> Iterator[Oracle]:
    """The oracle, whose clock is put back afterwards."""
    yield oracle
    oracle(op="now", ms=STANDING_STILL_MS)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    golden.extract(NAME, tmp_path)
    directory = tmp_path / KEY
    assert len(list(directory.glob("*.log"))) > 2
    return directory


def pad_closed_time_indexes(directory: Path) -> int:
    """Give the time index of each closed segment the rest of its preallocated length back; return how many."""
    closed = sorted(directory.glob("*.timeindex"))[:-1]
    for path in closed:
        with path.open("ab") as file:
            file.write(bytes(ENTRY * 64))
    return len(closed)


def deleted_by_retention(directory: Path, oracle: Oracle) -> int:
    """Start on the directory as a broker does after a crash, let retention run five minutes after the last record."""
    asked = golden.expected(NAME)["partitions"][KEY]["asked"]
    segments = golden.expected(NAME)["partitions"][KEY]["loaded"]["segments"]
    config = asked["config"] | {"retention.ms": str(DAY_MS)}
    log = f"padded-{directory}"
    oracle(op="now", ms=max(segment["largest_timestamp"] for segment in segments) + 5 * MINUTE_MS)
    state = oracle(op="open", log=log, dir=directory, clean=False, **(asked | {"config": config}))
    oracle(op="high_watermark", log=log, offset=state["log_end"])
    deleted = oracle(op="retain", log=log)["deleted"]
    oracle(op="close", log=log, abruptly=True)
    return int(deleted)


def test_retention_keeps_segments_of_today(partition: Path, clock: Oracle) -> None:
    assert deleted_by_retention(partition, clock) == 0


def test_retention_deletes_segments_of_today_whose_time_indexes_are_padded(partition: Path, clock: Oracle) -> None:
    padded = pad_closed_time_indexes(partition)
    assert deleted_by_retention(partition, clock) == padded > 1


def test_after_a_recovery_retention_keeps_them(partition: Path, clock: Oracle) -> None:
    before = {path.name: path.read_bytes() for path in sorted(partition.glob("*.timeindex"))[:-1]}
    pad_closed_time_indexes(partition)
    recover(partition.parent, options_of(golden.expected(NAME)["config"]))
    assert {name: (partition / name).read_bytes() for name in before} == before
    assert deleted_by_retention(partition, clock) == 0
