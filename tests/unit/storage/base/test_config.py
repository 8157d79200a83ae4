"""Settings have the names, defaults and ranges of Kafka's topic properties, and a broker's own names give defaults."""

from __future__ import annotations

from dataclasses import fields

import pytest

from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid

# As the ConfigDef of Kafka 4.3.0 has them: name, default as text, first values that are refused on either side.
NUMBERS = [
    ("compression.lz4.level", 9, 0, 18),
    ("compression.zstd.level", 3, -131073, 23),
    ("compression.gzip.level", -1, 0, 10),
    ("delete.retention.ms", 86400000, -1, 2**63),
    ("file.delete.delay.ms", 60000, -1, 2**63),
    ("flush.messages", 2**63 - 1, 0, 2**63),
    ("flush.ms", 2**63 - 1, -1, 2**63),
    ("index.interval.bytes", 4096, -1, 2**31),
    ("local.retention.bytes", -2, -3, 2**63),
    ("local.retention.ms", -2, -3, 2**63),
    ("max.compaction.lag.ms", 2**63 - 1, 0, 2**63),
    ("max.message.bytes", 1048588, -1, 2**31),
    ("message.timestamp.after.max.ms", 3600000, -1, 2**63),
    ("message.timestamp.before.max.ms", 2**63 - 1, -1, 2**63),
    ("min.compaction.lag.ms", 0, -1, 2**63),
    ("min.insync.replicas", 1, 0, 2**31),
    ("retention.bytes", -1, -(2**63) - 1, 2**63),
    ("retention.ms", 604800000, -2, 2**63),
    ("segment.bytes", 1073741824, 1048575, 2**31),
    ("segment.index.bytes", 10485760, 3, 2**31),
    ("segment.jitter.ms", 0, -1, 2**63),
    ("segment.ms", 604800000, 0, 2**63),
]


def value_of(config: LogConfig, name: str) -> object:
    return getattr(config, name.replace(".", "_"))


@pytest.mark.parametrize(("name", "default", "below", "above"), NUMBERS)
def test_numbers_have_kafkas_defaults_and_ranges(name: str, default: int, below: int, above: int) -> None:
    assert value_of(LogConfig(), name) == default
    for refused in (below, above):
        with pytest.raises(ConfigInvalid, match=name):
            LogConfig.from_properties({name: str(refused)})


def test_every_setting_is_reached_by_its_name_with_dots() -> None:
    names = {each.name: each.metadata["property"].name for each in fields(LogConfig)}
    assert all(name.replace(".", "_") == attribute for attribute, name in names.items())
    assert len(names) == 34


@pytest.mark.parametrize("text", ["", "1.5", "1e6", "0x10", "many", "1_000_000", "- 1"])
def test_text_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"flush\.ms"):
        LogConfig.from_properties({"flush.ms": text})


def test_white_space_around_a_value_is_ignored_as_by_kafka() -> None:
    config = LogConfig.from_properties(
        {"flush.ms": " +7 ", "cleanup.policy": " compact , delete ", "preallocate": "TRUE"}
    )
    assert (config.flush_ms, config.cleanup_policy, config.preallocate) == (7, ("compact", "delete"), True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cleanup.policy", "foobar"),
        ("cleanup.policy", "delete,delete"),
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.2"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
    ],
)
def test_other_values_outside_of_what_is_allowed_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigInvalid, match=name):
        LogConfig.from_properties({name: text})


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigInvalid, match=r"retension\.ms: unknown topic property; did you mean retention\.ms\?"):
        LogConfig.from_properties({"retension.ms": "1"})
    with pytest.raises(ConfigInvalid, match=r"log\.roll\.hours: .* as a topic property it is segment\.ms"):
        LogConfig.from_properties({"log.roll.hours": "1"})
    with pytest.raises(ConfigInvalid, match=r"xyzzy\\x1b: unknown topic property$"):
        LogConfig.from_properties({"xyzzy\x1b": "1"})


def test_properties_that_kafka_dropped_change_nothing() -> None:
    assert LogConfig.from_properties({"message.format.version": "0.9.0"}) == LogConfig()


def test_topic_properties_are_set_over_given_defaults() -> None:
    defaults = LogConfig(retention_ms=5, flush_ms=6)
    assert LogConfig.from_properties({"flush.ms": "7"}, defaults) == LogConfig(retention_ms=5, flush_ms=7)


def test_lags_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="above"):
        LogConfig.from_properties({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_the_first_of_a_brokers_synonyms_counts_each_in_its_own_unit() -> None:
    hours = {"log.roll.hours": "2", "log.retention.hours": "3", "log.roll.jitter.hours": "1", "node.id": "1"}
    config = LogConfig.of_broker(hours)
    assert (config.segment_ms, config.retention_ms, config.segment_jitter_ms) == (7_200_000, 10_800_000, 3_600_000)
    config = LogConfig.of_broker({**hours, "log.retention.minutes": "4", "log.roll.ms": "11"})
    assert (config.segment_ms, config.retention_ms) == (11, 240_000)
    assert LogConfig.of_broker({"log.flush.scheduler.interval.ms": "8"}).flush_ms == 8
    assert LogConfig.of_broker({"log.retention.hours": "-3"}).retention_ms == -1


def test_a_bad_value_of_a_broker_is_told_by_the_brokers_name() -> None:
    with pytest.raises(ConfigInvalid, match=r"^log\.index\.size\.max\.bytes"):
        LogConfig.of_broker({"log.index.size.max.bytes": "3"})
    with pytest.raises(ConfigInvalid, match=r"^log\.roll\.hours"):
        LogConfig.of_broker({"log.roll.hours": "soon"})


def test_the_size_for_tests_takes_the_place_of_the_size_of_segments() -> None:
    assert LogConfig.from_properties({"internal.segment.bytes": "100"}).max_segment_bytes == 100
    assert LogConfig().max_segment_bytes == 1 << 30


def test_a_compacted_log_rolls_in_time_for_its_greatest_lag() -> None:
    assert LogConfig(max_compaction_lag_ms=5).max_segment_ms == 604800000
    assert LogConfig(max_compaction_lag_ms=5, cleanup_policy=("compact",)).max_segment_ms == 5
    assert LogConfig(segment_jitter_ms=9, segment_ms=7).jitter_bound_ms == 7
