"""What can be set for groups, by the names and with the defaults of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from server.groups.world import GroupSettings

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """`group`: what a group asks of its members. Times in ms, sizes in characters as a broker counts them."""

    group: GroupSettings = field(default_factory=GroupSettings)
    metadata_max_size: int = 4_096
    """`offset.metadata.max.bytes`"""
    retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    """`offsets.retention.minutes`: how long offsets are kept that nobody uses."""
    check_interval_ms: int = 10 * MINUTE_MS
    """`offsets.retention.check.interval.ms`"""
    newer_session_ms: int = 45_000
    """How long members of groups of a newer protocol, which is not served, are taken to be there after a start."""
