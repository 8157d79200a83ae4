"""The settings of one log: Kafka's topic properties, by their names, with their defaults and ranges.

A broker's `server.properties` gives the defaults by other names, some in other units; where it sets several of those
for one topic property, the first of them counts. Source: Apache Kafka 4.3.0, LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, TypeVar

from storage.base.errors import ConfigInvalid, printable
from storage.base.numerals import parse_int32, parse_int64
from storage.base.units import INT32_MAX, INT64_MAX

COMPACT: Final = "compact"
DELETE: Final = "delete"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_WEEK_MS: Final = 168 * _HOUR_MS

RETIRED: Final = frozenset({
    "message.format.version", "message.timestamp.difference.max.ms", "message.downconversion.enable",
})  # fmt: skip
"""Topic properties that Kafka 4.0 dropped. A directory of an older broker may come with them; they change nothing."""


class Property(NamedTuple):
    """One topic property: its name, how text becomes its value, and which broker properties give its default."""

    name: str
    parse: Callable[[str], Any]
    broker: tuple[tuple[str, int], ...]
    """Names, the first one set counts, with what a value is multiplied by."""


def _whole(name: str, default: int | None, least: int | None, most: int, *broker: str | tuple[str, int]) -> Any:
    wide = most > INT32_MAX

    def parse(text: str) -> int:
        number = parse_int64(text.strip()) if wide else parse_int32(text.strip())
        if number is None:
            raise ConfigInvalid(f"{name}: {printable(text)} is no whole number of {64 if wide else 32} bits")
        if not (least is None or least <= number) or number > most:
            raise ConfigInvalid(f"{name}: {number} is not in the range {_range(least, most)}")
        return number

    return _setting(name, default, parse, *broker)


def _range(least: int | None, most: int) -> str:
    return f"from {least}" if most in (INT32_MAX, INT64_MAX) else f"from {least} to {most}"


def _fraction(name: str, default: float, *broker: str) -> Any:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise ConfigInvalid(f"{name}: {printable(text)} is no number") from None
        if not 0 <= number <= 1:
            raise ConfigInvalid(f"{name}: {printable(text)} is not in the range from 0 to 1")
        return number

    return _setting(name, default, parse, *broker)


def _flag(name: str, *broker: str) -> Any:
    def parse(text: str) -> bool:
        if (lower := text.strip().lower()) not in {"true", "false"}:
            raise ConfigInvalid(f"{name}: {printable(text)} is neither true nor false")
        return lower == "true"

    return _setting(name, False, parse, *broker)  # noqa: FBT003 (the default)


def _choice(name: str, default: str, allowed: tuple[str, ...], *broker: str) -> Any:
    def parse(text: str) -> str:
        if (value := text.strip()) not in allowed:
            raise ConfigInvalid(f"{name}: {printable(text)} is not one of {', '.join(allowed)}")
        return value

    return _setting(name, default, parse, *broker)


def _names(name: str, default: tuple[str, ...], allowed: tuple[str, ...] | None, *broker: str) -> Any:
    def parse(text: str) -> tuple[str, ...]:
        values = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
        if allowed is not None and (not set(values) <= set(allowed) or len(set(values)) < len(values)):
            raise ConfigInvalid(f"{name}: {printable(text)} is no list of {' and '.join(allowed)}, each at most once")
        return values

    return _setting(name, default, parse, *broker)


def _gzip_level(name: str) -> Any:
    def parse(text: str) -> int:
        number = parse_int32(text.strip())
        if number is None or (number != -1 and not 1 <= number <= 9):
            raise ConfigInvalid(f"{name}: {printable(text)} is neither -1 nor in the range from 1 to 9")
        return number

    return _setting(name, -1, parse, name)


def _setting(name: str, default: object, parse: Callable[[str], Any], *broker: str | tuple[str, int]) -> Any:
    synonyms = tuple((entry, 1) if isinstance(entry, str) else entry for entry in broker)
    return field(default=default, metadata={"property": Property(name, parse, synonyms)})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """All settings of one log, sizes in bytes and times in ms. Made by `from_properties`, `of_broker` or by hand.

    A value given by hand is not checked against its range. What does not concern the files of a log, and
    tiered storage, is known by name and kept, and changes nothing here.
    """

    cleanup_policy: tuple[str, ...] = _names("cleanup.policy", (DELETE,), (COMPACT, DELETE), "log.cleanup.policy")
    compression_type: str = _choice(
        "compression.type", PRODUCER, ("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER), "compression.type"
    )
    compression_gzip_level: int = _gzip_level("compression.gzip.level")
    compression_lz4_level: int = _whole("compression.lz4.level", 9, 1, 17, "compression.lz4.level")
    compression_zstd_level: int = _whole("compression.zstd.level", 3, -131072, 22, "compression.zstd.level")
    delete_retention_ms: int = _whole(
        "delete.retention.ms", 86_400_000, 0, INT64_MAX, "log.cleaner.delete.retention.ms"
    )
    file_delete_delay_ms: int = _whole("file.delete.delay.ms", 60_000, 0, INT64_MAX, "log.segment.delete.delay.ms")
    flush_messages: int = _whole("flush.messages", INT64_MAX, 1, INT64_MAX, "log.flush.interval.messages")
    flush_ms: int = _whole(
        "flush.ms", INT64_MAX, 0, INT64_MAX, "log.flush.interval.ms", "log.flush.scheduler.interval.ms"
    )
    index_interval_bytes: int = _whole("index.interval.bytes", 4096, 0, INT32_MAX, "log.index.interval.bytes")
    max_compaction_lag_ms: int = _whole(
        "max.compaction.lag.ms", INT64_MAX, 1, INT64_MAX, "log.cleaner.max.compaction.lag.ms"
    )
    max_message_bytes: int = _whole("max.message.bytes", 1_048_588, 0, INT32_MAX, "message.max.bytes")
    message_timestamp_after_max_ms: int = _whole(
        "message.timestamp.after.max.ms", _HOUR_MS, 0, INT64_MAX, "log.message.timestamp.after.max.ms"
    )
    message_timestamp_before_max_ms: int = _whole(
        "message.timestamp.before.max.ms", INT64_MAX, 0, INT64_MAX, "log.message.timestamp.before.max.ms"
    )
    message_timestamp_type: str = _choice(
        "message.timestamp.type", CREATE_TIME, (CREATE_TIME, LOG_APPEND_TIME), "log.message.timestamp.type"
    )
    min_cleanable_dirty_ratio: float = _fraction("min.cleanable.dirty.ratio", 0.5, "log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = _whole("min.compaction.lag.ms", 0, 0, INT64_MAX, "log.cleaner.min.compaction.lag.ms")
    preallocate: bool = _flag("preallocate", "log.preallocate")
    retention_bytes: int = _whole("retention.bytes", -1, None, INT64_MAX, "log.retention.bytes")
    retention_ms: int = _whole(
        "retention.ms", _WEEK_MS, -1, INT64_MAX,
        "log.retention.ms", ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS),
    )  # fmt: skip
    segment_bytes: int = _whole("segment.bytes", 1 << 30, 1 << 20, INT32_MAX, "log.segment.bytes")
    internal_segment_bytes: int | None = _whole("internal.segment.bytes", None, None, INT32_MAX)
    """Takes the place of `segment.bytes`, whose range it escapes; for tests."""
    segment_index_bytes: int = _whole("segment.index.bytes", 10 << 20, 4, INT32_MAX, "log.index.size.max.bytes")
    segment_jitter_ms: int = _whole(
        "segment.jitter.ms", 0, 0, INT64_MAX, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)
    )
    segment_ms: int = _whole("segment.ms", _WEEK_MS, 1, INT64_MAX, "log.roll.ms", ("log.roll.hours", _HOUR_MS))
    # What follows is not about the files of a log.
    follower_replication_throttled_replicas: tuple[str, ...] = _names(
        "follower.replication.throttled.replicas", (), None
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _names("leader.replication.throttled.replicas", (), None)
    local_retention_bytes: int = _whole("local.retention.bytes", -2, -2, INT64_MAX, "log.local.retention.bytes")
    local_retention_ms: int = _whole("local.retention.ms", -2, -2, INT64_MAX, "log.local.retention.ms")
    min_insync_replicas: int = _whole("min.insync.replicas", 1, 1, INT32_MAX, "min.insync.replicas")
    remote_log_copy_disable: bool = _flag("remote.log.copy.disable")
    remote_log_delete_on_disable: bool = _flag("remote.log.delete.on.disable")
    remote_storage_enable: bool = _flag("remote.storage.enable")
    unclean_leader_election_enable: bool = _flag("unclean.leader.election.enable", "unclean.leader.election.enable")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Return `defaults`, Kafka's own if there are none, with the topic properties in `properties` set.

        Raises `ConfigInvalid` for a value that cannot be used, a name that is not known (with the nearest known one),
        and for lags of compaction that contradict one another. Retired names are skipped.
        """
        changes = {}
        for name, text in properties.items():
            if name in RETIRED:
                continue
            known = _BY_NAME.get(name)
            if known is None:
                raise ConfigInvalid(f"{printable(name)}: unknown topic property{_suggestion(name)}")
            changes[known[0]] = known[1].parse(str(text))
        return _checked(replace(defaults or cls(), **changes))

    @classmethod
    def of_broker(cls, properties: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """Return the defaults that a broker with these `server.properties` has; what is not about logs is skipped.

        What they do not set is as in `defaults`, Kafka's own if there are none. Raises `ConfigInvalid` as
        `from_properties` does, naming the broker's property.
        """
        changes: dict[str, object] = {}
        for attribute, known in _BY_NAME.values():
            for name, factor in known.broker:
                if name in properties:
                    changes[attribute] = _broker_value(known, name, str(properties[name]), factor)
                    break
        return _checked(replace(defaults or cls(), **changes))  # type: ignore[arg-type]

    @property
    def max_segment_bytes(self) -> int:
        """The bytes a segment may have, and so the largest append."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def is_compacted(self) -> bool:
        """Whether the newest record of each key is kept."""
        return COMPACT in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled: a compacted log must roll in time for its greatest lag."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    @property
    def jitter_bound_ms(self) -> int:
        """What is drawn for a segment and taken off `max_segment_ms` lies from 0 up to below this."""
        return min(self.segment_jitter_ms, self.segment_ms)

    @property
    def uses_append_time(self) -> bool:
        """Whether records get the time of their append."""
        return self.message_timestamp_type == LOG_APPEND_TIME


_Config = TypeVar("_Config", bound=LogConfig)


def _checked(config: _Config) -> _Config:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigInvalid(
            f"min.compaction.lag.ms: {config.min_compaction_lag_ms} is above max.compaction.lag.ms, "
            f"{config.max_compaction_lag_ms}"
        )
    return config


def _broker_value(known: Property, name: str, text: str, factor: int) -> Any:
    if factor == 1:
        try:
            value = known.parse(text)
        except ConfigInvalid as fault:
            raise ConfigInvalid(str(fault).replace(known.name, name, 1)) from None
    else:
        number = parse_int32(text.strip())
        if number is None:
            raise ConfigInvalid(f"{name}: {printable(text)} is no whole number of 32 bits")
        value = number * factor
    # A broker takes every negative time of retention for "without end".
    return -1 if known.name == "retention.ms" and value < 0 else value


def _suggestion(name: str) -> str:
    for attribute_and_property in _BY_NAME.values():
        known = attribute_and_property[1]
        if any(name == synonym for synonym, _ in known.broker):
            return f"; as a topic property it is {known.name}"
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    return f"; did you mean {near[0]}?" if near else ""


_BY_NAME: Final[dict[str, tuple[str, Property]]] = {
    each.metadata["property"].name: (each.name, each.metadata["property"]) for each in fields(LogConfig)
}
