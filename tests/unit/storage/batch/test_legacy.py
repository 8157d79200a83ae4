"""Messages of magic 0 and 1, plain and in wrappers, read and written."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vectors import L_0, L_0L, L_1, L_1G, L_1T, TS

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.batch.batch import HEADER_V0, TimestampType, ensure_sound, parse_header, reseal, set_log_append_time
from storage.batch.legacy import Message, decode_messages, encode_message, encode_wrapper
from storage.batch.record import Record, records_of
from storage.codec.compression import Codec, compress

NONE, CREATE, APPEND = TimestampType.NONE, TimestampType.CREATE, TimestampType.LOG_APPEND
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def read(batch: bytes) -> list[Message]:
    return list(decode_messages(memoryview(batch)))


def wrap(inner: bytes, offset: int, magic: int = 1, codec: int = 1) -> bytes:
    """Return a wrapper of these bytes, whatever they are."""
    value = compress(codec, inner, magic=magic)
    return encode_message(Message(offset, TS, CREATE, None, value), magic=magic, codec=codec)


def inner(*offsets: int, magic: int = 1) -> bytes:
    return b"".join(encode_message(Message(offset, TS, CREATE, b"k", b"v"), magic=magic) for offset in offsets)


def offsets(batch: bytes) -> list[int]:
    return [message.offset for message in read(batch)]


@pytest.mark.parametrize(
    ("batch", "messages"),
    [
        (L_0, [Message(7, -1, NONE, b"k", b"v0")]),
        (L_1, [Message(8, TS, CREATE, b"k", b"v1")]),
        (L_1T, [Message(9, TS + 5, APPEND, None, b"x")]),
        (L_1G, [Message(20, TS, CREATE, b"a", b"1"), Message(21, TS + 3, CREATE, b"b", b"2")]),
        (L_0L, [Message(30, -1, NONE, b"a", b"1"), Message(31, -1, NONE, b"b", b"2")]),
    ],
    ids=["L_0", "L_1", "L_1T", "L_1G", "L_0L"],
)
def test_known_entries_are_read(batch: bytes, messages: list[Message]) -> None:
    assert read(batch) == messages
    assert list(records_of(memoryview(batch))) == [Record(*message) for message in messages]


@pytest.mark.parametrize(("batch", "magic"), [(L_0, 0), (L_1, 1), (L_1T, 1)])
def test_plain_entries_are_written_as_kafka_writes_them(batch: bytes, magic: int) -> None:
    assert encode_message(read(batch)[0], magic=magic) == batch


DATA = st.none() | st.binary(max_size=30)
MESSAGES = st.lists(st.tuples(st.integers(-1, 2**62), DATA, DATA), min_size=1, max_size=8)


@given(MESSAGES, st.sampled_from(CODECS), st.sampled_from([0, 1]), st.integers(1, 2**62), st.integers(1, 3))
def test_every_wrapper_reads_back(
    contents: list[tuple[int, bytes | None, bytes | None]], codec: Codec, magic: int, first: int, step: int
) -> None:
    messages = [Message(first + step * n, time, CREATE, *data) for n, (time, *data) in enumerate(contents)]
    batch = encode_wrapper(messages, magic=magic, codec=codec)
    header = ensure_sound(memoryview(batch))
    assert (header.magic, header.codec, header.last_offset) == (magic, codec, messages[-1].offset)
    if magic == 0:
        messages = [message._replace(timestamp=-1, timestamp_type=NONE) for message in messages]
    assert read(batch) == messages


@given(st.integers(0, 2**62), st.integers(-1, 2**62), st.sampled_from([CREATE, APPEND]), DATA, DATA)
def test_every_message_reads_back(
    offset: int, timestamp: int, timestamp_type: TimestampType, key: bytes | None, value: bytes | None
) -> None:
    message = Message(offset, timestamp, timestamp_type, key, value)
    assert read(encode_message(message, magic=1)) == [message]
    assert read(encode_message(message, magic=0)) == [Message(offset, -1, NONE, key, value)]


# offsets


def test_relative_offsets_count_back_from_the_wrapper_and_may_have_gaps() -> None:
    assert offsets(wrap(inner(0, 3, 7), 107)) == [100, 103, 107]


def test_offsets_in_a_wrapper_of_magic_0_are_absolute() -> None:
    assert offsets(wrap(inner(30, 33, magic=0), 33, magic=0)) == [30, 33]


def test_a_wrapper_at_0_leaves_inner_offsets_as_they_are() -> None:
    assert offsets(wrap(inner(0, 1, 2), 0)) == [0, 1, 2]


def test_a_wrapper_below_its_last_inner_offset_is_corrupt() -> None:
    with pytest.raises(BatchCorrupt, match="offset 1 of the wrapper, 2 of its last message"):
        read(wrap(inner(0, 1, 2), 1))


@pytest.mark.parametrize(("outer_magic", "inner_magic"), [(1, 0), (0, 1)])
def test_the_wrapper_decides_on_offsets_and_the_message_on_its_timestamp(outer_magic: int, inner_magic: int) -> None:
    start = 0 if outer_magic else 20
    messages = read(wrap(inner(start, start + 1, magic=inner_magic), 21, magic=outer_magic))
    assert [message.offset for message in messages] == [20, 21]
    assert [message.timestamp for message in messages] == [TS if inner_magic else -1] * 2
    assert messages[0].timestamp_type is NONE


# timestamps


def test_log_append_time_of_a_wrapper_is_given_to_its_messages() -> None:
    batch = memoryview(bytearray(L_1G))
    set_log_append_time(batch, 15)
    assert [message[:3] for message in decode_messages(batch)] == [(20, 15, APPEND), (21, 15, APPEND)]


def test_log_append_time_is_written_in_the_wrapper_alone() -> None:
    messages = [Message(20, 5, APPEND, b"a", b"1"), Message(21, 9, APPEND, b"b", b"2")]
    batch = encode_wrapper(messages, magic=1, codec=1)
    assert parse_header(batch).max_timestamp == 9
    assert [message[:3] for message in read(batch)] == [(20, 9, APPEND), (21, 9, APPEND)]


# what is refused


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_without_a_value_is_corrupt(magic: int) -> None:
    with pytest.raises(BatchCorrupt, match="without a value"):
        read(encode_message(Message(5), magic=magic, codec=1))


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrapper_without_a_message_is_corrupt(codec: Codec) -> None:
    with pytest.raises(BatchCorrupt, match=r"without a message|snappy"):
        read(wrap(b"", 5, codec=codec))


def test_an_inner_entry_that_is_cut_is_dropped() -> None:
    assert offsets(wrap(inner(0, 1, 2)[:-1], 101)) == [100, 101]
    assert offsets(wrap(inner(0, 1) + bytes(11), 101)) == [100, 101]
    with pytest.raises(BatchCorrupt, match="without a message"):
        read(wrap(inner(0)[:-1], 5))


def test_an_inner_size_field_below_14_is_corrupt() -> None:
    with pytest.raises(BatchCorrupt, match="size field 13"):
        read(wrap(inner(0) + HEADER_V0.pack(1, 13, 0, 0, 0), 5))


def test_inner_checksums_are_not_looked_at() -> None:
    data = bytearray(inner(0, 1))
    data[12] ^= 1
    assert offsets(wrap(bytes(data), 101)) == [100, 101]


def test_a_wrapper_in_a_wrapper_is_corrupt() -> None:
    with pytest.raises(BatchCorrupt, match="compressed message in a wrapper"):
        read(wrap(L_1G, 21))


def test_a_batch_of_magic_2_in_a_wrapper_is_corrupt() -> None:
    entry = bytearray(inner(0).ljust(80, b"\0"))
    entry[8:12] = (68).to_bytes(4, "big")
    entry[16] = 2
    with pytest.raises(BatchCorrupt, match="magic 2 in a wrapper"):
        read(wrap(bytes(entry), 5))


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_in_old_formats_is_corrupt_and_unknown_codecs_are_unsupported(magic: int) -> None:
    with pytest.raises(BatchCorrupt, match="zstd does not exist"):
        read(encode_message(Message(5, value=b"x"), magic=magic, codec=4))
    for codec in (5, 6, 7):
        with pytest.raises(UnsupportedFormat, match=f"codec {codec}"):
            read(encode_message(Message(5, value=b"x"), magic=magic, codec=codec))


@pytest.mark.parametrize(("batch", "key_size"), [(L_0, 18), (L_1, 26)])
def test_keys_and_values_that_reach_beyond_the_entry_are_corrupt(batch: bytes, key_size: int) -> None:
    for place in (key_size, key_size + 5):
        changed = memoryview(bytearray(batch))
        changed[place : place + 4] = (105).to_bytes(4, "big")
        reseal(changed)
        with pytest.raises(BatchCorrupt, match="a key or value of 105 bytes"):
            read(bytes(ensure_sound(changed) and changed))


def test_sizes_from_14_to_21_of_magic_1_are_sound_until_the_key_is_read() -> None:
    for size in range(14, 22):
        entry = memoryview(bytearray(L_1[: size + 12]))
        entry[8:12] = size.to_bytes(4, "big")
        reseal(entry)
        assert ensure_sound(entry).size == size + 12
        with pytest.raises(BatchCorrupt, match="key or value"):
            read(bytes(entry))


def test_any_negative_size_is_null() -> None:
    changed = memoryview(bytearray(L_1T))
    changed[26:30] = (-5).to_bytes(4, "big", signed=True)
    assert read(bytes(changed)) == read(L_1T)


def test_bytes_behind_the_value_are_ignored() -> None:
    entry = bytearray(L_1 + b"more")
    entry[8:12] = (len(entry) - 12).to_bytes(4, "big")
    assert read(bytes(entry)) == read(L_1)


def test_a_set_above_the_limit_is_unsupported() -> None:
    data = inner(*range(100))
    assert len(list(decode_messages(memoryview(wrap(data, 99)), limit=len(data)))) == 100
    with pytest.raises(UnsupportedFormat, match="decompresses to more than"):
        list(decode_messages(memoryview(wrap(data, 99)), limit=len(data) - 1))


def test_the_first_message_of_a_set_of_a_million_is_there_soon() -> None:
    batch = memoryview(wrap(encode_message(Message(0), magic=0) * ((32 << 20) // 26), 1, magic=0))
    before = time.process_time()
    assert next(decode_messages(batch)).offset == 0
    assert time.process_time() - before < 3


@given(st.sampled_from([L_0, L_1, L_1T, L_1G, L_0L]), st.integers(12, 100), st.integers(1, 255))
def test_any_changed_byte_ends_in_messages_or_a_typed_error(batch: bytes, place: int, flip: int) -> None:
    changed = bytearray(batch)
    changed[12 + place % (len(batch) - 12)] ^= flip
    if changed[16] > 1:
        return
    try:
        messages = read(bytes(changed))
    except (BatchCorrupt, UnsupportedFormat):
        return
    assert messages


@given(st.binary(max_size=80), st.sampled_from([0, 1]), st.sampled_from([0, *CODECS]))
def test_sets_of_rubbish_end_in_messages_or_a_typed_error(data: bytes, magic: int, codec: int) -> None:
    batch = wrap(data, 2**40, magic=magic, codec=codec)
    try:
        messages = read(batch)
    except (BatchCorrupt, UnsupportedFormat):
        return
    assert messages
