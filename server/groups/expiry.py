"""Expiry of committed offsets, and of groups that have none left.

Source: Apache Kafka 4.3.0, OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition.
"""

from __future__ import annotations

from collections.abc import Callable

from server.groups.classic.facts import GroupFacts
from server.groups.classic.member import CONSUMER
from server.groups.classic.world import GroupState
from server.groups.format.records import OffsetKey, OffsetValue
from server.groups.offsets import Offsets


def expired(group: GroupFacts, offsets: Offsets, now_ms: int, retention_ms: int) -> tuple[list[OffsetKey], bool]:
    """Return the keys of offsets that expire, and whether no offset is left that keeps the group."""
    since = _kept_since(group)
    committed_by_place = offsets.of_group(group.group_id)
    if since is None:
        return [], not committed_by_place and not offsets.has_open_transactions(group.group_id)
    keys = []
    for place, committed in committed_by_place.items():
        if group.state is not GroupState.EMPTY and group.subscribes(place[0]):
            continue
        if _is_over(committed.value, since, now_ms, retention_ms) and not offsets.is_pending(group.group_id, place):
            keys.append(OffsetKey(group.group_id, *place))
    return keys, len(keys) == len(committed_by_place) and not offsets.has_open_transactions(group.group_id)


def _kept_since(group: GroupFacts) -> Callable[[OffsetValue], int] | None:
    """Return the function for the time from which an offset is kept; None while the group's offsets are all in use."""
    if group.roster.protocol_type is None:
        return lambda value: value.commit_timestamp
    if group.state is GroupState.EMPTY:
        since = group.state_timestamp
        return lambda value: value.commit_timestamp if since == -1 else since
    if group.state is GroupState.STABLE and group.roster.protocol_type == CONSUMER and group.topics is not None:
        return lambda value: value.commit_timestamp
    return None


def _is_over(value: OffsetValue, since: Callable[[OffsetValue], int], now_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp != -1:
        return now_ms >= value.expire_timestamp
    return now_ms - since(value) >= retention_ms
