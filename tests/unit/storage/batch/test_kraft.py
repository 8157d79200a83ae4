"""KRaft snapshots and metadata records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vectors import L_1, TS, V2_F_FOOTER, V2_F_HEADER

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.batch.batch import split_batches
from storage.batch.control import (
    Control,
    KRaftVersion,
    KRaftVoters,
    SnapshotFooter,
    SnapshotHeader,
    encode_control_batch,
)
from storage.batch.kraft import (
    MetadataRecord,
    SnapshotStructure,
    check_snapshot,
    decode_metadata_record,
    encode_metadata_record,
)
from storage.batch.record import Record, encode_batch

VALUE = encode_metadata_record(MetadataRecord(12, 0, b"body"))


def control(offset: int, *records: Control) -> bytes:
    return encode_control_batch(records, base_offset=offset, timestamp=TS, leader_epoch=1)


def data(offset: int, count: int = 1, value: bytes | None = VALUE) -> bytes:
    return encode_batch([Record(offset + n, TS, value=value) for n in range(count)], leader_epoch=1)


def check(*batches: bytes) -> SnapshotStructure:
    return check_snapshot(split_batches(memoryview(b"".join(batches))))


HEADER = SnapshotHeader(TS)


def test_a_snapshot_of_nothing_is_sound() -> None:
    structure = check(V2_F_HEADER, V2_F_FOOTER)
    assert structure.faults == []
    assert (structure.last_contained_log_timestamp, structure.has_footer) == (TS, True)
    assert (structure.record_count, structure.next_offset) == (0, 2)


def test_version_voters_and_records_of_a_snapshot_are_told() -> None:
    voters = KRaftVoters(())
    structure = check(control(0, HEADER, KRaftVersion(1), voters), data(3, 4), data(7), control(8, SnapshotFooter()))
    assert structure.faults == []
    assert (structure.kraft_version, structure.voters) == (1, voters)
    assert (structure.record_count, structure.next_offset) == (5, 9)


@pytest.mark.parametrize(
    ("batches", "faults"),
    [
        ([], ["it holds no record"]),
        ([V2_F_HEADER], ["the footer is missing"]),
        ([V2_F_HEADER, data(1)], ["the footer is missing"]),
        ([data(0), control(1, SnapshotFooter())], ["a record before the snapshot header at offset 0"]),
        ([control(0, KRaftVersion(1), HEADER, SnapshotFooter())], ["a record before", "a second snapshot header"]),
        ([V2_F_HEADER, V2_F_FOOTER, data(2)], ["a batch at offset 2 behind the footer"]),
        ([V2_F_HEADER, control(1, HEADER), control(2, SnapshotFooter())], ["a second snapshot header at offset 1"]),
        ([V2_F_HEADER, data(2), control(3, SnapshotFooter())], ["offset 2 follows where 1 is due"]),
    ],
    ids=["empty", "no footer", "no footer but data", "no header", "late header", "behind", "two headers", "gap"],
)
def test_what_is_wrong_with_the_order_is_told(batches: list[bytes], faults: list[str]) -> None:
    found = check(*batches).faults
    assert len(found) == len(faults)
    assert all(reason.startswith(fault) for reason, fault in zip(found, faults, strict=True))


def test_another_magic_has_no_place_in_a_snapshot() -> None:
    message = b"\0" * 8 + L_1[8:]
    with pytest.raises(UnsupportedFormat, match="frame version"):
        check(message)


def test_only_so_many_faults_are_kept() -> None:
    assert len(check(V2_F_HEADER, *(data(5) for _ in range(100))).faults) == 20


def test_a_damaged_batch_is_told_with_its_place() -> None:
    damaged = bytearray(V2_F_FOOTER)
    damaged[-1] ^= 1
    with pytest.raises(BatchCorrupt, match=r"^at 83: checksum"):
        check(V2_F_HEADER, bytes(damaged))


@given(st.integers(0, 0x7FFF), st.integers(0, 0x7FFF), st.binary(max_size=20))
def test_every_metadata_record_reads_back(api_key: int, version: int, body: bytes) -> None:
    record = MetadataRecord(api_key, version, body)
    assert decode_metadata_record(encode_metadata_record(record)) == record


@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x01\x0c", b"\x01\x80\x80\x02\x00", b"\x01\x0c\x80"])
def test_a_metadata_record_without_its_frame_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(BatchCorrupt):
        decode_metadata_record(value)


@pytest.mark.parametrize("version", [0, 2])
def test_another_frame_version_is_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedFormat, match=f"frame version {version}"):
        decode_metadata_record(bytes((version, 12, 0)))
