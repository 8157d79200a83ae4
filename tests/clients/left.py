"""A directory that a killed broker left: what is in it is known, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from clients.running import Driver, Drivers
from support.batches import batch_v2, record

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC: Final = 20
FAR: Final = 2**53 + 1
"""Above what a double can hold: a client that reads offsets into one is off by one."""
FAR_COUNT: Final = 5
START_MS: Final = 1_700_000_000_000
ORDERS: Final = 90
COMMITTED: Final = [10, 20, None]
STEPS: Final[list[list[Any]]] = [[0, 10, "commit"], [10, 10, "abort"], [20, 10, "commit"]]
TOPICS: Final = {"codecs": 1, "orders": 3, "payments": 1, "far": 1}


def fill(drivers: Drivers) -> None:
    """Make the topics and their records through a running broker."""
    confluent = drivers("confluent")
    for topic, partitions in TOPICS.items():
        confluent.ask("create", topic=topic, partitions=partitions, config={"retention.ms": "-1"})
    for at, codec in enumerate(CODECS):
        numbers = {"first": at * PER_CODEC, "count": PER_CODEC, "time": START_MS + at * PER_CODEC}
        confluent.ask("produce", topic="codecs", partitions=[0], codec=codec, idempotent=True, **numbers)
    confluent.ask("produce", topic="orders", partitions=[0, 1, 2], first=0, count=ORDERS, time=START_MS)
    confluent.ask("transact", name="till", topic="payments", partitions=[0], steps=STEPS)
    for partition, offset in enumerate(COMMITTED):
        if offset is not None:
            set_offset(drivers("java"), partition, offset)


def set_offset(driver: Driver, partition: int, offset: int) -> None:
    """Commit a position of the group; a coordinator that has just been made says for a while that it is not there."""
    driver.ask("set_offset", group="readers", topic="orders", partition=partition, to=offset)
    found = driver.ask("committed", group="readers", topic="orders", partitions=[partition])
    assert found == [offset], found


def plant_far_offsets(log_dir: Path) -> None:
    """Give the empty partition a log that begins far out."""
    place = log_dir / "far-0"
    for file in place.glob("0*"):
        file.unlink()
    made = [record(key=b"k%d" % at, value=b"r%d" % at) for at in range(FAR_COUNT)]
    batches = [batch_v2(FAR + at, [one], base_timestamp=START_MS + at) for at, one in enumerate(made)]
    (place / f"{FAR:020}.log").write_bytes(b"".join(batches))


def orders(partition: int, start: int = 0) -> list[list[Any]]:
    """Return what a consumer of a partition of `orders` finds from an offset on."""
    numbers = range(partition, ORDERS, 3)
    return [[offset, f"r{number}"] for offset, number in enumerate(numbers)][start:]
