"""Logs for the programs of this folder: batches of real records, compressed or not, with any number of producers."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from storage.batch.record import Record, encode_record
from storage.codec.compression import compress
from storage.kernel.scan import crc32c

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TS: Final = 1_700_000_000_000
OVERHEAD: Final = 61
VALUE_BYTES: Final = 90
KINDS: Final = 64  # different payloads of a log; more of them would only take longer to make


def payload(size: int, seed: int) -> tuple[bytes, int]:
    """Return records of about `size` bytes in all, and their number; a zstd batch of them has about half the size."""
    chance = random.Random(seed)
    made, count = bytearray(), 0
    while len(made) < size:
        value = chance.randbytes(VALUE_BYTES // 2) + b"a value like others, with words" * 2
        key = b"key-%06d" % chance.randrange(10**6)
        record = Record(count, TS + count, key=key, value=value[:VALUE_BYTES])
        made += encode_record(record, 0, TS)
        count += 1
    return bytes(made), count


def batches(size: int, total: int, *, codec: str = "none", producers: int = 16) -> Iterator[bytes]:
    """Yield batches of about `size` bytes on the disk, `total` bytes in all or a little more, offsets without a gap."""
    seeds = range(KINDS)
    plain = [payload(size - OVERHEAD - VALUE_BYTES, seed) for seed in seeds]
    if codec != "none":
        grown = [payload(size * size // (len(compress(CODECS[codec], data)) + OVERHEAD), seed) for seed, (data, _) in
                 zip(seeds, plain, strict=True)]  # fmt: skip
        plain = [(compress(CODECS[codec], data), count) for data, count in grown]
    offset = made = number = 0
    while made < total:
        data, count = plain[number % KINDS]
        producer, sequence = 4000 + number % producers, number // producers % 1_000_000
        stamps = (TS + number, TS + number + count)
        body = struct.pack(">hiqqqhii", CODECS[codec], count - 1, *stamps, producer, 0, sequence, count) + data
        yield struct.pack(">qiibI", offset, 9 + len(body), 0, 2, crc32c(memoryview(body))) + body
        offset += count
        made += len(body) + 21
        number += 1


def in_segments(batches: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield the batches of one segment after another, each of at most `size` bytes."""
    segment: list[bytes] = []
    filled = 0
    for batch in batches:
        if filled + len(batch) > size:
            yield segment
            segment, filled = [], 0
        segment.append(batch)
        filled += len(batch)
    yield segment


def write_segment(path: Path, size: int, total: int, *, codec: str = "none", producers: int = 16) -> int:
    """Write a `.log` and return its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=1 << 20) as file:
        for batch in batches(size, total, codec=codec, producers=producers):
            file.write(batch)
    return path.stat().st_size
