"""Settings of groups, with the names and defaults of a broker.

Source: Apache Kafka 4.3.0, GroupCoordinatorConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from server.groups.classic.world import GroupSettings
from storage.base.errors import ConfigInvalid, printable
from storage.base.numerals import parse_int64
from storage.base.units import INT32_MAX, INT64_MAX

_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """`group`: limits for members. Times in ms, sizes in characters as a broker counts them."""

    group: GroupSettings = field(default_factory=GroupSettings)
    metadata_max_size: int = 4_096
    """`offset.metadata.max.bytes`"""
    retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    """`offsets.retention.minutes`: how long unused offsets are kept."""
    check_interval_ms: int = 10 * _MINUTE_MS
    """`offsets.retention.check.interval.ms`"""
    newer_session_ms: int = 45_000
    """How long groups of a newer protocol, which is not served, count as having members after a start."""


def settings_of_broker(properties: Mapping[str, str]) -> CoordinatorSettings:
    """Return the settings that a broker's properties set; the others are at their defaults. Raises `ConfigInvalid`."""
    group, plain = GroupSettings(), CoordinatorSettings()

    def of(name: str, default: int, least: int, most: int = INT32_MAX) -> int:
        return default if name not in properties else _whole(name, properties[name], least, most)

    retention = of("offsets.retention.minutes", plain.retention_ms // _MINUTE_MS, 1) * _MINUTE_MS
    settings = CoordinatorSettings(
        GroupSettings(
            of("group.initial.rebalance.delay.ms", group.initial_rebalance_delay_ms, 0),
            of("group.min.session.timeout.ms", group.min_session_timeout_ms, 0),
            of("group.max.session.timeout.ms", group.max_session_timeout_ms, 0),
            max_size=of("group.max.size", group.max_size, 1),
        ),
        of("offset.metadata.max.bytes", plain.metadata_max_size, 0),
        retention,
        of("offsets.retention.check.interval.ms", plain.check_interval_ms, 1, INT64_MAX),
    )
    if settings.group.min_session_timeout_ms > settings.group.max_session_timeout_ms:
        raise ConfigInvalid("group.min.session.timeout.ms is above group.max.session.timeout.ms")
    return settings


def _whole(name: str, text: str, least: int, most: int) -> int:
    number = parse_int64(text.strip())
    if number is None or not least <= number <= most:
        raise ConfigInvalid(f"{name}: {printable(text)} is no whole number from {least} to {most}")
    return number
