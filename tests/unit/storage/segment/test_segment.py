"""A segment appends whole batches, finds them again, and is left as it was when the disk refuses."""

from __future__ import annotations

import errno
from pathlib import Path, PurePath

import pytest
from support.batches import TS, batch_v2, legacy
from support.memory_fs import FaultFs, MemoryFs

from storage.base.errors import BatchCorrupt, DiskFull
from storage.base.names import FileState
from storage.base.refusals import LogUnusable
from storage.base.rows import BatchRows
from storage.disk.fs import OsFs
from storage.index.txn_index import AbortedTxn
from storage.kernel.scan import scan_batches
from storage.segment.segment import LogSegment
from storage.segment.segment_types import BatchEnd, SegmentLimits

PLACE = PurePath("/t-0")
LIMITS = SegmentLimits(index_interval_bytes=100)


def new(fs: MemoryFs | FaultFs | None = None, base: int = 100, limits: SegmentLimits = LIMITS) -> LogSegment:
    return LogSegment.create(fs or MemoryFs({"/t-0/": b""}), PLACE, base, limits, 0)


def ends_of(data: bytes) -> list[BatchEnd]:
    rows = BatchRows(100)
    count = scan_batches(memoryview(data), rows).count
    return [BatchEnd(rows.last_offset[n], rows.max_timestamp[n], rows.size[n]) for n in range(count)]


def fill(segment: LogSegment, batches: int = 8, *, step: int = 10) -> None:
    """One batch of one record (69 bytes) at each offset from the base on, each `step` ms after the one before."""
    for number in range(batches):
        data = batch_v2(segment.base_offset + number, base_timestamp=TS + number * step)
        segment.append(data, ends_of(data))


def reopened(segment: LogSegment, fs: MemoryFs, **more: object) -> LogSegment:
    segment.indexes.write()
    segment.close()
    return LogSegment.open(fs, PLACE, segment.base_offset, LIMITS, 5, listing=fs.entries(PLACE), **more)


def test_an_entry_is_due_for_the_batch_behind_more_than_the_interval() -> None:
    segment = new()
    fill(segment)
    size = segment.size // 8
    data = segment.indexes.offsets.data
    assert [data[at : at + 8].hex() for at in range(0, len(data), 8)] == [
        f"{delta:08x}{delta * size:08x}" for delta in (2, 4, 6)
    ]
    assert segment.indexes.times.last() == (TS + 60, 106)
    segment.seal()
    segment.seal()
    assert segment.indexes.times.last() == (TS + 70, 107)
    assert len(segment.indexes.times.data) == 4 * 12


def test_many_batches_of_one_append_get_the_entries_of_as_many_appends() -> None:
    one, many = new(), new()
    fill(one)
    data = b"".join(batch_v2(100 + number, base_timestamp=TS + number * 10) for number in range(8))
    many.append(data, ends_of(data))
    assert (one.indexes.offsets.data, one.indexes.times.data) == (many.indexes.offsets.data, many.indexes.times.data)


def test_the_earliest_batch_with_the_largest_timestamp_is_remembered() -> None:
    segment = new()
    fill(segment, 5, step=-10)
    assert segment.largest() == (TS, 100)
    segment.seal()
    assert segment.indexes.times.data.hex() == f"{TS:016x}00000000"


def test_every_offset_is_found_in_its_batch_and_none_behind_the_end() -> None:
    segment = new()
    data = b"".join(batch_v2(100 + number * 5, 3) for number in range(20))
    segment.append(data, ends_of(data))
    for offset in range(100, 198):
        place = segment.find(offset)
        assert place is not None
        assert place.base_offset == min(100 + (offset - 98) // 5 * 5, 195), offset
    assert segment.find(198) is None
    assert segment.read_next_offset() == 198
    assert new().read_next_offset() == 100


def test_batches_larger_than_a_piece_are_walked_over() -> None:
    segment = new()
    data = b"".join(
        batch_v2(100 + n, payload=bytes(size), count=1) for n, size in enumerate((10, 9000, 20000, 1, 8140))
    )
    segment.append(data, ends_of(data))
    reached = [segment.find(100 + n) for n in range(5)]
    assert [place.base_offset for place in reached if place] == [100, 101, 102, 103, 104]


def test_old_formats_are_found_by_the_offset_of_the_entry() -> None:
    segment = new()
    data = legacy(100, 0) + legacy(103, 1, timestamp=TS + 7) + batch_v2(104)
    segment.append(data, ends_of(data))
    found = [segment.find(offset) for offset in (100, 101, 104)]
    assert [(place.magic, place.last_offset, place.max_timestamp) for place in found if place] == [
        (0, 100, -1), (1, 103, TS + 7), (2, 104, TS),
    ]  # fmt: skip


def test_a_header_that_leads_nowhere_is_corrupt_and_no_endless_walk() -> None:
    segment = new()
    segment.append(bytes(200), [BatchEnd(100, -1, 200)])
    with pytest.raises(BatchCorrupt) as raised:
        segment.find(100)
    assert raised.value.position == 0


def test_a_reopened_segment_is_the_one_that_was_closed() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = new(fs)
    fill(segment)
    segment.append_aborted(AbortedTxn(7, 100, 105, 106))
    segment.seal()
    again = reopened(segment, fs)
    assert (again.size, *again.largest()) == (segment.size, TS + 70, 107)
    assert again.indexes.offsets.data == segment.indexes.offsets.data
    assert again.indexes.transactions.all() == [AbortedTxn(7, 100, 105, 106)]
    assert again.read_next_offset() == 108
    fill_from = batch_v2(108, base_timestamp=TS + 500)
    again.append(fill_from, ends_of(fill_from))
    assert again.find(108) is not None
    assert again.waited_ms(TS + 500, 0) == 500


def test_the_zero_bytes_and_stale_entries_that_a_broker_leaves_are_no_entries() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = new(fs)
    fill(segment)
    again = reopened(segment, fs)
    entries = bytes(again.indexes.offsets.data)
    stale = entries + bytes.fromhex("0000000900100000") + bytes(400)
    fs.plant(PLACE / "00000000000000000100.index", content=stale)
    fs.plant(PLACE / "00000000000000000100.timeindex", content=bytes(again.indexes.times.data) + bytes(120))
    opened = reopened(again, fs)
    assert opened.indexes.offsets.data == entries
    more = b"".join(batch_v2(108 + n) for n in range(4))
    opened.append(more, ends_of(more))
    opened.flush()
    assert fs.contents()["t-0/00000000000000000100.index"] == bytes(opened.indexes.offsets.data)
    assert fs.contents()["t-0/00000000000000000100.timeindex"] == bytes(opened.indexes.times.data)
    assert len(opened.indexes.offsets.data) == len(entries) + 8


def test_cutting_back_takes_batches_and_their_entries_in_memory_and_on_disk() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = new(fs)
    fill(segment)
    for marker in (103, 105):
        segment.append_aborted(AbortedTxn(7, 100, marker, marker + 1))
    segment.flush()
    size = segment.size // 8
    assert segment.truncate_to(104, 9) == 4 * size
    assert (segment.size, *segment.largest()) == (4 * size, TS + 30, 103)
    assert segment.indexes.offsets.last() == (102, 2 * size)
    assert segment.indexes.transactions.all() == [AbortedTxn(7, 100, 103, 104)]
    assert {name: len(data) for name, data in fs.contents("/t-0").items()} == {
        "00000000000000000100.index": 8,
        "00000000000000000100.log": 4 * size,
        "00000000000000000100.timeindex": 12,
        "00000000000000000100.txnindex": 34,
    }
    data = batch_v2(104)
    segment.append(data, ends_of(data))
    assert segment.read_next_offset() == 105


def test_cutting_to_the_middle_of_a_batch_takes_all_of_it() -> None:
    segment = new()
    data = batch_v2(100, 5) + batch_v2(105, 5)
    segment.append(data, ends_of(data))
    segment.truncate_to(107, 0)
    assert segment.read_next_offset() == 105
    segment.truncate_to(100, 77)
    assert (segment.size, segment.created_ms, segment.largest().timestamp) == (0, 77, -1)


def test_a_failed_write_leaves_the_segment_as_it_was() -> None:
    fs = MemoryFs({"/t-0/": b""}, room=200)
    segment = new(fs)
    fill(segment, 2)
    size = segment.size
    data = batch_v2(102)
    with pytest.raises(DiskFull):
        segment.append(data * 2, ends_of(data) * 2)
    assert segment.size == size == len(fs.contents()["t-0/00000000000000000100.log"])
    assert segment.read_next_offset() == 102


def test_a_write_that_can_not_be_taken_back_ends_the_segment() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = new(FaultFs(fs, 2, errno.EIO, forever=True, short_write=True, only={"append", "truncate"}))
    data = batch_v2(100)
    segment.append(data, ends_of(data))
    with pytest.raises(LogUnusable):
        segment.append(data, ends_of(data))


def test_a_segment_rolls_for_size_age_full_index_or_range() -> None:
    segment = new(limits=SegmentLimits(index_interval_bytes=0, max_index_bytes=36))
    how = {"max_bytes": 1000, "max_ms": 50}
    assert not segment.should_roll(1000, 100, TS, 0, **how)
    assert segment.should_roll(1001, 100, TS, 0, **how)
    assert segment.should_roll(1, 100 + 2**31, TS, 0, **how)
    assert segment.should_roll(1, 99, TS, 0, **how)
    fill(segment, 2)
    assert not segment.should_roll(1, 102, TS + 50, 10**15, **how)
    assert segment.should_roll(1, 102, TS + 51, 0, **how)
    fill_more = batch_v2(102)
    segment.append(fill_more, ends_of(fill_more))
    assert segment.indexes.is_full is False
    last = batch_v2(103, base_timestamp=TS + 99)
    segment.append(last, ends_of(last))
    assert segment.should_roll(1, 104, TS, 0, **how)


def test_where_the_first_batch_has_no_timestamp_the_clock_counts() -> None:
    segment = new()
    data = batch_v2(100, base_timestamp=-1)
    segment.append(data, ends_of(data))
    assert segment.waited_ms(TS, 30) == 30


def test_a_rename_takes_all_files_along_and_leaves_them_usable() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = LogSegment.create(fs, PLACE, 100, LIMITS, 0, state=FileState.CLEANED)
    fill(segment)
    segment.append_aborted(AbortedTxn(7, 100, 105, 106))
    segment.flush()
    for state in (FileState.SWAP, FileState.LIVE):
        segment.rename(state)
        assert sorted(fs.contents("/t-0")) == [
            f"00000000000000000100{role}{state.value}" for role in (".index", ".log", ".timeindex", ".txnindex")
        ]
    fill_from = batch_v2(108)
    segment.append(fill_from, ends_of(fill_from))
    segment.flush()
    assert segment.find(108) is not None
    segment.remove()
    assert fs.contents("/t-0") == {}


def test_forgotten_indexes_are_read_anew() -> None:
    fs = MemoryFs({"/t-0/": b""})
    segment = new(fs)
    fill(segment)
    before = bytes(segment.indexes.offsets.data)
    segment.indexes.forget()
    assert segment.indexes.offsets.data == before
    segment.flush()
    segment.indexes.forget()
    assert segment.indexes.offsets.data == before
    assert segment.find(105) is not None


def test_a_segment_lives_on_a_real_disk(tmp_path: Path) -> None:
    segment = LogSegment.create(OsFs(), tmp_path, 100, LIMITS, 0)
    fill(segment)
    assert segment.largest_timestamp_ms() == TS + 70
    segment.flush()
    place = segment.find(103)
    assert place is not None
    buffer = bytearray(place.size)
    assert segment.reader().read_into(place.position, memoryview(buffer)) == place.size
    assert bytes(buffer) == batch_v2(103, base_timestamp=TS + 30)
    segment.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000000100.index", "00000000000000000100.log", "00000000000000000100.timeindex",
    ]  # fmt: skip
