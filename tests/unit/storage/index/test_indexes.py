"""Offset and time indexes are read, searched, cut and held against the batches of their log."""

from __future__ import annotations

import time
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import IndexCorrupt
from storage.base.rows import BatchRows
from storage.index.indexes import (
    IndexFault,
    IndexFaultKind,
    IndexKind,
    OffsetEntry,
    OffsetIndexCheck,
    TimeEntry,
    TimeIndexCheck,
    decode_offset_index,
    decode_time_index,
    encode_offset_index,
    encode_time_index,
    look_up_offset,
    look_up_timestamp,
    truncate_to,
    used_length,
)

TS = 1_700_000_000_000

# Written by Kafka's own classes: base offset 100, eight batches of 1500 bytes, one record each, timestamps TS + 10 * i.
OFFSETS = bytes.fromhex("00000003000011940000000600002328")
TIMES = bytes.fromhex("0000018bcfe5681e000000030000018bcfe5683c000000060000018bcfe5684600000007")
# The same kind of data, nine batches, appended three at a time.
LIVE = bytes.fromhex("00000005000011940000000800002328")

OFFSET_ENTRIES = [OffsetEntry(103, 4500), OffsetEntry(106, 9000)]
TIME_ENTRIES = [TimeEntry(TS + 30, 103), TimeEntry(TS + 60, 106), TimeEntry(TS + 70, 107)]


def rows_of(count: int, *, first: int = 0, size: int = 1500, magic: int = 2) -> BatchRows:
    """One-record batches at offset 100 + i, position size * i, timestamp TS + 10 * i."""
    rows = BatchRows(count)
    for row in range(count):
        number = first + row
        rows.position[row], rows.size[row], rows.magic[row] = number * size, size, magic
        rows.base_offset[row] = rows.last_offset[row] = 100 + number
        rows.max_timestamp[row] = TS + 10 * number
    return rows


def offset_fault(data: bytes, rows: BatchRows | None = None, *, valid_size: int = 12_000) -> IndexFault | None:
    check = OffsetIndexCheck(data, 100)
    rows = rows or rows_of(8)
    check.feed(rows, rows.capacity)
    return check.finish(valid_size)


def time_fault(data: bytes, rows: BatchRows | None = None) -> IndexFault | None:
    check = TimeIndexCheck(data, 100)
    rows = rows or rows_of(8)
    check.feed(rows, rows.capacity)
    return check.finish(12_000)


def offsets(*entries: tuple[int, int]) -> bytes:
    return encode_offset_index([OffsetEntry(*entry) for entry in entries], 100)


def times(*entries: tuple[int, int]) -> bytes:
    return encode_time_index([TimeEntry(TS + stamp, offset) for stamp, offset in entries], 100)


# ---- codec


def test_the_indexes_kafka_wrote_are_read_and_written_back() -> None:
    assert decode_offset_index(OFFSETS, 100) == OFFSET_ENTRIES
    assert encode_offset_index(OFFSET_ENTRIES, 100) == OFFSETS
    assert decode_time_index(TIMES, 100) == TIME_ENTRIES
    assert encode_time_index(TIME_ENTRIES, 100) == TIMES
    assert decode_offset_index(b"", 100) == decode_time_index(b"", 100) == []


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (OFFSETS + bytes(8), 16),
        (OFFSETS + OFFSETS[8:], 16),
        (OFFSETS[8:] + OFFSETS[:8], 8),
        (b"\xff" + OFFSETS, 0),
        (bytes(8), 0),
        (OFFSETS + b"\0", 16),
        (b"\0", 0),
    ],
)
def test_an_offset_index_that_does_not_rise_or_is_ragged_is_corrupt_there(data: bytes, position: int) -> None:
    with pytest.raises(IndexCorrupt) as raised:
        decode_offset_index(data, 100)
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("data", "position"),
    [(TIMES + bytes(12), 36), (TIMES + TIMES[24:], 36), (b"\xff" + TIMES[1:], 0), (TIMES + b"\0" * 11, 36)],
)
def test_a_time_index_that_does_not_rise_or_is_ragged_is_corrupt_there(data: bytes, position: int) -> None:
    with pytest.raises(IndexCorrupt) as raised:
        decode_time_index(data, 100)
    assert raised.value.position == position


int31 = st.integers(0, 2**31 - 1)
rising = st.sets(int31, max_size=30).map(sorted)


@given(rising, st.integers(0, 2**62))
def test_every_rising_list_of_entries_is_read_back(numbers: list[int], base: int) -> None:
    entries = [OffsetEntry(base + number, number + 1) for number in numbers if number < 2**31 - 1]
    data = encode_offset_index(entries, base)
    assert decode_offset_index(data, base) == entries
    assert used_length(data, IndexKind.OFFSET) == len(data)
    stamped = [TimeEntry(number << 30, base + number) for number in numbers]
    data = encode_time_index(stamped, base)
    assert decode_time_index(data, base) == stamped
    if numbers != [0]:
        assert used_length(data, IndexKind.TIME) == len(data)


@given(st.binary(max_size=300), st.sampled_from(IndexKind))
def test_the_used_part_of_any_bytes_decodes(data: bytes, kind: IndexKind) -> None:
    used = used_length(data, kind)
    decode = decode_offset_index if kind is IndexKind.OFFSET else decode_time_index
    assert used % kind.value == 0
    assert len(decode(data[:used], 7)) == used // kind.value
    assert offset_fault(data) is None or data
    assert time_fault(data) is None or data


# ---- lookup and truncation


@pytest.mark.parametrize(
    ("target", "found"),
    [(0, (100, 0)), (102, (100, 0)), (103, (103, 4500)), (105, (103, 4500)), (106, (106, 9000)), (2**62, (106, 9000))],
)
def test_looking_up_an_offset_gives_the_last_entry_up_to_it(target: int, found: tuple[int, int]) -> None:
    assert look_up_offset(OFFSETS, 100, target) == found


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (-1, (-1, 100)),
        (TS + 29, (-1, 100)),
        (TS + 30, TIME_ENTRIES[0]),
        (TS + 69, TIME_ENTRIES[1]),
        (2**62, TIME_ENTRIES[2]),
    ],
)
def test_looking_up_a_timestamp_gives_the_last_entry_up_to_it(target: int, found: tuple[int, int]) -> None:
    assert look_up_timestamp(TIMES, 100, target) == found


@given(rising, int31)
def test_lookup_finds_what_a_plain_search_finds(numbers: list[int], target: int) -> None:
    data = b"".join(number.to_bytes(4) * 2 for number in numbers)
    count = bisect_right(numbers, target)
    assert look_up_offset(data, 0, target) == ((numbers[count - 1],) * 2 if count else (0, 0))


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (103, 0), (104, 1), (106, 1), (107, 2), (2**40, 2)])
def test_truncation_drops_the_entries_from_the_offset_on(offset: int, kept: int) -> None:
    assert truncate_to(OFFSETS, IndexKind.OFFSET, 100, offset) == 8 * kept
    assert truncate_to(TIMES[:24], IndexKind.TIME, 100, offset) == 12 * kept


# ---- shape


def test_the_zero_tail_of_a_preallocated_index_is_not_used() -> None:
    assert used_length(OFFSETS + bytes(8 * 100), IndexKind.OFFSET) == 16
    assert used_length(TIMES + bytes(12 * 100), IndexKind.TIME) == 36
    assert used_length(bytes(10_485_760), IndexKind.OFFSET) == 0
    assert used_length(bytes(10_485_756), IndexKind.TIME) == 0


def test_an_entry_that_ends_in_zero_bytes_is_used() -> None:
    data = offsets((103, 4096 << 12))
    assert data.endswith(b"\0\0\0")
    assert used_length(data + bytes(80), IndexKind.OFFSET) == 8
    stamped = encode_time_index([TimeEntry(TS, 100)], 100)
    assert used_length(stamped + bytes(120), IndexKind.TIME) == 12


def test_stale_entries_behind_the_end_of_the_log_are_not_used() -> None:
    assert used_length(OFFSETS, IndexKind.OFFSET, 9001) == 16
    assert used_length(OFFSETS, IndexKind.OFFSET, 9000) == 8
    assert used_length(OFFSETS, IndexKind.OFFSET, 0) == 0
    assert used_length(OFFSETS[8:] + OFFSETS, IndexKind.OFFSET, 12_000) == 8


def test_a_ragged_end_is_not_used() -> None:
    assert used_length(OFFSETS + b"\0\0\1", IndexKind.OFFSET) == 16
    assert used_length(TIMES + b"\1", IndexKind.TIME) == 36
    assert used_length(b"\1\2\3", IndexKind.TIME) == 0


def test_one_time_entry_of_zero_is_an_entry_and_many_are_padding() -> None:
    assert used_length(bytes(12), IndexKind.TIME) == 12
    assert used_length(bytes(24), IndexKind.TIME) == 0
    assert used_length(bytes(12) + TIMES, IndexKind.TIME) == 48
    assert used_length(bytes(8), IndexKind.OFFSET) == 0


# ---- validity


@pytest.mark.parametrize(
    "data",
    [
        b"",
        OFFSETS,
        offsets((105, 4500), (107, 9000)),  # an append of three batches is one entry
        offsets((101, 1500), (102, 3000), (107, 10_500)),
        offsets((100 + 7, 1500)),
    ],
)
def test_an_index_need_only_be_valid_not_what_recovery_would_write(data: bytes) -> None:
    assert offset_fault(data) is None


def test_the_index_of_a_live_log_is_valid() -> None:
    assert offset_fault(LIVE, rows_of(9), valid_size=13_500) is None


@pytest.mark.parametrize(
    ("data", "kind", "position", "reason"),
    [
        (offsets((103, 4500), (103, 9000)), IndexFaultKind.MISORDERED, 8, "rise"),
        (offsets((103, 4500), (106, 4500)), IndexFaultKind.MISORDERED, 8, "rise"),
        (offsets((103, 4500), (106, 0)), IndexFaultKind.MISORDERED, 8, "rise"),
        (offsets((103, 0)), IndexFaultKind.MISORDERED, 0, "rise"),
        (offsets((99, 4500)), IndexFaultKind.MISORDERED, 0, "rise"),
        (OFFSETS + b"\0", IndexFaultKind.MISORDERED, 16, "17 bytes"),
        (offsets((103, 4500), (106, 9001)), IndexFaultKind.OFF_BATCH, 8, "no batch begins at 9001"),
        (offsets((103, 4499)), IndexFaultKind.OFF_BATCH, 0, "no batch begins at 4499"),
        (offsets((107, 10_501)), IndexFaultKind.OFF_BATCH, 0, "no batch begins at 10501"),
        (offsets((102, 4500)), IndexFaultKind.OFF_BATCH, 0, "lies before"),
        (offsets((103, 4500), (107, 12_000)), IndexFaultKind.PAST_END, 8, "position 12000"),
        (offsets((103, 4500), (108, 9000)), IndexFaultKind.PAST_END, 8, "offset 108"),
        (OFFSETS + bytes(80), IndexFaultKind.PADDED, 16, "80 zero bytes"),
        (bytes(16), IndexFaultKind.PADDED, 0, "16 zero bytes"),
    ],
)
def test_what_is_wrong_with_an_offset_index_is_named_with_its_place(
    data: bytes, kind: IndexFaultKind, position: int, reason: str
) -> None:
    fault = offset_fault(data)
    assert fault is not None
    assert (fault.kind, fault.position) == (kind, position)
    assert reason in fault.reason


def test_an_offset_below_the_base_of_its_batch_is_wrong_for_magic_2_and_unknowable_before() -> None:
    for magic, wanted in ((2, IndexFaultKind.OFF_BATCH), (1, None)):
        rows = rows_of(8, magic=magic)
        rows.base_offset[3], rows.last_offset[3] = 150, 150
        for row in range(4, 8):
            rows.base_offset[row] = rows.last_offset[row] = 150 + row
        fault = offset_fault(offsets((103, 4500)), rows)
        assert (fault.kind if fault else None) is wanted


def test_a_log_of_any_format_before_2_may_be_indexed_by_first_offsets() -> None:
    rows = rows_of(8, magic=0)
    rows.base_offset[3] = rows.last_offset[3] = 105
    for row in range(4, 8):
        rows.base_offset[row] = rows.last_offset[row] = 105 + row
    assert offset_fault(offsets((103, 4500)), rows) is None


def test_an_index_that_ends_far_before_its_log_is_short_and_else_valid() -> None:
    check = OffsetIndexCheck(OFFSETS, 100, short_bytes=2000)
    check.feed(rows_of(8), 8)
    assert check.finish(11_000) is None
    fault = check.finish(12_000)
    assert fault is not None
    assert (fault.kind, fault.position) == (IndexFaultKind.SHORT, 16)
    assert OffsetIndexCheck(b"", 100).finish(0) is None


@given(st.lists(st.integers(1, 8), max_size=20))
def test_the_windows_of_a_scan_make_no_difference(windows: list[int]) -> None:
    whole, total = (OffsetIndexCheck(LIVE, 100), TimeIndexCheck(TIMES, 100)), sum(windows)
    parts = (OffsetIndexCheck(LIVE, 100), TimeIndexCheck(TIMES, 100))
    first = 0
    for check in whole:
        check.feed(rows_of(max(total, 1)), total)
    for count in windows:
        for check in parts:
            check.feed(rows_of(count, first=first), count)
        first += count
    assert [check.finish(total * 1500) for check in whole] == [check.finish(total * 1500) for check in parts]


@pytest.mark.parametrize("data", [b"", TIMES, TIMES[:12], times((10, 101)), times((0, 100), (70, 107))])
def test_a_time_index_need_only_be_valid(data: bytes) -> None:
    assert time_fault(data) is None


@pytest.mark.parametrize(
    ("data", "kind", "position", "reason"),
    [
        (times((30, 103), (30, 104)), IndexFaultKind.MISORDERED, 12, "rise"),
        (times((30, 103), (40, 103)), IndexFaultKind.MISORDERED, 12, "rise"),
        (times((-TS - 1, 103)), IndexFaultKind.MISORDERED, 0, "rise"),
        (TIMES + b"\0", IndexFaultKind.MISORDERED, 36, "37 bytes"),
        (times((20, 103)), IndexFaultKind.OFF_BATCH, 0, "timestamp"),
        (times((40, 103)), IndexFaultKind.OFF_BATCH, 0, f"batch of offset 103 is {TS + 30}"),
        (times((10, 103)), IndexFaultKind.OFF_BATCH, 0, f"but {TS + 20} is among them"),
        (times((30, 103), (80, 108)), IndexFaultKind.PAST_END, 12, "offset 108"),
        (TIMES + bytes(12), IndexFaultKind.PADDED, 36, "12 zero bytes"),
        (bytes(24), IndexFaultKind.PADDED, 0, "24 zero bytes"),
        (bytes(12), IndexFaultKind.OFF_BATCH, 0, "timestamp 0"),
    ],
)
def test_what_is_wrong_with_a_time_index_is_named_with_its_place(
    data: bytes, kind: IndexFaultKind, position: int, reason: str
) -> None:
    fault = time_fault(data)
    assert fault is not None
    assert (fault.kind, fault.position) == (kind, position)
    assert reason in fault.reason


def test_an_offset_inside_its_batch_and_one_that_compaction_took_away_are_accepted() -> None:
    rows = rows_of(8)
    rows.base_offset[3] = 102
    rows.base_offset[2] = rows.last_offset[2] = 101
    rows.base_offset[1] = rows.last_offset[1] = 100
    rows.base_offset[0] = rows.last_offset[0] = 99
    assert time_fault(times((30, 102)), rows) is None
    rows.base_offset[3] = 103
    assert time_fault(times((25, 102)), rows) is None
    assert time_fault(times((19, 102)), rows) is not None


def test_records_out_of_time_order_make_the_earliest_batch_with_the_largest_timestamp_count() -> None:
    rows = rows_of(8)
    rows.max_timestamp[1] = TS + 500
    assert time_fault(times((500, 101)), rows) is None
    fault = time_fault(times((30, 103)), rows)
    assert fault is not None
    assert "is among them" in fault.reason


def test_a_closed_segment_has_a_closing_entry_and_one_without_timestamps_needs_none() -> None:
    for data, closed in ((TIMES, True), (TIMES[:24], False), (b"", False)):
        check = TimeIndexCheck(data, 100)
        check.feed(rows_of(8), 8)
        assert check.has_closing_entry() is closed
    rows = rows_of(8)
    for row in range(8):
        rows.max_timestamp[row] = -1
    check = TimeIndexCheck(b"", 100)
    check.feed(rows, 8)
    assert check.has_closing_entry()


def test_indexes_of_a_million_entries_cost_little_time() -> None:
    count = 1_000_000
    data = b"".join((number).to_bytes(4) + (number * 5000).to_bytes(4) for number in range(1, 400_000)) + bytes(
        8 * count
    )
    stamped = b"".join(number.to_bytes(8) + number.to_bytes(4) for number in range(count))
    begin = time.process_time()
    assert used_length(data, IndexKind.OFFSET) == 8 * 399_999
    assert used_length(stamped, IndexKind.TIME) == 12 * count
    OffsetIndexCheck(data, 0).finish(0)
    TimeIndexCheck(stamped, 0).finish(0)
    assert time.process_time() - begin < 3
