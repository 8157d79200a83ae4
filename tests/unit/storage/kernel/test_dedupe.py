"""Both kernels of compaction say and do the same."""

from __future__ import annotations

import random
import sys
from hashlib import md5

import pytest
from support.batches import record

from storage.cleanup.offset_map import OffsetMap
from storage.kernel.python import reference as PYTHON
from storage.kernel.python.dedupe_python import fields_of
from storage.kernel.scan import KERNEL, Kernel, check_records

KERNELS = [PYTHON] if KERNEL is PYTHON else [PYTHON, KERNEL]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.NAME)


def payload_of(rng: random.Random, count: int) -> bytes:
    """Records with keys of every length, far and near timestamps, gaps between offsets, headers."""
    records, delta = [], 0
    for _ in range(count):
        delta += rng.choice((1, 1, 1, 100, 20_000))
        size = rng.choice((0, 1, 5, 16, 55, 56, 63, 64, 65, 119, 120, 300))
        key = rng.choice((None, b"k%d" % rng.randrange(9), rng.randbytes(size)))
        value = rng.choice((None, b"", rng.randbytes(rng.randrange(200))))
        time = rng.choice((0, 1, -1, 64, -(10**12), 10**15))
        headers = [(b"h", None), (b"", b"x")] if rng.random() < 0.2 else []
        records.append(record(delta, key=key, value=value, timestamp_delta=time, headers=headers))
    return b"".join(records)


@pytest.mark.skipif(len(KERNELS) == 1, reason="the kernel in C was not built")
@pytest.mark.parametrize("seed", range(150))
def test_both_kernels_fill_the_same_map_keep_the_same_and_move_alike(seed: int) -> None:
    rng = random.Random(seed)
    maps = [OffsetMap(24 * rng.choice((3, 40, 400)), rng.choice((0.75, 1.0)), kernel) for kernel in KERNELS[:1]]
    maps.append(OffsetMap(24 * maps[0].slots, maps[0].limit / maps[0].slots, KERNELS[1]))
    assert maps[0].limit == maps[1].limit
    offset = rng.choice((0, 2**40, 2**62))
    for _ in range(8):
        count = rng.randrange(rng.choice((2, 12, 40)))
        payload = payload_of(rng, count)
        assert check_records(memoryview(payload), count) == -1
        start = offset + rng.choice((-1, 0, 3))
        took = [offsets.put_records(payload, count, offset, start) for offsets in maps]
        assert took[0] == took[1]
        assert [(offsets.size, offsets.latest) for offsets in maps[:1]] == [(maps[1].size, maps[1].latest)]
        assert maps[0]._block == maps[1]._block
        asked = payload_of(rng, count) if rng.random() < 0.5 else payload
        flags = [bytearray(count), bytearray(b"\7" * count)]
        stay = rng.random() < 0.5
        counts = [
            offsets.mark_kept(asked, count, offset, flag, tombstones_stay=stay)
            for offsets, flag in zip(maps, flags, strict=True)
        ]
        assert counts[0] == counts[1]
        assert flags[0] == flags[1]
        if any(flags[0]):
            time = rng.choice((0, 10**12, -1)), rng.random() < 0.3, rng.choice((-1, 10**12)), rng.random() < 0.5
            moved = [
                kernel.move_records(asked, flags[0], count, time[0], time[1], time[2], time[3], 10**13)
                for kernel in KERNELS
            ]
            assert moved[0] == moved[1]
            assert check_records(memoryview(moved[0][0]), sum(flags[0])) == -1
        offset += 1_000_000


@each_kernel
@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 1000])
def test_a_key_is_known_by_its_md5(kernel: Kernel, size: int) -> None:
    key = random.Random(size).randbytes(size)
    offsets = OffsetMap(24 * 10, 0.9, kernel)
    assert offsets.put_records(record(0, key=key), 1, 77, 0)
    assert md5(key).digest() + (78).to_bytes(8, sys.byteorder) in bytes(offsets._block)
    assert offsets.get(key) == 77


@each_kernel
@pytest.mark.parametrize("count", range(1, 26))
def test_keys_that_are_looked_up_together_are_each_known_by_their_md5(kernel: Kernel, count: int) -> None:
    rng = random.Random(count)
    keys = [rng.randbytes(rng.choice((0, 3, 16, 55, 56, 200))) for _ in range(count)]
    offsets = OffsetMap(24 * 100, 0.9, kernel)
    assert offsets.put_records(b"".join(record(n, key=key) for n, key in enumerate(keys)), count, 70, 0)
    for key, newest in {key: 70 + n for n, key in enumerate(keys)}.items():
        assert md5(key).digest() + (newest + 1).to_bytes(8, sys.byteorder) in bytes(offsets._block)
        assert offsets.get(key) == newest


@each_kernel
@pytest.mark.parametrize("room", range(2, 12))
def test_a_map_that_is_full_takes_no_key_more_and_what_lies_behind_is_not_looked_at(kernel: Kernel, room: int) -> None:
    offsets = OffsetMap(24 * room, 1.0, kernel)
    payload = b"".join(record(n, key=b"%d" % n) for n in range(room + 1)) + b"\xff\xff"
    assert not offsets.put_records(payload, room + 2, 50, 0)
    assert (offsets.size, offsets.latest) == (room, 50 + room - 1)
    assert [offsets.get(b"%d" % n) for n in range(room)] == list(range(50, 50 + room))
    with pytest.raises(ValueError, match="records"):
        OffsetMap(24 * 40, 0.9, kernel).put_records(payload, room + 2, 50, 0)


@each_kernel
def test_moved_records_keep_all_but_their_timestamp_delta(kernel: Kernel) -> None:
    payload = record(3, key=b"a", timestamp_delta=5) + record(9, key=b"b", value=None, timestamp_delta=700)
    moved, base, newest = kernel.move_records(payload, b"\1\1", 2, 1000, False, 0, False, 0)
    assert (base, newest) == (1005, 1700)
    assert moved == record(3, key=b"a") + record(9, key=b"b", value=None, timestamp_delta=695)
    moved, base, newest = kernel.move_records(payload, b"\0\1", 2, 1000, False, 0, True, 2000)
    assert (moved, base, newest) == (record(9, key=b"b", value=None, timestamp_delta=-300), 2000, 1700)
    moved, base, newest = kernel.move_records(payload, b"\1\0", 2, 1000, True, 4000, False, 0)
    assert (moved, base, newest) == (record(3, key=b"a"), 4000, 4000)


@each_kernel
def test_records_that_are_cut_off_are_refused_and_nothing_behind_them_is_read(kernel: Kernel) -> None:
    payload = record(0, key=b"key", value=b"v" * 100)
    for size in (0, 1, 2):
        with pytest.raises(ValueError, match="records"):
            OffsetMap(240, 0.9, kernel).put_records(payload[:size], 1, 0, 0)
        with pytest.raises(ValueError, match="records"):
            OffsetMap(240, 0.9, kernel).mark_kept(payload[:size], 1, 0, bytearray(1), tombstones_stay=True)
        with pytest.raises(ValueError, match="records"):
            kernel.move_records(payload[:size], b"\1", 1, 0, False, 0, False, 0)


@pytest.mark.skipif(len(KERNELS) == 1, reason="the kernel in C was not built")
@pytest.mark.parametrize("seed", range(50))
def test_rubbish_is_refused_by_the_kernel_in_c_or_read_within_its_bounds(seed: int) -> None:
    rng = random.Random(seed)
    whole = payload_of(rng, 5)
    for _ in range(50):
        payload = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            payload[rng.randrange(len(payload))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            OffsetMap(2400, 0.9, KERNEL).put_records(bytes(payload), 5, 0, 0)
            moved, _, _ = KERNEL.move_records(bytes(payload), b"\1" * 5, 5, 0, False, 0, False, 0)
        except ValueError:
            continue
        assert len(moved) <= len(payload) + 5 * 16


def test_fields_are_where_the_records_lie() -> None:
    first, second = record(0, key=None, value=b"v"), record(7, key=b"", value=None, timestamp_delta=-3)
    one, two = fields_of(first + second, 2)
    assert (one.key, one.has_value, one.offset_delta, one.end) == (None, True, 0, len(first))
    assert (two.key, two.has_value, two.offset_delta, two.timestamp_delta) == (b"", False, 7, -3)
