"""What compaction keeps of a log, and how it puts the new segments in place of the old ones."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import PurePath

import pytest
from support.batches import CONTROL, TRANSACTIONAL, TS, batch_v2, legacy, marker, record
from support.cleaning import batches_of, compact, offsets_in, records_in, segments_of, write_log
from support.memory_fs import FaultFs, MemoryFs

from storage.base.config import LogConfig
from storage.base.errors import LogmendError, UnsupportedFormat, WriteFault
from storage.cleanup.compaction import OffsetsOverflow, Round, Uncleanable, group_segments
from storage.index.txn_index import decode_txn_index

PLACE = PurePath("/t-0")
CONFIG = LogConfig(index_interval_bytes=100, delete_retention_ms=1000, internal_segment_bytes=100_000)
SINGLE = LogConfig(index_interval_bytes=100, delete_retention_ms=1000, internal_segment_bytes=1)
"""With it every segment stays a segment of its own."""


def key(number: int) -> bytes:
    return b"key-%d" % number


def one(offset: int, number: int, value: bytes | None = b"v", *, codec: int = 0, **more: object) -> bytes:
    """A batch of one record."""
    return batch_v2(offset, [record(key=key(number), value=value)], attributes=codec, **more)  # type: ignore[arg-type]


def data(offset: int, producer: int, *numbers: int, sequence: int = 0, transactional: bool = True) -> bytes:
    """A batch of a producer with one record for each key."""
    records = [record(n, key=key(number)) for n, number in enumerate(numbers)]
    attributes = TRANSACTIONAL if transactional else 0
    return batch_v2(
        offset, records, producer_id=producer, producer_epoch=0, base_sequence=sequence, attributes=attributes
    )


def written(*segments: Sequence[bytes], config: LogConfig = CONFIG) -> tuple[MemoryFs, list[int]]:
    fs = MemoryFs({"/t-0/": b""})
    return fs, write_log(fs, PLACE, segments, config)


def clean(fs: MemoryFs, end: int, start: int = 0, *, now: int = TS, config: LogConfig = CONFIG, **more: object):
    return compact(PLACE, config, Round(start, end, now), fs=fs, **more)  # type: ignore[arg-type]


def bases_in(fs: MemoryFs) -> list[int]:
    return sorted(int(name[:20]) for name in fs.entries(PLACE) if name.endswith(".log"))


# ---- keys


def test_the_newest_record_of_each_key_stays_where_it_was() -> None:
    fs, bases = written([one(n, n % 3) for n in range(10)], [one(10, 1), one(11, 5)])
    done = clean(fs, bases[-1])
    assert [(offset, name) for offset, name, _ in records_in(fs, PLACE)] == [
        (8, key(2)), (9, key(0)), (10, key(1)), (11, key(5)),
    ]  # fmt: skip
    assert done.next_dirty == 12
    assert done.records_written == 4


def test_segments_that_fit_together_become_one_with_the_base_of_the_first() -> None:
    fs, bases = written([one(0, 0)], [one(1, 1)], [one(2, 0)])
    clean(fs, bases[-1])
    assert bases_in(fs) == [0, 3]
    assert records_in(fs, PLACE)[0][0] == 1


def test_the_active_segment_and_all_from_the_first_uncleanable_offset_on_are_left_alone() -> None:
    fs, _ = written(*[[one(n * 2, 1), one(n * 2 + 1, 2)] for n in range(7)], config=SINGLE)
    before = fs.contents("/t-0")
    done = clean(fs, 4, config=SINGLE)
    after = fs.contents("/t-0")
    assert done.next_dirty == 4
    assert [name for name in before if before[name] != after.get(name)] == [
        f"{n:020d}{suffix}" for n in (0, 2) for suffix in (".log", ".timeindex")
        if before[f"{n:020d}{suffix}"] != after[f"{n:020d}{suffix}"]
    ]  # fmt: skip
    assert len(records_in(fs, PLACE)) == 2 + 10


def test_records_behind_what_the_map_holds_are_kept() -> None:
    fs, bases = written([one(n, n) for n in range(6)], [one(6, 0), one(7, 1)])
    done = clean(fs, bases[-1], map_bytes=24 * 4, load_factor=1.0)
    assert done.next_dirty == 4
    assert [offset for offset, _, _ in records_in(fs, PLACE)] == list(range(8))


def test_cleaning_goes_on_where_the_round_before_has_ended() -> None:
    fs, bases = written([one(n, n % 4) for n in range(8)], [one(8 + n, n % 4) for n in range(8)], config=SINGLE)
    done = clean(fs, bases[-1], map_bytes=24 * 3, load_factor=1.0, config=SINGLE)
    rounds = 1
    while done.next_dirty < bases[-1]:
        assert rounds < 20
        done = clean(fs, bases[-1], done.next_dirty, map_bytes=24 * 3, load_factor=1.0, config=SINGLE)
        rounds += 1
    assert [(offset, name) for offset, name, _ in records_in(fs, PLACE)] == [(12 + n, key(n)) for n in range(4)]
    assert rounds > 1


def test_records_without_a_key_are_dropped_and_counted() -> None:
    unkeyed = batch_v2(0, [record(key=None), record(1, key=key(1)), record(2, key=None)])
    fs, bases = written([unkeyed, one(3, 2)])
    assert clean(fs, bases[-1]).records_without_key == 2
    assert offsets_in(fs, PLACE) == [1, 3]


def test_the_next_dirty_offset_lies_behind_holes_at_the_end_of_segments() -> None:
    fs, bases = written([one(0, 0), one(5, 1)], [one(100, 0)])
    assert bases == [0, 100, 101]
    assert clean(fs, 100, config=SINGLE).next_dirty == 100


def test_an_empty_range_changes_nothing() -> None:
    fs, _ = written([one(0, 0)])
    before = fs.contents("/t-0")
    assert clean(fs, 1, 1).next_dirty == 1
    assert fs.contents("/t-0") == before


def test_the_last_batch_of_the_range_stays_empty_so_that_its_offset_is_known() -> None:
    fs, _ = written([one(0, 1)], [one(1, 2)], [one(2, 1), batch_v2(3, [record(key=None)])], [one(4, 2)])
    done = clean(fs, 4)
    last = batches_of(fs, PLACE)[-2]
    assert (last.header.base_offset, last.header.size, last.header.record_count) == (3, 61, 0)
    assert done.next_dirty == 4


@pytest.mark.parametrize("codec", range(5))
def test_what_is_left_of_a_batch_keeps_offsets_timestamps_and_headers(codec: int) -> None:
    from storage.batch.record import Record, encode_batch  # noqa: PLC0415 (only here)

    records = [Record(n, TS + n * 7, key=key(n), value=b"x" * 50, headers=(("h", b"1"), ("n", None))) for n in range(6)]
    whole = encode_batch(records, codec=codec, leader_epoch=7)
    fs, bases = written([whole, one(6, 0), one(7, 5), one(8, 2)])
    clean(fs, bases[-1])
    header, left = batches_of(fs, PLACE)[0]
    assert [record._replace(timestamp_type=records[0].timestamp_type) for record in left] == [
        records[1], records[3], records[4],
    ]  # fmt: skip
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.codec) == (0, 5, 7, codec)
    assert (header.base_timestamp, header.max_timestamp) == (TS + 7, TS + 28)


def test_a_batch_larger_than_the_buffer_is_cleaned() -> None:
    large = batch_v2(0, [record(key=key(1), value=b"x" * 50_000), record(1, key=key(2), value=b"y" * 50_000)])
    fs, bases = written([large, one(2, 1), one(3, 3)])
    clean(fs, bases[-1], io_buffer_bytes=1024)
    assert [(offset, len(value or b"")) for offset, _, value in records_in(fs, PLACE)] == [(1, 50_000), (2, 1), (3, 1)]


# ---- tombstones


def test_a_tombstone_stays_until_the_horizon_that_the_first_round_gives_it_has_passed() -> None:
    fs, bases = written([one(0, 1)], [one(1, 1, None)], [one(2, 2)])
    clean(fs, bases[-1], now=TS)
    (tombstone, _) = batches_of(fs, PLACE)
    assert (tombstone.header.has_delete_horizon, tombstone.header.base_timestamp) == (True, TS + 1000)
    assert tombstone.records[0].timestamp == TS
    clean(fs, bases[-1], now=TS + 999)
    assert offsets_in(fs, PLACE) == [1, 2]
    clean(fs, bases[-1], now=TS + 1000)
    assert offsets_in(fs, PLACE) == [2]


def test_a_tombstone_that_is_to_be_kept_for_ever_gets_no_horizon() -> None:
    for_ever = LogConfig(delete_retention_ms=2**63 - 1, internal_segment_bytes=100_000)
    fs, bases = written([one(0, 1), legacy(1, 1, key=key(3), value=None)], [one(2, 1, None)], [one(3, 2)])
    for now in (TS, TS + 10**15):
        clean(fs, bases[-1], now=now, config=for_ever)
        assert [(b.header.base_offset, b.header.has_delete_horizon) for b in batches_of(fs, PLACE)] == [
            (1, False), (2, False), (3, False),
        ]  # fmt: skip


def test_timestamps_of_records_do_not_let_a_tombstone_go() -> None:
    late = one(0, 1, base_timestamp=TS + 10**9)
    early = one(1, 1, None, base_timestamp=TS - 10**9)
    fs, bases = written([late, early], [one(2, 2)])
    for now in (TS, TS + 1):
        clean(fs, bases[-1], now=now)
    assert offsets_in(fs, PLACE) == [1, 2]


def test_keys_with_a_tombstone_are_gone_at_once() -> None:
    fs, bases = written([one(n, n) for n in range(8)], [one(8 + n, 2 * n, None) for n in range(4)])
    clean(fs, bases[-1])
    assert [name for _, name, value in records_in(fs, PLACE) if value] == [key(1), key(3), key(5), key(7)]


# ---- producers and transactions


def test_the_last_batch_of_each_producer_stays_emptied_if_need_be() -> None:
    fs, bases = written(
        [data(0, 1, 9, 9, transactional=False), data(2, 2, 9, 9, transactional=False)],
        [data(4, 3, 9, transactional=False)],
    )
    clean(fs, bases[-1])
    found = batches_of(fs, PLACE)
    assert [(batch.header.last_offset, batch.header.record_count) for batch in found] == [(1, 0), (3, 0), (4, 1)]
    assert [batch.header.last_sequence for batch in found] == [1, 1, 0]


def test_data_of_an_aborted_transaction_goes_and_its_marker_and_entry_stay() -> None:
    fs, bases = written(
        [
            data(0, 1, 1),
            data(1, 2, 2),
            data(2, 1, 2, sequence=1),
            marker(3, 2, commit=True),
            marker(4, 1, commit=False),
        ],
        [data(5, 1, 9, sequence=2), marker(6, 1, commit=True), one(7, 4)],
    )
    clean(fs, bases[-1])
    assert [offset for offset, _, _ in records_in(fs, PLACE)] == [1, 5, 7]
    (aborted,) = decode_txn_index(fs.contents("/t-0")[f"{0:020d}.txnindex"])
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (1, 0, 4)
    assert [batch.header.base_offset for batch in batches_of(fs, PLACE) if batch.header.is_control] == [3, 4, 6]


def test_a_commit_marker_goes_two_rounds_after_the_last_record_of_its_transaction() -> None:
    fs, bases = written(
        [data(0, 1, 1, 2), marker(2, 1, commit=True)],
        [data(3, 1, 1, sequence=2), data(4, 1, 2, sequence=3), marker(5, 1, commit=True), one(6, 7)],
    )
    clean(fs, bases[-1])
    assert offsets_in(fs, PLACE) == [2, 3, 4, 5, 6]
    clean(fs, bases[-1])
    first = batches_of(fs, PLACE)[0].header
    assert (first.base_offset, first.has_delete_horizon, first.base_timestamp) == (2, True, TS + 1000)
    clean(fs, bases[-1], now=TS + 999)
    assert offsets_in(fs, PLACE) == [2, 3, 4, 5, 6]
    clean(fs, bases[-1], now=TS + 1000)
    assert offsets_in(fs, PLACE) == [3, 4, 5, 6]


def test_the_emptied_last_batch_of_a_producer_keeps_its_commit_marker() -> None:
    fs, bases = written([data(0, 1, 1, 2), marker(2, 1, commit=True)], [one(3, 1), one(4, 2), one(5, 3)])
    for now in (TS, TS + 5000, TS + 10_000):
        clean(fs, bases[-1], now=now)
        assert offsets_in(fs, PLACE) == [2, 3, 4, 5]
        assert batches_of(fs, PLACE)[0].header.record_count == 0


def test_an_abort_marker_whose_data_is_gone_loses_first_its_entry_and_then_goes() -> None:
    fs, bases = written(
        [data(0, 1, 1), marker(1, 1, commit=False)], [data(2, 1, 2, sequence=1), marker(3, 1, commit=True), one(4, 3)]
    )
    clean(fs, bases[-1])
    assert f"{0:020d}.txnindex" in fs.entries(PLACE)
    clean(fs, bases[-1])
    assert f"{0:020d}.txnindex" not in fs.entries(PLACE)
    assert offsets_in(fs, PLACE) == [1, 2, 3, 4]
    clean(fs, bases[-1], now=TS + 1000)
    assert offsets_in(fs, PLACE) == [2, 3, 4]


def test_a_marker_that_is_all_there_is_of_a_producer_stays_as_an_empty_batch() -> None:
    fs, bases = written([marker(0, 1, commit=True), one(1, 1)], [one(2, 1)])
    for now in (TS, TS + 5000, TS + 10_000):
        clean(fs, bases[-1], now=now)
    first = batches_of(fs, PLACE)[0].header
    assert (first.base_offset, first.size, first.is_control, first.producer_id) == (0, 61, True, 1)


def test_a_control_batch_of_another_kind_is_never_discarded() -> None:
    leader_change = batch_v2(0, [record(key=bytes((0, 0, 0, 2)), value=b"\0")], attributes=CONTROL)
    fs, bases = written([leader_change, one(1, 1)])
    for now in (TS, TS + 5000, TS + 10_000):
        clean(fs, bases[-1], now=now)
    assert offsets_in(fs, PLACE) == [0, 1]


def test_an_aborted_transaction_that_ended_before_the_dirty_part_hides_no_later_data_of_its_producer() -> None:
    fs, bases = written(
        [data(0, 1, 1), marker(1, 1, commit=False), one(2, 2), data(3, 1, 2, sequence=1), marker(4, 1, commit=True)],
        [one(5, 4)],
    )
    clean(fs, bases[-1], 3)
    assert [offset for offset, _, _ in records_in(fs, PLACE)] == [3, 5]


# ---- older formats


def test_what_stays_of_older_formats_becomes_magic_2() -> None:
    entries = [legacy(0, 0, key=key(0)), legacy(1, 1, key=key(1)), legacy(2, 1, key=key(0)), legacy(3, 1, key=key(2))]
    fs, bases = written(entries)
    clean(fs, bases[-1])
    found = batches_of(fs, PLACE)
    assert [(batch.header.magic, batch.header.base_offset, batch.header.last_offset) for batch in found] == [
        (2, 1, 1), (2, 2, 2), (2, 3, 3),
    ]  # fmt: skip
    assert [batch.records[0].timestamp for batch in found] == [TS] * 3


def test_an_older_batch_of_which_only_the_offset_is_wanted_becomes_an_empty_one() -> None:
    fs, _ = written([legacy(0, 1, key=key(0)), legacy(1, 0, key=None)], [one(2, 0)])
    clean(fs, 2, config=SINGLE)
    last = batches_of(fs, PLACE)[-2].header
    assert (last.magic, last.base_offset, last.last_offset, last.size, last.max_timestamp) == (2, 1, 1, 61, -1)


# ---- what must not be rewritten


@pytest.mark.parametrize("first_dirty", [0, 4])
def test_an_unsound_batch_makes_the_log_uncleanable_and_leaves_it_as_it_was(first_dirty: int) -> None:
    fs, bases = written([one(n, 1) for n in range(4)], [one(n, 1) for n in range(4, 8)])
    files = fs.contents("/t-0")
    size = len(one(0, 1))
    rotten = bytearray(files[f"{0:020d}.log"])
    rotten[2 * size + 65] ^= 1
    files[f"{0:020d}.log"] = bytes(rotten)
    fs = MemoryFs({f"/t-0/{name}": content for name, content in files.items()})
    with pytest.raises(Uncleanable) as caught:
        clean(fs, bases[-1], first_dirty)
    assert caught.value.path == PLACE / f"{0:020d}.log"
    assert caught.value.position == 2 * size
    assert fs.contents("/t-0") == files


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (batch_v2(1, payload=b"\x02rubbish", count=1), "byte 0 of the records"),
        (batch_v2(1, payload=b"rubbish", count=1, attributes=1), "gzip: no header"),
        (one(1, 1)[:-3], "71 bytes that are no whole batch"),
    ],
)
def test_records_that_do_not_parse_make_the_log_uncleanable(batch: bytes, reason: str) -> None:
    fs, _ = written([one(0, 1)])
    log = fs.contents("/t-0")[f"{0:020d}.log"] + batch
    fs = MemoryFs({f"/t-0/{0:020d}.log": log, f"/t-0/{9:020d}.log": b""})
    with pytest.raises(Uncleanable, match=reason) as caught:
        clean(fs, 9)
    assert caught.value.position == len(one(0, 1))


def test_an_unknown_codec_is_unsupported_and_not_corrupt() -> None:
    fs, bases = written([one(0, 1), batch_v2(1, payload=b"?", count=1, attributes=6)])
    with pytest.raises(UnsupportedFormat, match="codec 6") as caught:
        clean(fs, bases[-1])
    assert caught.value.position == len(one(0, 1))


def test_a_segment_with_offsets_out_of_range_is_named_so_that_it_can_be_split_and_nothing_is_left_behind() -> None:
    fs, _ = written([one(0, 1), one(2**31, 2)], [one(2**31 + 1, 3)])
    before = fs.contents(str(PLACE))
    with pytest.raises(OffsetsOverflow, match="out of the range") as caught:
        clean(fs, 2**31 + 1)
    assert caught.value.segment.base_offset == 0
    assert fs.contents(str(PLACE)) == before


# ---- ends of a round before its time


class Stopped(LogmendError):
    """What the throttle raises here."""


def test_a_throttle_that_raises_ends_the_round_and_leaves_no_cleaned_file() -> None:
    fs, bases = written(*[[one(n, 1)] for n in range(4)], config=SINGLE)
    seen: list[int] = []

    def throttle(size: int) -> None:
        seen.append(size)
        if len(seen) == 9:  # the map was read in 4 pieces, and the third segment is being written
            raise Stopped

    with pytest.raises(Stopped):
        clean(fs, bases[-1], config=SINGLE, throttle=throttle)
    assert not [name for name in fs.entries(PLACE) if name.endswith((".cleaned", ".swap"))]
    assert offsets_in(fs, PLACE)[-1] == 3
    assert clean(fs, bases[-1], config=SINGLE).next_dirty == 4


def test_the_throttle_is_told_of_all_that_is_read_and_written() -> None:
    fs, bases = written([one(n, n) for n in range(4)])
    sizes: list[int] = []
    done = clean(fs, bases[-1], throttle=sizes.append)
    assert sum(sizes) == done.bytes_read + done.bytes_written
    assert (done.bytes_read, done.bytes_written) == (8 * len(one(0, 0)), 4 * len(one(0, 0)))


@pytest.mark.parametrize("method", ["create", "append", "set_mtime", "sync"])
def test_a_disk_that_refuses_before_the_swap_leaves_the_log_as_it_was(method: str) -> None:
    fs, bases = written([one(n, n) for n in range(9)])
    before = fs.contents("/t-0")
    counting = FaultFs(MemoryFs({f"/t-0/{name}": data for name, data in before.items()}), 0, errno.EIO, only=[method])
    clean(counting, bases[-1], io_buffer_bytes=400)  # type: ignore[arg-type]
    assert counting.calls
    for nth in range(1, counting.calls + 1):
        with pytest.raises(WriteFault):
            clean(FaultFs(fs, nth, errno.ENOSPC, only=[method]), bases[-1], io_buffer_bytes=400)  # type: ignore[arg-type]
        assert fs.contents("/t-0") == before


def test_what_an_earlier_round_has_left_is_overwritten() -> None:
    fs, bases = written([one(0, 1), one(1, 1)])
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        fs.plant(PLACE / f"{0:020d}{suffix}.cleaned", content=b"stale")
    clean(fs, bases[-1])
    assert offsets_in(fs, PLACE) == [1]
    assert not [name for name in fs.entries(PLACE) if name.endswith(".cleaned")]


# ---- files


def test_the_modification_time_is_that_of_the_last_source_and_durable() -> None:
    fs, bases = written([one(0, 1)], [one(1, 1)])
    fs.set_mtime(PLACE / f"{1:020d}.log", 1_600_000_000_123_456_789)
    clean(fs, bases[-1])
    (left,) = [state for state in fs.crash_states() if f"{0:020d}.log.deleted" not in state.to_fs(fs).entries(PLACE)][
        :1
    ]
    for found in (fs, left.to_fs(fs)):
        for suffix in (".log", ".index", ".timeindex"):
            assert found.stat(PLACE / f"{0:020d}{suffix}").mtime_ns == 1_600_000_000_123_000_000


def test_the_snapshots_of_segments_that_were_merged_away_are_deleted() -> None:
    fs, bases = written([one(0, 1)], [one(1, 1)], [one(2, 2)])
    for base in bases[:3]:
        fs.plant(PLACE / f"{base:020d}.snapshot")
    clean(fs, bases[-1], removes=False)
    names = list(fs.entries(PLACE))
    assert [name for name in names if ".snapshot" in name] == [
        f"{0:020d}.snapshot", f"{1:020d}.snapshot.deleted", f"{2:020d}.snapshot.deleted", f"{3:020d}.snapshot",
    ]  # fmt: skip
    assert [name for name in names if name.endswith(".log.deleted")] == [f"{n:020d}.log.deleted" for n in range(3)]


# ---- groups


def groups(fs: MemoryFs, config: LogConfig, uncleanable: int) -> list[list[int]]:
    segments = [segment for segment in segments_of(fs, PLACE, config) if segment.base_offset < uncleanable]
    return [[int(s.base_offset) for s in group] for group in group_segments(segments, config, uncleanable)]  # type: ignore[arg-type]


def test_segments_are_grouped_by_the_bytes_of_log_and_indexes() -> None:
    size = len(one(0, 0))
    fs, bases = written(*[[one(3 * n, n), one(3 * n + 1, n), one(3 * n + 2, n)] for n in range(9)])
    assert groups(fs, CONFIG, bases[-1]) == [bases[:-1]]
    assert groups(fs, SINGLE, bases[-1]) == [[base] for base in bases[:-1]]
    threes = LogConfig(index_interval_bytes=100, internal_segment_bytes=9 * size)
    assert groups(fs, threes, bases[-1]) == [bases[0:3], bases[3:6], bases[6:9]]
    by_index = LogConfig(index_interval_bytes=100, internal_segment_bytes=10**6, segment_index_bytes=36)
    assert fs.stat(PLACE / f"{0:020d}.timeindex").size == 12
    assert groups(fs, by_index, bases[-1]) == [bases[0:3], bases[3:6], bases[6:9]]


def test_a_group_keeps_to_the_range_of_relative_offsets_by_what_may_come() -> None:
    top = 2**31 - 1
    fs, bases = written([one(0, 0)], [one(top, 1)])
    assert groups(fs, CONFIG, bases[-1]) == [[0, top]]
    fs, bases = written([one(0, 0)], [one(top + 1, 1)])
    assert groups(fs, CONFIG, bases[-1]) == [[0], [top + 1]]
    fs, bases = written([one(0, 0)], [one(1, 1)], [one(top + 2, 1)])
    assert groups(fs, CONFIG, bases[-1]) == [[0], [1], [top + 2]]


def test_an_empty_segment_joins_any_group() -> None:
    fs = MemoryFs({f"/t-0/{0:020d}.log": one(0, 0), f"/t-0/{2**33:020d}.log": b"", f"/t-0/{2**34:020d}.log": b""})
    assert groups(fs, CONFIG, 2**34) == [[0, 2**33]]


def test_a_segment_without_a_record_left_stays_as_an_empty_file() -> None:
    fs, bases = written([one(0, 1)], [one(1, 1)], config=SINGLE)
    clean(fs, bases[-1], config=SINGLE)
    assert fs.stat(PLACE / f"{0:020d}.log").size == 0
    assert bases_in(fs) == [0, 1, 2]
