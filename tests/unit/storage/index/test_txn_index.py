"""The transaction index is read, searched, cut and judged as a broker does, and held against the markers of its log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import IndexCorrupt, UnsupportedFormat
from storage.index.txn_index import (
    AbortedTxn,
    LoadSanity,
    TxnIndexCheck,
    TxnIndexFault,
    check_as_on_load,
    collect_aborted,
    decode_txn_index,
    encode_txn_index,
    size_below,
)
from storage.kernel.rows import ABORT, COMMIT, CONTROL_EMPTY, CONTROL_NONE, BatchRows

# Written by Kafka's own classes: producer 4000, data at 100 and 101, ABORT marker at 102.
KAFKA = bytes.fromhex("00000000000000000fa0000000000000006400000000000000660000000000000067")
ENTRY = AbortedTxn(4000, 100, 102, 103)
THREE = [ENTRY, AbortedTxn(5, 90, 110, 105), AbortedTxn(6, 105, 120, 121)]


def rows_of(*batches: tuple[int, int, int]) -> BatchRows:
    """One batch for each (last offset, producer id, control)."""
    rows = BatchRows(max(len(batches), 1))
    for number, (last, pid, control) in enumerate(batches):
        rows.last_offset[number], rows.producer_id[number], rows.control[number] = last, pid, control
    return rows


MARKED = rows_of(
    (101, 4000, CONTROL_NONE), (102, 4000, ABORT << 32 | 3), (110, 5, CONTROL_EMPTY), (119, 6, -1), (120, 6, ABORT)
)


def fault_of(data: bytes, rows: BatchRows = MARKED, base_offset: int = 100) -> TxnIndexFault | None:
    check = TxnIndexCheck(data, base_offset)
    check.feed(rows, rows.capacity)
    return check.finish()


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
    fault = fault_of(data)
    try:
        entries = decode_txn_index(data)
    except (IndexCorrupt, UnsupportedFormat):
        return
    assert len(entries) == len(data) // 34
    assert fault is not None or len(data) % 34 == 0


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


def test_an_index_whose_markers_are_in_the_log_is_valid() -> None:
    assert fault_of(encode_txn_index(THREE)) is None
    assert fault_of(b"") is None


def test_markers_may_come_in_any_number_of_windows() -> None:
    check = TxnIndexCheck(encode_txn_index(THREE), 100)
    check.feed(MARKED, 0)
    check.feed(MARKED, 2)
    check.feed(rows_of((110, 5, CONTROL_EMPTY), (120, 6, ABORT)), 2)
    assert check.finish() is None


@pytest.mark.parametrize(
    ("entries", "position", "reason"),
    [
        ([THREE[1], THREE[0]], 34, "not above 110"),
        ([THREE[0], THREE[0]], 34, "not above 102"),
        ([AbortedTxn(4000, 90, 99, 100)], 0, "not above 99"),
        ([AbortedTxn(4000, 102, 102, 103)], 0, "first offset 102"),
        ([AbortedTxn(4000, -1, 102, 103)], 0, "first offset -1"),
        ([AbortedTxn(4000, 100, 102, 104)], 0, "last stable offset 104"),
        ([AbortedTxn(4000, 100, 102, -1)], 0, "last stable offset -1"),
        ([THREE[0], AbortedTxn(9, 100, 110, 111)], 34, "no ABORT marker of producer 9"),
        ([AbortedTxn(4000, 100, 101, 102)], 0, "no ABORT marker"),
        ([AbortedTxn(5, 100, 109, 102)], 0, "no ABORT marker"),
        ([THREE[0], AbortedTxn(6, 105, 121, 121)], 34, "behind the end"),
    ],
)
def test_an_entry_without_its_marker_is_a_fault(entries: list[AbortedTxn], position: int, reason: str) -> None:
    fault = fault_of(encode_txn_index(entries))
    assert fault is not None
    assert fault.position == position
    assert reason in fault.reason


def test_a_commit_marker_aborts_nothing() -> None:
    assert fault_of(KAFKA, rows_of((102, 4000, COMMIT << 32 | 3))) is not None


def test_a_partial_entry_and_an_unknown_version_are_faults() -> None:
    assert fault_of(KAFKA + b"\0") == TxnIndexFault(34, "35 bytes are no multiple of 34")
    fault = fault_of(KAFKA + b"\2\0" + KAFKA[2:])
    assert fault is not None
    assert fault.position == 34
