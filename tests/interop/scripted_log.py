"""Logs that Kafka itself has written, from a seed: keys, tombstones, transactions, producers, codecs, segments."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop.kafka_lab import Oracle

NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Script:
    """What is appended to one log; go on with `write` as often as wanted. The log is closed in between."""

    seed: int
    oracle: Oracle
    directory: Path
    codecs: tuple[str, ...] = ("none",)
    now: int = NOW
    config: dict[str, str] = field(default_factory=dict)
    has_transactions: bool = True

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.log = f"script-{self.seed}-{self.directory.parent.name}"
        self.directory.mkdir(parents=True)
        self.sequences: dict[int, int] = {}
        self.open_transactions: set[int] = set()
        self.keys = self.rng.choice((3, 10, 40))
        defaults = {
            "internal.segment.bytes": self.rng.choice((2200, 3000, 8000)),
            "index.interval.bytes": self.rng.choice((0, 100, 300, 4096)),
            "segment.index.bytes": 4096,
            "delete.retention.ms": self.rng.choice((0, 1000, 1000, 60_000, 60_000, 2**63 - 1)),
            "message.timestamp.type": self.rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            # Appends without a key would be refused otherwise; what is done to the log does not ask.
            "cleanup.policy": "delete",
        }
        self.config = {name: str(value) for name, value in defaults.items()} | self.config
        self.epoch = 0

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return self.oracle(op=op, log=self.log, **fields)

    def open(self, directory: Path | None = None, **more: Any) -> dict[str, Any]:
        """Open the log of this script, or a copy of it, in Kafka."""
        where = directory or self.directory
        expiration = {"producer_id_expiration_ms": 2_000_000_000}
        return self.ask("open", dir=where, clean=True, config=self.config, **expiration, **more)

    def write(self, steps: int, *, ends_transactions: bool = True) -> dict[str, Any]:
        """Append by so many steps; return the state of the log before it was closed."""
        self.oracle(op="now", ms=self.now)
        self.open()
        for _ in range(steps):
            self.step()
        for producer in sorted(self.open_transactions) if ends_transactions else ():
            self.marker(producer)
        if self.rng.random() < 0.8:
            self.ask("roll")
        state = self.ask("state")
        self.ask("close")
        self.open()  # a load removes the snapshots that have become strays
        self.ask("close")
        return state

    def step(self) -> None:
        rng = self.rng
        match rng.random():
            case x if x < 0.06:
                self.ask("roll")
            case x if x < 0.1:
                self.epoch += 1
            case x if x < 0.4 and self.has_transactions:
                self.transact()
            case x if x < 0.5:
                self.append(producer_id=rng.choice((900, 901)), transactional=False)
            case _:
                self.append()
        self.now += rng.choice((0, 1, 50))
        self.oracle(op="now", ms=self.now)

    def transact(self) -> None:
        producer = self.rng.choice((4000, 4001, 4002))
        if producer in self.open_transactions and self.rng.random() < 0.4:
            self.marker(producer)
        else:
            self.open_transactions.add(producer)
            self.append(producer_id=producer, transactional=True)

    def marker(self, producer: int) -> None:
        commit = self.rng.random() < 0.5
        self.ask("marker", epoch=self.epoch, producer_id=producer, producer_epoch=0, commit=commit, timestamp=self.now)
        self.open_transactions.discard(producer)

    def append(self, producer_id: int = -1, *, transactional: bool = False) -> None:
        rng = self.rng
        count = rng.choice((1, 1, 2, 3, 8))
        batch: dict[str, Any] = {"codec": rng.choice(self.codecs), "records": [self.record() for _ in range(count)]}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + count
            batch |= {
                "producer_id": producer_id, "producer_epoch": 0, "sequence": sequence, "transactional": transactional,
            }  # fmt: skip
        self.ask("append", epoch=self.epoch, batch=batch)

    def record(self) -> dict[str, Any]:
        rng = self.rng
        key = None if rng.random() < 0.03 else b"key-%d" % rng.randrange(self.keys)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 3, 40, 200)))
        headers = [["h", _text(rng.randbytes(3))], ["none", None]] if rng.random() < 0.1 else []
        timestamp = self.now - rng.choice((0, 0, 5, 400))
        return {"timestamp": timestamp, "key": _text(key), "value": _text(value), "headers": headers}


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
