"""What the tests of `logmend serve` share: copies of what brokers left, digests of directories, and stock consumers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from golden.golden import extract, log_dirs

WAIT = 180.0
QUIET = {"log_level": 0}
"""What librdkafka says on standard error is not of interest where refusals are wanted."""


def left_by_a_broker(name: str, directory: Path) -> Path:
    """Return the only log directory of a golden fixture, unpacked below `directory`."""
    (found,) = log_dirs(extract(name, directory))
    return found


def torn(log_dir: Path) -> None:
    """Do to a directory what a kill in the middle of a write does, and a rotten index besides."""
    for partition in log_dir.glob("payments-*"):
        log = max(partition.glob("*.log"))
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - 31)
        (partition / log.with_suffix(".index").name).write_bytes(b"\xff" * 64)
    (log_dir / "meta.properties.tmp").write_bytes(b"half")
    (log_dir / ".lock").unlink()  # none is made either


def copied(log_dir: Path, target: Path) -> Path:
    """Return a copy of a directory."""
    shutil.copytree(log_dir, target)
    return target


@contextmanager
def consumer(bootstrap: str, **more: Any) -> Iterator[Consumer]:
    """Give a consumer that joins no group."""
    made = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False, "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 10, **QUIET, **more,
    })  # fmt: skip
    try:
        yield made
    finally:
        made.close()


def read_all(found: Consumer, topic: str, start: int = OFFSET_BEGINNING) -> dict[int, list[Message]]:
    """Return all records of a topic from `start` on, by partition; raises `KafkaException`."""
    partitions = found.list_topics(topic, timeout=WAIT).topics[topic].partitions
    found.assign([TopicPartition(topic, number, start) for number in partitions])
    records: dict[int, list[Message]] = {number: [] for number in partitions}
    at_end: set[int] = set()
    until = time.monotonic() + WAIT
    while len(at_end) < len(partitions):
        assert time.monotonic() < until, f"only {sorted(at_end)} came to the end"
        message = found.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records[message.partition()].append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
        else:
            raise KafkaException(error)
    return records
