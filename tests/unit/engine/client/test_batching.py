"""Records become batches by size and by time, each record on the partition that a producer would choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.client.batching import Batcher, Keyless, NewRecord, RoundRobin, Sticky, numbered
from storage.base.errors import ConfigInvalid
from storage.batch.murmur2 import partition_for_key
from storage.batch.record import encode_batch

Sent = list[tuple[int, list[bytes | None]]]


def batcher(partitions: int = 3, keyless: Keyless | None = None, **limits: int) -> tuple[Batcher, Sent]:
    sent: Sent = []
    keyless = keyless or Sticky(partitions, lambda _: 0)
    made = Batcher(partitions, keyless, lambda p, records: sent.append((p, [r.value for r in records])), **limits)
    return made, sent


def plain(value: bytes = b"v", key: bytes | None = None, partition: int | None = None) -> NewRecord:
    return NewRecord(key, value, 0, partition=partition)


def test_a_key_always_leads_to_the_partition_of_the_java_client() -> None:
    made, _ = batcher(7)
    for number in range(100):
        key = b"k%d" % number
        assert made.add(plain(key=key), 0) == partition_for_key(key, 7)


def test_an_empty_key_is_a_key() -> None:
    made, _ = batcher(7)
    assert made.add(plain(key=b""), 0) == partition_for_key(b"", 7)


def test_a_record_that_names_its_partition_goes_there_whatever_its_key() -> None:
    made, _ = batcher(7)
    assert {made.add(plain(key=b"k%d" % number, partition=5), 0) for number in range(20)} == {5}


def test_records_without_a_key_stay_together_until_their_batch_is_sent() -> None:
    made, sent = batcher(3, batch_bytes=100)
    chosen = [made.add(plain(b"x" * 20), 0) for _ in range(6)]
    assert chosen == [0, 0, 1, 1, 2, 2]
    assert [(partition, len(values)) for partition, values in sent] == [(0, 2), (1, 2)]


def test_the_next_sticky_partition_is_another_one_wherever_chance_leads() -> None:
    for choice in range(3):
        sticky = Sticky(4, lambda bound, choice=choice: min(choice, bound - 1))  # type: ignore[misc]
        before = sticky.partition()
        sticky.sent(before)
        assert sticky.partition() != before
        sticky.sent(before)  # another's batch
        assert sticky.partition() != before


def test_with_one_partition_sticky_has_no_choice() -> None:
    sticky = Sticky(1, lambda _: 0)
    sticky.sent(0)
    assert sticky.partition() == 0


def test_in_turn_every_record_goes_to_the_next_partition() -> None:
    made, _ = batcher(3, RoundRobin(3))
    assert [made.add(plain(), 0) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert made.add(plain(key=b"k1"), 0) == partition_for_key(b"k1", 3)


def test_a_batch_waits_no_longer_than_its_first_record_may() -> None:
    made, sent = batcher(linger_ms=10)
    assert made.wait_ms(0) is None
    made.add(plain(b"a"), 100)
    made.add(plain(b"b"), 105)
    assert made.wait_ms(105) == 5
    made.send_due(109)
    assert sent == []
    made.send_due(110)
    assert sent == [(0, [b"a", b"b"])]
    assert made.wait_ms(110) is None


def test_without_linger_every_record_is_a_batch() -> None:
    made, sent = batcher(linger_ms=0)
    made.add(plain(b"a"), 0)
    made.add(plain(b"b"), 0)
    assert [values for _, values in sent] == [[b"a"], [b"b"]]


def test_a_record_larger_than_a_batch_is_one_of_its_own() -> None:
    made, sent = batcher(1, batch_bytes=50)
    made.add(plain(b"a"), 0)
    made.add(plain(b"x" * 100), 0)
    made.add(plain(b"b"), 0)
    made.flush()
    assert [len(values) for _, values in sent] == [1, 1, 1]


def test_what_is_refused_is_not_sent_again_and_the_rest_still_is() -> None:
    sent: list[int] = []

    def send(partition: int, _: list[NewRecord]) -> None:
        sent.append(partition)
        if partition == 0:
            raise ConfigInvalid("no")

    made = Batcher(2, RoundRobin(2), send)
    made.add(plain(), 0)
    made.add(plain(), 0)
    with pytest.raises(ConfigInvalid):
        made.flush()
    made.flush()
    assert sent == [0, 1]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=200)), max_size=60))
def test_every_record_is_sent_once_in_the_order_of_its_partition(
    pairs: list[tuple[bytes | None, bytes | None]],
) -> None:
    sent: dict[int, list[int]] = {}

    def send(partition: int, records: list[NewRecord]) -> None:
        sent.setdefault(partition, []).extend(record.source for record in records)
        assert len(records) == 1 or sum(record.size for record in records) <= 300

    made = Batcher(3, Sticky(3, lambda _: 0), send, batch_bytes=300)
    for number, (key, value) in enumerate(pairs):
        made.add(NewRecord(key, value, 0, source=number), 0)
    made.flush()
    assert sorted(number for numbers in sent.values() for number in numbers) == list(range(len(pairs)))
    assert all(numbers == sorted(numbers) for numbers in sent.values())


@given(st.binary(max_size=300), st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4))
def test_the_size_of_a_record_is_estimated_closely(value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    made = [NewRecord(b"key", value, 0, tuple(headers))] * 4
    encoded = len(encode_batch(numbered(made))) - 61
    assert encoded <= sum(record.size for record in made) + 60
