"""A topic that names a codec: what comes with another one is stored with it, as by Kafka, batch for batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from interop.engine_pair import START_MS, Pair
from interop.kafka_lab import Oracle

from storage.batch.batch import TimestampType, attributes_of
from storage.batch.record import Record, encode_batch

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
LEVELS = {"gzip": ("1", "9"), "lz4": ("1", "9", "17"), "zstd": ("-5", "22")}
SAME = (
    *("base", "last", "count", "valid", "codec", "timestamp_type", "max_timestamp", "leader_epoch"),
    *("producer_id", "producer_epoch", "base_sequence", "transactional", "control"),
)


def sent(seed: int) -> list[bytes]:
    """Return batches of every codec, with headers, nulls, and times in and out of order; some of a transaction."""
    rng = random.Random(seed)
    made: list[bytes] = []
    for codec in (0, 1, 2, 3, 4, 0):
        records = [
            Record(
                n, START_MS + rng.randint(-20_000, 1_000), TimestampType.CREATE,
                None if rng.random() < 0.3 else rng.randbytes(4), None if rng.random() < 0.1 else b"value" * n,
                (("h", b"1"), ("n", None)) if rng.random() < 0.2 else (),
            )
            for n in range(rng.choice([1, 3, 40]))
        ]  # fmt: skip
        number = len(made)
        made.append(
            encode_batch(
                records,
                codec=codec,
                producer_id=number,
                producer_epoch=0,
                base_sequence=0,
                flags=attributes_of(is_transactional=number % 2 == 0),
            )
        )
    return made


def batches(oracle: Oracle, directory: Path) -> list[dict[str, Any]]:
    (log,) = directory.glob("*.log")
    found = oracle(op="dump", file=str(log), records=True)["batches"]
    return [{key: batch.get(key) for key in (*SAME, "records")} for batch in found]


@pytest.mark.parametrize("append_time", [False, True], ids=["create time", "append time"])
@pytest.mark.parametrize(
    ("codec", "level"), [(codec, level) for codec in CODECS for level in (None, *LEVELS.get(codec, ()))]
)
def test_what_is_stored_has_the_codec_of_the_topic_and_equal_batches(
    codec: str, level: str | None, append_time: bool, oracle: Oracle, tmp_path: Path
) -> None:
    config = {"compression.type": codec}
    if level is not None:
        config[f"compression.{codec}.level"] = level
    if append_time:
        config["message.timestamp.type"] = "LogAppendTime"
    pair = Pair(oracle, tmp_path, config)
    for batch in sent(CODECS.index(codec)):
        assert pair.append(batch, 3, follower=False) is not None
    oracle(op="flush", log="pair", force_active=True)
    pair.log.flush()
    ours = batches(oracle, pair.ours)
    assert ours == batches(oracle, pair.theirs)
    assert {batch["codec"] for batch in ours} == {"none" if codec == "uncompressed" else codec}
    oracle.ask(op="close", log="pair", abruptly=True)
    pair.log.close_abruptly()
