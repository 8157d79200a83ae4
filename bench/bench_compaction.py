"""How fast compaction is, beside Kafka's own cleaner over a copy of the same log.

A log of so many keys with values of 100 bytes: every key is written once, then every second one again, in batches of
100 records and segments of 64 MiB. Times are of one whole round, reading, writing and syncs included, the log in the
page cache; MB are 10**6 bytes of source, which both read twice. Kafka runs in a warm JVM: it has cleaned another copy
before. Without Java and Maven only ours is measured.

Usage: python bench/bench_compaction.py [KEYS] [CODEC] [DIRECTORY]
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from interop.kafka_lab import Oracle
from logs import in_segments
from support.cleaning import compact, write_log

from storage.base.config import LogConfig
from storage.base.units import Offset
from storage.base.varint import encode_varint
from storage.batch.batch import BatchHeader, encode_batch_v2
from storage.cleanup.compaction import Round
from storage.codec.compression import Codec, compress
from storage.disk.fs import OsFs
from storage.kernel.dedupe import FASTEST

TS = 1_700_000_000_000
RECORDS = 100
SEGMENT = 64 << 20
SETTINGS = {"segment.bytes": str(SEGMENT), "cleanup.policy": "compact"}


def batch(offset: int, keys: range, codec: int, rng: random.Random) -> bytes:
    records = []
    for delta, number in enumerate(keys):
        body = b"\0\0" + encode_varint(delta) + b"\x20key-%012d\xc8\x01" % number + rng.randbytes(100) + b"\0"
        records.append(encode_varint(len(body)) + body)
    header = BatchHeader(
        offset, leader_epoch=0, attributes=codec, last_offset_delta=len(keys) - 1, base_timestamp=TS,
        max_timestamp=TS, record_count=len(keys),
    )  # fmt: skip
    return encode_batch_v2(header, compress(codec, b"".join(records)))


def keyed_batches(keys: int, codec: int) -> Iterator[bytes]:
    rng = random.Random(1)
    offset = 0
    for step, count in ((1, keys), (2, keys // 2)):
        for first in range(0, count, RECORDS):
            part = range(first * step, min(first + RECORDS, count) * step, step)
            yield batch(offset, part, codec, rng)
            offset += len(part)


def kafka_seconds(oracle: Oracle, source: Path, place: Path, end: int, map_bytes: int) -> float:
    copy = place / "kafka-0"
    shutil.copytree(source, copy)
    oracle(op="open", log="bench", dir=copy, clean=True, config=SETTINGS, recovery_point=end)
    start = time.perf_counter()
    oracle(op="clean", log="bench", first_dirty=0, uncleanable=end, map_bytes=map_bytes, io_bytes=262_144)
    taken = time.perf_counter() - start
    oracle(op="close", log="bench")
    shutil.rmtree(copy)
    return taken


def show(name: str, seconds: float, size: int, records: int, more: str = "") -> None:
    print(f"{name:14} {seconds:8.2f} {size / seconds / 1e6:8.1f} {records / seconds / 1e3:10.0f}  {more}")


def main() -> None:
    keys = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    codec = Codec[sys.argv[2].upper()] if len(sys.argv) > 2 else Codec.NONE
    where: Any = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory(dir=where) as made:
        place = Path(made)
        source = place / "ours-0"
        source.mkdir()
        write_log(OsFs(), source, in_segments(keyed_batches(keys, codec), SEGMENT))
        end = keys + keys // 2
        size = sum(path.stat().st_size for path in source.glob("*.log"))
        map_bytes = keys * 24 * 10 // 7
        print(f"{keys} keys, {end} records, {size / 1e6:.0f} MB, codec {codec.name.lower()}")
        print("               seconds     MB/s  records/ms")
        try:
            with Oracle(heap="1g", patience_seconds=600) as oracle:
                warm = kafka_seconds(oracle, source, place, end, map_bytes)
                taken = kafka_seconds(oracle, source, place, end, map_bytes)
                show("kafka", taken, size, end, f"the first time {warm:.2f} s")
        except OSError as absent:
            print(f"kafka          not measured: {absent}")
        task = Round(Offset(0), Offset(end), TS)
        wall, cpu = time.perf_counter(), time.process_time()
        compact(source, LogConfig.from_properties(SETTINGS), task, map_bytes=map_bytes)
        taken, busy = time.perf_counter() - wall, time.process_time() - cpu
        show(f"logmend ({FASTEST.name})", taken, size, end, f"{busy:.2f} s of them busy")


if __name__ == "__main__":
    main()
