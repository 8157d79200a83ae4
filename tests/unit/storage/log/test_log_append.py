"""What a leader and a follower take, refuse and make of what they are sent; a refusal leaves the log as it was."""

from __future__ import annotations

import pytest
from support.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, TS, batch_v2, legacy, marker, record, reseal
from support.log_in_memory import NOW, MemoryEpochs, add, batch, disk, from_producer, opened, stored

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.refusals import (
    AppendTooLarge,
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransaction,
    OffsetsOutOfOrder,
    OutOfOrderSequence,
    RecordTooLarge,
    UnexpectedOffset,
)
from storage.batch.batch import parse_header
from storage.batch.record import records_of
from storage.log.log import Log
from storage.log.log_types import Isolation
from storage.producers.producers import Origin

DAY = 86_400_000


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


def test_a_header_that_lies_about_time_is_put_right() -> None:
    lying = batch_v2(0, [record(0, timestamp_delta=500)], max_timestamp=TS)
    log = opened(disk())
    answer = log.append_as_leader(lying, leader_epoch=0, now_ms=NOW)
    assert answer is not None
    assert answer.max_timestamp == TS + 500 == parse_header(stored(log)[0]).max_timestamp
    assert stored(log) == [reseal(each) for each in stored(log)]
    far = batch_v2(0, [record(0, timestamp_delta=DAY)], max_timestamp=TS)
    with pytest.raises(InvalidTimestamp):
        opened(disk()).append_as_leader(far, leader_epoch=0, now_ms=NOW)


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
