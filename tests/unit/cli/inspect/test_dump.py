"""What a dump shows of each kind of file, damage included, and where it goes on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from support.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    TS,
    batch_v2,
    legacy,
    marker,
    record,
    reseal,
)

from cli.inspect.dump_files import Wish, dump_file, meaning
from cli.inspect.dump_items import Item
from storage.base.errors import ConfigInvalid, ExitStatus
from storage.base.names import FileRole
from storage.base.units import Offset
from storage.batch.record import Record, encode_batch
from storage.disk.fs import OsFs, ReadOnlyFs
from storage.index.txn_index import AbortedTxn, encode_txn_index
from storage.producers.producer_state import ProducerEntry, ProducerState

LOG = "00000000000000000000.log"


def dump(path: Path, content: bytes, **wish: bool) -> list[Item]:
    path.write_bytes(content)
    items = list(dump_file(ReadOnlyFs(OsFs()), path, Wish(**wish)))
    assert items[0].kind == "file"
    return items[1:]


def told(items: list[Item]) -> list[tuple[str, dict[str, Any]]]:
    return [(item.kind, item.fields) for item in items]


def test_a_batch_has_the_columns_of_kafkas_own_dump(tmp_path: Path) -> None:
    batch = batch_v2(10, 3, leader_epoch=4, producer_id=7, producer_epoch=1, base_sequence=5, attributes=TRANSACTIONAL)
    (item,) = dump(tmp_path / LOG, batch)
    assert item.as_text() == (
        "baseOffset: 10 lastOffset: 12 count: 3 baseSequence: 5 lastSequence: 7 producerId: 7 producerEpoch: 1 "
        "partitionLeaderEpoch: 4 isTransactional: true isControl: false deleteHorizonMs: none position: 0 "
        f"CreateTime: {TS + 2} size: {len(batch)} magic: 2 compresscodec: none "
        f"crc: {int.from_bytes(batch[17:21], 'big')} isvalid: true"
    )


def test_a_time_that_the_broker_set_is_called_so(tmp_path: Path) -> None:
    (item,) = dump(tmp_path / LOG, batch_v2(0, 1, attributes=LOG_APPEND_TIME))
    assert "LogAppendTime" in item.fields


def test_old_formats_have_the_columns_that_they_have(tmp_path: Path) -> None:
    items = dump(tmp_path / LOG, legacy(0, 0) + legacy(1, 1))
    assert [(item.fields["offset"], item.fields["magic"]) for item in items] == [(0, 0), (1, 1)]
    assert "NoTimestampType" in items[0].fields
    assert items[1].fields["CreateTime"] == TS
    assert "baseOffset" not in items[0].fields


def test_records_are_shown_on_demand_and_their_data_on_demand_too(tmp_path: Path) -> None:
    headers = [(b"h1", b"x"), (b"h\x1b", None)]
    log = batch_v2(5, [record(0, key=b"k", value=b"\xff", headers=headers), record(1, key=None, value="ä".encode())])
    assert [item.kind for item in dump(tmp_path / LOG, log)] == ["batch"]
    _, first, second = dump(tmp_path / LOG, log, records=True)
    assert (first.fields["offset"], first.fields["keySize"], first.fields["valueSize"]) == (5, 1, 1)
    assert first.fields["headerKeys"] == ["h1", "h\x1b"]
    assert "\x1b" not in first.as_text()
    assert (second.fields["keySize"], second.fields["sequence"]) == (-1, -1)
    assert "payload" not in second.fields
    _, first, second = dump(tmp_path / LOG, log, records=True, data=True)
    assert (first.fields["key"], first.fields["payloadBase64"]) == ("k", "/w==")
    assert (second.fields["key"], second.fields["payload"]) == (None, "ä")


def test_compressed_records_are_shown(tmp_path: Path) -> None:
    log = encode_batch([Record(n, TS, value=b"v") for n in range(3)], codec=1)
    batch, *records = dump(tmp_path / LOG, log, records=True)
    assert batch.fields["compresscodec"] == "gzip"
    assert [item.fields["offset"] for item in records] == [0, 1, 2]


def test_a_transaction_marker_says_what_it_ends(tmp_path: Path) -> None:
    _, item = dump(tmp_path / LOG, marker(9, 4, commit=False, coordinator_epoch=3), records=True)
    assert (item.fields["endTxnMarker"], item.fields["coordinatorEpoch"]) == ("ABORT", 3)


def test_a_control_record_that_is_none_is_damage_and_no_crash(tmp_path: Path) -> None:
    bad = batch_v2(0, [record(key=b"x")], attributes=CONTROL)
    items = dump(tmp_path / LOG, bad + batch_v2(1), records=True)
    assert [item.kind for item in items] == ["batch", "damage", "batch", "record"]


def test_a_rotten_batch_is_marked_and_the_walk_goes_on(tmp_path: Path) -> None:
    rotten = bytearray(batch_v2(1))
    rotten[-1] ^= 1
    items = dump(tmp_path / LOG, batch_v2(0) + bytes(rotten) + batch_v2(2))
    assert [item.fields["isvalid"] for item in items] == [True, False, True]
    assert [item.status for item in items] == [ExitStatus.CLEAN, ExitStatus.FINDINGS, ExitStatus.CLEAN]


def test_rubbish_is_one_item_up_to_the_next_sound_batch(tmp_path: Path) -> None:
    first, second = batch_v2(0), batch_v2(1)
    _, fault, after = dump(tmp_path / LOG, first + b"\x01" * 77 + second)
    assert (fault.kind, fault.fields["position"], fault.fields["size"]) == ("damage", len(first), 77)
    assert after.fields["position"] == len(first) + 77


def test_a_torn_tail_says_how_much_is_missing(tmp_path: Path) -> None:
    first, torn = batch_v2(0), batch_v2(1)[:40]
    _, fault = dump(tmp_path / LOG, first + torn)
    assert fault.as_text().startswith(f"damage at {len(first)}: ")
    assert fault.fields["size"] == 40


def test_a_zero_tail_is_called_so(tmp_path: Path) -> None:
    _, fault = dump(tmp_path / LOG, batch_v2(0) + bytes(1000))
    assert (fault.fields["reason"], fault.fields["size"]) == ("zero bytes to the end of the file", 1000)


def test_offsets_that_go_back_are_said(tmp_path: Path) -> None:
    items = dump(tmp_path / LOG, batch_v2(5) + batch_v2(3))
    assert [item.kind for item in items] == ["batch", "damage", "batch"]


def test_a_newer_magic_is_no_damage(tmp_path: Path) -> None:
    (item,) = dump(tmp_path / LOG, reseal(batch_v2(0, magic=3)))
    assert (item.status, item.fields["magic"]) == (ExitStatus.UNSUPPORTED, 3)


def test_a_batch_larger_than_the_window_is_summed_in_pieces(tmp_path: Path) -> None:
    large = batch_v2(0, [record(value=bytes(3 << 20))])
    items = dump(tmp_path / LOG, large + batch_v2(1), records=True)
    assert [(item.kind, item.fields.get("isvalid")) for item in items] == [
        ("batch", True),
        ("record", None),
        ("batch", True),
        ("record", None),
    ]


def test_size_fields_of_any_value_end_in_items(tmp_path: Path) -> None:
    for size in (-(2**31), -1, 0, 13, 48, 2**31 - 1):
        log = bytearray(batch_v2(0))
        log[8:12] = struct.pack(">i", size)
        assert dump(tmp_path / LOG, bytes(log))[-1].status is ExitStatus.FINDINGS


def test_index_entries_and_padding(tmp_path: Path) -> None:
    entries = struct.pack(">iiii", 5, 100, 9, 300)
    items = dump(tmp_path / "00000000000000000100.index", entries + bytes(16))
    assert told(items[:2]) == [
        ("index_entry", {"offset": 105, "position": 100}),
        ("index_entry", {"offset": 109, "position": 300}),
    ]
    assert (items[2].kind, items[2].status) == ("note", ExitStatus.CLEAN)


def test_an_index_that_does_not_rise_is_damaged_from_there(tmp_path: Path) -> None:
    items = dump(tmp_path / "00000000000000000000.index", struct.pack(">iiiiii", 5, 100, 4, 300, 9, 400))
    assert (items[-1].kind, items[-1].fields["position"]) == ("damage", 8)


def test_an_empty_index_says_so(tmp_path: Path) -> None:
    (item,) = dump(tmp_path / "00000000000000000000.index", b"")
    assert item.as_text() == "note: the file is empty"


def test_a_ragged_index_is_damaged(tmp_path: Path) -> None:
    items = dump(tmp_path / "00000000000000000000.index", struct.pack(">ii", 5, 100) + b"\0\0\0")
    assert "no multiple of 8" in items[-1].fields["reason"]


def test_time_index_entries(tmp_path: Path) -> None:
    (item,) = dump(tmp_path / "00000000000000000100.timeindex", struct.pack(">qi", TS, 4))
    assert item.fields == {"timestamp": TS, "offset": 104}


def test_aborted_transactions(tmp_path: Path) -> None:
    data = encode_txn_index([AbortedTxn(4, Offset(0), Offset(9), Offset(10))])
    item, fault = dump(tmp_path / "00000000000000000000.txnindex", data + b"\0" * 5)
    assert item.as_text() == "version: 0 producerId: 4 firstOffset: 0 lastOffset: 9 lastStableOffset: 10"
    assert fault.fields == {"position": 34, "size": 5, "reason": "a partial entry at the end"}


def test_producers(tmp_path: Path) -> None:
    state = ProducerState([ProducerEntry(4, 1, 8, 9, 2, TS, -1, -1)])
    (item,) = dump(tmp_path / "00000000000000000010.snapshot", state.encode_snapshot())
    assert (item.fields["producerId"], item.fields["currentTxnFirstOffset"]) == (4, None)
    (fault,) = dump(tmp_path / "00000000000000000010.snapshot", state.encode_snapshot()[:-1])
    assert (fault.kind, fault.fields["position"]) == ("damage", 2)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "recovery-point-offset-checkpoint",
            b"0\n1\norders 0 42\n",
            [("checkpoint_entry", {"topic": "orders", "partition": 0, "offset": 42})],
        ),
        ("leader-epoch-checkpoint", b"0\n1\n3 7\n", [("leader_epoch", {"epoch": 3, "startOffset": 7})]),
        (".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":42}', [("marker", {"brokerEpoch": 42})]),
        (
            "partition.metadata",
            b"version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A",
            [("partition_metadata", {"version": 0, "topic_id": "Dx4tPEtaaXiHlqW0w9Lh8A"})],
        ),
        (
            "meta.properties",
            b"version=1\ncluster.id=c\nnode.id=7\n",
            [("meta_properties", {"version": 1, "cluster.id": "c", "node.id": 7, "directory.id": None})],
        ),
    ],
)
def test_small_files(tmp_path: Path, name: str, content: bytes, expected: list[tuple[str, Any]]) -> None:
    assert told(dump(tmp_path / name, content)) == expected


def test_quorum_state(tmp_path: Path) -> None:
    content = b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":null,"data_version":1}'
    (item,) = dump(tmp_path / "quorum-state", content)
    assert (item.fields["leaderId"], item.fields["leaderEpoch"], item.fields["data_version"]) == (1, 2, 1)


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "leader-epoch-checkpoint", "partition.metadata", "quorum-state"],
)
def test_a_small_file_that_does_not_parse_is_damage(tmp_path: Path, name: str) -> None:
    assert dump(tmp_path / name, b"0\nmany\x1b\n")[-1].status is ExitStatus.FINDINGS


def test_epochs_that_contradict_one_another_are_all_shown(tmp_path: Path) -> None:
    items = dump(tmp_path / "leader-epoch-checkpoint", b"0\n3\n5 1\n3 0\n7 1\n")
    assert [item.kind for item in items] == ["leader_epoch"] * 3 + ["damage"]


def test_a_metadata_snapshot_without_its_frame_is_damaged(tmp_path: Path) -> None:
    items = dump(
        tmp_path / "00000000000000000010-0000000001.checkpoint", batch_v2(0, [record(key=None, value=b"\1\0\0")])
    )
    reasons = [item.fields["reason"] for item in items if item.kind == "damage"]
    assert any("before the snapshot header" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("00000000000000000000.log", FileRole.LOG),
        ("00000000000000000000.log.deleted", FileRole.LOG),
        ("00000000000000000000.index.swap", FileRole.INDEX),
        ("00000000000000000000.timeindex.cleaned", FileRole.TIME_INDEX),
        ("kept.00000000000000000000.log.812.0123456789ab.logmend", FileRole.LOG),
        ("kept.00000000000000000000.index.0123456789ab.logmend", FileRole.INDEX),
        ("kept.leader-epoch-checkpoint.0123456789ab.logmend", FileRole.LEADER_EPOCHS),
        ("0123456789ab.logmend.json", FileRole.OURS),
    ],
)
def test_files_are_known_by_their_inner_kind(name: str, role: FileRole) -> None:
    found = meaning(name)
    assert found is not None
    assert found.role is role


def test_a_name_that_says_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("hello")
    with pytest.raises(ConfigInvalid, match=r"letter\.txt"):
        list(dump_file(ReadOnlyFs(OsFs()), tmp_path / "letter.txt", Wish()))
