"""Leader epochs are assigned, truncated and asked for as in a broker's cache."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.leader_epoch import (
    FILE_NAME,
    EpochStart,
    assign,
    assign_all,
    decode_epochs,
    decode_lines,
    encode_epochs,
    end_offset_for,
    epoch_at,
    read_epochs,
    truncate_from_end,
    truncate_from_start,
    write_epochs,
)
from storage.base.errors import CheckpointCorrupt
from storage.base.names import FileRole
from storage.disk.fs import OsFs

# Written by Kafka's own classes.
KAFKA = bytes.fromhex("300a320a3020300a35203130300a")
ENTRIES = [EpochStart(0, 0), EpochStart(5, 100)]
FOUR = [EpochStart(1, 0), EpochStart(3, 10), EpochStart(5, 20), EpochStart(7, 30)]


def test_the_file_kafka_wrote_is_read_and_written_back() -> None:
    assert decode_epochs(KAFKA) == ENTRIES
    assert encode_epochs(ENTRIES) == KAFKA


@pytest.mark.parametrize(
    ("lines", "loaded"),
    [
        ("5 1, 3 0, 7 1", "3 0, 7 1"),
        ("1 0, 1 5", "1 0"),
        ("1 5, 1 2", "1 2"),
        ("1 0, 2 5, 3 5", "1 0, 3 5"),
        ("1 0, 2 5, 3 4", "1 0, 3 4"),
        ("1 0, 2 5, 3 0", "3 0"),
        ("1 0, 5 5, 3 7", "1 0, 3 7"),
        ("9 9, 1 20, 2 30", "1 20, 2 30"),
    ],
)
def test_a_later_line_drops_what_it_contradicts(lines: str, loaded: str) -> None:
    texts = lines.split(", ")
    data = f"0\n{len(texts)}\n{chr(10).join(texts)}\n".encode()
    assert encode_epochs(decode_lines(data)) == data
    assert ", ".join(f"{epoch} {start}" for epoch, start in decode_epochs(data)) == loaded


@pytest.mark.parametrize("entry", ["-1 0", "0 -1", "2147483648 0", "0 9223372036854775808", "0", "0 0 0", "a 0"])
def test_a_negative_or_impossible_number_is_corrupt(entry: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode_epochs(f"0\n1\n{entry}\n".encode())


def test_assigning_leaves_what_it_was_given_alone() -> None:
    assert assign(ENTRIES, 7, 200) == [*ENTRIES, EpochStart(7, 200)]
    assert assign(ENTRIES, 5, 200) == ENTRIES
    assert assign((), 0, 0) == [EpochStart(0, 0)]
    assert encode_epochs(ENTRIES) == KAFKA


@pytest.mark.parametrize(("end", "kept"), [(0, 0), (10, 1), (11, 2), (30, 3), (31, 4), (2**63 - 1, 4)])
def test_a_shorter_log_loses_the_epochs_that_begin_at_or_after_its_end(end: int, kept: int) -> None:
    assert truncate_from_end(FOUR, end) == FOUR[:kept]


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (0, FOUR),
        (9, [EpochStart(1, 9), *FOUR[1:]]),
        (10, FOUR[1:]),
        (15, [EpochStart(3, 15), *FOUR[2:]]),
        (99, [EpochStart(7, 99)]),
    ],
)
def test_the_epoch_in_force_where_the_log_now_begins_begins_there(start: int, entries: list[EpochStart]) -> None:
    assert truncate_from_start(FOUR, start) == entries


def test_a_log_that_begins_before_all_epochs_keeps_them() -> None:
    assert truncate_from_start(FOUR[1:], 5) == FOUR[1:]
    assert truncate_from_start([], 5) == []


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (6, (5, 30)), (7, (7, 44)), (8, None), (-1, (-1, 0))],
)
def test_an_epoch_ends_where_the_next_known_one_begins(epoch: int, answer: tuple[int, int] | None) -> None:
    assert end_offset_for(FOUR, epoch, 44) == answer


def test_without_epochs_nothing_is_known() -> None:
    assert end_offset_for([], 0, 44) is None
    assert epoch_at([], 0) is None


def test_the_epoch_of_a_record_is_the_last_that_began_up_to_it() -> None:
    assert [epoch_at(FOUR[1:], offset) for offset in (9, 10, 19, 20, 99)] == [None, 3, 3, 5, 7]


starts = st.builds(EpochStart, st.integers(0, 30), st.integers(0, 30))


@given(st.lists(starts, max_size=30))
def test_whatever_is_assigned_both_columns_rise_strictly_and_are_read_back(found: list[EpochStart]) -> None:
    entries = assign_all([], found)
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
    assert decode_epochs(encode_epochs(entries)) == entries
    one_by_one: list[EpochStart] = []
    for start in found:
        one_by_one = assign(one_by_one, *start)
    assert one_by_one == entries


def test_a_hundred_thousand_lines_take_linear_time() -> None:
    begin = time.process_time()
    assert len(decode_epochs(encode_epochs(EpochStart(number, number) for number in range(100_000)))) == 100_000
    assert time.process_time() - begin < 5


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    write_epochs(OsFs(), path, ENTRIES)
    assert path.read_bytes() == KAFKA
    assert read_epochs(OsFs(), path) == ENTRIES
    assert FileRole.LEADER_EPOCHS.value == FILE_NAME
