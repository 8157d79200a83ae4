"""A compacted log heals from a live broker, although that does not tell how far it has compacted."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from golden.golden import checkpoint
from interop.kafka_lab import Cluster
from interop.test_recover_live_broker import logmend
from support.waiting import until

from storage.disk.fs import OsFs
from storage.reading.segment_walk import BatchPlace, walk_places

pytestmark = [pytest.mark.slow, pytest.mark.deep]

NAME, CLEANED = "profiles-0", "cleaner-offset-checkpoint"
CONFIG = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "500"}
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "65536"}


@pytest.fixture(scope="module")
def compacted(kafka_kit: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Return a running broker with a compacted topic, and a copy of its log directory."""
    with Cluster(tmp_path_factory.mktemp("compacted"), config=CONFIG) as cluster:
        cluster.create_topic("profiles", config=TOPIC)
        rng, home = random.Random("profiles"), cluster[0].log_dirs[0]
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 4000, "linger.ms": 5})
        for number in range(3000):
            key, value = b"customer-%d" % rng.randrange(400), rng.randbytes(rng.randint(50, 300))
            producer.produce("profiles", None if number % 40 == 0 else value, key, partition=0)
        assert producer.flush(60) == 0
        last = sorted((home / NAME).glob("*.log"))[-1]
        until(lambda: checkpoint(home / CLEANED).get(NAME, 0) == int(last.stem), 180)
        cluster[0].stop()
        copy = tmp_path_factory.mktemp("damaged") / "data"
        shutil.copytree(home, copy)
        cluster[0].start()
        yield cluster, copy


def places(log: Path) -> list[BatchPlace]:
    with OsFs().open_read(log) as file:
        return list(walk_places(file, 0, log.stat().st_size))


def heal(source: object, damaged: Path) -> tuple[int, list[dict[str, Any]]]:
    done = logmend("recover", "--json", "--depth", "full", "--heal-from", source, damaged)
    return done.returncode, list(json.loads(done.stdout)["results"][0]["healing"])


def test_sectors_of_a_compacted_log_come_back_from_a_live_broker(
    compacted: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, damaged = compacted[0], tmp_path / "data"
    shutil.copytree(compacted[1], damaged)
    log = next(log for log in sorted((damaged / NAME).glob("*.log")) if len(places(log)) > 12)
    before = log.read_bytes()
    batches = places(log)
    assert any(one.last_offset + 1 < two.base_offset for one, two in pairwise(batches))
    data = bytearray(before)
    for batch in (batches[2], batches[5], batches[6], batches[9]):
        data[batch.position + 70 : batch.position + 90] = bytes(20)
    log.write_bytes(data)
    status, notes = heal(f"127.0.0.1:{cluster[0].port}", damaged)
    assert [(note["healed"], note["reason"]) for note in notes] == [(True, "")] * 3
    assert (status, log.read_bytes() == before) == (0, True)


def test_without_the_same_neighbours_a_live_broker_is_refused_for_a_compacted_log(
    compacted: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, damaged = compacted[0], tmp_path / "data"
    shutil.copytree(compacted[1], damaged)
    first = sorted((damaged / NAME).glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[70:90] = bytes(20)  # nothing lies before it
    first.write_bytes(data)
    status, (note,) = heal(f"127.0.0.1:{cluster[0].port}", damaged)
    assert (status, note["healed"]) == (3, False)
    assert "does not tell how far" in note["reason"]
    assert first.read_bytes() == data
