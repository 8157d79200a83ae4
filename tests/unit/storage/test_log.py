"""A log takes what its rules allow, refuses the rest unchanged, and says what is durable only once it is.

That its bytes and answers are Kafka's is shown by the scripts in tests/interop; here is what those can not show.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest
from support.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, TS, batch_v2, legacy, marker, record, reseal
from support.log_in_memory import NOW, PLACE, MemoryEpochs, add, batch, disk, opened
from support.memory_fs import FaultFs, MemoryFs

from storage.append_check import Care
from storage.batch import parse_header
from storage.errors import BatchCorrupt, DiskFull, UnsupportedFormat, WriteFault
from storage.fs import Fs
from storage.log import Log
from storage.log_types import Isolation
from storage.producers import Origin
from storage.record import records_of
from storage.refusals import (
    AppendTooLarge,
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransaction,
    LogUnusable,
    OffsetOutOfRange,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordTooLarge,
    UnexpectedOffset,
)

DAY = 86_400_000


def stored(log: Log) -> list[bytes]:
    """Return every batch of the log."""
    found = []
    for segment in log.segments:
        data = bytearray(segment.size)
        segment.reader().read_into(0, memoryview(data))
        position = 0
        while position < len(data):
            size = parse_header(data, position).size
            found.append(bytes(data[position : position + size]))
            position += size
    return found


def files(fs: MemoryFs) -> list[str]:
    return sorted(fs.contents(str(PLACE)))


# ---- leader


def test_offsets_and_epoch_are_set_in_a_copy_and_the_checksum_still_holds() -> None:
    log = opened(disk())
    sent = batch(3)
    for epoch in (4, 5):
        log.append_as_leader(sent, leader_epoch=epoch, now_ms=NOW)
    assert sent == batch(3)
    headers = [parse_header(each) for each in stored(log)]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers] == [(0, 2, 4), (3, 5, 5)]
    assert [reseal(each) for each in stored(log)] == stored(log)
    assert log.log_end == 6


def test_an_append_that_is_no_whole_batch_adds_nothing() -> None:
    log = opened(disk())
    assert log.append_as_leader(b"", leader_epoch=0, now_ms=NOW) is None
    assert log.append_as_leader(batch()[:-1], leader_epoch=0, now_ms=NOW) is None
    assert log.append_as_follower(batch()[:-1], leader_epoch=0, now_ms=NOW) is None
    whole = log.append_as_leader(batch() + batch()[:40], leader_epoch=0, now_ms=NOW)
    assert whole is not None
    assert (whole.first_offset, whole.last_offset, log.log_end) == (0, 0, 1)


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (batch() + batch(), InvalidRecord),
        (batch_v2(1), InvalidRecord),
        (batch(size=2000), RecordTooLarge),
        (batch()[:-1] + b"X", BatchCorrupt),
        (reseal(batch()[:16] + b"\3" + batch()[17:]), UnsupportedFormat),
        (batch(attributes=5), UnsupportedFormat),
        (batch_v2(0, 3, count=2), InvalidRecord),
        (batch_v2(0, 3, last_offset_delta=15), InvalidRecord),
        (batch_v2(0, [], count=0), InvalidRecord),
        (batch(attributes=CONTROL), InvalidRecord),
        (batch(producer_id=5, producer_epoch=0), InvalidRecord),
        (batch_v2(0, payload=b"rubbish", count=1), InvalidRecord),
        (batch_v2(0, payload=record() + b"more", count=1), InvalidRecord),
        (batch(base_timestamp=NOW + 3_600_001), InvalidTimestamp),
        (batch(attributes=LOG_APPEND_TIME, base_timestamp=-1), InvalidTimestamp),
        (bytes(100), BatchCorrupt),
    ],
)
def test_what_a_client_must_not_send_is_refused_and_nothing_is_written(sent: bytes, refusal: type[Exception]) -> None:
    fs = disk()
    log = opened(fs, max_message_bytes=1000)
    add(log)
    before = fs.contents()
    with pytest.raises(refusal):
        log.append_as_leader(sent, leader_epoch=0, now_ms=NOW)
    assert (fs.contents(), log.log_end) == (before, 1)
    assert add(log).first_offset == 1


def test_an_append_larger_than_a_segment_is_refused() -> None:
    log = opened(disk(), internal_segment_bytes=500)
    with pytest.raises(AppendTooLarge):
        add(log, size=600)


def test_a_compacted_topic_needs_keys() -> None:
    log = opened(disk(), cleanup_policy=("compact",))
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        log.append_as_leader(batch_v2(0, [record(0), record(1, key=None)]), leader_epoch=0, now_ms=NOW)
    assert add(log, 2).last_offset == 1


def test_records_that_are_too_old_are_told_one_by_one() -> None:
    log = opened(disk(), message_timestamp_before_max_ms=DAY)
    late = [record(n, timestamp_delta=-DAY * n) for n in range(6)]
    with pytest.raises(InvalidTimestamp, match=r"record 2 .*; record 3 .*; record 4 .*; and 1 more"):
        log.append_as_leader(batch_v2(0, late, max_timestamp=TS), leader_epoch=0, now_ms=TS)


def test_a_header_that_lies_about_time_is_believed_unless_every_record_is_looked_at() -> None:
    lying = batch_v2(0, [record(0, timestamp_delta=500)], max_timestamp=TS)
    for care, largest in ((Care.HEADERS, TS), (Care.ALL_RECORDS, TS + 500)):
        log = opened(disk())
        answer = log.append_as_leader(lying, leader_epoch=0, now_ms=NOW, care=care)
        assert answer is not None
        assert answer.max_timestamp == largest == parse_header(stored(log)[0]).max_timestamp
        assert stored(log) == [reseal(each) for each in stored(log)]
    far = batch_v2(0, [record(0, timestamp_delta=DAY)], max_timestamp=TS)
    with pytest.raises(InvalidTimestamp):
        opened(disk()).append_as_leader(far, leader_epoch=0, now_ms=NOW, care=Care.ALL_RECORDS)


def test_log_append_time_is_that_of_the_append() -> None:
    log = opened(disk(), message_timestamp_type="LogAppendTime")
    answer = add(log, 2)
    assert (answer.max_timestamp, answer.append_time_ms) == (NOW, NOW)
    (only,) = stored(log)
    assert [record.timestamp for record in records_of(memoryview(only))] == [NOW, NOW]
    assert reseal(only) == only


def test_old_formats_from_a_client_become_the_new_one() -> None:
    log = opened(disk())
    old = legacy(0, 1, timestamp=TS) + legacy(1, 1, value=None, timestamp=TS + 5)
    assert log.append_as_leader(old, leader_epoch=3, now_ms=NOW) is not None
    (only,) = stored(log)
    header = parse_header(only)
    assert (header.magic, header.record_count, header.leader_epoch, header.max_timestamp) == (2, 2, 3, TS + 5)


# ---- producers


def from_producer(log: Log, sequence: int, records: int = 1, epoch: int = 0, producer_id: int = 7, **more: Any) -> Any:
    return add(log, records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def test_the_last_five_batches_of_a_producer_are_answered_and_not_stored_again() -> None:
    log = opened(disk())
    for number in range(6):
        from_producer(log, number * 2, 2)
    for number in range(1, 6):
        again = from_producer(log, number * 2, 2)
        assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, number * 2, number * 2 + 1)
    assert len(stored(log)) == 6
    with pytest.raises(OutOfOrderSequence):
        from_producer(log, 0, 2)


def test_sequences_follow_one_another_and_wrap() -> None:
    log = opened(disk())
    from_producer(log, 2**31 - 2, 2)
    with pytest.raises(OutOfOrderSequence):
        from_producer(log, 1)
    from_producer(log, 0)
    with pytest.raises(OutOfOrderSequence):
        from_producer(log, 5, epoch=1)
    from_producer(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        from_producer(log, 1, epoch=0)


def test_after_a_restart_the_last_batch_of_a_producer_is_still_known() -> None:
    fs = disk()
    log = opened(fs)
    from_producer(log, 0)
    from_producer(log, 1, 3)
    log.close()
    log = opened(fs, is_clean=True)
    assert from_producer(log, 1, 3).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        from_producer(log, 0)
    assert from_producer(log, 4).first_offset == 4


def end_transaction(log: Log, *, commit: bool, epoch: int = 0, coordinator: int = 0, producer_id: int = 7) -> None:
    data = marker(0, producer_id, epoch, commit=commit, coordinator_epoch=coordinator)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)


def test_readers_of_committed_data_stop_at_the_first_open_transaction() -> None:
    log = opened(disk())
    from_producer(log, 0, 2, attributes=TRANSACTIONAL)
    add(log, 3)
    log.set_high_watermark(log.log_end)
    assert log.last_stable_offset == 0
    with pytest.raises(InvalidTransaction):
        from_producer(log, 2)
    end_transaction(log, commit=False)
    assert log.last_stable_offset == 0  # the marker is not replicated yet
    log.set_high_watermark(log.log_end)
    assert log.last_stable_offset == 6
    fetched = log.read(0, 1 << 20, isolation=Isolation.COMMITTED)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in fetched.aborted or ()] == [(7, 0, 5)]
    assert log.read(0, 1 << 20).aborted is None


def test_a_coordinator_that_was_replaced_is_fenced() -> None:
    log = opened(disk())
    end_transaction(log, commit=True, coordinator=2)
    with pytest.raises(CoordinatorFenced):
        end_transaction(log, commit=True, coordinator=1)
    with pytest.raises(InvalidProducerEpoch):
        end_transaction(log, commit=True, coordinator=2, epoch=-1)


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    log = opened(disk())
    from_producer(log, 0)
    from_producer(log, 0, producer_id=8, attributes=TRANSACTIONAL)
    assert log.expire_producers(NOW) == 0
    assert log.expire_producers(TS + DAY) == 1
    assert list(log.producers.state.entries) == [8]


# ---- follower


def test_a_follower_takes_offsets_and_gaps_as_they_come_but_nothing_below_its_end() -> None:
    log = opened(disk())
    log.append_as_follower(batch_v2(0, 2) + batch_v2(9, 2), leader_epoch=0, now_ms=NOW)
    assert [parse_header(each).base_offset for each in stored(log)] == [0, 9]
    with pytest.raises(UnexpectedOffset) as raised:
        log.append_as_follower(batch_v2(10, 2), leader_epoch=0, now_ms=NOW)
    assert (raised.value.first, raised.value.last, raised.value.log_end) == (10, 11, 11)
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(batch_v2(11, 2) + batch_v2(12), leader_epoch=0, now_ms=NOW)
    with pytest.raises(BatchCorrupt):
        log.append_as_follower(batch_v2(11) + batch_v2(12)[:-1] + b"X", leader_epoch=0, now_ms=NOW)
    with pytest.raises(InvalidRecord):
        log.append_as_follower(batch_v2(11, leader_epoch=-1), leader_epoch=0, now_ms=NOW)
    assert log.log_end == 11


def test_batches_of_a_later_epoch_are_left_out_with_all_behind_them() -> None:
    epochs = MemoryEpochs()
    log = opened(disk(), epochs)
    data = batch_v2(0, leader_epoch=1) + batch_v2(1, leader_epoch=2) + batch_v2(2, leader_epoch=1)
    assert log.append_as_follower(data, leader_epoch=1, now_ms=NOW) is not None
    assert (log.log_end, epochs.entries) == (1, [(1, 0)])
    assert log.append_as_follower(batch_v2(1, leader_epoch=2), leader_epoch=1, now_ms=NOW) is None


def test_a_follower_checks_every_batch_before_it_writes_the_first() -> None:
    log = opened(disk())
    opens = batch_v2(0, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    plain = [batch_v2(offset, producer_id=7, producer_epoch=0, base_sequence=1) for offset in (1, 2)]
    with pytest.raises(InvalidTransaction):
        log.append_as_follower(opens + plain[0], leader_epoch=0, now_ms=NOW)
    assert (log.log_end, log.producers.state.entries) == (0, {})
    assert log.append_as_follower(opens + marker(1, 7, commit=True) + plain[1], leader_epoch=0, now_ms=NOW)


def test_an_old_format_drops_the_epochs() -> None:
    epochs = MemoryEpochs()
    log = opened(disk(), epochs)
    add(log, leader_epoch=3)
    log.append_as_follower(legacy(1, 1), leader_epoch=3, now_ms=NOW)
    assert epochs.entries == []
    add(log, leader_epoch=3)
    assert epochs.entries == [(3, 2)]


def test_an_epoch_is_noted_before_its_first_batch_is_written() -> None:
    fs = disk()
    log = opened(fs, MemoryEpochs(fs))
    add(log, leader_epoch=3)
    methods = [str(effect) for effect in fs.history]
    noted = next(n for n, text in enumerate(methods) if "leader-epoch-checkpoint" in text and "rename" in text)
    written = next(n for n, text in enumerate(methods) if ".log" in text and text.startswith("append"))
    assert noted < written
    assert methods[noted + 1].startswith("sync_dir")


# ---- rolling, flushing, closing


def test_a_roll_leaves_a_sealed_segment_a_snapshot_and_an_empty_segment() -> None:
    fs = disk()
    log = opened(fs)
    add(log, 5)
    assert log.roll(NOW).base_offset == 5
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    assert log.roll(NOW).base_offset == 5
    assert len(log.segments) == 2
    log.flush(log.roll(NOW).base_offset)
    assert files(fs) == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "00000000000000000005.log", "00000000000000000005.snapshot",
    ]  # fmt: skip
    assert fs.contents(str(PLACE))["00000000000000000000.timeindex"].hex() == f"{TS + 4:016x}00000004"


def test_segments_roll_by_message_time_and_the_append_says_so() -> None:
    log = opened(disk(), segment_ms=1000)
    add(log)
    assert add(log, base_timestamp=TS + 1000).rolled is None
    assert add(log, base_timestamp=TS + 1001).rolled == (2,)


def test_the_recovery_point_moves_only_behind_a_flush() -> None:
    log = opened(disk())
    add(log, 5)
    assert log.recovery_point == 0
    assert log.flush() == 5
    add(log, 5)
    assert log.flush(5) == 5
    log = opened(disk(), flush_messages=4)
    add(log, 3)
    assert log.recovery_point == 0
    add(log)
    assert log.recovery_point == 4


def test_a_closed_log_opens_as_it_was_and_refuses_further_changes() -> None:
    fs = disk()
    log = opened(fs, internal_segment_bytes=400)
    for _ in range(10):
        add(log, 2)
    log.close()
    for change in (lambda: add(log), log.flush, log.close, lambda: log.roll(NOW), lambda: log.truncate_to(3, NOW)):
        with pytest.raises(LogUnusable, match="closed"):
            change()
    before = fs.contents()
    again = opened(fs, is_clean=True, internal_segment_bytes=400)
    assert (again.log_end, again.recovery_point, len(stored(again))) == (20, 20, 10)
    assert fs.contents() == before
    again.close()
    assert fs.contents() == before


def test_a_log_that_recovery_has_to_see_first_is_not_opened() -> None:
    for name in ("00000000000000000000.log.swap", "00000000000000000000.index.cleaned"):
        with pytest.raises(LogUnusable, match="recovery has to run first"):
            opened(MemoryFs({f"{PLACE}/{name}": b""}))


def test_a_log_that_was_cut_below_its_start_begins_there_anew() -> None:
    fs = disk()
    log = opened(fs)
    add(log, 1)
    add(log, 5)
    log.set_high_watermark(6)
    log.set_log_start(3)
    log.truncate_to(4, NOW)  # takes the whole batch of the offsets 1 to 5
    assert (log.log_start, log.log_end) == (3, 4)
    log.close()
    again = opened(fs, is_clean=True, log_start=3)
    assert (again.log_start, again.log_end, [segment.base_offset for segment in again.segments]) == (3, 3, [3])
    assert [path.name for path in again.removed_on_open][:1] == ["00000000000000000000.log.deleted"]
    assert add(again).first_offset == 3


def test_deleted_files_go_when_the_log_is_opened() -> None:
    fs = MemoryFs({f"{PLACE}/00000000000000000007.log.deleted": b"x", f"{PLACE}/notes.txt": b""})
    opened(fs)
    assert files(fs) == ["00000000000000000000.log", "notes.txt"]


def test_a_bad_snapshot_is_dropped_and_the_log_is_asked_instead() -> None:
    fs = disk()
    log = opened(fs)
    from_producer(log, 0)
    log.close()
    fs.plant(PLACE / "00000000000000000001.snapshot", content=b"rubbish")
    again = opened(fs, is_clean=True)
    assert from_producer(again, 0).is_duplicate
    assert fs.contents(str(PLACE))["00000000000000000001.snapshot"] != b"rubbish"


# ---- reading


def test_ranges_begin_with_a_batch_and_never_cross_a_segment() -> None:
    log = opened(disk())
    for _ in range(4):
        add(log, 5)
    log.roll(NOW)
    add(log, 5)
    size = len(batch(5))
    fetched = log.read(7, 10)
    assert (fetched.position, fetched.size, fetched.is_first_cut) == (size, size, False)
    assert bytes(fetched.load()) == stored(log)[1]
    cut = log.read(7, 10, min_one=False)
    assert (cut.size, cut.is_first_cut) == (10, True)
    assert log.read(7, 1 << 20).size == 3 * size
    assert log.read(20, 1 << 20).size == size
    assert log.read(25, 1 << 20).size == 0
    for offset in (26, -1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1)


def test_readers_below_the_high_watermark_see_no_more() -> None:
    log = opened(disk())
    for _ in range(3):
        add(log, 5)
    log.set_high_watermark(10)
    assert log.read(0, 1 << 20, isolation=Isolation.HIGH_WATERMARK).size == 2 * len(batch(5))
    assert log.read(10, 1 << 20, isolation=Isolation.HIGH_WATERMARK).size == 0
    assert log.set_high_watermark(99) == 15


def test_a_record_is_found_by_its_time_and_by_names_of_times() -> None:
    log = opened(disk())
    add(log, 5)
    add(log, 5, base_timestamp=TS + 100)
    add(log, 1, base_timestamp=TS + 50)
    assert log.offset_for_time(TS + 2) == (TS + 2, 2)
    assert log.offset_for_time(TS + 5) == (TS + 100, 5)
    assert log.offset_for_time(TS + 105) is None
    assert log.offset_for_time(-1) == (-1, 11)
    assert log.offset_for_time(-2) == (-1, 0)
    assert log.offset_for_time(-3) == (TS + 104, 9)


# ---- truncation and log start


def test_truncation_takes_segments_batches_epochs_and_what_producers_did() -> None:
    fs, epochs = disk(), MemoryEpochs()
    log = opened(fs, epochs)
    from_producer(log, 0, 5)
    log.roll(NOW)
    from_producer(log, 5, 5, leader_epoch=1)
    log.roll(NOW)
    from_producer(log, 10, 5, leader_epoch=2)
    log.set_high_watermark(15)
    log.flush()
    done = log.truncate_to(7, NOW)
    assert (done.log_end, done.recovery_point, log.high_watermark) == (7, 7, 7)
    assert sorted(path.name for path in done.removed) == [
        "00000000000000000010.index.deleted", "00000000000000000010.log.deleted",
        "00000000000000000010.snapshot.deleted", "00000000000000000010.timeindex.deleted",
    ]  # fmt: skip
    assert (len(stored(log)), epochs.entries) == (1, [(0, 0), (1, 5)])
    assert from_producer(log, 5, 2).first_offset == 7
    assert log.truncate_to(99, NOW).removed == ()


def test_full_truncation_begins_anew_where_it_is_told() -> None:
    fs, epochs = disk(), MemoryEpochs()
    log = opened(fs, epochs)
    from_producer(log, 0, 5)
    log.roll(NOW)
    log.flush()
    log.truncate_fully(5, NOW)
    assert (log.log_start, log.log_end, log.recovery_point, log.high_watermark) == (5, 5, 5, 5)
    assert (epochs.entries, log.producers.state.entries) == ([], {})
    assert add(log).first_offset == 5
    log.truncate_to(3, NOW)  # below the first segment
    assert (log.log_start, log.log_end) == (3, 3)


def test_the_log_start_moves_upward_only_and_not_past_the_high_watermark() -> None:
    log = opened(disk())
    add(log, 5)
    with pytest.raises(OffsetOutOfRange):
        log.set_log_start(3)
    log.set_high_watermark(5)
    assert (log.set_log_start(3), log.set_log_start(2), log.log_start) == (True, False, 3)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 1)
    assert log.offset_for_time(TS) == (TS + 3, 3)


# ---- a disk that refuses


def failing(method: str, number: int, how: int = errno.EIO) -> tuple[MemoryFs, Log]:
    fs = disk()
    faulty: Fs = FaultFs(fs, number, how, short_write=True, only={method})
    return fs, opened(faulty)


def test_a_full_disk_leaves_nothing_torn_and_the_log_goes_on() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    whole = fs.contents()
    with pytest.raises(DiskFull):
        add(log)
    assert (fs.contents(), log.log_end) == (whole, 1)
    assert add(log).first_offset == 1


def test_a_full_disk_at_a_roll_leaves_the_old_segment_active() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    whole = fs.contents()
    with pytest.raises(DiskFull):
        log.roll(NOW)
    assert (fs.contents(), [segment.base_offset for segment in log.segments]) == (whole, [0])
    assert log.roll(NOW).base_offset == 1


def test_an_index_that_can_not_be_written_is_tried_again() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    log.segments.active.seal()
    with pytest.raises(DiskFull):
        log.flush()
    assert log.recovery_point == 0
    assert log.flush() == 1
    assert len(fs.contents(str(PLACE))["00000000000000000000.timeindex"]) == 12


@pytest.mark.parametrize("method", ["sync", "sync_dir"])
def test_a_failed_sync_is_never_tried_again(method: str) -> None:
    _, log = failing(method, 1)
    add(log)
    with pytest.raises(WriteFault):
        log.flush()
    assert log.recovery_point == 0
    for change in (log.flush, lambda: add(log), log.close):
        with pytest.raises(LogUnusable):
            change()
    log.close_abruptly()


def test_an_append_behind_a_gap_that_failed_leaves_a_log_that_goes_on() -> None:
    fs = disk()
    log = opened(FaultFs(fs, 3, errno.ENOSPC, only={"append"}))
    add(log)
    far = 2**31 + 5  # needs a new segment
    with pytest.raises(DiskFull):
        log.append_as_follower(batch_v2(far), leader_epoch=0, now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert add(log).first_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.close()
    assert opened(fs, is_clean=True).log_end == 2
