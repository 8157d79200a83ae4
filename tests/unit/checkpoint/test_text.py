"""The common text form of checkpoints is accepted and refused exactly where a broker accepts and refuses it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import text
from storage.base.errors import CheckpointCorrupt, CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.disk.fs import OsFs


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"-0\n", b"+0\n", b"00\n", b"0\n0", b"0\n0\n", b"0\r\n-0\r\n"])
def test_nothing_a_version_alone_and_a_count_of_zero_are_no_entries(data: bytes) -> None:
    assert text.decode(data, 2) == []


@pytest.mark.parametrize(
    "data",
    [
        b"0\n2\na 1\nb 2\n",
        b"0\n2\na 1\nb 2",
        b"0\r\n2\r\na 1\r\nb 2\r\n",
        b"0\r2\ra 1\rb 2\r",
        b"0\n2\na \t\x0b\x0c 1\nb  2   \n",
        b"0\n+2\na 1 \nb 2\n",
        b"+0\n0002\na 1\nb 2\n",
    ],
)
def test_what_brokers_accept_is_accepted(data: bytes) -> None:
    assert text.decode(data, 2) == [["a", "1"], ["b", "2"]]


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b" 0\n1\na 1\n",
        b"0 \n1\na 1\n",
        b"x\n1\na 1\n",
        b"-1\n1\na 1\n",
        b"2147483648\n",
        b"\xef\xbb\xbf0\n0\n",
        b"0\n\n",
        b"0\n x\n",
        b"0\n1 \na 1\n",
        b"0\n-1\n",
        b"0\n2147483648\na 1\n",
        b"0\n2\na 1\n",
        b"0\n0\na 1\n",
        b"0\n2147483647\na 1\n",
        b"0\n1\na\n",
        b"0\n1\na 1 2\n",
        b"0\n1\n a 1\n",
        b"0\n1\na 1\n\n",
        b"0\n2\na 1\n\n",
        b"0\n2\n\nb 2\n",
        b"0\n1\n \n",
        b"0\n1\na\xff 1\n",
        b"0\n1\na\xa01\n",
        "0\n1\na\u00a01\n".encode(),
        b"0\n1\na\xed\xa0\x80 1\n",
        bytes(100),
    ],
)
def test_what_brokers_refuse_is_corrupt(data: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        text.decode(data, 2)


def test_a_newer_version_is_unsupported_and_no_damage() -> None:
    with pytest.raises(UnsupportedFormat):
        text.decode(b"1\nwho knows\n", 2)


def test_bytes_that_are_not_utf_8_are_named_by_their_position() -> None:
    with pytest.raises(CheckpointCorrupt) as raised:
        text.decode(b"0\n1\na\xff 1\n", 2)
    assert raised.value.position == 5


@pytest.mark.parametrize(
    "data",
    [b"9" * 3_000_000, b"0\n" + b"1" * 3_000_000, b"0\n1\n" + b"x" * 3_000_000, b"0\n2147483647\n", b"\x1b[2J\n"],
)
def test_hostile_files_end_in_a_short_printable_message(data: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(CorruptData) as raised:
        text.decode(data, 2)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()
    assert time.process_time() - begin < 2


def test_numbers_of_fields_are_javas() -> None:
    assert (text.int32_field("+007"), text.int64_field("-9223372036854775808")) == (7, -(2**63))
    for field in ("2147483648", "x", "1.0"):
        with pytest.raises(CheckpointCorrupt):
            text.int32_field(field)
    with pytest.raises(CheckpointCorrupt):
        text.int64_field("9223372036854775808")


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\v\f\r"), min_size=1, max_size=9)


@given(st.lists(st.tuples(words, st.integers()), max_size=9))
def test_every_list_of_entries_is_read_back(entries: list[tuple[str, int]]) -> None:
    assert text.decode(text.encode(entries), 2) == [[word, str(number)] for word, number in entries]


@pytest.mark.parametrize("field", ["", "a b", "a\nb", "\r", "\udcff"])
def test_a_field_that_would_not_be_read_back_is_not_written(field: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (of two kinds)
        text.encode([(field, 1)])


@given(st.binary(max_size=60))
def test_any_bytes_are_entries_or_a_typed_error(data: bytes) -> None:
    try:
        entries = text.decode(data, 2)
    except (CheckpointCorrupt, UnsupportedFormat):
        return
    assert all(len(entry) == 2 for entry in entries)


def test_errors_of_a_file_carry_its_path_and_its_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n1\nx\n")
    with pytest.raises(CheckpointCorrupt) as raised:
        text.read(OsFs(), path, 100, lambda data: text.decode(data, 2))
    assert raised.value.path == path
    with pytest.raises(ReadFault):
        text.read(OsFs(), path, 5, lambda data: text.decode(data, 2))
    with pytest.raises(FileVanished):
        text.read(OsFs(), tmp_path / "none", 5, lambda data: text.decode(data, 2))
