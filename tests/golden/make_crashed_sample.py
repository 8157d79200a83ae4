"""Make crashed-sample.tar.gz: a log directory of a real Kafka 4.3.0 broker, killed under load and then damaged.

usage: PYTHONPATH=tests python -m golden.make_crashed_sample [ARCHIVE]      needs Java, Maven and confluent-kafka

README.md in this folder says what is in it. Every damage is one that recovery can mend without losing flushed data:
what is cut lies above the recovery point, which this script makes sure of.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from golden.golden import HERE, checkpoint
from golden.make_fixtures import SEGMENT, SMALL, Feed
from interop.kafka_lab import Cluster

CONFIG: Final = SMALL | {
    "log.index.size.max.bytes": "8192",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "orders": {"partitions": 2, "config": SEGMENT},
    "clicks": {"config": SEGMENT},
    "payments": {"config": SEGMENT},
    "profiles": {"config": SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99"}},
}
WORDS: Final = ("apple", "pear", "plum", "fig", "quince", "cherry", "date", "lemon", "lime", "mango")


def record(rng: random.Random, number: int) -> dict[str, Any]:
    """Return key and value of an order: text that packs well, for the archive is to stay small."""
    body = {"number": number, "item": rng.choice(WORDS), "count": rng.randint(1, 9), "note": " ".join(WORDS)}
    return {"key": f"customer-{rng.randrange(200)}".encode(), "value": json.dumps(body).encode()}


def send(cluster: Cluster, topic: str, rng: random.Random, count: int, **settings: Any) -> None:
    """Produce `count` records and wait for their acknowledgement."""
    feed = Feed(cluster, topic, {"batch.size": 4000, "enable.idempotence": True} | settings)
    for number in range(count):
        feed.send(**record(rng, number))
    feed.flush()


def pay(cluster: Cluster, rng: random.Random, transactions: int) -> Producer:
    """Commit and abort some transactions and leave one open; keep what is returned until the broker is dead."""
    common = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "batch.size": 4000}
    producer = Producer(common | {"transactional.id": "till"})
    producer.init_transactions(30)
    for number in range(transactions + 1):
        producer.begin_transaction()
        for line in range(rng.randint(5, 60)):
            producer.produce("payments", **record(rng, line))
        producer.flush(30)
        if number == transactions:
            break
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return producer


def kill_under_load(cluster: Cluster, rng: random.Random) -> None:
    """Send SIGKILL while a producer is busy on the topics that have no damage planned below their recovery point."""
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 1, "message.timeout.ms": 2000}
    producer = Producer(settings)
    enough = threading.Event()

    def delivered(error: object, message: Any) -> None:
        if error is None and message.offset() > 0:
            enough.set()

    deadline = time.monotonic() + 0.4
    while time.monotonic() < deadline or not enough.is_set():
        for topic in ("orders", "clicks"):
            producer.produce(topic, on_delivery=delivered, **record(rng, 0))
        producer.poll(0.01)
    cluster[0].kill()
    producer.purge()
    producer.poll(0)


def segments(partition: Path) -> list[Path]:
    """Return the `.log` files of a partition, the active one last."""
    return sorted(partition.glob("*.log"))


def last_batch(log: Path) -> tuple[int, int, int]:
    """Return position, size and base offset of the last whole batch of a sound file."""
    data, position, found = log.read_bytes(), 0, (0, 0, -1)
    while position + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, position)
        found = (position, 12 + size, base)
        position += 12 + size
    assert position == len(data), f"{log}: {len(data) - position} bytes after the last batch"
    return found


class Damage:
    """Damages one log directory and keeps a list of what was done."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self.points = checkpoint(log_dir / "recovery-point-offset-checkpoint")
        self.done: list[str] = []

    def _unflushed_tail(self, partition: str) -> tuple[Path, int, int]:
        """Return the active segment, and position and size of its last batch, which may be lost."""
        log = segments(self.log_dir / partition)[-1]
        position, size, base = last_batch(log)
        assert base >= self.points[partition], f"{partition}: the last batch is below the recovery point"
        return log, position, size

    def tear(self, partition: str) -> None:
        """Cut the last batch in two: its write had not reached the disk whole."""
        log, position, size = self._unflushed_tail(partition)
        with log.open("r+b") as file:
            file.truncate(position + size // 2)
        self.done.append(f"{partition}/{log.name}: torn at {position + size // 2}, in the batch at {position}")

    def zero(self, partition: str) -> None:
        """Zero the end of the last batch: the size of the file was durable before its bytes were."""
        log, position, size = self._unflushed_tail(partition)
        start = position + size // 3
        with log.open("r+b") as file:
            file.seek(start)
            file.write(bytes(position + size - start))
        self.done.append(f"{partition}/{log.name}: {position + size - start} bytes of zeros from {start} on")

    def rot_index(self, partition: str) -> None:
        """Flip bits in the offset index of a closed segment."""
        index = segments(self.log_dir / partition)[0].with_suffix(".index")
        data = bytearray(index.read_bytes())
        at = len(data) // 16 * 8
        data[at] ^= 0x40
        data[at + 5] ^= 0x81
        index.write_bytes(data)
        self.done.append(f"{partition}/{index.name}: bits flipped in the entry at {at}")

    def pad_time_index(self, partition: str) -> None:
        """Grow the time index of a closed segment by zeros: that crash makes brokers delete the segment too early."""
        index = segments(self.log_dir / partition)[0].with_suffix(".timeindex")
        with index.open("ab") as file:
            file.write(bytes(1200))
        self.done.append(f"{partition}/{index.name}: 1200 zeros added")

    def leave_swap(self, partition: str) -> None:
        """Take the broker's last compaction back to the moment before it replaced the old segments.

        The cleaned files get their `.swap` again and the replaced ones, which wait as `.deleted`, their names: so it
        would look had the kill come a moment earlier.
        """
        replaced = sorted((self.log_dir / partition).glob("*.deleted"))
        assert replaced, f"{partition}: no compaction has run"
        for old in replaced:
            live = old.with_suffix("")
            live.rename(live.with_name(live.name + ".swap"))
            old.rename(live)
        self.done.append(
            f"{partition}/{Path(replaced[0].stem).stem}.*.swap: cleaned files not yet in place of the old ones"
        )


def damage(log_dir: Path) -> list[str]:
    """Do all damages; return what was done, a line each."""
    todo = Damage(log_dir)
    todo.tear("orders-0")
    todo.rot_index("orders-1")
    todo.zero("clicks-0")
    todo.pad_time_index("payments-0")
    todo.leave_swap("profiles-0")
    return todo.done


def write_and_kill(work: Path, rng: random.Random) -> Path:
    """Let a broker write, wait until its recovery points are on disk, kill it; return its log directory."""
    with Cluster(work, config=CONFIG) as cluster:
        for name, settings in TOPICS.items():
            cluster.create_topic(name, **settings)
        send(cluster, "orders", rng, 1300, **{"compression.type": "lz4", "batch.size": 1500})
        send(cluster, "orders", rng, 700)
        send(cluster, "clicks", rng, 800)
        send(cluster, "profiles", rng, 700)
        till = pay(cluster, rng, 16)
        time.sleep(2.5)  # two rounds of checkpoints
        kill_under_load(cluster, rng)
        del till
    return cluster[0].log_dirs[0]


def pack(log_dir: Path, archive: Path) -> None:
    """Write the archive: the log directory's entries at its top, owned by nobody in particular."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:gz", compresslevel=9) as tar:
        for path in sorted(log_dir.iterdir()):
            tar.add(path, arcname=path.name, filter=plain)


def main() -> None:
    """Make the archive; print what was damaged."""
    archive = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "crashed-sample.tar.gz"
    with tempfile.TemporaryDirectory() as scratch:
        log_dir = write_and_kill(Path(scratch), random.Random("crashed-sample"))
        print("\n".join(damage(log_dir)))
        pack(log_dir, archive)
    print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    try:
        main()
    except KafkaException as error:
        sys.exit(f"the producer failed: {error}")
