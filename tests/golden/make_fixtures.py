"""Let real brokers write log directories, stop or kill them, and pack what they leave.

usage: PYTHONPATH=tests python -m golden.make_fixtures OUT [--seed N] [NAME...]
       needs confluent-kafka; kafka-python==2.0.2, six, python-snappy and lz4 for the old versions

Each NAME gives OUT/NAME.tar.gz (the log directories of every broker, as left) and OUT/NAME.json: version, settings,
how it was stopped, the checkpoints, and per partition what Kafka 4.3.0's own loader says after an unclean start from
the checkpointed recovery point (state, and size and SHA-256 of each file then).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from golden.golden import checkpoint, log_dirs
from interop.kafka_lab import Cluster, Oracle

Make = Callable[[Path, random.Random], dict[str, Any]]
SMALL: Final = {
    "log.index.size.max.bytes": "65536",
    "log.index.interval.bytes": "512",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
SEGMENT: Final = {"internal.segment.bytes": "65536"}
FIXTURES: dict[str, Make] = {}


def fixture(make: Make) -> Make:
    """Enter a maker of a directory under its name."""
    FIXTURES[make.__name__.replace("_", "-")] = make
    return make


def value(rng: random.Random, low: int = 10, high: int = 300) -> bytes:
    """Return text of `low` to `high` bytes."""
    return bytes(rng.choices(b"abcdefgh 0123456789", k=rng.randint(low, high)))


class Feed:
    """A producer that insists on every record being acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, settings: dict[str, Any] | None = None) -> None:
        common = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 2, "log_level": 0, "batch.size": 8000}
        self.producer = Producer(common | (settings or {}))
        self.topic, self.sent, self.acknowledged = topic, 0, 0
        self.failures: list[str] = []

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def send(self, **record: Any) -> None:
        """Produce one record: key, value, headers, timestamp, partition."""
        self.sent += 1
        self.producer.produce(self.topic, on_delivery=self._delivered, **record)
        self.producer.poll(0)

    def flush(self) -> None:
        """Wait until all are acknowledged; `RuntimeError` if not."""
        if self.producer.flush(30) or self.failures or self.acknowledged != self.sent:
            raise RuntimeError(f"{self.topic}: {self.acknowledged} of {self.sent} acknowledged, {self.failures[:1]}")


def fill(
    cluster: Cluster,
    topic: str,
    rng: random.Random,
    count: int,
    *,
    keys: int = 0,
    tombstones: float = 0,
    headers: bool = False,
    start_ms: int | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Produce `count` records; with `keys`, of so many keys, and of them the share `tombstones` without a value."""
    feed = Feed(cluster, topic, settings)
    for number in range(count):
        key = f"k{rng.randrange(keys)}".encode() if keys else (value(rng, 1, 20) if rng.random() < 0.5 else None)
        record: dict[str, Any] = {"key": key, "value": None if keys and rng.random() < tombstones else value(rng)}
        if start_ms is not None:
            record["timestamp"] = start_ms + number * rng.randint(-3, 10)
        if headers and rng.random() < 0.3:
            record["headers"] = [("trace", value(rng, 0, 8)), ("empty", b""), ("none", None)]
        feed.send(**record)
    feed.flush()


@fixture
def codecs(work: Path, rng: random.Random) -> dict[str, Any]:
    """All codecs, several segments, headers, CreateTime in and out of order and LogAppendTime; killed."""
    with Cluster(work, config=SMALL) as cluster:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            cluster.create_topic(codec, config=SEGMENT)
            settings = {"compression.type": codec}
            fill(cluster, codec, rng, 1500, headers=True, start_ms=1_700_000_000_000, settings=settings)
        cluster.create_topic("append-time", config=SEGMENT | {"message.timestamp.type": "LogAppendTime"})
        fill(cluster, "append-time", rng, 800, settings={"compression.type": "lz4"})
        cluster[0].kill()
    return {"config": SMALL | SEGMENT, "stopped": "SIGKILL"}


def send_in_transaction(producer: Producer, topic: str, rng: random.Random, count: int) -> None:
    """Begin a transaction and produce `count` records in it; the caller ends it, or leaves it open."""
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, key=value(rng, 1, 9), value=value(rng))
    producer.flush(30)


@fixture
def transactions(work: Path, rng: random.Random) -> dict[str, Any]:
    """Idempotent and transactional producers: committed, aborted, and two transactions left open; killed."""
    with Cluster(work, config=SMALL) as cluster:
        cluster.create_topic("payments", partitions=2, config=SEGMENT)
        fill(cluster, "payments", rng, 300, settings={"enable.idempotence": True})
        left_open = []
        for number in range(6):
            common = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "batch.size": 4000}
            producer = Producer(common | {"transactional.id": f"t{number}"})
            producer.init_transactions(30)
            for _ in range(8):
                send_in_transaction(producer, "payments", rng, rng.randint(1, 60))
                if rng.random() < 0.6:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
            if number >= 4:
                send_in_transaction(producer, "payments", rng, 20)
                left_open.append(producer)  # kept, lest its end aborts
        cluster[0].kill()
    return {"config": SMALL | SEGMENT, "stopped": "SIGKILL"}


@fixture
def compacted(work: Path, rng: random.Random) -> dict[str, Any]:
    """A compacted topic after several cleanings, with tombstones; stopped cleanly."""
    extra = SEGMENT | {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "delete.retention.ms": "3000",
    }
    with Cluster(work, config=SMALL) as cluster:
        cluster.create_topic("profiles", config=extra)
        for _ in range(5):
            settings = {"compression.type": rng.choice(["none", "zstd", "gzip"])}
            fill(cluster, "profiles", rng, 1200, keys=150, tombstones=0.1, settings=settings)
            time.sleep(2.5)
        time.sleep(4)
        cluster[0].stop()
    return {"config": SMALL | extra, "stopped": "cleanly"}


@fixture
def retained(work: Path, rng: random.Random) -> dict[str, Any]:
    """Retention by size has run, records were deleted up to an offset, `.deleted` files wait; killed."""
    extra = SEGMENT | {"retention.bytes": "200000"}
    with Cluster(work, config=SMALL) as cluster:
        cluster.create_topic("clicks", partitions=2, config=extra)
        fill(cluster, "clicks", rng, 8000, start_ms=int(time.time() * 1000))
        time.sleep(3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "log_level": 0})
        low, high = consumer.get_watermark_offsets(TopicPartition("clicks", 0), timeout=10)
        consumer.close()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for future in admin.delete_records([TopicPartition("clicks", 0, (low + high) // 2)]).values():
            future.result(10)
        fill(cluster, "clicks", rng, 500)
        cluster[0].kill()
    return {"config": SMALL | extra, "stopped": "SIGKILL"}


@fixture
def two_disks(work: Path, rng: random.Random) -> dict[str, Any]:
    """Two log directories, eight partitions, idempotent load, checkpoints taken twice a second; killed in mid load."""
    config = SMALL | {"log.flush.interval.messages": "400"}
    with Cluster(work, config=config, log_dirs=2) as cluster:
        cluster.create_topic("events", partitions=8, config=SEGMENT)
        for _ in range(4):
            fill(cluster, "events", rng, 4000, settings={"enable.idempotence": True})
            time.sleep(0.4)
        cluster[0].kill()
    return {"config": config | SEGMENT, "stopped": "SIGKILL"}


@fixture
def three_brokers(work: Path, rng: random.Random) -> dict[str, Any]:
    """Three replicas, three leader epochs, one broker killed early, the others later."""
    with Cluster(work, brokers=3, config=SMALL | {"offsets.topic.replication.factor": "3"}) as cluster:
        cluster.create_topic("ledger", partitions=3, replicas=3, config=SEGMENT | {"min.insync.replicas": "1"})
        for victim in (0, 1):
            fill(cluster, "ledger", rng, 2000, settings={"enable.idempotence": True, "acks": "all"})
            cluster[victim].kill()
            time.sleep(3)
            if victim == 0:
                cluster[victim].start()
                time.sleep(3)
        cluster[2].kill()
        cluster[0].kill()
    return {"config": SMALL | SEGMENT, "stopped": "SIGKILL, broker 1 first"}


@fixture
def groups(work: Path, rng: random.Random) -> dict[str, Any]:
    """Consumer groups have committed: `__consumer_offsets` and the KRaft metadata log matter here; stopped cleanly."""
    with Cluster(work, config=SMALL) as cluster:
        cluster.create_topic("orders", partitions=3, config=SEGMENT)
        fill(cluster, "orders", rng, 1500)
        for group in ("billing", "search"):
            common = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", "log_level": 0}
            consumer = Consumer(common | {"group.id": group, "enable.auto.commit": False})
            consumer.subscribe(["orders"])
            for _ in range(5):
                if consumer.consume(200, timeout=8):
                    consumer.commit(asynchronous=False)
            consumer.close()
        cluster[0].stop()
    return {"config": SMALL | SEGMENT, "stopped": "cleanly"}


def old(version: str, api: tuple[int, ...], codecs: tuple[str | None, ...]) -> Make:
    """Return a maker with a Kafka of `version` and a producer of its time."""

    def make(work: Path, rng: random.Random) -> dict[str, Any]:
        from kafka import KafkaProducer  # noqa: PLC0415 (only the old versions need it)

        config = {"log.index.size.max.bytes": "65536", "log.index.interval.bytes": "512", "log.segment.bytes": "65536"}
        with Cluster(work, version=version, config=config) as cluster:
            cluster.create_topic("orders")
            for codec in codecs:
                common = {"bootstrap_servers": cluster.bootstrap, "api_version": api, "linger_ms": 2}
                producer = KafkaProducer(compression_type=codec, **common)
                for _ in range(700):
                    producer.send("orders", key=value(rng, 1, 9), value=value(rng))
                producer.flush(timeout=20)
                producer.close(timeout=5)
            cluster[0].kill()
        return {"version": version, "config": config, "stopped": "SIGKILL"}

    make.__doc__ = f"Kafka {version} and a producer of its time, codecs {codecs}; killed."
    return make


FIXTURES["kafka-0.9"] = old("0.9.0.1", (0, 9), ("gzip", None))
FIXTURES["kafka-0.10"] = old("0.10.2.2", (0, 10, 2), ("gzip", None, "snappy", "lz4"))
FIXTURES["kafka-2.8"] = old("2.8.2", (2, 5, 0), ("gzip", None, "snappy", "lz4"))


def judge(work: Path, settings: dict[str, str]) -> dict[str, Any]:
    """Return what Kafka 4.3.0's loader makes of a copy of each partition directory, started uncleanly."""
    result: dict[str, Any] = {}
    log = {"segment.bytes": "1048576", "index.interval.bytes": "512", "segment.index.bytes": "65536"}
    log |= {k: v for k, v in settings.items() if k in ("cleanup.policy", "internal.segment.bytes")}
    with Oracle() as oracle, tempfile.TemporaryDirectory() as scratch:
        for partition in sorted(p for log_dir in log_dirs(work) for p in log_dir.glob("*-[0-9]*") if p.is_dir()):
            if partition.name.startswith("__cluster"):
                continue
            points = checkpoint(partition.parent / "recovery-point-offset-checkpoint")
            starts = checkpoint(partition.parent / "log-start-offset-checkpoint")
            asked: dict[str, Any] = {
                "recovery_point": points.get(partition.name, 0),
                "log_start": starts.get(partition.name, 0),
            }
            copy = Path(scratch) / f"{len(result)}" / partition.name
            shutil.copytree(partition, copy)
            asked["config"] = log
            loaded = oracle.load(copy, **asked)
            result[str(partition.relative_to(work))] = {"asked": asked, "loaded": loaded}
    return result


def make_one(name: str, out: Path, seed: int) -> None:
    """Write OUT/NAME.tar.gz and OUT/NAME.json."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        made: dict[str, Any] = {"version": "4.3.0", "seed": seed, "what": FIXTURES[name].__doc__}
        made |= FIXTURES[name](work, random.Random(f"{name}{seed}"))
        made["partitions"] = judge(work, made["config"])
        with tarfile.open(out / f"{name}.tar.gz", "w:gz", compresslevel=9) as tar:
            for directory in log_dirs(work):
                tar.add(directory, arcname=str(directory.relative_to(work)))
        (out / f"{name}.json").write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
        print(name, len(made["partitions"]), (out / f"{name}.tar.gz").stat().st_size, flush=True)


def main() -> None:
    """Make those that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or FIXTURES:
        make_one(name, args.out, args.seed)


if __name__ == "__main__":
    main()
