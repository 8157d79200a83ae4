"""The offset map keeps the newest offset of each key in the memory it was given."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from storage.base.errors import ConfigInvalid
from storage.cleanup.offset_map import OffsetMap


def test_it_answers_as_a_dictionary_does() -> None:
    rng = random.Random(7)
    offsets, wanted = OffsetMap(24 * 1000, 0.9), {}
    for offset in range(5000):
        key = b"%d" % rng.randrange(890)
        offsets.put(key, offset)
        wanted[key] = offset
    assert {key: offsets.get(key) for key in wanted} == wanted
    assert offsets.size == len(wanted)
    assert [offsets.get(b"no-%d" % n) for n in range(100)] == [-1] * 100
    assert offsets.latest == 4999


@pytest.mark.parametrize("slots", [2, 3, 10, 100, 1009])
def test_it_works_with_every_slot_taken(slots: int) -> None:
    offsets = OffsetMap(24 * slots, 1.0)
    for n in range(slots):
        assert not offsets.is_full
        offsets.put(b"%d" % n, n * 7)
    assert offsets.is_full
    assert [offsets.get(b"%d" % n) for n in range(slots)] == [n * 7 for n in range(slots)]
    assert offsets.get(b"absent") == -1


def test_it_is_full_at_the_load_factor_as_a_brokers_is() -> None:
    assert OffsetMap(128 << 20).limit == 5_033_164
    assert OffsetMap(24 * 30, 0.75).limit == 22


def test_offset_0_is_an_offset() -> None:
    offsets = OffsetMap(2400)
    offsets.put(b"", 0)
    assert offsets.get(b"") == 0


def test_large_offsets_and_keys_are_kept() -> None:
    offsets = OffsetMap(2400)
    offsets.put(b"a" * 100_000, 2**63 - 1)
    offsets.put(b"b", 7_206_178)
    assert offsets.get(b"a" * 100_000) == 2**63 - 1
    assert offsets.get(b"b") == 7_206_178


def test_after_clearing_nothing_is_known() -> None:
    offsets = OffsetMap(2400)
    for n in range(10):
        offsets.put(b"%d" % n, n)
    offsets.clear()
    assert (offsets.size, offsets.latest) == (0, -1)
    assert [offsets.get(b"%d" % n) for n in range(10)] == [-1] * 10


def test_the_latest_offset_can_be_set_and_changes_no_key() -> None:
    offsets = OffsetMap(2400)
    offsets.put(b"a", 3)
    offsets.latest = 99
    assert offsets.get(b"a") == 3


def test_it_takes_the_memory_it_was_given_and_no_more() -> None:
    tracemalloc.start()
    try:
        offsets = OffsetMap(1 << 20, 0.9)
        for n in range(offsets.limit):
            offsets.put(b"key-%d" % n, n)
        assert tracemalloc.get_traced_memory()[0] < (1 << 20) + 8192
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 23, 47, 48])
def test_a_map_that_holds_no_two_keys_is_refused(size: int) -> None:
    with pytest.raises(ConfigInvalid, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(size, 0.9)
