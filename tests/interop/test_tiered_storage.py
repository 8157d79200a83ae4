"""A broker with tiered storage is killed, damaged and recovered: no remote segment goes, and all records are served."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from interop import tiered
from interop.broker_load import await_leaders
from interop.test_recover_live_broker import logmend
from interop.tiered import ORDERS, PAYMENTS, PLAIN, TIERED, TRIMMED, Life
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.deep]

EPOCHS, STARTS, POINTS = "leader-epoch-checkpoint", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint"


@pytest.fixture(scope="module")
def killed(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A life that ended with a kill; each test goes on with a copy."""
    return tiered.live(tmp_path_factory.mktemp("tiered") / "kafka")


@pytest.fixture
def life(killed: Life, tmp_path: Path) -> Iterator[Life]:
    copy = tiered.copy(killed, tmp_path / "copy")
    yield copy
    copy.broker.kill()


def recover(life: Life, *words: object) -> tuple[int, str]:
    """Recover as a start-up hook does; return status and output."""
    life.broker.configure()
    done = logmend("recover", "--server-properties", life.broker.properties, *words)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def logs(life: Life) -> set[str]:
    """Return the remote segments, without those that the broker may delete because their records were deleted."""
    names = {topic: tiered.remote_logs(life.cluster.directory, topic) for topic in TIERED}
    names[TRIMMED] = [name for name in names[TRIMMED] if int(Path(name).name[:20]) >= tiered.DELETED_BELOW]
    return {name for found in names.values() for name in found}


def serve(life: Life) -> None:
    """Start the broker, let both tiers move on, and check that every record is served and no remote segment is gone."""
    before = logs(life)
    life.broker.start()
    await_leaders(life.cluster, tiered.PARTITIONS)
    life.produce(150)
    until(lambda: all(moved_on(life, topic, before) for topic in TIERED), 60)
    tiered.check_served(tiered.read_all(life.cluster), life.records)
    assert before <= logs(life)


def moved_on(life: Life, topic: str, before: set[str]) -> bool:
    """The broker has copied segments of this start to the remote tier and deleted them from its disk."""
    return bool(set(tiered.remote_logs(life.cluster.directory, topic)) - before) and tiered.is_tiered(life, topic)


def test_after_a_kill_a_recovery_finds_nothing_lost_and_the_broker_serves_both_tiers(life: Life) -> None:
    assert all(tiered.bases(life.log_dir, topic)[0] > 0 for topic in TIERED)
    history = {topic: tiered.epochs(life.log_dir, topic) for topic in TIERED}
    active = {topic: tiered.bases(life.log_dir, topic)[-1] for topic in TIERED}
    status, told = recover(life, "--roll-from", "1")
    assert status == 0, told
    assert {topic: tiered.epochs(life.log_dir, topic) for topic in TIERED} == history
    assert {topic: tiered.bases(life.log_dir, topic)[-1] for topic in TIERED} == active, "a tiered topic is rolled"
    serve(life)


def tear(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def newest_remote(life: Life, topic: str, kind: str) -> Path:
    directory = life.cluster.directory / "remote"
    return max((path for path in directory.rglob(f"*.{kind}") if path.parent.name.startswith(f"{topic}-0")), key=str)


def test_torn_and_missing_small_files_cost_no_remote_segment(killed: Life, life: Life) -> None:
    log_dir = life.log_dir
    tear(log_dir / f"{ORDERS}-0" / EPOCHS, len("0\n3\n0 0\n2 300\n"))
    (log_dir / f"{PAYMENTS}-0" / EPOCHS).unlink()
    next((log_dir / f"{PAYMENTS}-0").glob("*.snapshot")).unlink()
    tear(log_dir / f"{PAYMENTS}-0" / "partition.metadata", 5)
    (log_dir / POINTS).unlink()
    tear(log_dir / STARTS, len("0\n3\npay"))

    status, told = recover(life)
    assert status == 3, told
    assert told.count("epochs_lost") == 2
    assert (log_dir / f"{ORDERS}-0" / EPOCHS).read_text() == "0\n3\n0 0\n2 300\n"
    assert not (log_dir / f"{PAYMENTS}-0" / EPOCHS).exists()

    # The two ways out that the finding names: a replica, and what lies beside the newest remote segment.
    shutil.copy(newest_remote(life, PAYMENTS, "leader_epoch_checkpoint"), log_dir / f"{PAYMENTS}-0" / EPOCHS)
    status, told = recover(life, "--depth", "full", "--heal-from", killed.log_dir)
    assert status == 0, told
    for topic in TIERED:
        assert tiered.epochs(log_dir, topic) == tiered.epochs(killed.log_dir, topic)
    assert f"{TRIMMED} 0 {tiered.DELETED_BELOW}\n" in (log_dir / STARTS).read_text()
    serve(life)


def test_a_torn_local_log_is_cut_and_the_remote_tier_is_served(life: Life) -> None:
    (log,) = (life.log_dir / f"{ORDERS}-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 100] ^= 1  # in the payload of a batch, not in an offset
    log.write_bytes(data)
    status, told = recover(life)
    assert status == 0, told
    base = int(log.stem)
    promised = {topic: records for topic, records in life.records.items() if topic != ORDERS}
    remote = {offset: value for offset, value in life.records[ORDERS].items() if offset < base}
    life.records = {**promised, ORDERS: remote}
    assert remote
    serve(life)


def test_a_local_tier_without_a_segment_is_held(life: Life) -> None:
    directory = life.log_dir / f"{ORDERS}-0"
    for path in directory.glob("0*"):
        path.unlink()
    history = (directory / EPOCHS).read_bytes()
    points = (life.log_dir / POINTS).read_text()
    status, told = recover(life)
    assert status == 3
    assert "local_log_lost" in told
    assert (directory / EPOCHS).read_bytes() == history
    line = next(line for line in points.splitlines() if line.startswith(f"{ORDERS} 0 "))
    assert line in (life.log_dir / POINTS).read_text()


def test_a_broker_with_a_tiered_log_that_was_shut_down_cleanly_has_no_finding_there(life: Life) -> None:
    assert recover(life)[0] == 0
    life.broker.start()
    await_leaders(life.cluster, tiered.PARTITIONS)
    life.broker.stop()
    for depth in ("quick", "full"):
        for topic in (*TIERED, PLAIN):
            done = logmend("verify", "--depth", depth, "--topic", topic, life.log_dir)
            assert done.returncode == 0, done.stdout
