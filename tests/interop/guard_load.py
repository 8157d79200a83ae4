"""Load for a live broker under guard: produce, compact, retain, roll, delete topics and make them again."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from interop.kafka_lab import Cluster

CONFIG: Final = {
    "log.index.size.max.bytes": "65536",
    "log.index.interval.bytes": "512",
    "log.flush.interval.messages": "200",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "700",
}
_TINY: Final = {"internal.segment.bytes": "40000", "file.delete.delay.ms": "700"}
STEADY: Final = "steady"
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    STEADY: (1, {"internal.segment.bytes": "40000"}),
    "orders": (3, _TINY | {"retention.bytes": "200000"}),
    "packed": (1, _TINY | {"compression.type": "zstd", "retention.bytes": "200000"}),
    "profiles": (2, _TINY | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05", "segment.ms": "2000"}),
    "both": (1, _TINY | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.05",
                         "retention.bytes": "200000"}),
    "rolling": (1, _TINY | {"segment.ms": "500"}),
}  # fmt: skip
_PATIENCE: Final = 60.0


class GuardLoad:
    """Produces until `stop`; a topic named `passing-<n>` comes and goes all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._bootstrap = cluster.bootstrap
        self._stop = threading.Event()
        self._passing = ""
        self.produced = self.deleted = 0
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._come_and_go)]

    def start(self) -> None:
        self._create(TOPICS)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _create(self, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        wanted = [NewTopic(name, made[0], 1, config=made[1]) for name, made in topics.items()]
        for future in self._admin.create_topics(wanted).values():
            future.result(_PATIENCE)

    def _produce(self) -> None:
        rng = random.Random("guard")
        common: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "linger.ms": 2,
            "batch.size": 6000,
            "log_level": 0,
        }
        to = Producer(common | {"enable.idempotence": True})
        while not self._stop.wait(0.01):
            for topic in [*TOPICS, self._passing]:
                if not topic or topic == STEADY:
                    continue
                for _ in range(8):
                    value = b"%d " % self.produced + rng.randbytes(rng.randint(20, 300))
                    with contextlib.suppress(BufferError):
                        to.produce(topic, value, b"customer-%d" % rng.randrange(60))
                    self.produced += 1
            to.poll(0)
        to.purge()
        to.poll(0)

    def _come_and_go(self) -> None:
        for number in itertools.count():
            name = f"passing-{number % 2}"
            with contextlib.suppress(KafkaException):  # a late record may have made it again
                self._create({name: (2, _TINY)})
            self._passing = name
            if self._stop.wait(3.0):
                return
            self._passing = ""
            with contextlib.suppress(KafkaException):
                for future in self._admin.delete_topics([name]).values():
                    future.result(_PATIENCE)
                self.deleted += 1
            if self._stop.wait(0.5):
                return


def produce_steadily(cluster: Cluster, count: int) -> None:
    """Send records to the quiet topic, and see each acknowledged."""
    to = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1, "batch.size": 4000, "log_level": 0})
    failed: list[object] = []

    def told(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(count):
        to.produce(STEADY, b"%06d " % number + b"x" * 100, on_delivery=told)
    assert to.flush(_PATIENCE) == 0
    assert failed == []
