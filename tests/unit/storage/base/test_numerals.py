"""Numbers in text are read as Java's parseInt and parseLong read them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.numerals import parse_int32, parse_int64


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("+7", 7),
        ("-0", 0),
        ("-7", -7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 40 + "5", 5),
        ("٣٤", 34),  # Arabic-Indic digits
        ("０７", 7),  # full width
    ],
)
def test_what_java_takes_for_an_int_is_one(text: str, number: int) -> None:
    assert parse_int32(text) == number
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    "text", ["", "+", "-", "+-1", " 1", "1 ", "1_0", "0x1", "1.0", "1e3", "²", "½", "\udcff", "1\n", "𝟎"]
)
def test_what_java_refuses_is_no_number(text: str) -> None:
    assert parse_int32(text) is None
    assert parse_int64(text) is None


def test_the_borders_of_int32_and_int64_are_exact() -> None:
    assert parse_int32("2147483648") is None
    assert parse_int32("-2147483649") is None
    assert parse_int64("9223372036854775807") == 2**63 - 1
    assert parse_int64("-9223372036854775808") == -(2**63)
    assert parse_int64("9223372036854775808") is None
    assert parse_int64("-9223372036854775809") is None


@pytest.mark.parametrize("text", ["9" * 5_000_000, "0" * 5_000_000, "٣" * 1_000_000])
def test_a_number_of_millions_of_digits_costs_little_time(text: str) -> None:
    begin = time.process_time()
    assert parse_int64(text) in (None, 0)
    assert time.process_time() - begin < 2


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_is_read_back_from_its_text(number: int) -> None:
    assert parse_int64(str(number)) == number
