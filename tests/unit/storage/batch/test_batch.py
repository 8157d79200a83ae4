from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vectors import L_0, L_1, L_1G, L_1T, SOUND, TS, V2_A, V2_B, V2_C, V2_D

from storage.base.errors import BatchCorrupt, CorruptData, UnsupportedFormat
from storage.batch.batch import (
    HEADER_V0,
    HEADER_V1,
    HEADER_V2,
    BatchHeader,
    TimestampType,
    add_to_sequence,
    attributes_of,
    checksum,
    encode_batch_v2,
    encode_empty_batch,
    ensure_sound,
    parse_header,
    reseal,
    set_log_append_time,
    set_offsets_and_epoch,
    split_batches,
)


def edited(batch: bytes, place: int, *values: int) -> memoryview:
    """Return a copy in which the bytes from `place` on are `values`."""
    copy = bytearray(batch)
    copy[place : place + len(values)] = bytes(values)
    return memoryview(copy)


def test_header_sizes_are_those_of_the_format() -> None:
    assert (HEADER_V0.size, HEADER_V1.size, HEADER_V2.size) == (18, 26, 61)


def test_every_field_of_magic_2_is_read() -> None:
    assert parse_header(V2_A) == BatchHeader(
        base_offset=100, size=90, leader_epoch=5, magic=2, crc=0x2C2D2FD4, attributes=0, last_offset_delta=1,
        base_timestamp=TS, max_timestamp=TS + 7, producer_id=4000, producer_epoch=1, base_sequence=10, record_count=2,
    )  # fmt: skip


def test_what_follows_from_the_header_of_magic_2() -> None:
    header = parse_header(V2_A)
    assert (header.last_offset, header.last_sequence, header.codec) == (101, 11, 0)
    assert header.timestamp_type is TimestampType.CREATE
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon
    assert parse_header(V2_C).has_delete_horizon
    marker = parse_header(V2_D)
    assert marker.is_transactional
    assert marker.is_control
    assert marker.last_sequence == -1


def test_an_entry_of_magic_0_has_neither_time_nor_producer() -> None:
    header = parse_header(L_0)
    assert header == BatchHeader(7, 29, magic=0, crc=0x165764B1, record_count=-1)
    assert header.timestamp_type is TimestampType.NONE
    assert (header.last_offset, header.last_sequence, header.producer_id, header.leader_epoch) == (7, -1, -1, -1)


def test_an_entry_of_magic_1_has_its_timestamp_and_who_set_it() -> None:
    assert (parse_header(L_1).max_timestamp, parse_header(L_1).timestamp_type) == (TS, TimestampType.CREATE)
    assert (parse_header(L_1T).max_timestamp, parse_header(L_1T).timestamp_type) == (TS + 5, TimestampType.LOG_APPEND)
    assert (parse_header(L_1G).codec, parse_header(L_1G).last_offset) == (1, 21)


def test_flags_that_only_magic_2_has_are_not_seen_in_older_attributes() -> None:
    header = parse_header(edited(L_1, 17, 0x70))
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_delete_horizon


def test_a_header_is_read_at_any_position_and_without_the_rest_of_its_batch() -> None:
    assert parse_header(b"xyz" + V2_A[:61], 3) == parse_header(V2_A)
    assert parse_header(L_0[:18]) == parse_header(L_0)


@pytest.mark.parametrize(("batch", "least"), [(V2_A, 61), (L_0, 18), (L_1, 26)])
def test_a_cut_header_is_corrupt(batch: bytes, least: int) -> None:
    for size in range(least):
        with pytest.raises(BatchCorrupt, match=f"{size} bytes are no batch header"):
            parse_header(batch[:size])


@pytest.mark.parametrize(
    ("batch", "size", "is_sound"),
    [
        (V2_A, 48, False), (V2_A, 49, True), (V2_A, 10, False), (V2_A, -1, False), (V2_A, -(2**31), False),
        (L_0, 13, False), (L_0, 14, True), (L_1, 14, True), (L_1, 0, False), (V2_A, 2**31 - 1, True),
    ],
)  # fmt: skip
def test_size_fields_below_those_of_the_format_are_corrupt(batch: bytes, size: int, is_sound: bool) -> None:
    data = edited(batch, 8, *struct.pack(">i", size))
    if is_sound:
        assert parse_header(data).size == size + 12
    else:
        with pytest.raises(BatchCorrupt, match=f"size field {size}"):
            parse_header(data)


@pytest.mark.parametrize("magic", [128, 255])
def test_a_negative_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(BatchCorrupt, match=f"magic {magic - 256}"):
        parse_header(edited(V2_A, 16, magic))


@pytest.mark.parametrize("name", SOUND)
def test_known_batches_are_sound(name: str) -> None:
    batch = memoryview(SOUND[name])
    assert ensure_sound(batch) == parse_header(batch)
    assert checksum(batch) == parse_header(batch).crc


@pytest.mark.parametrize("name", SOUND)
def test_a_change_of_any_byte_under_the_checksum_is_noticed(name: str) -> None:
    batch = SOUND[name]
    first = 21 if batch[16] == 2 else 16
    for place in range(first, len(batch)):
        with pytest.raises(CorruptData):
            ensure_sound(edited(batch, place, batch[place] ^ 0x40))


def test_a_batch_that_is_cut_or_has_bytes_behind_it_is_not_sound() -> None:
    for data in (V2_A[:-1], V2_A + b"\0"):
        with pytest.raises(BatchCorrupt, match="size field says 90 bytes"):
            ensure_sound(memoryview(data))


def test_the_fault_names_both_checksums() -> None:
    with pytest.raises(BatchCorrupt, match="checksum 2c2d2fd4 is stored, "):
        ensure_sound(edited(V2_A, 26, 23))


def test_a_higher_magic_is_unknown_if_the_checksum_holds_and_rubbish_if_not() -> None:
    with pytest.raises(UnsupportedFormat, match="magic 3"):
        ensure_sound(edited(V2_A, 16, 3))
    with pytest.raises(BatchCorrupt, match="checksum"):
        ensure_sound(edited(edited(V2_A, 16, 3).tobytes(), 30, 1))


def test_offsets_and_epoch_are_set_outside_the_checksum() -> None:
    batch = memoryview(bytearray(V2_A))
    set_offsets_and_epoch(batch, 2**40, 500)
    header = ensure_sound(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (2**40, 2**40 + 1, 500)
    assert bytes(batch[16:]) == V2_A[16:]


@pytest.mark.parametrize("batch", [L_0, L_1])
def test_old_formats_take_no_leader_epoch(batch: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match="no leader epoch"):
        set_offsets_and_epoch(memoryview(bytearray(batch)), 0, 500)


@pytest.mark.parametrize("batch", [V2_A, V2_C, L_1, L_1G])
def test_log_append_time_is_set_and_the_batch_summed_again(batch: bytes) -> None:
    changed = memoryview(bytearray(batch))
    set_log_append_time(changed, 15)
    header, before = ensure_sound(changed), parse_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND
    assert header.max_timestamp == 15
    assert (header.codec, header.has_delete_horizon) == (before.codec, before.has_delete_horizon)


def test_magic_0_takes_no_log_append_time() -> None:
    with pytest.raises(UnsupportedFormat, match="no log append time"):
        set_log_append_time(memoryview(bytearray(L_0)), 15)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE, TimestampType.LOG_APPEND])
def test_an_emptied_batch_keeps_what_identifies_it(flags: tuple[bool, ...], timestamp_type: TimestampType) -> None:
    transactional, control, horizon = flags
    attributes = attributes_of(
        1, timestamp_type, is_transactional=transactional, is_control=control, has_delete_horizon=horizon
    )
    full = BatchHeader(
        15, leader_epoch=15, attributes=attributes, last_offset_delta=22, base_timestamp=3, max_timestamp=99,
        producer_id=23423, producer_epoch=145, base_sequence=983, record_count=23,
    )  # fmt: skip
    empty = ensure_sound(memoryview(encode_empty_batch(full)))
    assert (empty.size, empty.record_count, empty.codec) == (61, 0, 0)
    assert (empty.base_offset, empty.last_offset, empty.leader_epoch) == (15, 37, 15)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.last_sequence) == (
        23423,
        145,
        983,
        1005,
    )
    assert (empty.base_timestamp, empty.max_timestamp, empty.timestamp_type) == (-1, 99, timestamp_type)
    assert (empty.is_transactional, empty.is_control, empty.has_delete_horizon) == (transactional, control, False)


def test_an_emptied_batch_is_what_kafka_writes() -> None:
    assert encode_empty_batch(parse_header(V2_A)) == V2_B
    assert encode_empty_batch(parse_header(V2_C)) == V2_B


def test_sequence_numbers_wrap_to_zero() -> None:
    assert add_to_sequence(5, 5) == 10
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 6, 10) == 4
    assert BatchHeader(0, last_offset_delta=2, base_sequence=2**31 - 2).last_sequence == 0


@given(
    st.tuples(
        st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.integers(-(2**15), 2**15 - 1),
        st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1),
        st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.integers(0, 2**31 - 1),
    ),
    st.binary(max_size=50),
)  # fmt: skip
def test_every_header_reads_back(fields: tuple[int, ...], payload: bytes) -> None:
    base_offset, epoch, attributes, *rest = fields
    header = BatchHeader(base_offset, 61 + len(payload), epoch, 2, 0, attributes, *rest)
    batch = memoryview(encode_batch_v2(header, payload))
    assert ensure_sound(batch)._replace(crc=0) == header
    assert bytes(batch[61:]) == payload


def test_resealing_makes_any_magic_sound() -> None:
    for batch in (V2_A, L_0, L_1):
        changed = edited(batch, len(batch) - 1, 1)
        reseal(changed)
        assert ensure_sound(changed).size == len(batch)


def test_batches_are_split_by_their_sizes() -> None:
    batches = list(split_batches(memoryview(L_0 + L_1G + V2_A + V2_B)))
    assert [bytes(batch) for batch in batches] == [L_0, L_1G, V2_A, V2_B]


def test_splitting_stops_where_a_batch_is_cut_and_says_where() -> None:
    batches = split_batches(memoryview(L_0 + V2_A[:-1]))
    assert bytes(next(batches)) == L_0
    with pytest.raises(BatchCorrupt, match="at 29: batch of 90 bytes, 89 are left"):
        next(batches)


@given(st.binary(max_size=120))
def test_rubbish_ends_in_a_typed_error(data: bytes) -> None:
    with pytest.raises(CorruptData):
        ensure_sound(memoryview(data))
