"""What clients of the old formats send to a leader: stored as by Kafka, in magic 2, or refused for the same reason.

`LOGMEND_OLD` is the number of appends for each part, 60 by default, `LOGMEND_OLD_SEED` the seed of the first part.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from interop.engine_pair import START_MS, Pair
from interop.kafka_lab import Oracle
from support.batches import legacy, reseal

from storage.batch.batch import TimestampType, set_log_append_time
from storage.batch.legacy import Message, encode_wrapper

APPENDS = int(os.environ.get("LOGMEND_OLD", "60"))
FIRST = int(os.environ.get("LOGMEND_OLD_SEED", "1"))
HOUR = 3_600_000
CONFIGS: list[dict[str, str]] = [
    {},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.before.max.ms": str(HOUR), "max.message.bytes": "600"},
]
"""All with `compression.type` uncompressed: there the bytes are equal, and so are sizes and rolls."""


class OldClient:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def message(self, offset: int, magic: int) -> Message:
        rng = self.rng
        time = START_MS + rng.randint(-30_000, 4_000)
        if rng.random() < 0.03:
            time = rng.choice([START_MS - 3 * HOUR, START_MS + 3 * HOUR, -1])
        key = None if rng.random() < 0.05 else rng.randbytes(rng.randint(0, 4))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.randint(0, 40))
        return Message(offset, time if magic else -1, TimestampType.CREATE if magic else TimestampType.NONE, key, value)

    def plain(self, magic: int, count: int) -> bytes:
        made = [self.message(offset, magic) for offset in range(count)]
        return b"".join(legacy(m.offset, magic, key=m.key, value=m.value, timestamp=m.timestamp) for m in made)

    def wrapper(self, magic: int, count: int) -> bytes:
        first = self.rng.choice([0, 0, 0, 50])
        made = [self.message(first + number, magic) for number in range(count)]
        return encode_wrapper(made, magic=magic, codec=self.rng.choice([1, 2, 3]))

    def send(self) -> bytes:
        rng = self.rng
        magic, count = rng.choice([0, 1]), rng.choice([1, 2, 7])
        kind = rng.random()
        if kind < 0.45:
            data = self.plain(magic, count)
        elif kind < 0.9:
            data = self.wrapper(magic, count)
        elif kind < 0.95:
            data = self.plain(0, 1) + self.plain(1, 1)
        else:
            data = self.wrapper(magic, count) + self.wrapper(magic, count)
        if rng.random() < 0.05:
            changed = bytearray(data)
            changed[rng.randint(18, len(data) - 1)] ^= 1 << rng.randrange(8)
            data = bytes(changed) if rng.random() < 0.5 else reseal(bytes(changed[:17]) + data[17:])
        if magic and rng.random() < 0.04 and kind < 0.9:
            one = bytearray(self.plain(1, 1))
            set_log_append_time(memoryview(one), START_MS)
            data = bytes(one)
        return data


@pytest.mark.parametrize("part", range(len(CONFIGS)))
def test_an_old_client_is_answered_as_by_kafka(part: int, oracle: Oracle, tmp_path: Path) -> None:
    client = OldClient(FIRST + part)
    pair = Pair(
        oracle, tmp_path, {**CONFIGS[part], "compression.type": "uncompressed", "internal.segment.bytes": "9000"}
    )
    taken = 0
    for number in range(APPENDS):
        data = client.send()
        try:
            taken += pair.append(data, 0, follower=False) is not None
            pair.compare_states()
        except AssertionError as error:
            raise AssertionError(f"seed {FIRST + part}, append {number}, {data.hex()}: {error}") from None
    assert 0 < taken < APPENDS
    pair.close()
    shutil.rmtree(tmp_path)
