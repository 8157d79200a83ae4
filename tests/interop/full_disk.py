"""A log directory on a small file system of its own, as a broker that was killed left it, at any number of free bytes.

The broker has two disks; the first holds the metadata log and has room, the second is the one that is full.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from interop.kafka_lab import Broker, Cluster
from support.waiting import until

SIZE: Final = 48 << 20
CONFIG: Final = {
    "log.index.interval.bytes": "512",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
TOPIC: Final = {
    "internal.segment.bytes": "131072",
    "retention.bytes": "400000",
    "file.delete.delay.ms": "3600000",
}
PARTITIONS: Final = 8


@contextlib.contextmanager
def disk(kind: str, place: Path, image: Path) -> Iterator[Path]:
    """Give an empty file system of that kind at `place`, for as long as the context lasts."""
    place.mkdir(parents=True, exist_ok=True)
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "none", place], check=True)
    else:
        with image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        (place / "lost+found").rmdir()  # a broker takes it for a partition
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def free_bytes(place: Path) -> int:
    """Return the bytes that may still be written there."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def fill(place: Path, free: int) -> None:
    """Leave `free` bytes, in whole pages."""
    filler = os.open(place / "filler", os.O_CREAT | os.O_WRONLY)
    try:
        os.sync()
        at = 0
        while (left := free_bytes(place) - free) > 0:
            # An extent tree takes a block now and then, so the last pages are taken one by one.
            step = left if left <= 4096 else max((left - (16 << 10)) // 2, 4096) & ~4095
            os.posix_fallocate(filler, at, step)
            at += step
            os.fsync(filler)
    finally:
        os.close(filler)


class Lived(NamedTuple):
    """What a broker left when it was killed, and all that it had acknowledged of the topic, by partition and offset."""

    cluster: Cluster
    saved: Path
    acknowledged: dict[int, dict[int, bytes]]

    @property
    def broker(self) -> Broker:
        return self.cluster[0]

    @property
    def log_dir(self) -> Path:
        return self.broker.log_dirs[1]

    def restore(self, place: Path, number: int) -> None:
        """Put back one of its two directories."""
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--sparse=always", f"{self.saved}/{number}/.", place], check=True)


@contextlib.contextmanager
def lived(directory: Path) -> Iterator[Lived]:
    """Give what a broker leaves that has rolled, flushed and deleted segments, and is killed in the middle."""
    cluster = Cluster(directory / "kafka", log_dirs=2, config=CONFIG)
    broker = cluster[0]
    acknowledged: dict[int, dict[int, bytes]] = {}
    with disk("ext4", broker.log_dirs[1], directory / "image"):
        with cluster:
            cluster.create_topic("orders", partitions=PARTITIONS, config=TOPIC)

            def delivered(error: object, message: Message) -> None:
                if error is None:
                    partition, offset, value = message.partition(), message.offset(), message.value()
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    acknowledged.setdefault(partition, {})[offset] = value

            settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2,
                        "batch.size": 3000, "log_level": 0}  # fmt: skip
            producer = Producer(settings)

            def some() -> bool:
                for number in range(4000):
                    value = f"{number:06d}".encode() + os.urandom(180)
                    producer.produce("orders", value, partition=number % PARTITIONS, on_delivery=delivered)
                    if number % 200 == 0:
                        producer.poll(0)
                producer.flush(30)
                return len(list(broker.log_dirs[1].glob("orders-*/*.deleted"))) >= 30

            until(some, seconds=180)
            some()
            broker.kill()
        for number, place in enumerate(broker.log_dirs):
            saved = directory / "saved" / str(number)
            saved.mkdir(parents=True)
            subprocess.run(["cp", "-a", "--sparse=always", f"{place}/.", saved], check=True)
    yield Lived(cluster, directory / "saved", acknowledged)


def served(cluster: Cluster, partition: int) -> dict[int, bytes]:
    """Return all that the broker has of a partition."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "look", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        where = TopicPartition("orders", partition)
        low, high = consumer.get_watermark_offsets(where, timeout=180)
        consumer.assign([TopicPartition("orders", partition, low)])
        found: dict[int, bytes] = {}
        deadline = time.monotonic() + 180
        while low < high and max(found, default=-1) < high - 1 and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1):
                offset, value = message.offset(), message.value()
                if message.error() is None and offset is not None and value is not None:
                    found[offset] = value
        return found
    finally:
        consumer.close()


def clear(place: Path) -> None:
    """Remove everything in a directory."""
    for inner in place.iterdir():
        if inner.is_dir():
            shutil.rmtree(inner)
        else:
            inner.unlink()
