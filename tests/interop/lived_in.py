"""The life of one real broker, seeded: load of all kinds while topics, settings and places change, stops and kills.

Beside it stands what an operator wants to be true at any time: `verify` has no alarm for what a healthy broker does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from interop.broker_load import CONFIG, PARTITIONS, SEGMENT_BYTES, Ledger, Load, create_topics, producer
from interop.kafka_lab import Cluster, run_java
from support.command import logmend
from support.waiting import until

SETTINGS: Final = CONFIG | {
    "metadata.log.max.snapshot.interval.ms": "2000",
    "log.retention.check.interval.ms": "700",
    "file.delete.delay.ms": "4000",
    "producer.id.expiration.ms": "5000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
SEGMENT: Final = {"internal.segment.bytes": SEGMENT_BYTES}
DEPTHS: Final = ("quick", "full", "records")
RETAINED, PREALLOCATED, MOVED = "retained", "preallocated", "moved"
OWN_TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    RETAINED: SEGMENT | {"retention.bytes": "150000"},
    PREALLOCATED: SEGMENT | {"preallocate": "true"},
    MOVED: SEGMENT,
}
DELETED_FROM: Final = "orders-1"
"""The partition of which the life deletes records."""
_PATIENCE: Final = 60.0
_INTERVALS: Final = ("100", "512", "4096", "16384")


class Life:
    """One broker with two log directories. `ledger` knows what was acknowledged, `deleted_to` what was given up."""

    def __init__(self, cluster: Cluster, seed: int, keep: Path | None = None) -> None:
        """`keep`: a directory in which a log directory is left as it was when `verify` had an alarm."""
        self.cluster, self.broker = cluster, cluster[0]
        self.ledger, self.deleted_to = Ledger(), 0
        self.looks = 0
        self._rng, self._keep, self._numbers = random.Random(seed), keep, itertools.count()
        self._rounds = itertools.count()
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def begin(self) -> None:
        """Create the topics that are there all along."""
        create_topics(self.cluster)
        self._create({name: dict(config) for name, config in OWN_TOPICS.items()})

    # ---- one round

    def round(self, *, kill: bool, changes: int = 4) -> None:
        """Let the broker live for a while under load, look beside it, and end it; it is down afterwards."""
        load = Load(self.cluster, f"round {next(self._rounds)} {self._rng.random()}", self.ledger)
        load.start()
        try:
            self._fill(RETAINED, PREALLOCATED, MOVED)
            for change in self._rng.sample(self._changes(), changes):
                change()
                self._fill(RETAINED, PREALLOCATED, MOVED)
                self.check_no_alarm("beside the running broker")
        finally:
            if kill:
                load.kill()
            else:
                load.end()
                self.broker.stop()
        if kill:
            self._recover()
        self.check_no_alarm("after the recovery" if kill else "after the clean stop")

    def _changes(self) -> list[Callable[[], None]]:
        return [
            self._delete_records,
            self._come_and_go,
            self._change_interval,
            self._change_retention,
            self._move,
            self._consume,
            self._compact_harder,
        ]

    def check_no_alarm(self, when: str) -> None:
        """Check that `verify` ends with 0 at every depth, with or without the broker's settings."""
        for depth in DEPTHS:
            settings = self._rng.choice(((), ("--server-properties", self.broker.properties)))
            done = logmend("verify", "--depth", depth, *(settings or self.broker.log_dirs))
            self.looks += 1
            if done.returncode and self._keep is not None:
                place = self._keep / f"{self.broker.directory.parent.parent.name}-{self.looks}"
                with contextlib.suppress(shutil.Error):  # a running broker's files come and go
                    shutil.copytree(self.broker.directory, place, symlinks=True)
            alarms = [line for line in done.stdout.splitlines() if not line.startswith("  note ")]
            assert done.returncode == 0, f"{when}, {depth}, {settings}:\n" + "\n".join(alarms) + done.stderr

    def _recover(self) -> None:
        words = self._rng.choice((("--server-properties", self.broker.properties), tuple(self.broker.log_dirs)))
        more = self._rng.choice(((), ("--depth", "full"), ("--clean-marker", "4.3")))
        done = logmend("recover", *more, *words)
        assert done.returncode == 0, done.stdout + done.stderr

    # ---- what happens in a life

    def _create(self, topics: Mapping[str, dict[str, str]]) -> None:
        for future in self._admin.create_topics([NewTopic(n, 1, 1, config=c) for n, c in topics.items()]).values():
            future.result(_PATIENCE)

    def _fill(self, *topics: str) -> None:
        to = producer(self.cluster, **{"compression.type": self._rng.choice(("none", "gzip", "snappy", "zstd"))})
        for topic in topics:
            for _ in range(self._rng.randint(20, 300)):
                to.produce(topic, self._rng.randbytes(self._rng.randint(1, 400)))
        assert to.flush(_PATIENCE) == 0

    def _delete_records(self) -> None:
        topic, _, number = DELETED_FROM.rpartition("-")
        acknowledged = sorted(self.ledger.acknowledged[DELETED_FROM])
        if not acknowledged:
            return
        offset = max(self._rng.choice(acknowledged), self.deleted_to)
        wanted = [TopicPartition(topic, int(number), offset)]
        for future in self._admin.delete_records(wanted).values():
            future.result(_PATIENCE)
        self.deleted_to = offset

    def _come_and_go(self) -> None:
        names = [f"short-{next(self._numbers)}" for _ in range(2)]
        self._create({name: dict(SEGMENT) for name in names})
        self._fill(*names)
        for future in self._admin.delete_topics(names[:1]).values():
            future.result(_PATIENCE)

    def _alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(_PATIENCE)

    def _change_interval(self) -> None:
        for topic in ("orders", "packed-lz4", "payments", RETAINED, PREALLOCATED):
            self._alter(topic, "index.interval.bytes", self._rng.choice(_INTERVALS))

    def _change_retention(self) -> None:
        self._alter(RETAINED, "retention.bytes", str(self._rng.choice((70_000, 150_000, 400_000))))
        self._alter(RETAINED, "segment.bytes", str(1 << 20))

    def _compact_harder(self) -> None:
        self._alter("profiles", "min.cleanable.dirty.ratio", self._rng.choice(("0.01", "0.5")))
        self._alter("profiles", "delete.retention.ms", self._rng.choice(("100", "86400000")))

    def _move(self) -> None:
        """Move a replica to the other log directory, and wait until it is there."""
        name = f"{MOVED}-0"
        here = next(each for each in self.broker.log_dirs if (each / name).is_dir())
        there = next(each for each in self.broker.log_dirs if each != here)
        wanted = {"topic": MOVED, "partition": 0, "replicas": [0], "log_dirs": [str(there)]}
        order = self.cluster.directory / "move.json"
        order.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        words = ("--bootstrap-server", self.cluster.bootstrap, "--reassignment-json-file", str(order), "--execute")
        run_java(self.cluster.version, self.cluster.directory, self.cluster.directory / "move.out", tool, *words)
        until(lambda: (there / name).is_dir() and not (here / name).exists(), _PATIENCE)

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
        """Let a share group read, with Kafka's own command: its state is a topic of its own."""
        tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
        words = ("--bootstrap-server", self.cluster.bootstrap, "--topic", MOVED, "--timeout-ms", "4000")
        run_java(self.cluster.version, self.cluster.directory, self.cluster.directory / "share.out", tool, *words)

    def promised(self) -> dict[str, dict[int, tuple[bytes | None, bytes | None]]]:
        """Return the acknowledged records that no client has deleted."""
        return {
            name: {
                offset: content
                for offset, content in self.ledger.acknowledged[name].items()
                if name != DELETED_FROM or offset >= self.deleted_to
            }
            for name in PARTITIONS
        }
