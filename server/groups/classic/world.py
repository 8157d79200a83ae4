"""States and settings of a group, and the services that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.groups.classic.kept import MemberBytes
from server.groups.format.records import GroupValue
from storage.base.units import INT32_MAX

Identity: TypeAlias = tuple[str, str | None]
"""Id of a member, empty where it is not known, and its instance id."""


class GroupState(Enum):
    """The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits for members, in ms and members. The defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    new_member_timeout_ms: int = 300_000
    max_size: int = INT32_MAX
    most_of_member: int = 2 << 20
    """Bytes that are kept of one member."""
    most_of_members: int = 64 << 20
    """Bytes that are kept of all members of all groups."""


class World(Timers, Protocol):
    """The services that a group calls."""

    @property
    def kept(self) -> MemberBytes:
        """Return the bytes of members, of all groups together."""

    def new_id(self) -> str:
        """Return a new member id."""

    def store(self, group_id: str, value: GroupValue, done: Callable[[ErrorCode], None]) -> None:
        """Write the state of a group; `done` receives, later, NONE once it counts, else an error."""
