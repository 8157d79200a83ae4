"""The reference kernel against bytes whose fields are known, and against examples written by Apache Kafka's classes."""

from __future__ import annotations

import struct

import pytest
from support.batches import CONTROL, TS, batch_v2, legacy, marker, marker_record, record, reseal, varint

from storage.base.rows import (
    COLUMNS,
    COMMIT,
    CONTROL_EMPTY,
    CONTROL_UNREADABLE,
    BatchRows,
    Scanned,
    Stop,
    control_parts,
)
from storage.kernel.python.reference import check_records, crc32c, find_batch, scan_batches, walk_headers

# Two records of an idempotent producer, and the ABORT marker behind them, as Kafka 4.0's own classes write them.
KAFKA_DATA = bytes.fromhex(
    "0000000000000064 0000004e 00000005 02 2c2d2fd4 0000 00000001 0000018bcfe56800 0000018bcfe56807"
    "0000000000000fa0 0001 0000000a 00000002"
    "26 00 00 00 04 6b30 0a 68656c6c6f 02 04 6831 04 0102 10 00 0e 02 04 6b31 01 00"
)
KAFKA_ABORT = bytes.fromhex(
    "0000000000000066 00000042 00000005 02 eb0cc37d 0030 00000000 0000018bcfe56809 0000018bcfe56809"
    "0000000000000fa0 0001 ffffffff 00000001 20 00 00 00 08 0000 0000 0c 0000 00000003 00"
)
KAFKA_MAGIC_0 = bytes.fromhex("0000000000000007 00000011 165764b1 00 00 00000001 6b 00000002 7630")
KAFKA_MAGIC_1 = bytes.fromhex("0000000000000009 00000017 d7a7628a 01 08 0000018bcfe56805 ffffffff 00000001 78")


def scan(
    data: bytes, *, capacity: int = 8, position: int = 0, next_offset: int = 0
) -> tuple[Scanned, list[dict[str, int]]]:
    rows = BatchRows(capacity)
    scanned = scan_batches(memoryview(data), rows, position=position, next_offset=next_offset)
    return scanned, [{name: getattr(rows, name)[n] for name in COLUMNS} for n in range(scanned.count)]


def flip(data: bytes, place: int, mask: int = 1) -> bytes:
    changed = bytearray(data)
    changed[place] ^= mask
    return bytes(changed)


def test_every_field_of_a_batch_written_by_kafka_is_in_its_row() -> None:
    scanned, rows = scan(KAFKA_DATA, position=1000)
    assert scanned == Scanned(1, 90, Stop.END)
    assert rows == [
        {
            "position": 1000,
            "size": 90,
            "base_offset": 100,
            "last_offset": 101,
            "magic": 2,
            "attributes": 0,
            "crc": 0x2C2D2FD4,
            "leader_epoch": 5,
            "max_timestamp": TS + 7,
            "producer_id": 4000,
            "producer_epoch": 1,
            "base_sequence": 10,
            "record_count": 2,
            "control": -1,
        }
    ]


def test_a_marker_written_by_kafka_gives_its_type_and_coordinator_epoch() -> None:
    _, rows = scan(KAFKA_ABORT)
    assert control_parts(rows[0]["control"]) == (0, 3)
    assert (rows[0]["attributes"], rows[0]["base_sequence"]) == (0x30, -1)


def test_old_entries_written_by_kafka_have_their_offset_as_base_and_last_and_no_producer() -> None:
    scanned, rows = scan(KAFKA_MAGIC_0 + KAFKA_MAGIC_1 + KAFKA_DATA)
    assert scanned == Scanned(3, 29 + 35 + 90, Stop.END)
    assert [row["magic"] for row in rows] == [0, 1, 2]
    assert [(row["base_offset"], row["last_offset"]) for row in rows] == [(7, 7), (9, 9), (100, 101)]
    assert [row["max_timestamp"] for row in rows] == [-1, TS + 5, TS + 7]
    assert [row["attributes"] for row in rows] == [0, 8, 0]
    assert {
        rows[0][name] for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence", "record_count")
    } == {-1}


def test_the_stops_are_told_with_everything_before_them_consumed() -> None:
    good = batch_v2(5, 3)
    newer = batch_v2(8, magic=3)
    cases = {
        b"": Stop.END,
        b"\0" * 16: Stop.NEED_MORE,
        b"\0" * 17: Stop.BAD_SIZE,
        b"\0" * 400: Stop.BAD_SIZE,
        batch_v2(8)[:-1]: Stop.NEED_MORE,
        flip(batch_v2(8), 65): Stop.BAD_CRC,
        flip(batch_v2(8), 24): Stop.BAD_CRC,
        flip(legacy(8), 20): Stop.BAD_CRC,
        batch_v2(7): Stop.BAD_ORDER,
        legacy(7): Stop.BAD_ORDER,
        batch_v2(8, last_offset_delta=-1): Stop.BAD_ORDER,
        batch_v2(2**63 - 1): Stop.BAD_ORDER,
        legacy(2**63 - 1): Stop.BAD_ORDER,
        newer: Stop.UNKNOWN_MAGIC,
        newer[:-1]: Stop.NEED_MORE,
        flip(newer, 65): Stop.BAD_MAGIC,
        batch_v2(8, magic=-1): Stop.BAD_MAGIC,
        batch_v2(8, magic=-1)[:20]: Stop.BAD_MAGIC,
        struct.pack(">qiib", 8, 48, 0, 2): Stop.BAD_SIZE,
        struct.pack(">qiib", 8, 49, 0, 2): Stop.NEED_MORE,
        struct.pack(">qiib", 8, 14, 0, 0): Stop.NEED_MORE,
        struct.pack(">qiib", 8, 13, 0, 0): Stop.BAD_SIZE,
        struct.pack(">qiib", 8, -(2**31), 0, 0): Stop.BAD_SIZE,
        struct.pack(">qiib", 8, 2**31 - 1, 0, 2): Stop.NEED_MORE,
    }
    for tail, stop in cases.items():
        assert scan(good + tail)[0] == Scanned(1, len(good), stop), (tail.hex(), stop)


def test_a_full_set_of_rows_stops_the_scan_only_if_bytes_are_left() -> None:
    data = batch_v2(0) + batch_v2(1) + batch_v2(2)
    assert scan(data, capacity=3)[0] == Scanned(3, len(data), Stop.END)
    assert scan(data, capacity=2)[0] == Scanned(2, len(data) * 2 // 3, Stop.ROWS_FULL)


def test_gaps_between_offsets_are_no_fault() -> None:
    assert scan(batch_v2(10, last_offset_delta=5) + batch_v2(99), next_offset=10)[0].stop is Stop.END


def test_headers_alone_are_walked_past_a_checksum_that_does_not_hold() -> None:
    data = flip(batch_v2(3), 65) + flip(legacy(4), 30)
    scanned = walk_headers(memoryview(data), BatchRows(4))
    assert scanned == Scanned(2, len(data), Stop.END)


def test_control_batches_without_a_readable_marker_say_so() -> None:
    def control(records: list[bytes], **fields: int) -> int:
        batch = batch_v2(0, records, **{"attributes": 0x30, "producer_id": 7, "producer_epoch": 0, **fields})
        return scan(batch)[1][0]["control"]

    sound = marker_record(commit=True, coordinator_epoch=-2)
    assert control_parts(control([sound])) == (COMMIT, -2)
    assert control_parts(control([sound, b"\xff"])) == (COMMIT, -2)
    assert control([sound], producer_id=-1) == -1
    assert control([]) == CONTROL_EMPTY
    assert control([sound], attributes=0x31) == CONTROL_UNREADABLE
    assert control([sound], count=-1) == CONTROL_UNREADABLE
    assert control([sound + b"\0"], count=1) == CONTROL_UNREADABLE
    for key, value in [
        (None, bytes(6)),
        (bytes(4), None),
        (bytes(3), bytes(6)),
        (bytes(4), bytes(5)),
        (b"\xff\xff\0\0", bytes(6)),
        (bytes(4), b"\xff\xff" + bytes(4)),
        (b"\0\0\0\2", bytes(6)),
    ]:
        assert control([record(key=key, value=value)]) == CONTROL_UNREADABLE, (key, value)


def test_a_marker_of_the_builder_is_read_back() -> None:
    _, rows = scan(marker(9, 77, 3, commit=True, coordinator_epoch=12))
    assert control_parts(rows[0]["control"]) == (COMMIT, 12)
    assert (rows[0]["producer_id"], rows[0]["producer_epoch"], rows[0]["base_offset"]) == (77, 3, 9)


def test_the_checksum_is_castagnoli_and_may_be_taken_in_pieces() -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(memoryview(b"1234"))) == 0xE3069283


def test_the_next_sound_batch_is_found_behind_rubbish() -> None:
    rubbish = bytes(range(1, 200)) + bytes(300)
    for batch in (batch_v2(2**31 + 1), legacy(2**31 + 1), legacy(2**31 + 1, 0)):
        window = memoryview(rubbish + batch + batch_v2(2**31 + 50))
        found = find_batch(window, 0, lowest=2**31, highest=2**31 + 9)
        assert found == len(rubbish)
        assert scan_batches(window[found:], BatchRows(1), next_offset=2**31).count == 1
        assert find_batch(window, found + 1, lowest=2**31, highest=2**31 + 9) == -1
        assert find_batch(window, found + 1, lowest=2**31, highest=2**31 + 50) == found + len(batch)
        assert find_batch(window[: found + len(batch) - 1], 0, lowest=2**31, highest=2**31 + 9) == -1


def test_a_batch_outside_the_range_of_offsets_or_damaged_is_not_found() -> None:
    window = memoryview(batch_v2(5))
    assert find_batch(window, 0, lowest=5, highest=5) == 0
    assert find_batch(window, 0, lowest=-5, highest=2**63 - 1) == 0
    assert find_batch(window, 0, lowest=6, highest=9) == -1
    assert find_batch(window, 0, lowest=0, highest=4) == -1
    assert find_batch(window, 0, lowest=9, highest=0) == -1
    assert find_batch(memoryview(flip(batch_v2(5), 66)), 0, lowest=0, highest=9) == -1
    assert find_batch(memoryview(batch_v2(5, last_offset_delta=-1)), 0, lowest=0, highest=9) == -1
    assert find_batch(memoryview(batch_v2(5, magic=3)), 0, lowest=0, highest=9) == -1


def test_the_search_gives_up_when_candidates_would_cost_more_than_two_windows() -> None:
    head = struct.pack(">qiibI", 1, 4000, 0, 2, 0) + bytes(8)
    window = memoryview(head * 3 + bytes(4100))
    assert find_batch(window, 0, lowest=0, highest=9) == -2


@pytest.mark.parametrize("count", [1, 2, 7])
def test_records_that_fill_their_payload_exactly_are_sound(count: int) -> None:
    headers = [(b"h", b"x"), (b"", None)]
    made = [record(n, key=None, value=bytes(200 * n), headers=headers, timestamp_delta=-(2**40)) for n in range(count)]
    payload = memoryview(b"".join(made))
    assert check_records(payload, count) == -1
    assert check_records(payload, count + 1) == len(payload)
    assert check_records(payload, count - 1) == (-1 if count == 1 else len(payload) - len(made[-1]))
    assert check_records(payload[:-1], count) == len(payload) - len(made[-1])
    assert check_records(payload, -1) == 0


def body(content: bytes) -> memoryview:
    return memoryview(varint(len(content)) + content)


def test_records_are_held_to_every_rule_of_their_format() -> None:
    plain = b"\0\0\0\1\1"  # attributes, two deltas, null key, null value; then the number of headers
    assert check_records(body(plain + b"\0"), 1) == -1
    assert check_records(body(b"\0" + b"\xff" * 9 + b"\x01\0\1\1\0"), 1) == -1
    assert check_records(body(b"\0\0" + b"\x80" * 4 + b"\x7f\1\1\0"), 1) == -1
    assert check_records(body(plain + varint(1) + varint(0) + varint(-9)), 1) == -1
    faults = {
        "eleven bytes of time": b"\0" + b"\xff" * 10 + b"\x01\0\1\1\0",
        "six bytes of offset": b"\0\0" + b"\x80" * 5 + b"\0\1\1\0",
        "key beyond the body": b"\0\0\0" + varint(9) + b"\1\0",
        "value beyond the body": b"\0\0\0\1" + varint(9) + b"\0",
        "negative number of headers": plain + varint(-1),
        "more headers than bytes": plain + varint(3) + b"\0\0",
        "header without a name": plain + varint(1) + varint(-1) + varint(0),
        "header value beyond the body": plain + varint(1) + varint(0) + varint(2),
        "a byte left in the body": plain + b"\0\0",
        "an empty body": b"",
        "no header count": plain,
    }
    for name, content in faults.items():
        assert check_records(body(content), 1) == 0, name
    assert check_records(memoryview(varint(-3) + bytes(9)), 1) == 0


def test_resealing_makes_a_changed_batch_sound() -> None:
    for batch in (batch_v2(1), legacy(1), legacy(1, 0)):
        changed = flip(batch, 22, CONTROL)
        assert scan(changed)[0].stop is Stop.BAD_CRC
        assert scan(reseal(changed))[0].stop is Stop.END
