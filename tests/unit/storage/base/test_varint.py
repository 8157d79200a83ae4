from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import BatchCorrupt
from storage.base.varint import encode_uvarint, encode_varint, read_uvarint, read_varint, read_varlong

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (150, "ac02"),
        (8191, "fe7f"), (-8192, "ff7f"), (8192, "808001"), (-8193, "818001"), (1048575, "feff7f"),
        (1048576, "80808001"), (134217727, "feffff7f"), (134217728, "8080808001"), (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)  # fmt: skip
def test_signed_varints_are_zig_zag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (1, "01"), (63, "3f"), (64, "40"), (8191, "ff3f"), (8192, "8040"), (1048575, "ffff3f"),
        (1048576, "808040"), (2**31 - 1, "ffffffff07"), (-(2**31), "8080808008"), (-1, "ffffffff0f"),
    ],
)  # fmt: skip
def test_unsigned_varints_are_plain(value: int, encoded: str) -> None:
    assert encode_uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value & 0xFFFFFFFF, len(encoded) // 2)


@given(INT32, st.binary(max_size=3))
def test_every_int32_reads_back_from_any_place(value: int, before: bytes) -> None:
    encoded = encode_varint(value)
    assert read_varint(before + encoded + b"\xff", len(before)) == (value, len(before) + len(encoded))


@given(INT64)
def test_every_int64_reads_back(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert read_varlong(encoded, 0) == (value, len(encoded))


def test_more_bytes_than_needed_are_accepted() -> None:
    assert read_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert read_varlong(bytes.fromhex("808080808000"), 0) == (0, 6)


def test_bits_beyond_the_width_are_cut_off() -> None:
    assert read_uvarint(bytes.fromhex("ffffffff7f"), 0) == (0xFFFFFFFF, 5)
    assert read_varint(bytes.fromhex("ffffffff7f"), 0) == (-(2**31), 5)
    assert read_varlong(bytes.fromhex("ffffffffffffffffff7f"), 0) == (-(2**63), 10)


def test_a_fifth_byte_of_an_int32_must_be_its_last() -> None:
    with pytest.raises(BatchCorrupt, match="int32 goes on"):
        read_varint(bytes.fromhex("808080808001"), 0)
    with pytest.raises(BatchCorrupt, match="int32 goes on"):
        read_uvarint(bytes.fromhex("ffffffffff01"), 0)


def test_a_tenth_byte_of_an_int64_must_be_its_last() -> None:
    with pytest.raises(BatchCorrupt, match="int64 goes on"):
        read_varlong(b"\x80" * 10 + b"\x01", 0)


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80"])
def test_a_cut_varint_is_corrupt(read: object, data: bytes) -> None:
    assert callable(read)
    with pytest.raises(BatchCorrupt, match="end inside a varint"):
        read(data, 0)
