"""Both kernels over the same bytes: every row, every stop and every result of the fold must be equal.

The logs are random but sound, then damaged at random. The seed is printed; LOGMEND_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import zlib
from collections.abc import Iterator

import crc32c as package
import pytest
from support.batches import CONTROL, TRANSACTIONAL, TS, batch_v2, legacy, marker, marker_record, record, reseal, varint

from storage.base.rows import COLUMNS, BatchRows, Scanned, Stop
from storage.batch.batch import BatchHeader, parse_header
from storage.kernel.fold import SegmentFold
from storage.kernel.python import reference

native = pytest.importorskip("storage.kernel.native", reason="the C kernel was not built", exc_type=ImportError)
_scan = pytest.importorskip("storage.kernel._scan", reason="the C kernel was not built", exc_type=ImportError)

RESULTS = [
    *("batch_count", "record_count", "first_offset", "next_offset", "max_timestamp", "max_timestamp_offset"),
    *("gaps", "magics", "codecs", "has_producers", "digest", "index_overflow"),
    *("epoch_fall", "first_gap", "range_fault", "epochs"),
]


@pytest.fixture
def seed() -> int:
    number = int(os.environ.get("LOGMEND_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"LOGMEND_SEED={number}")
    return number


@pytest.fixture(params=["fastest", "portable"])
def _crc(request: pytest.FixtureRequest) -> Iterator[None]:
    native.choose_crc(portable=request.param == "portable")
    yield
    native.choose_crc(portable=False)


def random_payload(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 7, 8, 30, 110, 139, 140, 400, 1200, 5000]))


def random_batch(chance: random.Random, offset: int) -> tuple[bytes, int]:
    """Return a sound batch and its last offset."""
    kind = chance.randrange(10)
    if kind == 0:
        made = legacy(
            offset,
            chance.randrange(2),
            value=random_payload(chance),
            timestamp=chance.randrange(-1, TS),
            attributes=chance.randrange(256),
        )
        return made, offset
    producer, epoch = chance.choice([-1, 3, 4, 5, 2**40]), chance.randrange(-1, 3)
    if kind == 1:
        return marker(
            offset, producer, epoch, commit=chance.random() < 0.5, coordinator_epoch=chance.randrange(-5, 5)
        ), offset
    delta = chance.choice([0, 0, 1, 5, 100, 2**20])
    attributes = chance.randrange(8) | chance.choice([0, TRANSACTIONAL, CONTROL, 0x40, -(2**15)])
    batch = batch_v2(
        offset,
        payload=marker_record(commit=True) if attributes & CONTROL else random_payload(chance),
        count=chance.choice([1, 1, 0, 2, -1, 2**31 - 1]),
        last_offset_delta=delta,
        leader_epoch=chance.choice([-1, 2, 2, 2, 3, 4]),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=chance.randrange(-1, 2**31),
        attributes=attributes,
        max_timestamp=chance.choice([-1, TS, TS + chance.randrange(10**6), -(2**63), 2**63 - 1]),
    )
    return batch, offset + delta


def random_log(chance: random.Random, count: int) -> tuple[bytes, list[int]]:
    """Return a chain of sound batches, and where each begins."""
    parts, starts, offset = [], [], chance.choice([0, 7, 2**31 - 10, 2**62])
    for _ in range(count):
        batch, last = random_batch(chance, offset)
        starts.append(sum(map(len, parts)))
        parts.append(batch)
        offset = last + chance.choice([1, 1, 1, 1, 2, 1000])
    return b"".join(parts), starts


def damage(chance: random.Random, log: bytes, starts: list[int]) -> bytes:
    """Return the log with a few bytes changed, mostly in headers, some of them sealed again, or cut, or with zeroes."""
    out = bytearray(log)
    for _ in range(chance.randrange(4)):
        place = chance.choice(starts) + chance.randrange(61) if chance.random() < 0.8 else chance.randrange(len(log))
        if place < len(out):
            out[place] ^= chance.choice([1, 0x80, 0xFF, 1 << chance.randrange(8)])
    if chance.random() < 0.5:
        first = chance.choice(starts)
        behind = min((start for start in starts if start > first), default=len(log))
        out[first:behind] = reseal(bytes(out[first:behind]))
    if chance.random() < 0.3:
        del out[chance.randrange(len(out)) :]
    if chance.random() < 0.2:
        out += bytes(chance.randrange(200))
    return bytes(out)


def table(rows: BatchRows, count: int) -> list[list[int]]:
    return [getattr(rows, name)[:count].tolist() for name in COLUMNS]


def assert_same_scan(window: bytes, capacity: int, position: int, next_offset: int) -> Scanned:
    scanned = Scanned(0, 0, Stop.END)
    for name in ("walk_headers", "scan_batches"):
        ours, theirs = BatchRows(capacity), BatchRows(capacity)
        scanned = getattr(reference, name)(memoryview(window), ours, position=position, next_offset=next_offset)
        other = getattr(native, name)(memoryview(window), theirs, position=position, next_offset=next_offset)
        assert other == scanned
        assert table(theirs, scanned.count) == table(ours, scanned.count)
        assert bytes(theirs.block) == bytes(ours.block), "rows above the count are left alone by both"
    return scanned


@pytest.mark.usefixtures("_crc")
def test_every_row_and_stop_is_equal_on_sound_and_on_damaged_logs(seed: int) -> None:
    chance = random.Random(seed)
    stops = set()
    for _ in range(300):
        log, starts = random_log(chance, chance.randrange(1, 25))
        capacity, position = chance.choice([1, 2, 7, 8, 9, 16, 100]), chance.choice([0, 12345, 2**40])
        assert assert_same_scan(log, capacity, position, 0).stop in {Stop.END, Stop.ROWS_FULL}
        stops.add(assert_same_scan(damage(chance, log, starts), 100, position, 0).stop)
        assert_same_scan(chance.randbytes(chance.randrange(200)), capacity, position, chance.choice([0, 2**62]))
    assert {Stop.END, Stop.NEED_MORE, Stop.BAD_CRC, Stop.BAD_ORDER} <= stops


def test_each_row_says_what_the_header_says_when_it_is_parsed_by_itself(seed: int) -> None:
    chance = random.Random(seed)
    shared = set(COLUMNS) & set(BatchHeader._fields)
    assert len(shared) == 11
    for _ in range(40):
        log, starts = random_log(chance, 30)
        rows = BatchRows(30)
        assert reference.scan_batches(memoryview(log), rows).count == 30
        for row, start in enumerate(starts):
            header = parse_header(log, start)
            assert {n: getattr(rows, n)[row] for n in shared} == {n: getattr(header, n) for n in shared}
            assert (rows.position[row], rows.last_offset[row]) == (start, header.last_offset)


def test_every_single_bit_of_two_batches_is_judged_alike(seed: int) -> None:
    chance = random.Random(seed)
    for first in (batch_v2(5, 2), marker(5, 9, commit=True), legacy(5), legacy(5, 0)):
        log = first + batch_v2(9)
        for bit in range(8 * len(first)):
            changed = bytearray(log)
            changed[bit // 8] ^= 1 << bit % 8
            assert_same_scan(bytes(changed), 3, 0, chance.choice([0, 5]))
            sealed = reseal(bytes(changed[: len(first)])) + bytes(changed[len(first) :])
            assert_same_scan(sealed, 3, 0, chance.choice([0, 5]))


def test_every_cut_of_a_log_is_judged_alike() -> None:
    log = batch_v2(1) + legacy(2) + batch_v2(3, magic=3)
    for size in range(len(log) + 1):
        assert_same_scan(log[:size], 4, 0, 0)


def test_offsets_at_the_ends_of_their_type_are_judged_alike() -> None:
    for base in (0, -1, -(2**63), 2**63 - 1, 2**63 - 2, 2**63 - 2**31, 2**63 - 2**31 - 1):
        for delta in (0, 1, -1, 2**31 - 1, -(2**31)):
            for next_offset in (0, -(2**63), base):
                assert_same_scan(batch_v2(base, last_offset_delta=delta) + batch_v2(5), 3, 0, next_offset)
        assert_same_scan(legacy(base), 3, 0, -(2**63))


@pytest.mark.usefixtures("_crc")
def test_the_next_sound_batch_is_found_at_the_same_place(seed: int) -> None:
    chance = random.Random(seed)
    found = 0
    for _ in range(400):
        log, starts = random_log(chance, chance.randrange(1, 6))
        window = memoryview(chance.randbytes(chance.randrange(90)) + damage(chance, log, starts))
        start = chance.randrange(-1, len(window) + 2)
        lowest = chance.choice([0, 0, -(2**70), 2**31 - 10, chance.randrange(2**32), 2**62])
        highest = lowest + chance.choice([0, 2**31 - 1, 2**63, -1])
        place = reference.find_batch(window, start, lowest=lowest, highest=highest)
        assert native.find_batch(window, start, lowest=lowest, highest=highest) == place
        found += place >= 0
    assert found > 10


def test_the_search_gives_up_at_the_same_candidate() -> None:
    head = struct.pack(">qiibI", 1, 4000, 0, 2, 0) + bytes(8)
    for behind in range(3950, 4000 * 7, 500):
        window = memoryview(head * 9 + bytes(behind) + batch_v2(1))
        answers = {kernel.find_batch(window, 0, lowest=0, highest=9) for kernel in (reference, native)}
        assert len(answers) == 1, behind


def test_a_batch_whose_last_offset_leaves_its_type_is_found_by_neither() -> None:
    for base, delta, found in ((2**63 - 3, 1, 0), (2**63 - 3, 2, -1), (2**63 - 2, 2**31 - 1, -1)):
        window = memoryview(batch_v2(base, last_offset_delta=delta))
        for kernel in (reference, native):
            assert kernel.find_batch(window, 0, lowest=0, highest=2**63 - 1) == found


def test_bits_beyond_the_type_of_a_number_are_cut_off_by_both() -> None:
    long_zero = b"\x80\x80\x80\x80\x10"  # 2**32 before the cut
    body = b"\0" + b"\x80" * 9 + b"\x02" + long_zero * 3 + b"\0"
    for kernel in (reference, native):
        assert kernel.check_records(memoryview(varint(len(body)) + body), 1) == -1


def random_records(chance: random.Random, count: int) -> bytes:
    def content() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 3, 70, 200]))

    return b"".join(
        record(
            n,
            key=content(),
            value=content(),
            timestamp_delta=chance.choice([0, -1, 2**40, -(2**63), 2**63 - 1]),
            headers=[(b"name", content()) for _ in range(chance.choice([0, 0, 1, 3]))],
        )
        for n in range(count)
    )


def test_records_are_judged_alike_sound_and_damaged(seed: int) -> None:
    chance = random.Random(seed)
    sound = 0
    for _ in range(3000):
        count = chance.randrange(5)
        payload = bytearray(random_records(chance, count))
        for _ in range(chance.randrange(3) if payload else 0):
            payload[chance.randrange(min(len(payload), 40))] ^= 1 << chance.randrange(8)
        claimed = count + chance.choice([0, 0, 0, 1, -1, 2**31])
        answer = reference.check_records(memoryview(payload), claimed)
        assert native.check_records(memoryview(payload), claimed) == answer
        sound += answer == -1
    assert sound > 300


def test_records_are_walked_alike_sound_and_damaged(seed: int) -> None:
    chance = random.Random(seed)
    whole = 0
    for _ in range(3000):
        count = chance.randrange(5)
        payload = bytearray(random_records(chance, count))
        for _ in range(chance.randrange(3) if payload else 0):
            payload[chance.randrange(min(len(payload), 40))] ^= 1 << chance.randrange(8)
        claimed = count + chance.choice([0, 0, 0, 1, -1, 2**31])
        first, base = chance.choice([0, 0, 3, 2**31 - 1]), chance.choice([0, -1, TS, 2**63 - 1, -(2**63)])
        answer = reference.walk_records(memoryview(payload), claimed, first=first, base_timestamp=base)
        assert native.walk_records(memoryview(payload), claimed, first=first, base_timestamp=base) == answer
        whole += answer.count == claimed > 0
    assert whole > 300


def test_short_random_bytes_are_judged_alike_as_records_and_markers(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(3000):
        body = bytes(chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF]) for _ in range(chance.randrange(24)))
        payload = varint(len(body)) + body
        assert native.check_records(memoryview(payload), 1) == reference.check_records(memoryview(payload), 1)
        assert native.walk_records(payload, 2) == reference.walk_records(payload, 2)
        control = batch_v2(0, payload=payload, count=chance.choice([1, 2]), producer_id=1, attributes=0x30)
        assert_same_scan(control, 1, 0, 0)


@pytest.mark.usefixtures("_crc")
def test_the_checksums_are_those_of_the_libraries_at_every_size_and_alignment(seed: int) -> None:
    data = memoryview(random.Random(seed).randbytes(20_000))
    sizes = [*range(420), 1152, 1159, 1160, 1161, 2311, 2320, 4096, 19_990]
    for size in sizes:
        for start in (0, 1, 5):
            piece = data[start : start + size]
            assert native.crc32c(piece) == package.crc32c(piece), size
            assert native.crc32c(piece, 0xDEADBEEF) == package.crc32c(piece, 0xDEADBEEF), size
            assert _scan.crc32(piece, 77) == zlib.crc32(piece, 77), size


def test_the_portable_checksum_can_be_forced() -> None:
    native.choose_crc(portable=True)
    assert native.crc_name() == "table"
    native.choose_crc(portable=False)
    assert native.crc_name() in {"sse4.2", "arm", "table"}


def folds(base: int, **settings: int) -> tuple[SegmentFold, SegmentFold]:
    return SegmentFold(base, kernel="python", **settings), SegmentFold(base, kernel="c", **settings)


def assert_same_fold(ours: SegmentFold, theirs: SegmentFold) -> None:
    for name in RESULTS:
        assert getattr(theirs, name) == getattr(ours, name), name
    assert theirs.offset_index() == ours.offset_index()
    assert theirs.time_index() == ours.time_index()
    assert theirs.blocks() == ours.blocks()
    assert theirs.producer_events.overflowed == ours.producer_events.overflowed
    assert list(theirs.producer_events) == list(ours.producer_events)


@pytest.mark.usefixtures("_crc")
def test_every_result_of_the_fold_is_equal_after_each_window(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        log, _ = random_log(chance, chance.randrange(1, 120))
        base = chance.choice([0, 0, 8, 2**31 - 10, 2**62, int.from_bytes(log[:8], "big")])
        settings = {
            "index_interval_bytes": chance.choice([0, 1, 200, 4096]),
            "max_index_size": chance.choice([0, 8, 12, 100, 10_485_760]),
            "event_limit": chance.choice([0, 1, 5, 20, 200_000]),
            "block_offsets": chance.choice([0, 1, 3, 50, 4096]),
        }
        ours, theirs = folds(base, **settings)
        rows = BatchRows(chance.choice([1, 3, 8, 200]))
        position = next_offset = 0
        while position < len(log):
            piece = memoryview(log)[position:]
            scanned = native.scan_batches(piece, rows, position=position, next_offset=next_offset)
            ours.add(rows, scanned.count)
            theirs.add(rows, scanned.count)
            assert_same_fold(ours, theirs)
            position, next_offset = position + scanned.size, rows.last_offset[scanned.count - 1] + 1


def test_thousands_of_producers_fold_alike(seed: int) -> None:
    chance = random.Random(seed)
    rows = BatchRows(5000)
    ours, theirs = folds(0)
    for turn in range(3):
        for row in range(rows.capacity):
            number = turn * rows.capacity + row
            values = (number * 100, 100, number, number, 2, chance.choice([0, TRANSACTIONAL]), 1, 0, TS, chance.choice([chance.randrange(2**62), chance.randrange(3000) << 32]), chance.randrange(2), number, 1, chance.choice([-1, -1, -1, -2, 7]))  # fmt: skip  # noqa: E501
            for name, value in zip(COLUMNS, values, strict=True):
                getattr(rows, name)[row] = value
        ours.add(rows, rows.capacity)
        theirs.add(rows, rows.capacity)
    assert_same_fold(ours, theirs)


def test_the_kernel_numbers_the_columns_as_the_rows_do() -> None:
    assert _scan.COLUMNS == COLUMNS


def test_the_kernel_refuses_rows_of_another_shape() -> None:
    rows = BatchRows(4)
    with pytest.raises(ValueError, match="does not hold"):
        _scan.scan(memoryview(b""), rows.block[:-8], 4, 0, 0)
    with pytest.raises(ValueError, match="does not hold"):
        _scan.scan(memoryview(b""), rows.block, 2**60, 0, 0)
    with pytest.raises(ValueError, match="does not hold"):
        _scan.Fold(0, 1, 1, 1).add(rows.block, 5, 1)
    with pytest.raises(OverflowError):
        _scan.scan(memoryview(b"\0"), rows.block, 4, 2**63 - 1, 0)


def test_windows_are_scanned_by_several_threads_at_once() -> None:
    log = memoryview(b"".join(batch_v2(n, payload=bytes(2000)) for n in range(200)))
    expected = BatchRows(200)
    assert native.scan_batches(log, expected).count == 200
    differing = []

    def scan_often() -> None:
        rows = BatchRows(200)
        stops = {native.scan_batches(log, rows).stop for _ in range(30)}
        differing.append(stops != {Stop.END} or bytes(rows.block) != bytes(expected.block))

    threads = [threading.Thread(target=scan_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differing == [False] * 4
