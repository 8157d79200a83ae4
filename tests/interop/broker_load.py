"""Produce load on a real broker that may be killed at any moment, and what is known of every record afterwards."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from golden.golden import checkpoint
from interop.kafka_lab import Cluster
from support.waiting import until

CONFIG: Final = {
    "log.index.size.max.bytes": "65536",
    "log.index.interval.bytes": "512",
    "log.flush.interval.messages": "300",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "700",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "500",
    # Without these a broker that was killed is not let in again for nine seconds.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
}
SEGMENT_BYTES: Final = "65536"
COMPACTED, TRANSACTIONAL = "profiles", "payments"
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "orders": {"partitions": 2, "config": {}},
    "packed-lz4": {"config": {}},
    "packed-zstd": {"config": {}},
    COMPACTED: {"config": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}},
    TRANSACTIONAL: {"partitions": 2, "config": {}},
}
PRODUCERS: Final[dict[str, dict[str, Any]]] = {
    "orders": {},
    "packed-lz4": {"compression.type": "lz4", "enable.idempotence": True},
    "packed-zstd": {"compression.type": "zstd", "enable.idempotence": True},
    COMPACTED: {"enable.idempotence": True},
}
PARTITIONS: Final = tuple(f"{topic}-{n}" for topic, made in TOPICS.items() for n in range(made.get("partitions", 1)))
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_PATIENCE: Final = 180.0
_PER_ROUND: Final = 12

Content = tuple[bytes | None, bytes | None]
"""Key and value."""


def producer(cluster: Cluster, **settings: Any) -> Producer:
    """Return a producer that wants every record acknowledged, and gives up soon once the broker is gone."""
    common = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 3, "batch.size": 6000, "log_level": 0}
    return Producer(common | settings)


@dataclass(slots=True)
class Ledger:
    """What is known of the records that were sent. Several producers may write into it."""

    acknowledged: dict[str, dict[int, Content]] = field(default_factory=lambda: {name: {} for name in PARTITIONS})
    """By partition and offset."""
    committed: set[bytes] = field(default_factory=set)
    """Values of transactions whose commit was confirmed."""
    aborted: set[bytes] = field(default_factory=set)
    """Values of transactions whose abort was confirmed."""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Note an acknowledgement; a record that was not acknowledged is nobody's promise."""
        if error is None:
            partition, offset = f"{message.topic()}-{message.partition()}", message.offset()
            assert offset is not None
            self.acknowledged[partition][offset] = (message.key(), message.value())

    def below(self, points: Mapping[str, int]) -> dict[str, dict[int, Content]]:
        """Return the acknowledged records with offsets below `points`."""
        return {
            name: {offset: content for offset, content in found.items() if offset < points.get(name, 0)}
            for name, found in self.acknowledged.items()
        }


class Load:
    """Producers that keep a broker busy until it is killed. `ledger` holds what they know then."""

    def __init__(self, cluster: Cluster, seed: str = "load", ledger: Ledger | None = None) -> None:
        """`ledger`: what earlier loads on this broker know."""
        self.cluster, self.ledger = cluster, ledger or Ledger()
        self._seed, self._stop = seed, threading.Event()
        self._serial = itertools.count()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._pay)]

    def run_until_flushed(self, seconds: float = 3.0) -> None:
        """Produce until each partition has a closed segment and a recovery point above 0, at least so many seconds."""
        create_topics(self.cluster)
        self.start()
        least = time.monotonic() + seconds
        until(lambda: time.monotonic() > least and self._all_flushed(), _PATIENCE)

    def start(self) -> None:
        """Begin to produce; the topics are there."""
        for thread in self._threads:
            thread.start()

    def kill(self) -> Ledger:
        """Kill the broker under load, end the producers, and return what they know."""
        self.cluster[0].kill()
        return self.end()

    def end(self) -> Ledger:
        """End the producers and return what they know."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.ledger

    def content(self, rng: random.Random) -> tuple[bytes, bytes]:
        """Return a key and a value; the values of one key rise."""
        words = rng.choices((b"apple", b"pear", b"plum", b"fig", b"quince"), k=rng.randint(3, 40))
        return b"customer-%d" % rng.randrange(100), b"%012d " % next(self._serial) + b" ".join(words)

    def _all_flushed(self) -> bool:
        log_dir = self.cluster[0].log_dirs[0]
        points = checkpoint(log_dir / RECOVERY_POINTS)
        return all(points.get(name, 0) > 0 and len(list((log_dir / name).glob("*.log"))) > 1 for name in PARTITIONS)

    def _produce(self) -> None:
        rng = random.Random(self._seed)
        producers = {topic: producer(self.cluster, **settings) for topic, settings in PRODUCERS.items()}
        while not self._stop.wait(0.01):
            for topic, to in producers.items():
                for _ in range(_PER_ROUND):
                    key, value = self.content(rng)
                    with contextlib.suppress(BufferError):
                        to.produce(topic, value, key, on_delivery=self.ledger.delivered)
                to.poll(0)
        for to in producers.values():
            to.poll(0)
            to.purge()
            to.poll(0)

    def _pay(self) -> None:
        rng, numbers = random.Random(f"{self._seed} payments"), itertools.count()
        while not self._stop.is_set():
            # A fatal error ends a producer and not the load: the next one aborts what it left open.
            with contextlib.suppress(KafkaException):
                to = transactional(self.cluster, is_over=self._stop.is_set)
                while not self._stop.is_set():
                    contents = [self.content(rng) for _ in range(rng.randint(5, 60))]
                    pay(to, self.ledger, contents, commit=next(numbers) % 4 != 3, is_over=self._stop.is_set)


def create_topics(cluster: Cluster) -> None:
    """Create all topics with one request: Kafka's own command would take two seconds for each."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    small = "internal.segment.bytes" if cluster.version >= "4." else "segment.bytes"  # brokers before 4.1 allow less
    wanted = [
        NewTopic(name, made.get("partitions", 1), 1, config=made["config"] | {small: SEGMENT_BYTES})
        for name, made in TOPICS.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result(_PATIENCE)


def transactional(cluster: Cluster, *, is_over: Callable[[], bool] | None = None) -> Producer:
    """Return a transactional producer; whatever an earlier one of its kind left open is aborted.

    Raises `KafkaException` if that fails, or has not come to an end when `is_over` says so (by default after a minute).
    """
    to = producer(cluster, **{"transactional.id": "till", "transaction.timeout.ms": 60_000})
    _insist(to.init_transactions, is_over or _patience())
    return to


def pay(
    to: Producer,
    ledger: Ledger,
    contents: Iterable[Content],
    *,
    commit: bool,
    is_over: Callable[[], bool] | None = None,
) -> None:
    """Produce one transaction and end it; only what is confirmed is noted.

    Raises `KafkaException` if that fails, or has not come to an end when `is_over` says so (by default after a minute).
    """
    is_over = is_over or _patience()
    values = []
    to.begin_transaction()
    for key, value in contents:
        assert value is not None
        values.append(value)
        to.produce(TRANSACTIONAL, value, key, on_delivery=ledger.delivered)
    _insist(to.commit_transaction if commit else to.abort_transaction, is_over)
    (ledger.committed if commit else ledger.aborted).update(values)


def _patience() -> Callable[[], bool]:
    deadline = time.monotonic() + _PATIENCE
    return lambda: time.monotonic() > deadline


def _insist(call: Callable[[float], object], is_over: Callable[[], bool]) -> None:
    """Begin a producer or end a transaction, in short calls: the broker may be killed meanwhile."""
    while True:
        try:
            call(1.0)
        except KafkaException as error:
            if is_over() or not error.args[0].retriable():
                raise
        else:
            return


def produce_more(load: Load, count: int = 200) -> Ledger:
    """Send `count` more records to each topic, see every one acknowledged, and return what is known of them."""
    rng, ledger = random.Random("more"), Ledger()
    for topic, settings in PRODUCERS.items():
        to = producer(load.cluster, **settings)
        for _ in range(count):
            key, value = load.content(rng)
            to.produce(topic, value, key, on_delivery=ledger.delivered)
        assert to.flush(_PATIENCE) == 0
    pay(transactional(load.cluster), ledger, [load.content(rng) for _ in range(count)], commit=True)
    assert len(ledger.committed) == count
    assert sum(len(found) for found in ledger.acknowledged.values()) == count * len(TOPICS)
    return ledger


def read_all(
    cluster: Cluster, partitions: Collection[str] = PARTITIONS, *, isolation: str = "read_uncommitted"
) -> dict[str, dict[int, Content]]:
    """Return what a stock client reads of every partition, by offset, each from its beginning to its end."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "readers",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "check.crcs": True,
        "log_level": 0,
    }
    await_leaders(cluster, partitions)
    reader = Consumer(settings)
    found: dict[str, dict[int, Content]] = {name: {} for name in partitions}
    try:
        lows = {
            name: reader.get_watermark_offsets(TopicPartition(*place(name)), timeout=_PATIENCE)[0]
            for name in partitions
        }
        reader.incremental_assign([TopicPartition(*place(name), low) for name, low in lows.items()])
        deadline, unfinished = time.monotonic() + _PATIENCE, set(partitions)
        while unfinished and time.monotonic() < deadline:
            for message in reader.consume(2000, 0.2):
                name, error, offset = f"{message.topic()}-{message.partition()}", message.error(), message.offset()
                if error is None and offset is not None:
                    found[name][offset] = (message.key(), message.value())
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(name)
                elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                    # A broker that has not yet read what its remote tier holds knows no offset below its local tier.
                    reader.incremental_unassign([TopicPartition(*place(name))])
                    again = max(found[name], default=lows[name] - 1) + 1
                    reader.incremental_assign([TopicPartition(*place(name), again)])
                elif error is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT:
                    raise KafkaException(error)
        assert not unfinished, f"the ends of {sorted(unfinished)} were not reached"
        return found
    finally:
        reader.close()


def place(partition: str) -> tuple[str, int]:
    """Return topic and number of a partition."""
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def await_leaders(cluster: Cluster, partitions: Collection[str] = PARTITIONS) -> None:
    """Return once the broker leads every partition.

    A client that asks while a broker is still taking them over may keep its "unknown partition" for minutes.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def unled() -> set[str]:
        try:
            topics = admin.list_topics(timeout=_PATIENCE).topics
        except KafkaException:  # it is not up yet
            return set(partitions)
        led = {f"{name}-{n}" for name, topic in topics.items() for n, p in topic.partitions.items() if p.leader >= 0}
        return set(partitions) - led

    until(lambda: not unled(), _PATIENCE, say=lambda: f"no broker leads {sorted(unled())}")
