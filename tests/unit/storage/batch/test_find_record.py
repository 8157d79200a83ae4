"""The first record from a time on is the same for both kernels, and for a reader that decodes every record."""

from __future__ import annotations

import random
import struct

import pytest

from storage.batch.batch import HEADER_V2, parse_header
from storage.batch.record import Record, encode_batch, records_of
from storage.kernel.python import reference
from storage.kernel.scan import count_up_to, find_record

TS = 1_700_000_000_000


def batch_of(rng: random.Random) -> memoryview:
    deltas = sorted(rng.sample(range(20), rng.randint(1, 12)))
    records = [Record(n, TS + rng.randint(-5, 5), key=rng.randbytes(3), value=rng.randbytes(rng.randint(0, 90)))
               for n in deltas]  # fmt: skip
    return memoryview(bytearray(encode_batch(records)))


@pytest.mark.parametrize("seed", range(40))
def test_kernels_and_decoding_agree(seed: int) -> None:
    rng = random.Random(seed)
    data = batch_of(rng)
    header = parse_header(data)
    records = list(records_of(data))
    for timestamp in range(TS - 7, TS + 8):
        for offset in (-1, 0, 4, 19):
            asked = (data[HEADER_V2.size :], header.record_count, header.base_timestamp, timestamp, offset)
            wanted = next(((r.offset - header.base_offset, r.timestamp) for r in records
                           if r.timestamp >= timestamp and r.offset - header.base_offset >= offset), None)  # fmt: skip
            assert find_record(*asked) == reference.find_record(*asked) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_kernels_agree_on_bytes_that_are_no_records(seed: int) -> None:
    rng = random.Random(seed)
    data = batch_of(rng)
    count, base = parse_header(data).record_count, parse_header(data).base_timestamp
    payload = data[HEADER_V2.size :]
    for _ in range(60):
        damaged = bytearray(payload)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        view = memoryview(damaged)[: rng.randint(0, len(damaged))]
        asked = (view, rng.choice([count, count + 3, 0, -1]), base, TS + rng.randint(-5, 5), 0)
        assert find_record(*asked) == reference.find_record(*asked)


@pytest.mark.parametrize(("width", "shape"), [(8, ">ii"), (12, ">qi")])
def test_entries_of_an_index_are_counted_as_a_walk_over_all_of_them_does(width: int, shape: str) -> None:
    rng = random.Random(width)
    for count in range(30):
        numbers = sorted(rng.choices(range(-3, 40), k=count))
        data = b"".join(struct.pack(shape, number, rng.randrange(99)) for number in numbers) + b"\0" * rng.randrange(
            width
        )
        for target in range(-5, 45):
            wanted = sum(number <= target for number in numbers)
            assert count_up_to(data, width, target) == reference.count_up_to(data, width, target) == wanted
