"""A real broker with Kafka's own `LocalTieredStorage`, which keeps the remote tier in a plain folder.

`live` gives it a life: leader epochs, transactions, deleted records, a local tier that begins far above the log start.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from interop import broker_load
from interop.broker_load import await_leaders, place
from interop.kafka_lab import HERE, KAFKA, Broker, Cluster
from support.waiting import until

ORDERS, PAYMENTS, TRIMMED, PLAIN = "orders", "payments", "trimmed", "plain"
TIERED: Final = (ORDERS, PAYMENTS, TRIMMED)
TOPICS: Final = (*TIERED, PLAIN)
PARTITIONS: Final = tuple(f"{topic}-0" for topic in TOPICS)
DELETED_BELOW: Final = 250
"""Records of `trimmed` below this offset are deleted on request."""
SETTINGS: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "300",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
}
TOPIC: Final = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
_SEGMENT_BYTES: Final = "16384"
_PATIENCE: Final = 180.0

Contents = dict[str, dict[int, bytes | None]]
"""Values by topic and offset; each topic has one partition."""


def start(directory: Path, version: str = KAFKA) -> Cluster:
    """Return a cluster that is to be started, in a directory that may hold what an earlier one left."""
    jars = subprocess.run(
        [HERE / "fetch-jars.sh", version, "tiered"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()[-1]
    settings = SETTINGS | {
        "remote.log.storage.manager.class.path": f"{jars}/*",
        "rsm.config.dir": str(directory / "remote"),
    }
    return Cluster(directory, version=version, config=settings)


def _noting(records: list[Any]) -> Callable[[KafkaError | None, Message], None]:
    return lambda _, message: records.append((message.offset(), message.value()))


@dataclass(slots=True)
class Life:
    """What a broker was given before it ended."""

    cluster: Cluster
    records: Contents = field(default_factory=lambda: {topic: {} for topic in TOPICS})
    """Those that were acknowledged and, of a transaction, committed."""

    @property
    def broker(self) -> Broker:
        return self.cluster[0]

    @property
    def log_dir(self) -> Path:
        return self.broker.log_dirs[0]

    def produce(self, count: int) -> None:
        """Add `count` records to each topic and see them acknowledged."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "batch.num.messages": 10, "log_level": 0}
        plain = Producer(settings | {"enable.idempotence": True})
        for number in range(count):
            for topic in (ORDERS, TRIMMED, PLAIN):
                plain.produce(topic, b"%d " % number * 50, on_delivery=self._delivered, partition=0)
            plain.poll(0)
        assert plain.flush(_PATIENCE) == 0
        paying = Producer(settings | {"transactional.id": "till", "transaction.timeout.ms": 60_000})
        paying.init_transactions(_PATIENCE)
        for commit in (True, False, True):
            taken: list[tuple[int, bytes]] = []
            paying.begin_transaction()
            for number in range(count // 3):
                paying.produce(
                    PAYMENTS,
                    b"%d " % number * 50,
                    partition=0,
                    on_delivery=_noting(taken),
                )
                paying.poll(0)
            if commit:
                paying.commit_transaction(_PATIENCE)
                self.records[PAYMENTS] |= dict(taken)
            else:
                paying.flush(_PATIENCE)
                paying.abort_transaction(_PATIENCE)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        assert error is None, error
        self.records[message.topic()][message.offset()] = message.value()  # type: ignore[attr-defined]

    def restart(self) -> None:
        """Stop the broker and start it: each topic gets another leader epoch."""
        self.broker.stop()
        self.broker.start()
        await_leaders(self.cluster, PARTITIONS)


def remote_files(directory: Path) -> dict[str, int]:
    """Return the files of the remote tier, by their path in it, and their sizes."""
    remote = directory / "remote"
    return {str(path.relative_to(remote)): path.stat().st_size for path in remote.rglob("*") if path.is_file()}


def remote_logs(directory: Path, topic: str) -> list[str]:
    """Return the segments of a topic in the remote tier."""
    return sorted(name for name in remote_files(directory) if name.endswith(".log") and f"{topic}-0" in name)


def bases(log_dir: Path, topic: str) -> list[int]:
    """Return the base offsets of the segments on the local disk."""
    return sorted(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))


def epochs(log_dir: Path, topic: str) -> list[tuple[int, int]]:
    lines = (log_dir / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]


def read_all(cluster: Cluster, *, isolation: str = "read_committed") -> Contents:
    """Return what a stock client reads of every topic from its first offset to its end, both tiers."""
    contents = broker_load.read_all(cluster, PARTITIONS, isolation=isolation)
    return {place(name)[0]: {at: value for at, (_, value) in read.items()} for name, read in contents.items()}


def live(directory: Path, version: str = KAFKA, count: int = 300) -> Life:
    """Give a broker a life and kill it: the local tier begins above the log start, over several leader epochs."""
    life = Life(start(directory, version))
    with life.cluster as cluster:
        for topic in TOPICS:
            name = "internal.segment.bytes" if version.startswith("4.") else "segment.bytes"
            config = {name: _SEGMENT_BYTES, "retention.ms": "-1"} | (TOPIC if topic in TIERED else {})
            cluster.create_topic(topic, config=config)
        await_leaders(cluster, PARTITIONS)
        for _ in range(2):
            life.produce(count)
            # A broker that is stopped before it knows its remote tier waits half a minute for that.
            until(lambda: all(remote_logs(directory, topic) for topic in TIERED), _PATIENCE, say=lambda: _tiers(life))
            life.restart()
        life.produce(count)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.delete_records([TopicPartition(TRIMMED, 0, DELETED_BELOW)])[TopicPartition(TRIMMED, 0)].result(_PATIENCE)
        life.records[TRIMMED] = {o: v for o, v in life.records[TRIMMED].items() if o >= DELETED_BELOW}
        until(lambda: all(is_tiered(life, topic) for topic in TIERED), _PATIENCE, say=lambda: _tiers(life))
        life.broker.kill()
    return life


def is_tiered(life: Life, topic: str) -> bool:
    """All closed segments are remote and none is local, so the local tier is the active segment alone."""
    local = bases(life.log_dir, topic)
    return len(local) == 1 and local[0] > 0


def _tiers(life: Life) -> str:
    return str(
        {topic: (bases(life.log_dir, topic), len(remote_logs(life.cluster.directory, topic))) for topic in TIERED}
    )


def copy(life: Life, target: Path) -> Life:
    """Return a life that goes on in a copy of the directories."""
    shutil.copytree(life.cluster.directory, target)
    cluster = start(target, life.cluster.version)
    cluster.cluster_id = life.cluster.cluster_id
    return Life(cluster, {topic: dict(records) for topic, records in life.records.items()})


def check_served(found: Contents, promised: Mapping[str, Mapping[int, bytes | None]]) -> None:
    """Check that every promised record is served, at its offset."""
    for topic, records in promised.items():
        missing = [offset for offset in records if offset not in found[topic]]
        assert missing == [], f"{topic}: {len(missing)} of {len(records)} are missing, from {missing[:1]} on"
        assert all(found[topic][offset] == value for offset, value in records.items()), topic
