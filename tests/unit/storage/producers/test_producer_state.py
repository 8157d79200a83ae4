"""Producer state follows the batches as a broker's does, and its snapshots are read and written byte for byte."""

from __future__ import annotations

import struct
import time
from array import array
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.base.errors import BatchCorrupt, SnapshotCorrupt, UnsupportedFormat
from storage.base.rows import ABORT, COMMIT, CONTROL_EMPTY, CONTROL_NONE, CONTROL_UNREADABLE, ProducerEvent
from storage.index.txn_index import AbortedTxn
from storage.kernel.scan import crc32c
from storage.producers.producer_state import (
    ProducerEntry,
    ProducerState,
    decode_snapshot,
    find_snapshot_fault,
)

TS = 1_700_000_000_000
TRANSACTIONAL = 0x10
MARKER = 0x30

# Written by Kafka's own classes: two records of producer 4000 at 100 and 101, plain, then transactional, then aborted.
PLAIN = (
    "0001a6d9226b000000010000000000000fa000010000000b0000000000000065000000010000018bcfe56807ffffffffffffffffffffffff"
)
OPEN = (
    "0001c4cadf5b000000010000000000000fa000010000000b0000000000000065000000010000018bcfe56807ffffffff0000000000000064"
)
ABORTED = (
    "00014a784067000000010000000000000fa000010000000b0000000000000065000000010000018bcfe5680900000003ffffffffffffffff"
)
EMPTY = "000148674bc700000000"


def data(
    base: int, last: int, *, attributes: int = 0, pid: int = 4000, epoch: int = 1, sequence: int = 10
) -> ProducerEvent:
    return ProducerEvent(base, last, attributes, TS + 7, pid, epoch, sequence, CONTROL_NONE)


def marker(
    offset: int, kind: int = ABORT, *, pid: int = 4000, epoch: int = 1, coordinator: int = 3, timestamp: int = TS + 9
) -> ProducerEvent:
    control = kind << 32 | coordinator & 0xFFFFFFFF
    return ProducerEvent(offset, offset, MARKER, timestamp, pid, epoch, -1, control)


def sealed(version: int, covered: bytes) -> bytes:
    return struct.pack(">hI", version, crc32c(memoryview(covered))) + covered


def test_the_snapshots_kafka_wrote_come_out_byte_for_byte() -> None:
    state = ProducerState()
    assert state.encode_snapshot().hex() == EMPTY
    state.add_batch(data(100, 101))
    assert state.encode_snapshot().hex() == PLAIN
    state = ProducerState()
    state.add_batch(data(100, 101, attributes=TRANSACTIONAL))
    assert state.encode_snapshot().hex() == OPEN
    assert state.add_batch(marker(102)) == AbortedTxn(4000, 100, 102, 103)
    assert state.encode_snapshot().hex() == ABORTED
    assert state.map_end_offset == 103


@pytest.mark.parametrize("text", [PLAIN, OPEN, ABORTED, EMPTY])
def test_the_snapshots_kafka_wrote_are_read_and_written_back(text: str) -> None:
    assert decode_snapshot(bytes.fromhex(text)).encode_snapshot().hex() == text


def test_a_snapshot_gives_its_open_transactions_back() -> None:
    state = decode_snapshot(bytes.fromhex(OPEN), 102)
    assert state.entries == {4000: ProducerEntry(4000, 1, 11, 101, 1, TS + 7, -1, 100)}
    assert state.open_transactions() == {4000: 100}
    assert state.first_unstable_offset() == 100
    assert state.add_batch(marker(102)) == AbortedTxn(4000, 100, 102, 103)
    assert state.first_unstable_offset() is None


def test_the_last_stable_offset_of_an_abort_is_the_first_offset_of_the_oldest_other_open_transaction() -> None:
    state = ProducerState()
    for pid, base in ((1, 0), (2, 5), (3, 9)):
        state.add_batch(data(base, base, attributes=TRANSACTIONAL, pid=pid))
    assert state.add_batch(marker(10, pid=2)) == AbortedTxn(2, 5, 10, 0)
    assert state.add_batch(marker(11, pid=1)) == AbortedTxn(1, 0, 11, 9)
    assert state.add_batch(marker(12, pid=3)) == AbortedTxn(3, 9, 12, 13)


def test_a_commit_closes_its_transaction_and_aborts_nothing() -> None:
    state = ProducerState()
    state.add_batch(data(0, 3, attributes=TRANSACTIONAL))
    assert state.add_batch(marker(4, COMMIT)) is None
    assert state.open_transactions() == {}
    assert state.entries[4000].txn_first_offset == -1


def test_an_abort_without_open_transaction_aborts_nothing_and_is_remembered() -> None:
    state = ProducerState()
    assert state.add_batch(marker(7, coordinator=-1)) is None
    assert state.entries == {4000: ProducerEntry(4000, 1, -1, -1, 0, TS + 9, -1, -1)}


def test_a_marker_of_another_epoch_forgets_the_batches_of_the_old_one() -> None:
    state = ProducerState()
    state.add_batch(data(0, 3))
    state.add_batch(marker(4, epoch=2))
    assert state.entries[4000] == ProducerEntry(4000, 2, -1, -1, 0, TS + 9, 3, -1)


def test_a_lower_epoch_is_stored_as_on_replication() -> None:
    state = ProducerState()
    state.add_batch(data(0, 0, epoch=5))
    state.add_batch(data(1, 1, epoch=2))
    assert state.entries[4000].producer_epoch == 2


def test_a_data_batch_keeps_the_coordinator_epoch_of_the_last_marker() -> None:
    state = ProducerState()
    state.add_batch(marker(4, coordinator=8))
    state.add_batch(data(5, 5))
    assert state.entries[4000].coordinator_epoch == 8


def test_sequences_wrap_to_zero_and_a_missing_one_stays_missing() -> None:
    state = ProducerState()
    state.add_batch(data(0, 2, sequence=2**31 - 2))
    assert state.entries[4000].last_sequence == 0
    state.add_batch(data(3, 9, sequence=-1))
    assert state.entries[4000].last_sequence == -1


def test_an_emptied_marker_changes_nothing_but_makes_an_unknown_producer_known() -> None:
    state = ProducerState()
    state.add_batch(data(0, 2, attributes=TRANSACTIONAL))
    before = dict(state.entries)
    emptied = ProducerEvent(3, 3, MARKER, TS, 4000, 9, -1, CONTROL_EMPTY)
    assert state.add_batch(emptied) is None
    assert state.entries == before
    state.add_batch(emptied._replace(producer_id=5))
    assert state.entries[5] == ProducerEntry(5, -1, -1, -1, 0, -1, -1, -1)
    assert state.map_end_offset == 4


@pytest.mark.parametrize("event", [data(3, 3), ProducerEvent(3, 3, MARKER, TS, 4000, 1, -1, CONTROL_UNREADABLE)])
def test_an_impossible_batch_is_refused_and_changes_nothing(event: ProducerEvent) -> None:
    state = ProducerState()
    state.add_batch(data(0, 2, attributes=TRANSACTIONAL))
    before = state.copy()
    with pytest.raises(BatchCorrupt, match="offset 3"):
        state.add_batch(event)
    assert state == before


def test_a_copy_goes_its_own_way() -> None:
    state = ProducerState()
    state.add_batch(data(0, 2, attributes=TRANSACTIONAL))
    copy = state.copy()
    copy.add_batch(marker(3))
    assert state.open_transactions() == {4000: 0}
    assert copy.open_transactions() == {}
    assert (state.map_end_offset, copy.map_end_offset) == (3, 4)


def test_a_late_event_of_another_producer_does_not_lower_the_end() -> None:
    state = ProducerState()
    state.add_batch(data(10, 12, pid=1))
    state.add_batch(data(3, 4, pid=2))
    assert state.map_end_offset == 13


def test_silent_producers_expire_unless_their_transaction_is_open() -> None:
    state = ProducerState()
    state.add_batch(data(0, 0, pid=1))
    state.add_batch(data(1, 1, pid=2, attributes=TRANSACTIONAL))
    assert state.expire(TS + 7 + 999, 1000) == 0
    assert state.expire(TS + 7 + 1000, 1000) == 1
    assert list(state.entries) == [2]


def test_an_entry_without_last_offset_has_no_batch_at_all() -> None:
    entry = struct.pack(">iqhiqiqiq", 1, 7, 1, 55, -9, 3, TS, 2, -7)
    assert decode_snapshot(sealed(1, entry)).entries == {7: ProducerEntry(7, 1, -1, -1, 0, TS, 2, -1)}


@pytest.mark.parametrize("size", range(10))
def test_a_snapshot_shorter_than_its_header_is_corrupt(size: int) -> None:
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(bytes.fromhex(EMPTY)[:size])


@pytest.mark.parametrize("position", range(2, 56))
def test_one_wrong_bit_behind_the_version_is_corruption(position: int) -> None:
    damaged = bytearray.fromhex(PLAIN)
    damaged[position] ^= 0x04
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        decode_snapshot(damaged)


def test_a_tail_of_a_longer_file_of_the_same_name_is_corruption() -> None:
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        decode_snapshot(bytes.fromhex(PLAIN) + b"\0")


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1, -(2**31)])
def test_a_count_that_is_not_that_of_the_bytes_is_corruption_and_allocates_nothing(count: int) -> None:
    covered = struct.pack(">i", count) + bytes.fromhex(PLAIN)[10:]
    begin = time.process_time()
    with pytest.raises(SnapshotCorrupt, match="announced"):
        decode_snapshot(sealed(1, covered))
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_unsupported_only_where_its_checksum_holds(version: int) -> None:
    whole = sealed(version, bytes.fromhex(PLAIN)[6:])
    with pytest.raises(UnsupportedFormat):
        decode_snapshot(whole)
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(whole[:-1] + b"\1")


def test_offsets_at_or_above_the_name_of_a_snapshot_contradict_it() -> None:
    assert find_snapshot_fault(decode_snapshot(bytes.fromhex(OPEN), 102)) is None
    assert "last offset 101" in (find_snapshot_fault(decode_snapshot(bytes.fromhex(OPEN), 101)) or "")
    opened = ProducerState([ProducerEntry(1, 0, -1, -1, 0, TS, -1, 9)], 8)
    assert "begins at 9" in (find_snapshot_fault(opened) or "")


int16, int32, int64 = (st.integers(-(2**n), 2**n - 1) for n in (15, 31, 63))
entries = st.builds(
    ProducerEntry,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=int16,
    last_sequence=st.integers(-1, 2**31 - 1),
    last_offset=st.integers(0, 2**63 - 1),
    offset_delta=int32,
    timestamp=int64,
    coordinator_epoch=int32,
    txn_first_offset=st.integers(-1, 2**63 - 1),
)


@given(st.lists(entries, max_size=20, unique_by=lambda entry: entry.producer_id))
def test_every_state_is_read_back_from_its_snapshot(found: list[ProducerEntry]) -> None:
    state = ProducerState(found, 5)
    again = decode_snapshot(state.encode_snapshot(), 5)
    assert again == state
    assert list(again.open_transactions().values()) == sorted(
        e.txn_first_offset for e in found if e.txn_first_offset >= 0
    )


plain = st.builds(
    lambda base, delta, pid, epoch, sequence, time: ProducerEvent(
        base, base + delta, 0, time, pid, epoch, sequence, CONTROL_NONE
    ),
    st.integers(0, 2**40), st.integers(0, 2**31 - 1), st.integers(0, 5), int16, st.integers(-1, 2**31 - 1), int64,
)  # fmt: skip


@given(
    st.lists(entries, max_size=5, unique_by=lambda entry: entry.producer_id),
    st.lists(st.tuples(plain, st.sampled_from([None] * 12 + ["transaction", "marker"])), max_size=20),
)
def test_plain_batches_taken_in_together_leave_what_they_leave_one_by_one(
    found: list[ProducerEntry], steps: list[tuple[ProducerEvent, str | None]]
) -> None:
    odd = {None: {}, "transaction": {"attributes": TRANSACTIONAL}, "marker": {"control": COMMIT << 32}}
    events = [event._replace(**odd[kind]) for event, kind in steps]
    state, one_by_one = ProducerState(found, 5), ProducerState(found, 5)
    taken = state.add_plain(array("q", chain.from_iterable(events)))
    assert taken == (not state.open_transactions() and all(kind is None for _, kind in steps))
    if not taken:
        assert state == one_by_one
        return
    for event in events:
        one_by_one.add_batch(event)
    assert state == one_by_one
    assert list(state.entries) == list(one_by_one.entries)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_state_or_a_typed_error(raw: bytes) -> None:
    try:
        state = decode_snapshot(sealed(1, raw))
    except SnapshotCorrupt:
        return
    assert len(state.entries) <= len(raw) // 46


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["data", "abort", "commit"])), max_size=60))
def test_the_last_stable_offset_of_every_abort_is_that_of_a_plain_search(steps: list[tuple[int, str]]) -> None:
    state, opened = ProducerState(), dict[int, int]()
    for offset, (pid, step) in enumerate(steps):
        if step == "data":
            state.add_batch(data(offset, offset, pid=pid, attributes=TRANSACTIONAL))
            opened.setdefault(pid, offset)
            continue
        first = opened.pop(pid, None)
        aborted = state.add_batch(marker(offset, ABORT if step == "abort" else COMMIT, pid=pid))
        wanted = AbortedTxn(pid, first, offset, min(opened.values(), default=offset + 1)) if first is not None else None
        assert aborted == (wanted if step == "abort" else None)
    assert state.open_transactions() == opened


def test_a_hundred_thousand_open_transactions_and_aborts_take_linear_time() -> None:
    state, count = ProducerState(), 100_000
    begin = time.process_time()
    for number in range(count):
        state.add_batch(data(number, number, pid=number, attributes=TRANSACTIONAL))
    for number in range(count):
        state.add_batch(marker(count + number, pid=number))
    assert state.open_transactions() == {}
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
def test_a_state_knows_its_own_snapshot_from_any_other(count: int) -> None:
    state = ProducerState(
        [ProducerEntry(producer, 1, 9, 100 + producer, 0, 5, -1, -1) for producer in range(count, 0, -1)]
    )
    data = state.encode_snapshot()
    assert decode_snapshot(data) == state
    assert state.is_in_snapshot(data)
    for place in {0, 3, 9, len(data) // 2, len(data) - 1} & set(range(len(data))):
        changed = bytearray(data)
        changed[place] ^= 1
        assert not state.is_in_snapshot(bytes(changed))
    assert not state.is_in_snapshot(data + b"\0")
    more = ProducerState([*state.entries.values(), ProducerEntry(count + 1, 0, 0, 0, 0, 0, -1, -1)])
    assert not state.is_in_snapshot(more.encode_snapshot())
