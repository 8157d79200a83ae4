"""Requests of members of groups, and requests that list, describe or delete groups.

Source: Apache Kafka 4.3.0, KafkaApis, GroupCoordinatorService, JoinGroupRequest, LeaveGroupResponse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.groups.classic.member import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from server.groups.coordinator import Groups
from server.groups.listing import described, listed
from server.handlers.parts import Parts
from wire.messages import get, milliseconds

_GROUP, _TRANSACTION = 0, 1
_MANY_KEYS: Final = 4
_NULL_PROTOCOL: Final = 7
_KNOWN_ID: Final = 4
_SKIPS: Final = 9
_MANY_MEMBERS: Final = 3
_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Operations on a group, all of them allowed: bits by Kafka's numbers of operations."""
_MOST_BYTES: Final = 64 << 20
"""What members have said that one answer holds; groups behind that are refused in it."""
_OPERATIONS_UNASKED: Final = -(1 << 31)


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers; nothing without a coordinator of groups."""
    if parts.groups is None:
        return {}
    served = _Served(parts, parts.groups)
    return {
        ApiKey.FIND_COORDINATOR: served.find_coordinator,
        ApiKey.JOIN_GROUP: served.join,
        ApiKey.SYNC_GROUP: served.sync,
        ApiKey.HEARTBEAT: served.heartbeat,
        ApiKey.LEAVE_GROUP: served.leave,
        ApiKey.LIST_GROUPS: served.list_groups,
        ApiKey.DESCRIBE_GROUPS: served.describe_groups,
        ApiKey.DELETE_GROUPS: served.delete_groups,
    }


class _Served:
    def __init__(self, parts: Parts, groups: Groups) -> None:
        self._parts, self._groups = parts, groups

    async def find_coordinator(self, call: Call) -> Values:
        kind = get(call.body, "key_type", _GROUP)
        if call.version < _MANY_KEYS:
            return await self._coordinator(call, kind)
        found = await self._coordinator(call, kind)
        return {"coordinators": [{"key": key, **found} for key in dict.fromkeys(call.body.coordinator_keys)]}

    async def _coordinator(self, call: Call, kind: int) -> Values:
        """Return where coordinators of a kind are: here, all of them."""
        error = ErrorCode.NONE
        if kind == _GROUP:
            error = await self._groups.partitions.ensure_topic()
        elif kind == _TRANSACTION and self._parts.transactions is not None:
            error = await self._parts.transactions.ensure_topic()
        elif kind != _TRANSACTION:
            error = ErrorCode.INVALID_REQUEST
        if error:
            return {"error_code": error, "error_message": None, "node_id": -1, "host": "", "port": -1}
        info = call.info
        return {
            "error_code": error,
            "error_message": None,
            "node_id": info.node_id,
            "host": info.host,
            "port": info.port,
        }

    def join(self, call: Call) -> Awaitable[Values]:
        body = call.body
        session_ms = milliseconds(body.session_timeout)
        request = JoinRequest(
            body.member_id,
            get(body, "group_instance_id", None),
            call.client_id,
            "/" + call.client_host,
            session_ms,
            milliseconds(get(body, "rebalance_timeout", session_ms)),
            body.protocol_type,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
            needs_known_id=call.version >= _KNOWN_ID,
            can_skip_assignment=call.version >= _SKIPS,
        )
        future: asyncio.Future[Values] = asyncio.get_running_loop().create_future()

        def answer(given: JoinAnswer) -> None:
            _answer(future, _joined(given, call.version))

        def ended(future: asyncio.Future[Values]) -> None:
            if future.cancelled():
                self._groups.abandon(body.group_id, answer)

        future.add_done_callback(ended)
        self._groups.join(body.group_id, request, answer)
        return future

    def sync(self, call: Call) -> Awaitable[Values]:
        body = call.body
        request = SyncRequest(
            body.member_id,
            get(body, "group_instance_id", None),
            body.generation_id,
            get(body, "protocol_type", None),
            get(body, "protocol_name", None),
            {each.member_id: bytes(each.assignment) for each in body.assignments},
        )
        future: asyncio.Future[Values] = asyncio.get_running_loop().create_future()
        self._groups.sync(body.group_id, request, lambda answer: _answer(future, _synced(answer)))
        return future

    def heartbeat(self, call: Call) -> Values:
        body = call.body
        instance_id = get(body, "group_instance_id", None)
        return {"error_code": self._groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)}

    def leave(self, call: Call) -> Values:
        body = call.body
        if call.version < _MANY_MEMBERS:
            errors = self._groups.leave(body.group_id, [(body.member_id, None)])
            return {"error_code": errors if isinstance(errors, ErrorCode) else errors[0]}
        members = [(member.member_id, member.group_instance_id) for member in body.members]
        errors = self._groups.leave(body.group_id, members)
        if isinstance(errors, ErrorCode):
            return {"error_code": errors}
        return {
            "error_code": ErrorCode.NONE,
            "members": [
                {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
                for (member_id, instance_id), error in zip(members, errors, strict=True)
            ],
        }

    def list_groups(self, call: Call) -> Values:
        groups = listed(
            self._groups.partitions.shards, get(call.body, "states_filter", ()), get(call.body, "types_filter", ())
        )
        return (
            {"error_code": groups}
            if isinstance(groups, ErrorCode)
            else {"error_code": ErrorCode.NONE, "groups": groups}
        )

    def describe_groups(self, call: Call) -> Values:
        is_asked = get(call.body, "include_authorized_operations", False)
        operations = _OPERATIONS if is_asked else _OPERATIONS_UNASKED
        groups: list[dict[str, Any]] = []
        room = _MOST_BYTES
        for group_id in dict.fromkeys(call.body.groups):
            group = described(self._groups.partitions.shard_of(group_id), group_id)
            members = group.get("members", ())
            room -= sum(len(each["member_metadata"]) + len(each["member_assignment"]) for each in members)
            if room < 0:
                group = {"group_id": group_id, "error_code": ErrorCode.INVALID_REQUEST}
            groups.append({**group, "authorized_operations": operations})
        return {"groups": groups}

    async def delete_groups(self, call: Call) -> Values:
        return {
            "results": [
                {"group_id": group_id, "error_code": await self._groups.delete(group_id)}
                for group_id in dict.fromkeys(call.body.groups_names)
            ]
        }


def _answer(future: asyncio.Future[Values], values: Values) -> None:
    if not future.done():  # the connection may be gone
        future.set_result(values)


def _joined(answer: JoinAnswer, version: int) -> dict[str, Any]:
    none = None if version >= _NULL_PROTOCOL else ""
    return {
        "error_code": answer.error,
        "member_id": answer.member_id,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": none if answer.protocol is None else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in answer.members
        ],
    }


def _synced(answer: SyncAnswer) -> dict[str, Any]:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
