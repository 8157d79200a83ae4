"""The transaction index is read, searched, cut and judged as a broker does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import IndexCorrupt, UnsupportedFormat
from storage.index.txn_index import (
    AbortedTxn,
    LoadSanity,
    check_as_on_load,
    collect_aborted,
    decode_txn_index,
    encode_txn_index,
    size_below,
)

# Written by Kafka's own classes: producer 4000, data at 100 and 101, ABORT marker at 102.
KAFKA = bytes.fromhex("00000000000000000fa0000000000000006400000000000000660000000000000067")
ENTRY = AbortedTxn(4000, 100, 102, 103)
THREE = [ENTRY, AbortedTxn(5, 90, 110, 105), AbortedTxn(6, 105, 120, 121)]


def test_the_entry_kafka_wrote_is_read_and_written_back() -> None:
    assert decode_txn_index(KAFKA) == [ENTRY]
    assert encode_txn_index([ENTRY]) == KAFKA


def test_a_partial_tail_is_ignored_by_readers() -> None:
    assert decode_txn_index(KAFKA + KAFKA[:33]) == [ENTRY]
    assert decode_txn_index(b"\0" * 33) == []


def test_a_version_that_rot_made_is_corrupt_and_one_that_all_entries_share_is_unsupported() -> None:
    with pytest.raises(IndexCorrupt) as raised:
        decode_txn_index(KAFKA + b"\0\1" + KAFKA[2:])
    assert raised.value.position == 34
    with pytest.raises(IndexCorrupt):
        decode_txn_index(b"\0\1" + KAFKA[2:])
    with pytest.raises(UnsupportedFormat):
        decode_txn_index((b"\0\1" + KAFKA[2:]) * 2)
    with pytest.raises(IndexCorrupt):
        decode_txn_index((b"\xff\xff" + KAFKA[2:]) * 2)


@given(st.lists(st.builds(AbortedTxn, *[st.integers(-(2**63), 2**63 - 1)] * 4), max_size=10))
def test_every_list_of_entries_is_read_back(entries: list[AbortedTxn]) -> None:
    assert decode_txn_index(encode_txn_index(entries)) == entries


@given(st.binary(max_size=200))
def test_any_bytes_are_entries_or_a_typed_error(data: bytes) -> None:
    try:
        entries = decode_txn_index(data)
    except (IndexCorrupt, UnsupportedFormat):
        return
    assert len(entries) == len(data) // 34


@pytest.mark.parametrize(
    ("start", "end", "found", "is_complete"),
    [
        (0, 1, [], True),
        (100, 103, [THREE[0]], True),
        (100, 104, THREE[:2], True),  # the second is tested before its last stable offset ends the search
        (103, 106, [THREE[1], THREE[2]], True),
        (103, 122, [THREE[1], THREE[2]], False),
        (121, 200, [], False),
        (120, 200, [THREE[2]], False),
    ],
)
def test_a_fetch_is_told_of_the_transactions_that_touch_its_range(
    start: int, end: int, found: list[AbortedTxn], is_complete: bool
) -> None:
    assert collect_aborted(THREE, start, end) == (found, is_complete)


@pytest.mark.parametrize(("offset", "size"), [(0, 0), (102, 0), (103, 34), (110, 34), (120, 68), (121, 102)])
def test_truncation_cuts_at_the_first_marker_from_there(offset: int, size: int) -> None:
    assert size_below(THREE, offset) == size


@pytest.mark.parametrize(
    ("data", "base", "sanity"),
    [
        (b"", 100, LoadSanity.SOUND),
        (KAFKA, 102, LoadSanity.SOUND),
        (KAFKA, 103, LoadSanity.SCANS_SEGMENT),
        (b"\0\1" + KAFKA[2:], 100, LoadSanity.SOUND),
        (b"\1\0" + KAFKA[2:], 100, LoadSanity.FAILS_LOAD),
        (b"\xff\0" + KAFKA[2:], 100, LoadSanity.SOUND),
        (KAFKA + b"\1" * 33, 100, LoadSanity.SOUND),
        (KAFKA + b"\1\0" + KAFKA[2:], 103, LoadSanity.SCANS_SEGMENT),
    ],
)
def test_loading_reads_one_byte_of_the_version_and_the_last_offset(data: bytes, base: int, sanity: LoadSanity) -> None:
    assert check_as_on_load(data, base) is sanity
