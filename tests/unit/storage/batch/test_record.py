"""Records of magic 2: every field both ways, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vectors import SOUND, TS, V2_A, V2_B, V2_C, V2_SNAPPY

from storage.base.errors import BatchCorrupt, CorruptData, UnsupportedFormat
from storage.batch.batch import (
    BatchHeader,
    TimestampType,
    attributes_of,
    encode_batch_v2,
    ensure_sound,
    parse_header,
    set_log_append_time,
)
from storage.batch.record import (
    Header,
    Record,
    decode_records,
    encode_batch,
    encode_record,
    encode_remaining,
    records_of,
)
from storage.codec.compression import Codec, compress

CREATE, APPEND = TimestampType.CREATE, TimestampType.LOG_APPEND
RECORDS_A = [
    Record(100, TS, CREATE, b"k0", b"hello", (("h1", b"\x01\x02"),), 10),
    Record(101, TS + 7, CREATE, b"k1", None, (), 11),
]
THREE = [Record(n, 1 + n, key=b"k%d" % n, value=b"v") for n in range(3)]


def read(batch: bytes) -> list[Record]:
    return list(records_of(memoryview(batch)))


def with_payload(payload: bytes, count: int = 1, codec: int = 0) -> bytes:
    return encode_batch_v2(BatchHeader(0, attributes=codec, base_timestamp=0, record_count=count), payload)


@pytest.mark.parametrize("batch", [V2_A, V2_SNAPPY], ids=["plain", "snappy"])
def test_every_field_of_a_record_is_read(batch: bytes) -> None:
    assert read(batch) == RECORDS_A


def test_records_are_written_as_kafka_writes_them() -> None:
    assert encode_batch(RECORDS_A, leader_epoch=5, producer_id=4000, producer_epoch=1, base_sequence=10) == V2_A


def test_an_emptied_batch_has_no_records() -> None:
    assert read(V2_B) == []


def test_with_a_delete_horizon_the_sum_is_still_the_true_timestamp() -> None:
    assert read(V2_C) == [RECORDS_A[1]]


def test_what_compaction_leaves_is_written_as_kafka_writes_it() -> None:
    header = parse_header(V2_A)
    assert encode_remaining(header, RECORDS_A[1:], delete_horizon=TS + 86400000) == V2_C
    kept = encode_remaining(header, RECORDS_A[:1])
    assert read(kept) == RECORDS_A[:1]
    assert (parse_header(kept).last_offset, parse_header(kept).max_timestamp) == (101, TS)


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_shown_for_every_record_and_survives_compaction(codec: Codec) -> None:
    batch = memoryview(bytearray(encode_batch(THREE, codec=codec)))
    set_log_append_time(batch, 15)
    assert ensure_sound(batch).codec == codec
    assert [record[:4] for record in records_of(batch)] == [(n, 15, APPEND, b"k%d" % n) for n in range(3)]
    left = encode_remaining(parse_header(batch), list(records_of(batch))[1:])
    assert [record.timestamp for record in read(left)] == [15, 15]


def test_without_a_producer_there_are_no_sequence_numbers() -> None:
    header = parse_header(encode_batch([Record(1234567, 1), Record(1234568, 2)]))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (-1, -1, -1, -1)
    assert (header.max_timestamp, header.last_offset) == (2, 1234568)
    assert [record.sequence for record in read(encode_batch(THREE))] == [-1, -1, -1]


def test_sequence_numbers_wrap_inside_a_batch() -> None:
    batch = encode_batch(THREE, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert [record.sequence for record in read(batch)] == [2**31 - 2, 2**31 - 1, 0]
    assert parse_header(batch).last_sequence == 0


def test_flags_of_a_batch_are_kept_beside_codec_and_timestamp_type() -> None:
    records = [Record(0, 5, APPEND)]
    batch = encode_batch(records, codec=4, producer_id=1, flags=attributes_of(is_transactional=True))
    header = parse_header(batch)
    assert (header.codec, header.timestamp_type, header.is_transactional, header.is_control) == (4, APPEND, True, False)


def test_a_header_name_that_is_not_utf_8_reads_back_as_it_was() -> None:
    headers: tuple[Header, ...] = (("schlüssel", None), (b"\xff\xfe".decode("utf-8", "surrogateescape"), b""))
    batch = encode_batch([Record(0, 1, headers=headers)])
    assert b"\xff\xfe" in batch
    assert read(batch)[0].headers == headers


DATA = st.none() | st.binary(max_size=40)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 2**31 - 1),
    timestamp=st.integers(-1, 2**62),
    timestamp_type=st.just(CREATE),
    key=DATA,
    value=DATA,
    sequence=st.just(-1),
    headers=st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3).map(tuple),
)


@given(
    st.lists(RECORDS, min_size=1, max_size=8, unique_by=lambda record: record.offset),
    st.sampled_from(list(Codec)),
    st.integers(0, 2**62),
)
def test_every_batch_reads_back(records: list[Record], codec: Codec, first: int) -> None:
    placed = [record._replace(offset=first + record.offset) for record in sorted(records)]
    batch = encode_batch(placed, codec=codec)
    assert ensure_sound(memoryview(batch)).record_count == len(records)
    assert read(batch) == placed


@given(st.binary(max_size=60), st.integers(-2, 5), st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5]))
def test_a_payload_of_rubbish_ends_in_records_or_a_typed_error(payload: bytes, count: int, codec: int) -> None:
    try:
        assert len(read(with_payload(payload, count, codec))) == count
    except (BatchCorrupt, UnsupportedFormat):
        if count == 0:
            raise


@given(st.sampled_from(sorted(SOUND)), st.integers(0, 200), st.integers(1, 255))
def test_any_changed_byte_ends_in_records_or_a_typed_error(name: str, place: int, flip: int) -> None:
    batch = bytearray(SOUND[name])
    batch[place % len(batch)] ^= flip
    try:
        records = read(bytes(batch))
    except (BatchCorrupt, UnsupportedFormat):
        return
    assert all(isinstance(record, Record) for record in records)


def test_a_batch_that_is_cut_is_corrupt() -> None:
    with pytest.raises(BatchCorrupt, match="batch of 90 bytes, there are 89"):
        read(V2_A[:-1])


def test_bytes_behind_a_batch_are_not_looked_at() -> None:
    assert read(V2_A + b"rest") == RECORDS_A


def test_a_higher_magic_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormat, match="magic 3"):
        read(V2_A[:16] + b"\x03" + V2_A[17:])


# the count


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(("count", "reason"), [(2, "bytes are left behind record 1"), (5, "record 3: ")])
def test_a_count_that_is_not_that_of_the_records_is_corrupt(codec: Codec, count: int, reason: str) -> None:
    payload = b"".join(encode_record(record, 0, 0) for record in THREE)
    records = records_of(memoryview(with_payload(compress(codec, payload), count, codec)))
    assert [next(records).offset for _ in range(min(count, 3))] == list(range(min(count, 3)))
    with pytest.raises(BatchCorrupt, match=reason):
        next(records)


@pytest.mark.parametrize("codec", range(8))
def test_with_a_count_of_zero_the_payload_is_not_looked_at(codec: int) -> None:
    assert read(with_payload(b"anything", 0, codec)) == []


def test_a_negative_count_is_corrupt() -> None:
    with pytest.raises(BatchCorrupt, match="record count -1"):
        read(with_payload(b"", -1))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedFormat, match=f"codec {codec}"):
        read(with_payload(b"", 1, codec))


def test_a_checksum_inside_the_codec_fails_at_the_end_only() -> None:
    payload = bytearray(compress(1, b"".join(encode_record(record, 0, 0) for record in THREE)))
    payload[-8] ^= 1
    records = records_of(memoryview(with_payload(bytes(payload), 3, 1)))
    assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BatchCorrupt, match="gzip: checksum"):
        next(records)


# a record's fields


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("", "end inside a varint"),
        ("80", "end inside a varint"),
        ("808080808001", "varint of int32"),
        ("01", "size -1"),
        ("00", "end inside a varint"),
        ("02 00", "end inside a varint"),
        ("0c 00 00 00 01 01", "size 6, 5 bytes are left"),
        ("0c 00 00 00 01 01 00 00", "bytes are left behind record 0"),
        ("0e 00 00 00 01 01 00 00", "do not fill the size"),
        ("0a 00 00 00 01 01 00", "do not fill the size"),
        ("18 00 80808080808080808080 00", "varint of int64"),
        ("0c 00 00 00 d201 01 00", "field of 105 bytes"),
        ("0c 00 00 00 01 d201 00", "field of 105 bytes"),
        ("0c 00 00 00 01 01 01", "-1 headers"),
        ("0c 00 00 00 01 01 02", "1 headers, 0 bytes"),
        ("10 00 00 00 01 01 02 01 01", "header without a name"),
        ("12 00 00 00 01 01 02 d201 00", "field of 105 bytes"),
        ("12 00 00 00 01 01 02 00 d201", "field of 105 bytes"),
        ("10 00 00 00 01 01 02 00 01 00", "bytes are left|do not fill"),
    ],
)
def test_records_that_brokers_refuse(record: str, reason: str) -> None:
    with pytest.raises(BatchCorrupt, match=reason):
        read(with_payload(bytes.fromhex(record)))


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        ("0c 00 00 00 01 01 00", None, None),
        ("0c ff 00 00 01 01 00", None, None),
        ("0c 00 00 00 03 05 00", None, None),
        ("0c 00 00 00 00 00 00", b"", b""),
        ("8c00 00 00 00 01 01 00", None, None),
        ("0e 00 8000 00 01 01 00", None, None),
    ],
    ids=["nulls", "attributes", "any negative size", "empty", "long size", "long delta"],
)
def test_records_that_brokers_accept(record: str, key: bytes | None, value: bytes | None) -> None:
    assert read(with_payload(bytes.fromhex(record))) == [Record(0, 0, CREATE, key, value)]


@pytest.mark.parametrize(("byte", "reason"), [(b"\x08", "end inside|bytes are left"), (b"\x04", "do not fill")])
def test_a_header_count_that_is_wrong_is_corrupt(byte: bytes, reason: str) -> None:
    record = encode_record(Record(0, 0, headers=(("a", b"1"), ("b", None), ("c", b"3"))), 0, 0)
    assert record[6] == 6
    with pytest.raises(BatchCorrupt, match=reason):
        read(with_payload(record[:6] + byte + record[7:]))


@pytest.mark.parametrize("size", range(1, 29))
def test_a_payload_that_is_cut_anywhere_is_corrupt(size: int) -> None:
    with pytest.raises(BatchCorrupt, match="record"):
        read(with_payload(V2_A[61 : 61 + size], 2))


def test_sums_beyond_int64_wrap_as_in_java() -> None:
    header = BatchHeader(2**63 - 1, base_timestamp=2**63 - 1, record_count=1)
    payload = encode_record(Record(1, 1), 0, 0)
    (record,) = decode_records(header, [payload])
    assert (record.offset, record.timestamp) == (-(2**63), -(2**63))


# memory and time


def test_records_are_decompressed_as_they_are_asked_for() -> None:
    taken = []

    def chunks() -> Iterator[bytes]:
        for number, record in enumerate(THREE):
            taken.append(number)
            yield encode_record(record, 0, 0)

    records = decode_records(BatchHeader(0, base_timestamp=0, record_count=3), chunks())
    assert next(records).key == b"k0"
    assert taken == [0, 1, 2][: len(taken)]
    assert len(taken) < 3


def test_a_record_may_come_in_pieces_of_any_size() -> None:
    payload = V2_A[61:]
    for size in range(1, len(payload) + 1):
        chunks = (payload[place : place + size] for place in range(0, len(payload), size))
        assert list(decode_records(parse_header(V2_A), chunks)) == RECORDS_A


def test_a_record_above_the_limit_is_unsupported_and_not_damage() -> None:
    payload = encode_record(Record(0, 0, value=bytes(100)), 0, 0)
    header = BatchHeader(0, base_timestamp=0, record_count=1)
    assert len(list(decode_records(header, [payload], limit=110))) == 1
    with pytest.raises(UnsupportedFormat, match="record of 107 bytes, more than 99"):
        list(decode_records(header, [payload], limit=99))


def test_a_batch_of_many_times_the_limit_is_unsupported_and_not_damage() -> None:
    batch = memoryview(encode_batch([Record(n, 0, value=bytes(90)) for n in range(40)], codec=1))
    assert len(list(records_of(batch, limit=200))) == 40
    with pytest.raises(UnsupportedFormat, match="decompresses to more than 3200 bytes"):
        list(records_of(batch, limit=100))


def test_a_size_beyond_an_uncompressed_batch_is_damage() -> None:
    with pytest.raises(BatchCorrupt, match="size 2147483647, 1 bytes are left"):
        read(with_payload(bytes.fromhex("feffffff0f") + b"a"))


@pytest.mark.parametrize(
    "batch",
    [
        with_payload(bytes.fromhex("feffffff0f") + os.urandom(1 << 20)),
        with_payload(b"\xfe\xff\xff\x01" + bytes.fromhex("00 00 00 01 01 feffff01") + b"\0" * (1 << 20)),
        with_payload(bytes(1 << 20), 2**31 - 1),
        with_payload(compress(4, bytes(200 << 20)), 2**31 - 1, 4),
        with_payload(compress(1, b"\x0c\0\0\0\x01\x01\0" * 1000), 2**31 - 1, 1),
    ],
    ids=["size", "headers", "zeros", "bomb", "count"],
)
def test_hostile_lengths_end_soon(batch: bytes) -> None:
    before = time.process_time()
    with pytest.raises(CorruptData):
        read(batch)
    assert time.process_time() - before < 1


LARGE = """
import sys
from storage.batch.record import records_of

batch = memoryview(open(sys.argv[1], "rb").read())
print(sum(len(record.value) for record in records_of(batch)))
print(next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize(("count", "size"), [(300, 1 << 20), (3, 31 << 20)])
def test_a_large_batch_is_read_in_little_memory(tmp_path: Path, count: int, size: int) -> None:
    payload = b"".join(encode_record(Record(n, 0, value=bytes(size)), 0, 0) for n in range(count))
    (tmp_path / "batch").write_bytes(with_payload(compress(4, payload), count, 4))
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", LARGE, str(tmp_path / "batch")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=180)
    total, resident_mib = map(int, done.stdout.split())
    assert total == count * size
    assert resident_mib < (60 if size == 1 << 20 else 150)
    print(resident_mib)
