"""The records of `__consumer_offsets`, held against those that a broker of 4.3.0 wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden.golden import unpack

from server.groups.format.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    NewerKey,
    OffsetKey,
    OffsetValue,
    Protocol,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    partition_of,
)
from server.groups.image import Image
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.batch.batch import parse_header, split_batches
from storage.batch.record import Record, records_of

ORDERS = bytes.fromhex("1fd95b01635d419abbeb6c701b24ab4f")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Record]]:
    """What a broker left in both partitions, by partition."""
    found = {}
    for name, directory in unpack("groups", tmp_path_factory.mktemp("groups")).items():
        if "__consumer_offsets" in name:
            found[int(name.rpartition("-")[2])] = list(records_in(directory))
    return found


def records_in(directory: Path) -> Iterator[Record]:
    for log in sorted(directory.glob("*.log")):
        for batch in split_batches(memoryview(log.read_bytes())):
            yield from records_of(batch)


def test_what_a_broker_wrote_is_written_again_byte_for_byte(written: dict[int, list[Record]]) -> None:
    kinds = set()
    for record in (record for records in written.values() for record in records):
        key, value = decode_key(record.key), record.value or b""
        kinds.add(type(key))
        again = encode_offset(decode_offset(value)) if isinstance(key, OffsetKey) else encode_group(decode_group(value))
        assert (encode_key(key), again) == (record.key, value)
    assert kinds == {OffsetKey, GroupKey}
    assert sum(map(len, written.values())) == 20


def test_groups_are_in_the_partition_where_a_broker_put_them(written: dict[int, list[Record]]) -> None:
    for number, records in written.items():
        assert {partition_of(decode_key(record.key).group, 2) for record in records} == {number}


def test_a_group_of_a_broker_begins_empty_has_its_members_and_ends_empty(written: dict[int, list[Record]]) -> None:
    values = [decode_group(r.value or b"") for r in written[0] if isinstance(decode_key(r.key), GroupKey)]
    assert [(each.generation, each.protocol, len(each.members)) for each in values] == [
        (0, None, 0),
        (1, "range", 1),
        (2, None, 0),
    ]
    assert values[1].leader == values[1].members[0].member_id
    assert values[1].members[0][1:6] == ("rdkafka", "/127.0.0.1", 45_000, 300_000, None)


def test_a_commit_of_a_broker_has_its_topic_id(written: dict[int, list[Record]]) -> None:
    last = [r for r in written[1] if decode_key(r.key) == OffsetKey("billing", "orders", 0)][-1]
    assert decode_offset(last.value or b"") == OffsetValue(293, 0, "", last.timestamp, -1, ORDERS)


def test_what_a_broker_left_adds_up_to_its_positions_and_generations(tmp_path: Path) -> None:
    image = Image()
    for name, directory in unpack("groups", tmp_path).items():
        if "__consumer_offsets" in name:
            for log in sorted(directory.glob("*.log")):
                for batch in split_batches(memoryview(log.read_bytes())):
                    image.take_batch(parse_header(batch), batch)
    positions = {
        group: {place[1]: at for g, place, at in image.offsets.positions() if g == group} for group in image.groups
    }
    assert positions == {"billing": {0: 293, 1: 375, 2: 332}, "search": {0: 293, 1: 375, 2: 332}}
    assert {(value.generation, value.members) for value in image.groups.values()} == {(2, ())}


# Values of older brokers, by the tables of Kafka's schemas: 0.8.2 to 0.9 wrote offsets 0 and 1, groups 0, 2.0 wrote
# offsets 2, 2.1 and later 3.
OFFSETS = {
    "000000000000000000070003666f6f0000000000000009": OffsetValue(7, -1, "foo", 9),
    "0001000000000000000700000000000000000009000000000000000a": OffsetValue(7, -1, "", 9, 10),
    "0002000000000000000700000000000000000009": OffsetValue(7, -1, "", 9),
    "000300000000000000070000000500000000000000000009": OffsetValue(7, 5, "", 9),
    "00040000000000000007000000050100000000000000090" + "0": OffsetValue(7, 5, "", 9),
}


@pytest.mark.parametrize("data", OFFSETS)
def test_offsets_of_every_version_are_read(data: str) -> None:
    assert decode_offset(bytes.fromhex(data)) == OFFSETS[data]


def test_a_time_of_expiry_is_written_in_the_one_version_that_has_it() -> None:
    value = OffsetValue(7, 5, "", 9, 10, ORDERS)
    assert decode_offset(encode_offset(value)) == OffsetValue(7, -1, "", 9, 10)


def member(version: int) -> tuple[str, MemberValue]:
    instance = "0001 69" if version >= 3 else ""
    rebalance = "0000 0bb8" if version >= 1 else ""
    data = f"0001 6d {instance} 0001 63 0001 68 {rebalance} 0000 1770 0000 0002 aabb 0000 0001 cc"
    value = MemberValue(
        "m", "c", "h", 6_000, 3_000 if version >= 1 else -1, "i" if version >= 3 else None, b"\xaa\xbb", b"\xcc"
    )
    return data, value


@pytest.mark.parametrize("version", range(4))
def test_groups_of_every_version_are_read(version: int) -> None:
    inner, expected = member(version)
    time = "0000 0000 0000 0009" if version >= 2 else ""
    data = f"{version:04x} 0001 74 0000 0003 0001 70 ffff {time} 0000 0001 {inner}"
    value = GroupValue("t", 3, "p", None, 9 if version >= 2 else -1, (expected,))
    assert decode_group(bytes.fromhex(data)) == value
    if version == 3:
        assert encode_group(value) == bytes.fromhex(data)


def test_the_flexible_version_of_a_group_is_read_with_its_tags() -> None:
    inner = "02 6d 02 69 02 63 02 68 0000 0bb8 0000 1770 03 aabb 02 cc 01 07 01 ff"
    data = f"0004 02 74 0000 0003 02 70 00 0000 0000 0000 0009 02 {inner} 00"
    assert decode_group(bytes.fromhex(data)) == GroupValue("t", 3, "p", None, 9, (member(3)[1],))


def test_keys_of_newer_protocols_keep_their_bytes() -> None:
    data = bytes.fromhex("0005 0001 67 0001 6d")
    key = decode_key(data)
    assert key == NewerKey(5, "g", data)
    assert isinstance(key, NewerKey)
    assert (key.protocol, key.is_member, encode_key(key)) == (Protocol.CONSUMER, True, data)
    assert [decode_key(bytes.fromhex(f"{n:04x} 0001 67")) for n in (11, 17, 99)] == [
        NewerKey(n, "g", bytes.fromhex(f"{n:04x} 0001 67")) for n in (11, 17, 99)
    ]


def test_the_first_version_of_a_key_means_the_same_as_the_second() -> None:
    assert decode_key(bytes.fromhex("0000 0001 67 0001 74 0000 0001")) == OffsetKey("g", "t", 1)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\0\1", b"\0\1\xff\xff", b"\0\1\0\1g\0\1t\0\0"])
def test_half_a_key_is_no_key(data: bytes) -> None:
    with pytest.raises(BatchCorrupt):
        decode_key(data)


@pytest.mark.parametrize("data", OFFSETS)
def test_half_a_value_is_no_value(data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(BatchCorrupt):
            decode_offset(whole[:size])


def test_a_count_larger_than_the_bytes_is_refused_before_anything_is_made() -> None:
    with pytest.raises(BatchCorrupt):
        decode_group(bytes.fromhex("0003 0001 74 0000 0003 ffff ffff 0000 0000 0000 0009 7fff ffff"))


def test_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedFormat):
        decode_offset(b"\0\5" + bytes(30))
    with pytest.raises(UnsupportedFormat):
        decode_group(b"\xff\xff" + bytes(30))


@pytest.mark.parametrize(
    ("group", "partition"),
    # What Utils.abs(group.hashCode()) % 50 of 4.3.0 says; the third hashes to the smallest number there is.
    [("billing", 9), ("search", 6), ("polygenelubricants", 0), ("", 0), ("größe-😀", 21)],
)
def test_the_partition_of_a_group_is_that_of_a_broker(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
