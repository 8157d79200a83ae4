"""What happens to a broker in its life besides load: topics, settings, records and places change; seeded."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from interop import tiered
from interop.broker_load import SEGMENT_BYTES, Ledger, place, producer
from interop.kafka_lab import Cluster
from support.waiting import until

RETAINED, PREALLOCATED, MOVED, RENEWED, TIERED = "retained", "preallocated", "moved", "renewed", "tiered"
TURNED: Final = "profiles-turned"
"""A topic that is compacted at times; by its name its records are checked as those of a compacted one."""
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    RETAINED: {"retention.bytes": "150000"},
    PREALLOCATED: {"preallocate": "true"},
    MOVED: {},
    RENEWED: {},
    TURNED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
    TIERED: {**tiered.TOPIC, "retention.ms": "-1"},
}
DELETED_FROM: Final = "orders-1"
"""The partition of which the life deletes records."""
_PATIENCE: Final = 60.0
_INTERVALS: Final = ("100", "512", "4096", "16384")
_SEGMENTS: Final = ("16384", "65536", "200000")
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_MOVED_ONES: Final = (f"{MOVED}-0", "orders-0", "payments-1", "profiles-0", f"{TURNED}-0")
_SLOW: Final = 20_000
"""Bytes a second of a move that is to be under way when the broker ends."""


class Changes:
    """Changes one broker, as clients and operators do. `ledger` is told what they were promised."""

    def __init__(self, cluster: Cluster, rng: random.Random, ledger: Ledger, without: tuple[str, ...] = ()) -> None:
        """`without`: topics that this broker can not have."""
        self.topics = tuple(name for name in _SETTINGS if name not in without)
        self.deleted_to = 0
        self._cluster, self._rng, self._ledger, self._numbers = cluster, rng, ledger, itertools.count()
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._segment_bytes = "internal.segment.bytes" if cluster.version >= "4." else "segment.bytes"
        ledger.acknowledged |= {f"{name}-0": {} for name in self.topics}

    def begin(self) -> None:
        """Create the topics that are there all along."""
        self._create(*self.topics)

    def kinds(self) -> list[Callable[[], None]]:
        """Return everything that may happen while the broker lives."""
        return [
            self._delete_records,
            self._come_and_go,
            self._renew,
            self._change_interval,
            self._change_retention,
            self._change_segments,
            self._change_times,
            self._change_codec,
            self._turn,
            self._compact_harder,
            self._consume,
            self._move,
        ]

    def last_kinds(self) -> list[Callable[[], None]]:
        """Return what may be under way when the broker ends."""
        return [self._begin_to_move, self._begin_to_move, self._come_and_go, self._renew]

    # ---- records

    def fill(self, *topics: str) -> None:
        """Produce to topics as one of many kinds of clients: codecs, keys, times, tombstones, small and large."""
        rng = self._rng
        settings: dict[str, str | bool | int] = {"compression.type": rng.choice(_CODECS)}
        settings["enable.idempotence"] = rng.random() < 0.5
        if rng.random() < 0.3:
            settings["batch.num.messages"] = rng.choice((1, 7))
        to = producer(self._cluster, **settings)
        now, largest = int(time.time() * 1000), rng.choice((40, 400, 3000))
        for topic in topics or self.topics:
            for _ in range(rng.randint(20, 200)):
                key = b"key-%d" % rng.randrange(30) if topic == TURNED or rng.random() < 0.5 else None
                value = None if key and rng.random() < 0.1 else rng.randbytes(rng.randint(1, largest))
                headers: list[tuple[str, str | bytes | None]] = []
                if rng.random() < 0.2:
                    headers = [("from", rng.randbytes(5)), ("none", None)]
                to.produce(
                    topic, value, key, timestamp=now - rng.choice((0, 0, rng.randrange(86_400_000))),
                    headers=headers, on_delivery=self._ledger.delivered if f"{topic}-0" in self._ledger.acknowledged
                    else None,
                )  # fmt: skip
        assert to.flush(_PATIENCE) == 0

    def _delete_records(self) -> None:
        acknowledged = sorted(self._ledger.acknowledged[DELETED_FROM])
        if not acknowledged:
            return
        offset = max(self._rng.choice(acknowledged), self.deleted_to)
        for future in self._admin.delete_records([TopicPartition(*place(DELETED_FROM), offset)]).values():
            future.result(_PATIENCE)
        self.deleted_to = offset

    # ---- topics and settings

    def _create(self, *names: str) -> None:
        def create(name: str) -> bool:
            config = dict(_SETTINGS.get(name, {})) | {self._segment_bytes: SEGMENT_BYTES}
            with contextlib.suppress(KafkaException):  # one of that name is not deleted yet
                self._admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(_PATIENCE)
                return True
            return False

        for name in names:
            until(partial(create, name), _PATIENCE, say=partial(str, name))

    def _delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(_PATIENCE)

    def _come_and_go(self) -> None:
        names = [f"short-{next(self._numbers)}" for _ in range(2)]
        self._create(*names)
        self.fill(*names)
        self._delete(names[0])

    def _renew(self) -> None:
        """Delete a topic, and create another of its name while its files wait for their deletion."""
        self._delete(RENEWED)
        self._ledger.acknowledged[f"{RENEWED}-0"].clear()
        self._create(RENEWED)
        self.fill(RENEWED)

    def _alter(self, topic: str, *settings: tuple[str, str], kind: ResourceType = ResourceType.TOPIC) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings
        ]  # fmt: skip
        resource = ConfigResource(kind, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(_PATIENCE)

    def _change_interval(self) -> None:
        for topic in ("orders", "packed-lz4", "payments", *self.topics):
            self._alter(topic, ("index.interval.bytes", self._rng.choice(_INTERVALS)))

    def _change_retention(self) -> None:
        self._alter(
            RETAINED,
            ("retention.bytes", str(self._rng.choice((70_000, 150_000, 400_000)))),
            ("retention.ms", self._rng.choice(("2000", "604800000"))),
        )

    def _change_segments(self) -> None:
        for topic in ("orders", "packed-zstd", "payments", *self.topics):
            self._alter(topic, (self._segment_bytes, self._rng.choice(_SEGMENTS)))
        self._alter(MOVED, ("segment.ms", self._rng.choice(("300", "604800000"))))

    def _change_times(self) -> None:
        for topic in ("orders", "packed-zstd", MOVED, PREALLOCATED):
            self._alter(topic, ("message.timestamp.type", self._rng.choice(("CreateTime", "LogAppendTime"))))

    def _change_codec(self) -> None:
        for topic in ("packed-lz4", "payments", "profiles", MOVED, TURNED):
            self._alter(topic, ("compression.type", self._rng.choice(("producer", "uncompressed", *_CODECS[1:]))))

    def _turn(self) -> None:
        policies = self._rng.sample(("delete", "compact", "compact,delete"), 2)
        for policy in policies:
            self._alter(TURNED, ("cleanup.policy", policy))
            self.fill(TURNED)

    def _compact_harder(self) -> None:
        self._alter("profiles", ("min.cleanable.dirty.ratio", self._rng.choice(("0.01", "0.5"))))
        self._alter("profiles", ("delete.retention.ms", self._rng.choice(("100", "86400000"))))

    # ---- groups

    def _consume(self) -> None:
        """Commit offsets for a few groups, and delete one."""
        groups = [f"group-{next(self._numbers)}" for _ in range(3)]
        for group in groups:
            offsets = [TopicPartition("orders", 0, self._rng.randint(0, 9))]
            for future in self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, offsets)]
            ).values():
                future.result(_PATIENCE)
        with contextlib.suppress(KafkaException):  # its coordinator may be loading yet
            for future in self._admin.delete_consumer_groups(groups[:1]).values():
                future.result(_PATIENCE)

    def share(self) -> None:
        """Let a share group read: its state is a topic of its own."""
        self._alter("sharers", ("share.auto.offset.reset", "earliest"), kind=ResourceType.GROUP)
        consumer = ShareConsumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": "sharers", "log_level": 0})
        consumer.subscribe([MOVED])
        self.fill(MOVED)
        until(lambda: consumer.poll(1.0), _PATIENCE)
        consumer.close()

    # ---- places

    def _move(self) -> None:
        """Move a replica to the other log directory under load, and wait until it is there."""
        self._throttle(1 << 30)
        name, here, there = self._two_places()
        self._order(name, there)
        until(lambda: (there / name).is_dir() and not (here / name).exists(), _PATIENCE, say=lambda: f"{name}: {there}")

    def _begin_to_move(self) -> None:
        """Order moves so slow that they are under way when the broker ends."""
        self._throttle(_SLOW)
        for _ in range(2):
            name, _, there = self._two_places()
            self._order(name, there)
        until(lambda: list(there.glob(f"{name}.*-future")) or (there / name).is_dir(), _PATIENCE)

    def _throttle(self, rate: int) -> None:
        setting = ("replica.alter.log.dirs.io.max.bytes.per.second", str(rate))
        self._alter(str(self._cluster[0].number), setting, kind=ResourceType.BROKER)

    def _two_places(self) -> tuple[str, Path, Path]:
        """Return a partition, the log directory that it is in, and another."""
        name = self._rng.choice(_MOVED_ONES)
        places = self._cluster[0].log_dirs
        (here,) = until(lambda: [home for home in places if (home / name).is_dir()])
        return name, here, next(home for home in places if home != here)

    def _order(self, partition: str, there: Path) -> None:
        """Order a move by AlterReplicaLogDirs; librdkafka has no call for it."""
        topic, number = place(partition)
        body = struct.pack(">hhihi", 34, 1, 1, -1, 1) + _string(str(there))
        body += struct.pack(">i", 1) + _string(topic) + struct.pack(">ii", 1, number)
        with socket.create_connection(("127.0.0.1", self._cluster[0].port), timeout=_PATIENCE) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                (error,) = struct.unpack(">h", stream.read(size)[-2:])
        assert error == 0, f"{partition} to {there}: {error}"


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
