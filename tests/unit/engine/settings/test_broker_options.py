"""What a broker's `server.properties` says of how its logs are kept is done by the log manager as well."""

from __future__ import annotations

import pytest
from support.managers import NOW, P0, SMALL, append, open_manager
from support.memory_fs import MemoryFs

from engine.settings.broker_options import options_of_broker
from engine.settings.options import Intervals, ManagerOptions
from storage.base.errors import ConfigInvalid
from storage.base.units import Epoch


def made(properties: dict[str, str]) -> ManagerOptions:
    return options_of_broker(ManagerOptions(), properties, lambda _: None)


def test_without_a_word_everything_is_as_it_is_by_default() -> None:
    found = made({"log.dirs": "/data", "num.io.threads": "8"})
    assert (found.intervals, found.producer_expiration_ms, found.compacts) == (Intervals(), 86_400_000, True)
    assert found.knows_broker
    assert found.cleaner_throttle == ManagerOptions().cleaner_throttle


def test_intervals_memory_and_defaults_are_the_brokers() -> None:
    found = made({
        "log.flush.offset.checkpoint.interval.ms": "1",
        "log.flush.start.offset.checkpoint.interval.ms": "2",
        "replica.high.watermark.checkpoint.interval.ms": "3",
        "log.retention.check.interval.ms": "4",
        "log.cleaner.backoff.ms": "5",
        "producer.id.expiration.check.interval.ms": "6",
        "producer.id.expiration.ms": "7",
        "log.cleaner.dedupe.buffer.size": str(2**40),
        "log.retention.hours": "1",
    })  # fmt: skip
    assert found.intervals == Intervals(
        recovery_points_ms=1, log_starts_ms=2, high_watermarks_ms=3, retention_ms=4, compaction_ms=5, producers_ms=6
    )
    assert (found.producer_expiration_ms, found.cleaner_memory_bytes) == (7, 2**31 - 1)
    assert found.defaults.retention_ms == 3_600_000


def test_the_cleaner_is_held_to_its_bytes_a_second() -> None:
    waited: list[float] = []
    found = options_of_broker(ManagerOptions(), {"log.cleaner.io.max.bytes.per.second": "1000.0"}, waited.append)
    found.cleaner_throttle(500)
    assert waited == [0.5]


@pytest.mark.parametrize(
    ("name", "value"),
    [("log.cleaner.dedupe.buffer.size", "1048576"), ("log.retention.check.interval.ms", "soon"),
     ("producer.id.expiration.ms", "0"), ("log.cleaner.io.max.bytes.per.second", "0"), ("log.retention.ms", "x")],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=name):
        made({name: value})


def test_where_the_cleaner_is_off_nothing_is_compacted() -> None:
    for enabled, left in (("false", 9), ("true", 2)):
        fs = MemoryFs({"/a/": b""})
        options = made({"log.cleaner.enable": enabled})
        with open_manager(fs, compacts=options.compacts) as manager:
            settings = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
            manager.topics.create("orders", 1, settings, NOW)
            for number in range(9):
                append(manager, str(number), key=b"k")
            manager.log(P0).roll(NOW)
            assert manager.compact(NOW) == []
            sizes = [segment.size for segment in manager.log(P0).segments]
        assert (sum(sizes) > 500) == (left == 9), (enabled, sizes)


def test_the_end_of_a_leader_epoch_is_told() -> None:
    with open_manager(MemoryFs({"/a/": b""})) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a")
        append(manager, "b")
        manager.partition(P0).start_epoch(3)
        append(manager, "c")
        told = [manager.end_offset_for_epoch(P0, Epoch(epoch)) for epoch in (0, 1, 3, 4)]
    assert told == [(0, 2), (0, 2), (3, 3), None]
