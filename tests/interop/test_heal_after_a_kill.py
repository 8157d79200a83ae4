"""Three brokers are killed under load, the watermarks on their disks far behind: one log comes back from the others."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from golden.golden import checkpoint
from interop.kafka_lab import Broker, Cluster
from interop.test_heal_three_brokers import WATERMARKS, read, wait_for_replicas
from interop.test_recover_live_broker import logmend, saying, start_again
from support.waiting import until

from storage.disk.fs import OsFs
from storage.reading.segment_walk import BatchPlace, walk_places

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC, PARTITIONS, METADATA = "kept", 3, "__cluster_metadata-0"
NAMES = (*(f"{TOPIC}-{number}" for number in range(PARTITIONS)), METADATA)
SECTOR, DAMAGES, ROUNDS = 512, 20, 5
CONFIG = {
    "log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "600000",  # as if the kill came right before the next one
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}


Known = dict[tuple[int, int], bytes]


class Batch(NamedTuple):
    """A batch of a log and where it lies."""

    log: Path
    place: BatchPlace


def batches(partition: Path) -> Iterator[Batch]:
    """Yield the whole batches of a partition directory, in order."""
    for log in sorted(partition.glob("*.log")):
        with OsFs().open_read(log) as file:
            yield from (Batch(log, place) for place in walk_places(file, 0, log.stat().st_size))


def log_end(partition: Path) -> int:
    return max((batch.place.last_offset + 1 for batch in batches(partition)), default=0)


def logs(log_dir: Path) -> dict[str, bytes]:
    return {
        f"{name}/{path.name}": path.read_bytes() for name in NAMES for path in sorted((log_dir / name).glob("*.log"))
    }


def kill_under_load(cluster: Cluster, segments: int) -> Known:
    """Produce until each partition has so many segments, then kill all brokers while the producer goes on.

    Returns the acknowledged records by partition and offset.
    """
    over, known = threading.Event(), {}

    def delivered(error: object, message: Any) -> None:
        if error is None:
            known[message.partition(), message.offset()] = message.value()

    def produce() -> None:
        rng = random.Random("load")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0,
                             "enable.idempotence": True})  # fmt: skip
        while not over.is_set():
            for number in range(PARTITIONS):
                producer.produce(TOPIC, rng.randbytes(rng.randint(50, 1500)), partition=number, on_delivery=delivered)
            producer.poll(0.001)
        producer.purge()
        producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    home = cluster[1].log_dirs[0]
    try:
        until(lambda: all(len(list((home / name).glob("*.log"))) >= segments for name in NAMES[:-1]), 120)
        with ThreadPoolExecutor(len(cluster.brokers)) as pool:
            list(pool.map(Broker.kill, cluster.brokers))
    finally:
        over.set()
        thread.join()
    return known


@pytest.fixture(scope="module")
def killed(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Known]]:
    """Return three brokers that were killed under load, and the records that they had acknowledged."""
    with Cluster(tmp_path_factory.mktemp("killed"), brokers=3, config=CONFIG) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        yield cluster, kill_under_load(cluster, 3)


@pytest.fixture
def brokers(killed: tuple[Cluster, Known], tmp_path: Path) -> list[Path]:
    """Return copies of the log directories; the first is the one to be damaged."""
    homes = [tmp_path / str(number) for number in range(3)]
    for home, broker in zip(homes, killed[0].brokers, strict=True):
        shutil.copytree(broker.log_dirs[0], home)
    return homes


def common_ends(brokers: list[Path]) -> dict[str, int]:
    """Return the lowest log end of each partition."""
    return {name: min(log_end(broker / name) for broker in brokers) for name in NAMES}


def heal(damaged: Path, *sources: Path, flags: tuple[str, ...] = ()) -> tuple[int, list[dict[str, Any]]]:
    words = [word for source in sources for word in ("--heal-from", source)]
    done = logmend("recover", "--json", "--depth", "full", *flags, *words, damaged)
    assert "Traceback" not in done.stderr
    return done.returncode, list(json.loads(done.stdout)["results"][0]["healing"])


def destroy(brokers: list[Path], rng: random.Random) -> None:
    """Overwrite sectors of the damaged logs, none in the last batch that all have nor behind it."""
    ends = common_ends(brokers)
    places = []
    for name in NAMES:
        both = [batch for batch in batches(brokers[0] / name) if batch.place.last_offset < ends[name]]
        for log in {batch.log for batch in both}:
            end = max(b.place.position + (0 if b is both[-1] else b.place.size) for b in both if b.log == log)
            places += [(log, at) for at in range(0, end - SECTOR, SECTOR)]
    for log, at in rng.sample(places, DAMAGES):
        with log.open("r+b") as file:
            file.seek(at)
            file.write(rng.randbytes(SECTOR))


def test_twenty_damages_come_back_byte_for_byte_although_no_watermark_reaches_them(brokers: list[Path]) -> None:
    damaged, *replicas = brokers
    before = logs(damaged)
    for number in range(ROUNDS):
        destroy(brokers, random.Random(f"damages {number}"))
        assert logs(damaged) != before
        status, notes = heal(damaged, *replicas)
        print(f"{len(notes)} holes, {sum(note['size'] for note in notes)} bytes, {checkpoint(damaged / WATERMARKS)}")
        assert [note for note in notes if not note["healed"]] == []
        assert (status, logs(damaged) == before) == (0, True)


def test_a_hole_in_the_metadata_log_comes_back_from_another_controller(brokers: list[Path]) -> None:
    damaged, *replicas = brokers
    before = logs(damaged)
    end = common_ends(brokers)[METADATA]
    common = [batch for batch in batches(damaged / METADATA) if batch.place.last_offset < end - 1]
    middle = common[len(common) // 2]
    data = bytearray(middle.log.read_bytes())
    data[middle.place.position + 70] ^= 1
    middle.log.write_bytes(data)
    status, (note,) = heal(damaged, *replicas)
    assert (status, note["partition"], note["healed"], logs(damaged) == before) == (0, METADATA, True, True)


def tear(brokers: list[Path]) -> dict[str, bytes]:
    """End each damaged log within the last batch that all replicas have; return the logs as they were up to there."""
    ends, before, wanted = common_ends(brokers), logs(brokers[0]), {}
    for name in NAMES[:-1]:
        *_, last = (b for b in batches(brokers[0] / name) if b.place.last_offset < ends[name])
        key = f"{name}/{last.log.name}"
        wanted[key] = before[key][: last.place.position + last.place.size]
        last.log.write_bytes(wanted[key][:-20])
        for behind in (brokers[0] / name).iterdir():
            if behind.name[:20].isdecimal() and behind.name[:20] > last.log.stem:
                behind.unlink()
    return wanted


def test_torn_ends_come_back_as_far_as_all_replicas_agree_and_only_when_told(
    brokers: list[Path], tmp_path: Path
) -> None:
    damaged, *replicas = brokers
    wanted = tear(brokers)
    other = tmp_path / "other"
    shutil.copytree(damaged, other)
    _, notes = heal(other, *replicas)
    assert {note["partition"] for note in notes if not note["healed"]} == set(NAMES[:-1])
    assert all("--heal-uncommitted" in note["reason"] for note in notes)
    assert all(len(logs(other)[key]) < len(data) for key, data in wanted.items())
    status, notes = heal(damaged, *replicas, flags=("--heal-uncommitted",))
    after = logs(damaged)
    assert (status, {key: after[key] == data for key, data in wanted.items()}) == (0, dict.fromkeys(wanted, True))
    assert all(note["healed"] for note in notes)


def test_a_replica_that_disagrees_on_a_torn_end_keeps_it_from_being_taken(brokers: list[Path], tmp_path: Path) -> None:
    damaged, one, other = brokers
    name, ends = NAMES[0], common_ends(brokers)
    shorter = tmp_path / "shorter"
    shutil.copytree(other, shorter)
    both = [batch for batch in batches(damaged / name) if batch.place.last_offset < ends[name]]
    last = both[-1]
    last.log.write_bytes(last.log.read_bytes()[: last.place.position + 30])
    for log in (shorter / name).glob("*.log"):
        for batch in batches(shorter / name):
            if batch.log == log and batch.place.base_offset >= last.place.base_offset:
                log.write_bytes(log.read_bytes()[: batch.place.position])
                break
    _, notes = heal(damaged, one, shorter, flags=("--heal-uncommitted",))
    assert [note["healed"] for note in notes if note["partition"] == name] == [False]


def test_brokers_go_on_with_what_was_healed_and_serve_every_acknowledged_record(
    killed: tuple[Cluster, Known],
) -> None:
    """The last test here: it starts the brokers again."""
    cluster, known = killed
    homes = [cluster[number].log_dirs[0] for number in (1, 0, 2)]
    wanted = tear(homes)
    destroy(homes, random.Random("before the start"))
    status, notes = heal(*homes, flags=("--heal-uncommitted",))
    assert (status, [note for note in notes if not note["healed"]]) == (0, [])
    assert {key: logs(homes[0])[key] == data for key, data in wanted.items()} == dict.fromkeys(wanted, True)
    with ThreadPoolExecutor(3) as pool:
        printed = list(pool.map(start_again, cluster.brokers))[1]
    assert saying(printed, "Corruption found in segment", "Found invalid messages in log segment") == []
    wait_for_replicas(cluster)
    after = logs(homes[0])
    assert all(after[key][: len(data)] == data for key, data in wanted.items())
    ends = {number: log_end(homes[0] / f"{TOPIC}-{number}") for number in range(PARTITIONS)}
    served = read(cluster, sum(ends.values()))
    assert {place: served.get(place) == value for place, value in known.items()} == dict.fromkeys(known, True)
