"""The archives are what README.md says, and small."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from golden.golden import HERE, NAMES, checkpoint, expected, extract, log_dirs, unpack


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return extract("crashed-sample", tmp_path)


def log_files(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def test_all_archives_together_stay_below_9_mb() -> None:
    assert sum(path.stat().st_size for path in HERE.glob("*.tar.gz")) < 9_000_000


def test_the_sample_stays_below_300_kb() -> None:
    assert (HERE / "crashed-sample.tar.gz").stat().st_size < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_each_archive_holds_the_partitions_kafka_was_asked_about(name: str, tmp_path: Path) -> None:
    partitions = unpack(name, tmp_path)
    assert partitions
    assert all(path.is_dir() for path in partitions.values())
    assert {path.parent for path in partitions.values()} <= set(log_dirs(tmp_path))
    assert all("log_end" in verdict["loaded"] for verdict in expected(name)["partitions"].values())


def test_every_archive_but_two_has_a_verdict_of_kafka() -> None:
    archives = {path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz")}
    assert archives == {*NAMES, "crashed-sample", "lived-in"}


def test_the_sample_was_killed_and_its_recovery_points_are_known(sample: Path) -> None:
    assert not (sample / ".kafka_cleanshutdown").exists()
    points = checkpoint(sample / "recovery-point-offset-checkpoint")
    assert all(points[name] > 0 for name in ("orders-0", "orders-1", "clicks-0", "payments-0", "profiles-0"))


@pytest.mark.parametrize("partition", ["orders-0", "clicks-0"])
def test_the_sample_is_damaged_above_the_recovery_point(sample: Path, partition: str) -> None:
    point = checkpoint(sample / "recovery-point-offset-checkpoint")[partition]
    assert int(log_files(sample / partition)[-1].stem) >= point


def test_the_sample_has_one_torn_and_one_zeroed_tail(sample: Path) -> None:
    torn, zeroed = (log_files(sample / name)[-1].read_bytes() for name in ("orders-0", "clicks-0"))
    assert torn[-1] != 0
    assert zeroed.endswith(bytes(50))


def test_the_sample_has_a_closed_offset_index_that_does_not_rise(sample: Path) -> None:
    data = log_files(sample / "orders-1")[0].with_suffix(".index").read_bytes()
    offsets = [int.from_bytes(data[at : at + 4]) for at in range(0, len(data), 8)]
    assert any(later <= earlier for earlier, later in itertools.pairwise(offsets))


def test_the_sample_has_a_closed_time_index_that_ends_in_zeros(sample: Path) -> None:
    assert len(log_files(sample / "payments-0")) > 1
    assert log_files(sample / "payments-0")[0].with_suffix(".timeindex").read_bytes().endswith(bytes(1200))


def test_the_sample_has_the_files_of_an_unfinished_compaction(sample: Path) -> None:
    swaps = sorted(path.name for path in (sample / "profiles-0").glob("*.swap"))
    assert [name.split(".", 1)[1] for name in swaps] == ["index.swap", "log.swap", "timeindex.swap"]
    assert all((sample / "profiles-0" / name.removesuffix(".swap")).is_file() for name in swaps)
