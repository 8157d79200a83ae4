"""The hash of keys, by the vectors of Kafka's own tests, and the partition made of it."""

from __future__ import annotations

import pytest

from storage.batch.murmur2 import murmur2, partition_for_key

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "value"), VECTORS)
def test_the_hash_is_that_of_the_java_client(data: bytes, value: int) -> None:
    assert murmur2(data) == value


@pytest.mark.parametrize(("data", "value"), VECTORS)
def test_a_negative_hash_gives_a_partition_by_its_lower_31_bits(data: bytes, value: int) -> None:
    assert partition_for_key(data, 7) == (value & 0x7FFFFFFF) % 7


def test_every_key_belongs_to_the_only_partition() -> None:
    assert {partition_for_key(bytes([number]), 1) for number in range(256)} == {0}


def test_without_partitions_there_is_no_answer() -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        partition_for_key(b"key", 0)
