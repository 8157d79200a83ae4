"""What the batches of a log say about its side files."""

from __future__ import annotations

from pathlib import PurePath

import pytest
from support.batches import TRANSACTIONAL, batch_v2, marker
from support.log_dirs import (
    EPOCHS,
    OPTIONS,
    POINTS,
    SOUND,
    TOP,
    checkpoint,
    damaged,
    live,
    on_disk,
    place,
    plan_of,
    recover,
    segment,
)
from support.memory_fs import MemoryFs

from checkpoint.leader_epoch import EpochStart, decode_epochs
from recovery.partition.derive import derive_epochs, derive_side_files
from recovery.partition.inventory import resolve, take_inventory
from recovery.segment.segment_report import ScanOptions, SegmentReport
from recovery.segment.verify import scan_segment
from storage.base.units import Epoch, Offset
from storage.index.txn_index import decode_txn_index
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.reading.log_reader import LogReader

DIRECTORY = PurePath("/p-0")
END = 1 << 40


def scan(*segments: list[bytes]) -> tuple[MemoryFs, list[SegmentReport]]:
    bases = [int.from_bytes(batches[0][:8], "big") for batches in segments]
    files = {f"/p-0/{base:020d}.log": b"".join(batches) for base, batches in zip(bases, segments, strict=True)}
    fs = MemoryFs(files)
    options = ScanOptions(150, 10 << 20, None)
    found = resolve(take_inventory(fs, DIRECTORY), {}).segments
    return fs, [scan_segment(fs, one, options, LogReader(), in_scope=True, active=False) for one in found]


def starts(*pairs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(Epoch(epoch), Offset(offset)) for epoch, offset in pairs]


# ---- leader epochs


def test_a_lost_epoch_file_is_derived_from_the_rises_in_the_log() -> None:
    _, reports = scan(segment(0), segment(10), segment(20))
    assert derive_epochs([], reports, END, 0) == starts((0, 0), (1, 10), (2, 20))


def test_an_epoch_newer_than_the_file_is_added_where_its_first_batch_stands() -> None:
    _, reports = scan(segment(20))
    assert derive_epochs(starts((0, 0), (1, 10)), reports, END, 0) == starts((0, 0), (1, 10), (2, 20))


def test_an_epoch_that_the_log_contradicts_is_replaced() -> None:
    _, reports = scan(segment(0), segment(10))
    assert derive_epochs(starts((0, 0), (1, 4)), reports, END, 0) == starts((0, 0), (1, 10))
    assert derive_epochs(starts((0, 0), (1, 17)), reports, END, 0) == starts((0, 0), (1, 10))


def test_an_epoch_without_batches_stays() -> None:
    _, reports = scan(segment(0), segment(20))
    known = starts((0, 0), (1, 20), (2, 20))[:1] + starts((2, 20))
    assert derive_epochs(known, reports, END, 0) == known


def test_an_epoch_that_begins_in_a_segment_that_was_not_read_stays() -> None:
    _, reports = scan(segment(0), segment(20))
    known = starts((0, 0), (1, 10), (2, 20))
    assert derive_epochs(known, reports, END, 0) == known


def test_an_epoch_whose_first_batches_were_compacted_away_begins_where_the_file_says() -> None:
    _, reports = scan([*segment(0)[:2], *segment(10)[3:]])
    known = starts((0, 0), (1, 10))
    assert derive_epochs(known, reports, END, 0) == known


def test_an_epoch_behind_the_last_batch_of_a_compacted_segment_stays() -> None:
    _, reports = scan(segment(0)[:3], segment(10))
    known = starts((0, 0), (1, 8))
    assert derive_epochs(known, reports, END, 0) == known


def test_epochs_are_cut_to_the_log() -> None:
    _, reports = scan(segment(20))
    known = starts((0, 0), (1, 10), (2, 20), (5, 30))
    assert derive_epochs(known, reports, 30, 13) == starts((1, 13), (2, 20))


@pytest.mark.parametrize(("start", "end"), [(0, 30), (13, 30), (30, 30), (27, 22)])
def test_epochs_that_were_derived_once_are_derived_again(start: int, end: int) -> None:
    once = derive_epochs(starts((0, 0), (1, 10), (2, 20)), [], end, start)
    assert derive_epochs(once, [], end, start) == once


def test_an_epoch_behind_the_log_end_hides_none_of_the_batches_before_it() -> None:
    """Else the next look, without that entry, would find the batches to have an epoch that the file does not know."""
    _, reports = scan(segment(20))
    once = derive_epochs(starts((2, 30)), reports, 30, 0)
    assert once == derive_epochs(once, reports, 30, 0) == starts((2, 20))


def test_a_wrong_index_in_one_flushed_segment_costs_no_epoch() -> None:
    fs = on_disk(damaged(lambda files: files.pop(place(0, "index")), files=SOUND))
    recover(fs)
    assert fs.contents(str(TOP))[EPOCHS] == SOUND[EPOCHS]


def test_a_compacted_log_read_in_full_is_clean() -> None:
    files = {**SOUND, place(0): b"".join(segment(0)[:2] + segment(10)[3:]), POINTS: checkpoint({})}
    for name in [name for name in files if name.startswith(place(0)[:-4]) and name != place(0)] + [
        name for name in files if name.startswith(place(10)[:-4])
    ]:
        del files[name]
    fs = on_disk(files)
    assert {a.path.suffix for p in plan_of(fs, OPTIONS).partitions for a in p.actions} <= {
        ".index",
        ".timeindex",
        ".snapshot",
        ".txnindex",
    }
    recover(fs)
    assert decode_epochs(fs.contents(str(TOP))[EPOCHS]) == starts((0, 0), (1, 10), (2, 20))
    assert live(fs.contents(str(TOP)))[place(0)] == files[place(0)]


# ---- producers


def fold(*segments: list[bytes], log_start: int = 0):
    fs, reports = scan(*segments)
    return derive_side_files(fs, LogReader(), ProducerState(), reports, log_start, lambda offset, state: True)


def test_a_snapshot_belongs_to_every_segment_above_the_log_start_and_to_the_end() -> None:
    assert set(fold(segment(0), segment(10)).snapshots) == {10, 20}
    assert set(fold(segment(0), segment(10), log_start=10).snapshots) == {20}


def test_a_snapshot_holds_the_producers_up_to_its_offset() -> None:
    state = decode_snapshot(fold(segment(0), segment(10)).snapshots[10], Offset(10))
    assert {entry.producer_id: entry.last_offset for entry in state.entries.values()} == {7: 3, 9: 5}
    assert all(entry.txn_first_offset == -1 for entry in state.entries.values())


def test_an_aborted_transaction_is_in_the_index_of_the_segment_of_its_marker() -> None:
    opened = batch_v2(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    side = fold([opened], [marker(10, 9, commit=False)])
    assert side.txn_indexes[0] == b""
    (aborted,) = decode_txn_index(side.txn_indexes[10])
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (9, 0, 10)


def test_a_committed_transaction_is_in_no_index() -> None:
    opened = batch_v2(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    assert fold([opened, marker(2, 9, commit=True)]).txn_indexes == {0: b""}


def test_a_batch_outside_an_open_transaction_of_its_producer_is_refused_and_ends_the_fold() -> None:
    opened = batch_v2(0, 2, producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    other = batch_v2(2, 1, producer_id=9, producer_epoch=0, base_sequence=2)
    side = fold([opened, other], segment(10))
    assert side.refused is not None
    assert side.refused[:2] == (0, 2)
    assert side.txn_indexes == {}


@pytest.mark.parametrize("log_start", [0, 5, 10])
def test_no_snapshot_stands_at_or_below_the_log_start(log_start: int) -> None:
    assert all(offset > log_start for offset in fold(segment(0), segment(10), log_start=log_start).offsets)
