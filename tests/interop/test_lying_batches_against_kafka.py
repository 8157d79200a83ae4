"""Batches whose headers or records say what is not so: a leader refuses them, or puts them right, as Kafka's does.

`LOGMEND_LIES` is the number of batches for each part, 150 by default, `LOGMEND_LIES_SEED` the seed of the first part.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
from pathlib import Path

import pytest
from interop.engine_pair import START_MS, Pair
from interop.kafka_lab import Oracle
from support.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, batch_v2, record, varint

from storage.base.refusals import InvalidRecord
from storage.codec.compression import compress

LIES = int(os.environ.get("LOGMEND_LIES", "150"))
FIRST = int(os.environ.get("LOGMEND_LIES_SEED", "1"))
HOUR = 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIGS: list[dict[str, str]] = [
    {},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.before.max.ms": str(HOUR)},
    {"message.timestamp.after.max.ms": "5000000000", "cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact,delete"},
]


def sized(data: bytes | None, lie: int = 0) -> bytes:
    return varint(-1) if data is None else varint(len(data) + lie) + data


class Liar:
    """Draws batches, most of which lie in one or two places."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.told: list[str] = []

    def lies(self, name: str, chance: float) -> bool:
        if self.rng.random() < chance:
            self.told.append(name)
            return True
        return False

    def time(self) -> int:
        rng = self.rng
        if self.lies("time", 0.03):
            return rng.choice([-2 * HOUR, 2 * HOUR, -START_MS - 1, -START_MS - 77, 40 * 365 * 24 * HOUR])
        return rng.randint(-30_000, 4_000)

    def record(self, number: int) -> bytes:
        rng = self.rng
        delta = rng.choice([number + 1, number - 1, 0, 77, -5]) if self.lies("offset delta", 0.04) else number
        key = None if self.lies("no key", 0.03) else rng.randbytes(rng.randint(0, 5))
        value = None if rng.random() < 0.1 else rng.choice([b"v" * rng.randint(0, 60), rng.randbytes(8)])
        headers = b"".join(
            sized(b"h") + sized(None if rng.random() < 0.3 else b"x") for _ in range(rng.choice([0, 0, 2]))
        )
        body = b"\0" + varint(self.time()) + varint(delta) + sized(key) + sized(value)
        count = headers.count(b"\x02h")
        body += varint(count) + headers
        return varint(len(body)) + body

    def payload(self, count: int) -> bytes:
        return b"".join(self.record(number) for number in range(count))

    def broken(self, payload: bytes, *, is_compressed: bool) -> bytes:
        """Return the payload with a fault; sizes that lie are none to Kafka where the batch is compressed."""
        rng = self.rng
        match 0 if is_compressed else rng.randint(0, 3):
            case 0:
                return payload + b"\0"
            case 1:
                return varint(-4) + payload[1:]
            case 2:
                return payload[:-1]
            case _:
                return payload[:1] + payload[2:]

    def batch(self) -> bytes:
        rng = self.rng
        self.told = []
        count = rng.choice([1, 1, 2, 5, 12])
        payload = self.payload(count)
        attributes = rng.choice([0, 0, 1, 2, 3, 4])
        if self.lies("broken records", 0.1):
            payload = self.broken(payload, is_compressed=attributes > 0)
        payload = compress(attributes, payload)
        for name, bit, chance in (
            ("append time", LOG_APPEND_TIME, 0.05), ("horizon", DELETE_HORIZON, 0.03), ("control", CONTROL, 0.03),
            ("transaction", TRANSACTIONAL, 0.02), ("unused bit", 0x100, 0.03),
        ):  # fmt: skip
            attributes |= bit if self.lies(name, chance) else 0
        claimed = count + rng.choice([1, -1, 5]) if self.lies("count", 0.06) else count
        last = rng.choice([claimed, claimed - 2, 0, -1]) if self.lies("last offset delta", 0.05) else claimed - 1
        most = None
        if self.lies("max timestamp", 0.4):
            most = rng.choice([-1, 0, START_MS - 10 * HOUR, START_MS + 10 * HOUR, 2**63 - 1, -(2**63), START_MS])
        return batch_v2(
            0, count=claimed, payload=payload, last_offset_delta=last, attributes=attributes, base_timestamp=START_MS,
            max_timestamp=START_MS + 4_000 if most is None else most, leader_epoch=-1,
        )  # fmt: skip


@pytest.mark.parametrize("part", range(len(CONFIGS)))
def test_a_lying_batch_is_refused_or_put_right_as_by_kafka(part: int, oracle: Oracle, tmp_path: Path) -> None:
    liar, chance = Liar(FIRST + part), random.Random(FIRST + part)
    config = {**CONFIGS[part], "internal.segment.bytes": "20000"}
    if part % 2:
        config["compression.type"] = chance.choice(["uncompressed", "producer"])
    pair = Pair(oracle, tmp_path, config)
    taken = 0
    for number in range(LIES):
        data = liar.batch()
        try:
            taken += pair.append(data, 0, follower=False) is not None
            pair.compare_states()
        except AssertionError as error:
            raise AssertionError(f"seed {FIRST + part}, batch {number}, {liar.told}, {data.hex()}: {error}") from None
    assert 0 < taken < LIES
    pair.close()
    shutil.rmtree(tmp_path)


def test_kafka_takes_compressed_records_that_nobody_can_read_and_the_engine_does_not(
    oracle: Oracle, tmp_path: Path
) -> None:
    """It skips over keys and values there, and does not hold what the fields add up to against the record's size."""
    pair = Pair(oracle, tmp_path, {})
    payload = record(headers=[(b"name", b"12345678")])
    for broken in (varint(50) + payload[1:], varint(-3) + payload[1:]):
        data = batch_v2(0, count=1, payload=compress(4, broken), attributes=4, leader_epoch=-1)
        with pytest.raises(InvalidRecord):
            pair.log.append_as_leader(data, leader_epoch=0, now_ms=pair.now)
        raw = base64.b64encode(data).decode()
        assert "error" not in oracle.ask(op="append_raw", log="pair", bytes=raw, epoch=0)
    (log,) = pair.theirs.glob("*.log")
    assert "error" in oracle.ask(op="dump", file=str(log), records=True)
    oracle.ask(op="close", log="pair", abruptly=True)
    pair.log.close_abruptly()
