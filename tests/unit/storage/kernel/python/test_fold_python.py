"""Both kernels fold a log in windows of any size to what the Python one makes of each batch alone."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from crc32c import crc32c
from support.batches import TRANSACTIONAL, TS, batch_v2, legacy, marker, reseal

from storage.base.rows import BatchRows, Folded, Stop
from storage.base.units import INT64_MAX
from storage.kernel.fold import SegmentFold
from storage.kernel.python.scan_python import scan_batches
from storage.kernel.scan import kernel_name

KERNELS: Final = ["python", *["c"] * (kernel_name() == "c")]
Odd = Callable[[int, int], bytes]
"""Makes a batch for an offset and a time."""


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("LOGMEND_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"LOGMEND_SEED={seed}")
    return random.Random(seed)


def usual(offset: int, time: int, size: int = 10, producer: int = 1, count: int = 1, **fields: int) -> bytes:
    """Return what a run is made of."""
    given = {"producer_id": producer, "producer_epoch": 0, "leader_epoch": 3, "max_timestamp": time}
    return batch_v2(offset, payload=bytes(size), count=count, **given | {"last_offset_delta": count - 1} | fields)


ODD: Final[dict[str, Odd]] = {
    "a new leader epoch": partial(usual, leader_epoch=4),
    "an old leader epoch": partial(usual, leader_epoch=2),
    "no leader epoch": partial(usual, leader_epoch=-1),
    "another codec": partial(usual, attributes=4),
    "a codec nobody knows": partial(usual, attributes=-(2**15) | 7),
    "another producer": partial(usual, producer=2**40),
    "no producer": partial(usual, producer=-1, producer_epoch=-1),
    "another producer epoch": partial(usual, producer_epoch=1),
    "a transaction": partial(usual, attributes=TRANSACTIONAL),
    "no timestamp": lambda offset, _: usual(offset, -1),
    "a time long ago": lambda offset, time: usual(offset, time - 10**9),
    "a time before all": lambda offset, _: usual(offset, -(2**63)),
    "a time one below": lambda offset, time: usual(offset, time - 1),
    "the end of time": lambda offset, _: usual(offset, INT64_MAX),
    "no record": lambda offset, time: usual(offset, time, count=0, last_offset_delta=0),
    "records below zero": lambda offset, time: usual(offset, time, count=-1, last_offset_delta=0),
    "a marker": lambda offset, _: marker(offset, 1, 0, commit=True),
    "magic 0": lambda offset, _: legacy(offset, 0),
    "magic 1": lambda offset, time: legacy(offset, 1, timestamp=time),
    "a large one": lambda offset, time: usual(offset, time, 9000),
    "an empty one": lambda offset, time: usual(offset, time, 0),
    "a gap": lambda offset, time: usual(offset + 5, time),
    "a gap beyond the index": lambda offset, time: usual(offset + 2**31, time),
    "the last offset of all": lambda _, time: usual(INT64_MAX, time),
    "a lower offset": lambda offset, time: usual(offset - 1, time),
    "a negative offset": lambda _, time: usual(-1, time),
    "a last offset below the first": lambda offset, time: reseal(
        (made := usual(offset, time))[:23] + b"\xff\xff\xff\xff" + made[27:]
    ),
    "a wrong checksum": lambda offset, time: usual(offset, time)[:-1] + b"\x01",
    "a size below the least": lambda offset, time: (made := usual(offset, time))[:8] + b"\0\0\0\x30" + made[12:],
    "a size below the least with a checksum that holds": lambda offset, _: struct.pack(
        ">qiibI8s", offset, 17, 3, 2, crc32c(bytes(8)), bytes(8)
    ),
    "a size that leads back": lambda offset, time: (made := usual(offset, time))[:8] + b"\xff\xff\xff\x00" + made[12:],
    "a size beyond the end": lambda offset, time: (made := usual(offset, time))[:8] + b"\x7f\xff\xff\xff" + made[12:],
    "a newer magic": lambda offset, time: (made := usual(offset, time))[:16] + b"\x03" + made[17:],
    "a negative magic": lambda offset, time: (made := usual(offset, time))[:16] + b"\x80" + made[17:],
    "zero bytes": lambda *_: bytes(100),
}


def log_with(chance: random.Random, count: int, odd: dict[int, Odd]) -> bytes:
    """Return that many batches, among them the odd ones by their numbers."""
    parts, offset, time = [], 100, TS
    sizes, counts, steps = (
        chance.choice([[30], [10, 20, 400]]),
        chance.choice([[1], [1, 7]]),
        chance.choice([[0, 1], [1]]),
    )
    producers = chance.choice([[1], [-1], range(5), range(200), [-1, 4]])
    for number in range(count):
        if number in odd:
            made = odd[number](offset, time)
            offset = max(offset, int.from_bytes(made[:8], "big", signed=True))
        else:
            records = chance.choice(counts)
            made = usual(offset, time, chance.choice(sizes), chance.choice(producers), records)
            offset += records - 1
        parts.append(made)
        if offset > INT64_MAX - 2 * count:
            break
        offset, time = offset + 1, time + chance.choice(steps)
    return b"".join(parts)


def results(fold: SegmentFold) -> tuple[object, ...]:
    events = list(fold.producer_events)
    return *fold.facts, fold.epochs, fold.offset_index(), fold.time_index(), fold.blocks(), events


def fold_in_windows(log: bytes, window: int, kernel: str, **settings: int) -> tuple[Stop, int, tuple[object, ...]]:
    """Return how far a fold gets that sees so many bytes at a time, or more where it gets nowhere, and its results."""
    fold, rows = SegmentFold(100, kernel=kernel, **settings), BatchRows(8)
    position, next_offset, more = 0, 100, window
    while True:
        piece = log[position : position + more]
        folded: Folded = fold.scan(memoryview(piece), rows, position=position, next_offset=next_offset)
        position, next_offset = position + folded.size, folded.next_offset
        if folded.stop not in {Stop.END, Stop.NEED_MORE} or (position + len(piece) - folded.size == len(log)):
            return folded.stop, position, results(fold)
        more = window if folded.size else more * 2


def fold_by_rows(log: bytes, **settings: int) -> tuple[Stop, int, tuple[object, ...]]:
    """Return the same, with the batches handed over one by one."""
    fold, rows, position, next_offset = SegmentFold(100, kernel="python", **settings), BatchRows(1), 0, 100
    while True:
        scanned = scan_batches(memoryview(log)[position:], rows, position=position, next_offset=next_offset)
        fold.add(rows, scanned.count)
        next_offset = rows.last_offset[0] + 1 if scanned.count else next_offset
        position += scanned.size
        if scanned.stop is not Stop.ROWS_FULL:
            return scanned.stop, position, results(fold)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_batch_among_usual_ones_is_told_as_when_each_comes_alone(name: str, chance: random.Random) -> None:
    for count, number in [(1, 0), (2, 1), (40, 0), (40, 39), (40, 20), (1030, 1023), (1030, 1024), (1500, 700)]:
        log = log_with(chance, count, {number: ODD[name]})
        settings = {"index_interval_bytes": chance.choice([0, 100, 4096]), "block_offsets": chance.choice([0, 50])}
        wanted = fold_by_rows(log, **settings)
        assert wanted[1] > 0 or not number
        for kernel in KERNELS:
            for window in (len(log), chance.randrange(61, len(log) + 61)):
                assert fold_in_windows(log, window, kernel, **settings) == wanted, (kernel, count, number, window)


def test_many_odd_batches_are_told_as_when_each_comes_alone(chance: random.Random) -> None:
    for _ in range(40):
        count = chance.randrange(1, 400)
        odd = {chance.randrange(count): chance.choice(list(ODD.values())) for _ in range(chance.randrange(12))}
        log = log_with(chance, count, odd)
        settings = {
            "index_interval_bytes": chance.choice([0, 100, 4096]),
            "max_index_size": chance.choice([0, 12, 24, 100, 10_485_760]),
            "event_limit": chance.choice([1, 10, 1000]),
        }
        wanted = fold_by_rows(log, **settings)
        for kernel in KERNELS:
            assert fold_in_windows(log, chance.randrange(61, len(log) + 61), kernel, **settings) == wanted
