"""What is derived from a segment, on batches whose answer is known; each fact holds for both kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any
from zlib import crc32

import pytest
from crc32c import crc32c
from support.batches import TRANSACTIONAL, TS, batch_v2, legacy, marker

from storage.base.rows import BatchRows, ProducerEvent, Stop
from storage.base.units import Offset
from storage.index.indexes import decode_offset_index, decode_time_index
from storage.kernel.fold import SegmentFold
from storage.kernel.scan import kernel_name, scan_batches

Fold = Callable[..., SegmentFold]


@pytest.fixture(params=["python", "c"])
def fold(request: pytest.FixtureRequest) -> Fold:
    if request.param == "c" and kernel_name() != "c":
        pytest.skip("the C kernel was not built")

    def fold_batches(batches: Iterable[bytes], base: int = 0, *, capacity: int = 3, **settings: int) -> SegmentFold:
        made, rows, window = SegmentFold(base, kernel=request.param, **settings), BatchRows(capacity), b"".join(batches)
        position, next_offset = 0, 0
        while position < len(window):
            scanned = scan_batches(memoryview(window)[position:], rows, position=position, next_offset=next_offset)
            assert scanned.stop in {Stop.END, Stop.ROWS_FULL}
            made.add(rows, scanned.count)
            next_offset = rows.last_offset[scanned.count - 1] + 1
            position += scanned.size
        return made

    return fold_batches


def sized(offset: int, size: int, **fields: int) -> bytes:
    """Return a batch of exactly `size` bytes."""
    return batch_v2(offset, payload=bytes(size - 61), count=1, **fields)


def test_a_segment_without_batches_has_nothing_to_tell(fold: Fold) -> None:
    empty = fold([], base=77)
    assert (empty.batch_count, empty.record_count, empty.first_offset, empty.next_offset) == (0, 0, None, 77)
    assert (empty.max_timestamp, empty.max_timestamp_offset, empty.digest) == (-1, 77, 0)
    assert (empty.epochs, empty.gaps, empty.first_gap, empty.epoch_fall, empty.range_fault) == ([], 0, None, None, None)
    assert (empty.offset_index(), empty.time_index(), list(empty.producer_events)) == (b"", b"", [])
    assert (empty.magics, empty.codecs, empty.has_producers, empty.index_overflow) == (0, 0, False, False)


def test_both_indexes_are_those_that_kafka_rebuilt_from_the_same_batches(fold: Fold) -> None:
    made = fold([sized(100 + n, 1500, max_timestamp=TS + 10 * n) for n in range(8)], base=100)
    assert made.offset_index() == bytes.fromhex("00000003 00001194 00000006 00002328")
    assert made.time_index() == bytes.fromhex(
        "0000018bcfe5681e 00000003 0000018bcfe5683c 00000006 0000018bcfe56846 00000007"
    )


def test_both_indexes_are_read_back_by_their_codec(fold: Fold) -> None:
    made = fold([sized(100 + n, 1500, max_timestamp=TS + 10 * n) for n in range(8)], base=100)
    assert decode_offset_index(made.offset_index(), Offset(100)) == [(103, 4500), (106, 9000)]
    assert decode_time_index(made.time_index(), Offset(100)) == [(TS + 30, 103), (TS + 60, 106), (TS + 70, 107)]


def test_a_batch_exactly_one_interval_behind_the_last_entry_is_not_entered(fold: Fold) -> None:
    batches = [sized(n, 100) for n in range(5)]
    assert fold(batches, index_interval_bytes=200).offset_index() == struct.pack(">ii", 3, 300)
    assert fold(batches, index_interval_bytes=199).offset_index() == struct.pack(">iiii", 2, 200, 4, 400)
    assert fold(batches, index_interval_bytes=0).offset_index() == struct.pack(">8i", 1, 100, 2, 200, 3, 300, 4, 400)


def test_the_earliest_batch_with_the_largest_timestamp_is_the_one_in_the_time_index(fold: Fold) -> None:
    stamps = [TS, TS + 5, TS + 5, TS + 1, TS + 5]
    made = fold([sized(n, 100, max_timestamp=stamp) for n, stamp in enumerate(stamps)], index_interval_bytes=150)
    assert (made.max_timestamp, made.max_timestamp_offset) == (TS + 5, 1)
    assert made.offset_index() == struct.pack(">iiii", 2, 200, 4, 400)
    assert made.time_index() == struct.pack(">qi", TS + 5, 1)


def test_batches_without_timestamps_leave_the_time_index_empty(fold: Fold) -> None:
    made = fold([legacy(3, 0), batch_v2(4, max_timestamp=-1), batch_v2(5, max_timestamp=-7)], index_interval_bytes=0)
    assert (made.max_timestamp, made.max_timestamp_offset, made.time_index()) == (-1, 0, b"")
    assert len(made.offset_index()) == 16


def test_an_index_overflows_when_kafka_would_find_it_full(fold: Fold) -> None:
    rising = [sized(n, 100, max_timestamp=TS + n) for n in range(6)]
    level = [sized(n, 100) for n in range(6)]
    # Five entries are due. The offset index needs 40 bytes; the time index 60 and one slot for closing.
    assert not fold(rising, index_interval_bytes=0, max_index_size=72).index_overflow
    assert fold(rising, index_interval_bytes=0, max_index_size=71).index_overflow
    # Level timestamps need one time entry; Kafka asks for room before it looks whether there is anything to add.
    assert not fold(level, index_interval_bytes=0, max_index_size=40).index_overflow
    assert fold(level, index_interval_bytes=0, max_index_size=39).index_overflow
    assert fold(level, index_interval_bytes=0, max_index_size=24).index_overflow
    small = fold(rising, index_interval_bytes=0, max_index_size=36)
    assert len(small.offset_index()) <= 36
    assert len(small.time_index()) <= 36


def test_counts_offsets_magics_and_codecs_are_told(fold: Fold) -> None:
    batches = [legacy(3, 0), legacy(5, attributes=2), batch_v2(6, 4), batch_v2(10, attributes=4, payload=b"z", count=9)]
    made = fold(batches)
    assert (made.batch_count, made.record_count) == (4, 13)
    assert (made.first_offset, made.next_offset) == (3, 19)
    assert (made.magics, made.codecs, made.has_producers) == (0b111, 0b10101, False)


def test_gaps_are_counted_between_batches_and_only_before_magic_2(fold: Fold) -> None:
    made = fold(
        [batch_v2(5, 2), batch_v2(7), batch_v2(9), batch_v2(10), batch_v2(20), legacy(30), batch_v2(32)], base=1
    )
    assert (made.gaps, made.first_gap) == (3, (70 + 9 + 70, 8, 9))


def test_gaps_are_seen_from_one_window_to_the_next(fold: Fold) -> None:
    made = fold([batch_v2(0), batch_v2(4)], capacity=1)
    assert (made.gaps, made.first_gap) == (1, (70, 1, 4))


def test_epochs_are_told_at_each_rise_and_the_first_fall_with_its_place(fold: Fold) -> None:
    epochs = [-1, 4, 4, 7, 6, 5, 7, 9, -1]
    made = fold([batch_v2(n, leader_epoch=epoch) for n, epoch in enumerate(epochs)])
    assert made.epochs == [(4, 1), (7, 3), (9, 7)]
    assert made.epoch_fall == (4 * 70, 6, 7)


def test_a_last_offset_out_of_the_reach_of_the_indexes_is_told_and_not_entered(fold: Fold) -> None:
    limit = 2**31 - 1
    made = fold(
        [batch_v2(9), batch_v2(10), batch_v2(10 + limit), batch_v2(11 + limit)], base=10, index_interval_bytes=0
    )
    assert made.range_fault == (0, 9)
    assert made.offset_index() == struct.pack(">iiii", 0, 70, limit, 140)
    above = fold([batch_v2(10), batch_v2(11 + limit, max_timestamp=TS + 1)], base=10, index_interval_bytes=0)
    assert above.range_fault == (70, 11 + limit)
    assert above.time_index() == b""


@pytest.mark.parametrize("kernel", ["python", "c"])
def test_a_position_that_an_index_cannot_hold_is_not_entered(kernel: str) -> None:
    if kernel == "c" and kernel_name() != "c":
        pytest.skip("the C kernel was not built")
    made, rows = SegmentFold(0, kernel=kernel, index_interval_bytes=0), BatchRows(3)
    window = memoryview(b"".join(sized(n, 100, max_timestamp=TS + n) for n in range(3)))
    made.add(rows, scan_batches(window, rows, position=2**31 - 101).count)
    assert made.offset_index() == struct.pack(">iiii", 0, 2**31 - 101, 1, 2**31 - 1)
    assert len(made.time_index()) == 36


def test_the_digest_is_two_checksums_over_offsets_and_checksums_however_cut(fold: Fold) -> None:
    batches = [batch_v2(n * 3, 2, leader_epoch=1) for n in range(7)]
    data = b"".join(
        struct.pack("<qqq", n * 3, n * 3 + 1, int.from_bytes(b[17:21], "big")) for n, b in enumerate(batches)
    )
    assert fold(batches).digest == crc32(data) << 32 | crc32c(data)
    assert fold(batches, capacity=1).digest == fold(batches, capacity=50).digest
    assert fold(batches[:-1]).digest != fold(batches).digest


def data(offset: int, producer: int, epoch: int = 0, *, transactional: bool = False) -> bytes:
    attributes = TRANSACTIONAL if transactional else 0
    return batch_v2(offset, producer_id=producer, producer_epoch=epoch, base_sequence=offset, attributes=attributes)


def offsets(made: SegmentFold) -> list[int]:
    return [event.base_offset for event in made.producer_events]


def test_an_event_carries_the_fields_of_its_batch(fold: Fold) -> None:
    batch = batch_v2(8, 3, producer_id=5, producer_epoch=2, base_sequence=44, attributes=TRANSACTIONAL)
    made = fold([batch, marker(11, 5, 2, commit=True, coordinator_epoch=6, timestamp=TS + 9)])
    assert list(made.producer_events) == [
        ProducerEvent(8, 10, TRANSACTIONAL, TS + 2, 5, 2, 44, -1),
        ProducerEvent(11, 11, 0x30, TS + 9, 5, 2, -1, 1 << 32 | 6),
    ]
    assert made.has_producers


def test_of_a_run_of_equal_data_batches_the_first_and_the_last_are_kept(fold: Fold) -> None:
    made = fold([data(n, 7 + n % 2) for n in range(10)] + [batch_v2(10)])
    assert offsets(made) == [0, 1, 8, 9]


def test_a_new_epoch_a_change_to_transactions_and_a_marker_end_a_run(fold: Fold) -> None:
    batches = [data(n, 7) for n in range(3)]
    batches += [data(n, 7, 1) for n in range(3, 6)]
    batches += [data(n, 7, 1, transactional=True) for n in range(6, 9)]
    batches += [marker(9, 7, 1, commit=False), marker(10, 7, 1, commit=False)]
    batches += [data(n, 7, 1, transactional=True) for n in range(11, 14)]
    assert offsets(fold(batches)) == [0, 2, 3, 5, 6, 8, 9, 10, 11, 13]


def test_a_held_last_batch_stands_before_the_next_event_of_its_own_producer(fold: Fold) -> None:
    batches = [data(0, 1), data(1, 2), data(2, 1), data(3, 2), marker(4, 2, commit=True), data(5, 1)]
    assert offsets(fold(batches)) == [0, 1, 3, 4, 5]


def test_the_events_overflow_above_their_limit_and_are_then_dropped(fold: Fold) -> None:
    batches = [data(0, 1), data(1, 1), data(2, 1), data(3, 2)]
    assert offsets(fold(batches, event_limit=3)) == [0, 3, 2]
    over = fold([*batches, data(4, 2)], event_limit=3)
    assert over.producer_events.overflowed
    assert offsets(over) == []
    assert over.has_producers


def test_more_rows_than_there_are_cannot_be_folded(fold: Fold) -> None:
    made, rows = fold([]), BatchRows(2)
    for count in (-1, 3):
        with pytest.raises(ValueError, match="rows"):
            made.add(rows, count)


def facts_of(made: SegmentFold) -> tuple[object, ...]:
    return *made.facts, made.epochs, made.offset_index(), made.time_index(), list(made.producer_events)


@pytest.mark.parametrize("capacity", [1, 3, 248, 1000])
@pytest.mark.parametrize("kernel", ["python", "c"])
def test_scanning_and_folding_in_one_call_gives_what_two_give(fold: Fold, kernel: str, capacity: int) -> None:
    if kernel == "c" and kernel_name() != "c":
        pytest.skip("the C kernel was not built")
    batches = [data(3 * n + n % 5 // 4, n % 7, transactional=n % 50 == 49) for n in range(700)]
    batches[300] = marker(900, 300 % 7, commit=True)
    made = SegmentFold(0, kernel=kernel)
    window = memoryview(b"".join(batches) + b"\0" * 70)
    folded = made.scan(window, BatchRows(capacity), position=0, next_offset=0)
    assert facts_of(made) == facts_of(fold(batches, capacity=1000))
    last = 3 * 699 + 699 % 5 // 4
    size = len(window) - 70
    assert folded == (size, Stop.BAD_SIZE, last + 1, size - len(batches[-1]), 3 * 698 + 698 % 5 // 4 + 1)


@pytest.mark.parametrize("kernel", ["python", "c"])
def test_a_thousand_producers_that_take_turns_leave_a_first_and_a_last_event_each(kernel: str) -> None:
    if kernel == "c" and kernel_name() != "c":
        pytest.skip("the C kernel was not built")
    made = SegmentFold(0, kernel=kernel)
    made.scan(memoryview(b"".join(data(n, n * 7919 % 1000) for n in range(5000))), BatchRows(8192))
    events = list(made.producer_events)
    assert [event.base_offset for event in events] == [*range(1000), *range(4000, 5000)]
    assert {event.producer_id for event in events[1000:]} == set(range(1000))


def blocks_of(made: SegmentFold) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("=qQqqqqq", made.blocks()))


def test_a_segment_that_nobody_asks_for_blocks_has_none(fold: Fold) -> None:
    assert fold([batch_v2(0)]).blocks() == b""
    assert fold([], block_offsets=4096).blocks() == b""


def test_blocks_tell_what_lies_in_each_range_of_offsets(fold: Fold) -> None:
    batches = [
        batch_v2(8, 2, leader_epoch=3),
        batch_v2(10, 9, leader_epoch=2),
        legacy(20),
        batch_v2(45, leader_epoch=7),
    ]
    made = fold(batches, block_offsets=10)
    assert [(row[0], *row[2:]) for row in blocks_of(made)] == [
        (0, 1, len(batches[0]), 8, 9, 3),
        (1, 1, len(batches[1]), 10, 18, 2),
        (2, 1, len(batches[2]), 20, 20, -1),
        (4, 1, len(batches[3]), 45, 45, 7),
    ]


def test_digests_of_the_parts_of_a_block_add_up_however_a_log_is_cut(fold: Fold) -> None:
    batches = [batch_v2(n, payload=bytes([n])) for n in range(6)]
    (whole,) = blocks_of(fold(batches, block_offsets=4096))
    (head,), (tail,) = blocks_of(fold(batches[:2], block_offsets=4096)), blocks_of(fold(batches[2:], 2, block_offsets=4096))  # fmt: skip # noqa: E501
    assert whole[1] == head[1] ^ tail[1]
    assert whole[2] == head[2] + tail[2]


def test_the_digest_of_a_block_is_fixed_for_good(fold: Fold) -> None:
    def mixed(number: int) -> int:
        number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
        return number ^ number >> 31

    batch = batch_v2(5, 3)
    crc = int.from_bytes(batch[17:21])
    ((_, digest, *_),) = blocks_of(fold([batch], block_offsets=4096))
    assert digest == mixed((mixed((mixed((5 + 0x9E3779B97F4A7C15) % 2**64) + 7) % 2**64) + crc) % 2**64)


@pytest.mark.parametrize("change", [{"payload": b"other"}, {"max_timestamp": TS + 1}, {"count": 2}])
def test_a_block_with_another_batch_at_the_same_offset_has_another_digest(fold: Fold, change: dict[str, Any]) -> None:
    one, other = (blocks_of(fold([batch_v2(5, **fields)], block_offsets=4096)) for fields in ({}, change))
    assert one[0][1] != other[0][1]
