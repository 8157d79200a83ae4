"""The damaged sample, recovered by the command, and then started on by Kafka's own loader."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden.golden import checkpoint, extract
from interop.kafka_lab import Oracle

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"internal.segment.bytes": "65536", "index.interval.bytes": "512", "segment.index.bytes": "8192"}
SEEN_BY_KAFKA = ("log_start", "log_end", "producers", "epochs")
PARTITIONS = ("__transaction_state-0", "clicks-0", "orders-0", "orders-1", "payments-0", "profiles-0")


def logmend(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    command = [sys.executable, "-m", "cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def load(oracle: Oracle, log_dir: Path, partition: str) -> dict[str, Any]:
    """Return what Kafka makes of a partition on an unclean start; it is changed by that."""
    points = checkpoint(log_dir / "recovery-point-offset-checkpoint")
    policy = "compact" if partition.startswith(("profiles", "__")) else "delete"
    config = CONFIG | {"cleanup.policy": policy}
    return oracle.load(log_dir / partition, recovery_point=points.get(partition, 0), log_start=0, config=config)


def sizes(loaded: dict[str, Any]) -> list[tuple[int, int]]:
    return [(segment["base"], segment["size"]) for segment in loaded["segments"]]


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log_dir = extract("crashed-sample", tmp_path_factory.mktemp("sample") / "mended")
    done = logmend("recover", "--depth", "full", log_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    return log_dir


@pytest.fixture
def recovered(mended: Path, tmp_path: Path) -> Path:
    """A copy for one test: Kafka changes what it opens."""
    return Path(shutil.copytree(mended, tmp_path / "recovered"))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_recovered_log_holds_what_kafka_would_have_kept(
    oracle: Oracle, recovered: Path, tmp_path: Path, partition: str
) -> None:
    by_kafka = load(oracle, extract("crashed-sample", tmp_path / "raw"), partition)
    by_us = load(oracle, recovered, partition)
    assert {name: by_us[name] for name in SEEN_BY_KAFKA} == {name: by_kafka[name] for name in SEEN_BY_KAFKA}
    assert sizes(by_us) == sizes(by_kafka)


def test_a_padded_time_index_no_longer_makes_a_segment_look_old(
    oracle: Oracle, recovered: Path, tmp_path: Path
) -> None:
    by_kafka = load(oracle, extract("crashed-sample", tmp_path / "raw"), "payments-0")
    assert by_kafka["segments"][0]["largest_timestamp"] == 0  # retention would take it at once
    by_us = load(oracle, recovered, "payments-0")
    assert by_us["segments"][0]["largest_timestamp"] > 1_700_000_000_000


def test_kafka_finds_nothing_left_to_cut(oracle: Oracle, recovered: Path) -> None:
    before = {p: {log.name: log.read_bytes() for log in (recovered / p).glob("*.log")} for p in PARTITIONS}
    for partition, logs in before.items():
        load(oracle, recovered, partition)
        assert {log.name: log.read_bytes() for log in (recovered / partition).glob("*.log")} == logs, partition


def test_a_second_recovery_finds_nothing_and_changes_nothing(recovered: Path, tmp_path: Path) -> None:
    def content() -> dict[str, bytes]:
        files = (path for path in recovered.rglob("*") if path.is_file())
        return {str(path.relative_to(recovered)): path.read_bytes() for path in files}

    before = content()
    assert logmend("verify", "--depth", "full", recovered).returncode == 0
    assert logmend("recover", "--depth", "full", recovered).returncode == 0
    assert content() == before


def test_a_rotten_index_of_a_flushed_segment_becomes_the_one_kafka_would_write(
    oracle: Oracle, recovered: Path, tmp_path: Path
) -> None:
    raw = extract("crashed-sample", tmp_path / "raw") / "orders-1"
    rotten = raw / "00000000000000000000.index"
    before = rotten.read_bytes()
    rotten.unlink()  # Kafka does not see that it is rotten; that it is missing, it does
    # Without the broker's own settings the default interval applies, not the one this broker had.
    oracle.load(raw, recovery_point=0, log_start=0, config=CONFIG | {"index.interval.bytes": "4096"})
    rebuilt = (recovered / "orders-1" / rotten.name).read_bytes()
    assert rebuilt == rotten.read_bytes() != before


@pytest.mark.parametrize("partition", ["orders-0", "clicks-0"])
def test_every_byte_that_was_cut_is_kept(recovered: Path, tmp_path: Path, partition: str) -> None:
    raw = sorted((extract("crashed-sample", tmp_path / "raw") / partition).glob("*.log"))[-1]
    (manifest,) = (recovered / partition).glob("*.logmend.json")
    (cut,) = (item for item in json.loads(manifest.read_text())["items"] if item["name"] == raw.name)
    kept = (recovered / partition / cut["kept"]).read_bytes()
    assert kept
    assert (recovered / partition / raw.name).read_bytes() + kept == raw.read_bytes()
