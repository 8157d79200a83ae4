"""What a real broker left in `__transaction_state` is understood, record by record."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.golden import unpack

from server.txn.loading import find_stranger, fold
from server.txn.records import Facts, State, decode_value, encode_key, encode_value
from storage.base.errors import BatchCorrupt, UnsupportedFormat
from storage.base.units import TopicPartition
from storage.batch.batch import split_batches
from storage.batch.record import Record, encode_batch, records_of


def logs(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


@pytest.fixture
def left(tmp_path: Path) -> dict[int, list[bytes]]:
    """The logs by partition of the golden directory `transactions`, which a broker 4.3.0 left."""
    found = unpack("transactions", tmp_path)
    return {number: logs(found[f"0/data/__transaction_state-{number}"]) for number in range(2)}


def test_every_id_has_the_facts_of_its_newest_record(left: dict[int, list[bytes]]) -> None:
    for number, data in left.items():
        newest = {}
        for piece in data:
            for batch in split_batches(memoryview(piece)):
                newest |= {record.key: record.value for record in records_of(batch)}
        found = fold(memoryview(piece) for piece in data)
        assert {encode_key(each): facts for each, facts in found.items()} == {
            key: decode_value(value) for key, value in newest.items() if value is not None
        }
        assert found
        assert find_stranger(found, number, 2) is None
        assert find_stranger(found, 1 - number, 2) in found


def test_what_a_broker_wrote_of_one_topic_is_written_back_byte_for_byte(left: dict[int, list[bytes]]) -> None:
    count = 0
    for piece in (piece for data in left.values() for piece in data):
        for batch in split_batches(memoryview(piece)):
            for record in records_of(batch):
                assert record.value is not None
                facts = decode_value(record.value)
                same = encode_value(facts) == record.value
                assert same or len(facts.partitions) > 1
                assert decode_value(encode_value(facts)) == facts
                count += same
    assert count > 20


def batch(key: bytes | None, value: bytes | None) -> memoryview:
    return memoryview(encode_batch([Record(7, key=key, value=value)]))


FACTS = Facts(9, 4, 5_000, State.ONGOING, frozenset((TopicPartition("orders", 0),)), 2, 1)


def test_a_tombstone_forgets_and_a_later_record_begins_anew() -> None:
    key, value = encode_key("t"), encode_value(FACTS)
    assert fold([batch(key, value), batch(key, None)]) == {}
    assert fold([batch(key, None), batch(key, value)]) == {"t": FACTS}


def test_records_of_a_type_that_is_not_known_are_passed_over() -> None:
    assert fold([batch(b"\0\1\0\0", b"anything")]) == {}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        (None, b"", BatchCorrupt), (b"\0", b"", BatchCorrupt), (encode_key("t"), b"", BatchCorrupt),
        (encode_key("t"), b"\0\2", UnsupportedFormat),
        (encode_key("t"), encode_value(FACTS._replace(state=State.DEAD)), BatchCorrupt),
    ],
)  # fmt: skip
def test_a_record_that_is_not_understood_stops_it_and_is_named(
    key: bytes | None, value: bytes, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="offset 7"):
        fold([batch(key, value)])
