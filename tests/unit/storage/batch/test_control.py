"""Control records: markers of transactions, and KRaft's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vectors import TS, V2_D, V2_E, V2_F_FOOTER, V2_F_HEADER

from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.batch.batch import ensure_sound
from storage.batch.control import (
    Control,
    ControlType,
    Endpoint,
    EndTxnMarker,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControl,
    Voter,
    VoterKey,
    decode_control,
    encode_control,
    encode_control_batch,
)
from storage.batch.record import records_of

ABORTED = EndTxnMarker(ControlType.ABORT, 3)
ELECTED = LeaderChange(1, (VoterKey(1),), (VoterKey(1),))
DIRECTORY = bytes(range(16))
VOTERS = KRaftVoters((
    Voter(1, DIRECTORY, (Endpoint("CONTROLLER", "a.example", 65535), Endpoint("", "ü", 0)), 0, 1),
    Voter(2, bytes(16), (), 0, 0),
))  # fmt: skip
EVERY = [
    ABORTED,
    EndTxnMarker(ControlType.COMMIT, -1, 7),
    ELECTED,
    LeaderChange(5, (VoterKey(5, DIRECTORY), VoterKey(6, bytes(16))), (), 1),
    SnapshotHeader(TS),
    SnapshotFooter(),
    KRaftVersion(1),
    VOTERS,
    UnknownControl(337, b"?"),
    UnknownControl(-1, None),
]


def read(batch: bytes) -> list[Control]:
    return [decode_control(record.key, record.value) for record in records_of(memoryview(batch))]


@pytest.mark.parametrize(
    ("batch", "control"),
    [(V2_D, ABORTED), (V2_E, ELECTED), (V2_F_HEADER, SnapshotHeader(TS)), (V2_F_FOOTER, SnapshotFooter())],
    ids=["V2_D", "V2_E", "V2_F_HEADER", "V2_F_FOOTER"],
)
def test_known_control_batches_are_read(batch: bytes, control: Control) -> None:
    assert read(batch) == [control]


def test_known_control_batches_are_written_as_kafka_writes_them() -> None:
    marker = encode_control_batch(
        [ABORTED], base_offset=102, timestamp=TS + 9, leader_epoch=5, producer_id=4000, producer_epoch=1
    )
    assert marker == V2_D
    kraft = [(V2_E, ELECTED, 0), (V2_F_HEADER, SnapshotHeader(TS), 0), (V2_F_FOOTER, SnapshotFooter(), 1)]
    for batch, control, offset in kraft:
        assert encode_control_batch([control], base_offset=offset, timestamp=TS, leader_epoch=1) == batch


def test_several_control_records_share_a_batch() -> None:
    batch = encode_control_batch(
        [SnapshotHeader(TS), KRaftVersion(1), VOTERS], base_offset=0, timestamp=1, leader_epoch=0
    )
    header = ensure_sound(memoryview(batch))
    assert (header.is_control, header.is_transactional, header.record_count) == (True, False, 3)
    assert read(batch) == [SnapshotHeader(TS), KRaftVersion(1), VOTERS]


@pytest.mark.parametrize("control", EVERY, ids=lambda control: type(control).__name__)
def test_every_control_record_reads_back(control: Control) -> None:
    assert decode_control(*encode_control(control)) == control


KRAFT = [control for control in EVERY if not isinstance(control, EndTxnMarker | UnknownControl)]


@pytest.mark.parametrize("control", KRAFT, ids=lambda control: type(control).__name__)
def test_a_structure_that_is_cut_is_corrupt_and_bytes_behind_it_are_ignored(control: Control) -> None:
    key, value = encode_control(control)
    assert value is not None
    for size in range(len(value)):
        with pytest.raises(BatchCorrupt):
            decode_control(key, value[:size])
    assert decode_control(key, value + b"more") == control


def test_tagged_fields_are_skipped() -> None:
    key, value = encode_control(SnapshotFooter())
    assert value == bytes(3)
    assert decode_control(key, bytes.fromhex("0000 02 00 03 616263 8001 00")) == SnapshotFooter()
    with pytest.raises(BatchCorrupt):
        decode_control(key, bytes.fromhex("0000 01 00 04 616263"))


def test_sizes_of_known_structures_are_those_of_the_format() -> None:
    sizes = {type(control): len(encode_control(control)[1] or b"") for control in KRAFT}
    assert (sizes[SnapshotHeader], sizes[SnapshotFooter], sizes[KRaftVersion]) == (11, 3, 5)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_key_without_a_type_or_of_negative_version_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(BatchCorrupt, match="control record"):
        decode_control(key, bytes(6))


def test_a_key_may_be_longer_and_of_a_higher_version() -> None:
    assert decode_control(bytes.fromhex("0007 0001 aabb"), bytes.fromhex("0000 00000003")) == EndTxnMarker(
        ControlType.COMMIT, 3
    )


@pytest.mark.parametrize("value", [None, b"", bytes(5), b"\xff\xff\0\0\0\0"])
def test_a_marker_without_its_fields_or_of_negative_version_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(BatchCorrupt):
        decode_control(bytes(4), value)


def test_a_marker_of_a_higher_version_begins_the_same() -> None:
    assert decode_control(bytes(4), bytes.fromhex("0009 00000003 aabb")) == EndTxnMarker(ControlType.ABORT, 3, 9)


@pytest.mark.parametrize("control", KRAFT, ids=lambda control: type(control).__name__)
def test_an_unknown_version_is_unsupported_and_a_negative_one_corrupt(control: Control) -> None:
    key, value = encode_control(control)
    assert value is not None
    with pytest.raises(UnsupportedFormat, match="version 2"):
        decode_control(key, b"\0\x02" + value[2:])
    with pytest.raises(BatchCorrupt, match="version -1"):
        decode_control(key, b"\xff\xff" + value[2:])


@given(st.sampled_from([2, 3, 4, 5, 6]), st.binary(max_size=60))
def test_rubbish_ends_in_a_control_record_or_a_typed_error(kind: int, value: bytes) -> None:
    key = bytes((0, 0, 0, kind))
    try:
        control = decode_control(key, b"\0\0" + value)
    except BatchCorrupt:
        return
    assert encode_control(control)[0] == key
