"""Groups as clients list and describe them.

Source: Apache Kafka 4.3.0, GroupMetadataManager.listGroups and describeGroups, DescribeGroupsHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from server.api.errors import ErrorCode
from server.groups.classic.world import GroupState
from server.groups.format.records import Protocol
from server.groups.shard import Shard


def listed(shards: Sequence[Shard], states: Iterable[str], types: Iterable[str]) -> list[dict[str, Any]] | ErrorCode:
    """Return all groups, or those in some states and of some types; or why they cannot be listed.

    Names of states and types are taken in any case.
    """
    fault = next((shard.fault for shard in shards if shard.fault is not None), None)
    if fault is not None:
        return fault
    in_states, of_types = {_plain(state) for state in states}, {_plain(kind) for kind in types}
    return [
        group
        for shard in shards
        for group in _of_shard(shard)
        if (not in_states or _plain(group["group_state"]) in in_states)
        and (not of_types or group["group_type"] in of_types)
    ]


def _of_shard(shard: Shard) -> Iterator[dict[str, Any]]:
    for group in (group.facts for group in shard.all_known()):
        yield _line(group.group_id, group.roster.protocol_type or "", group.state.value, Protocol.CLASSIC)
    for group_id, newer in shard.image.newer.items():
        state = "Stable" if newer.has_members and shard.is_taken(group_id) else "Empty"
        yield _line(group_id, newer.protocol.value, state, newer.protocol)


def _line(group_id: str, protocol_type: str, state: str, kind: Protocol) -> dict[str, Any]:
    return {"group_id": group_id, "protocol_type": protocol_type, "group_state": state, "group_type": kind.value}


def described(shard: Shard | ErrorCode, group_id: str) -> dict[str, Any]:
    """Return a group with its members. An unknown group is dead, as with a broker."""
    if isinstance(shard, ErrorCode):
        return {"group_id": group_id, "error_code": shard}
    known = shard.known(group_id)
    if known is None:
        return {"group_id": group_id, "error_code": ErrorCode.NONE, "group_state": GroupState.DEAD.value}
    group = known.facts
    is_stable = group.state is GroupState.STABLE
    return {
        "group_id": group_id,
        "error_code": ErrorCode.NONE,
        "group_state": group.state.value,
        "protocol_type": group.roster.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.roster
        ],
    }


def _plain(name: str) -> str:
    return name.strip().lower()
