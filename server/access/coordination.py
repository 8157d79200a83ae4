"""Checks of requests about groups, their offsets, and transactions.

Source: Apache Kafka 4.3.0, KafkaApis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from daemon.service.access import Operation, Resource
from server.access.asking import DENIED, OMITTED, Answers, Asking, extended, then
from server.access.topics import topics_checked
from server.api.errors import ErrorCode
from storage.base.names import INTERNAL_TOPICS
from wire.messages import get

GROUP, TRANSACTION, CLUSTER, TOPIC = Resource.GROUP, Resource.TRANSACTIONAL_ID, Resource.CLUSTER, Resource.TOPIC
_NO_GROUP: Final = DENIED[GROUP]
_MANY_GROUPS: Final = 8
_GROUP_ERROR: Final = 2
_MANY_KEYS: Final = 4
_KEYS: Final = {0: GROUP, 1: TRANSACTION}


# ---- members


def of_group(**values: object) -> Callable[[Asking], Answers]:
    """Return the check of a member's request; `values` are those of the answer beside the error."""

    def check(asking: Asking) -> Answers:
        if asking.may(Operation.READ, GROUP, asking.body.group_id):
            return asking.go_on()
        return {"error_code": _NO_GROUP, **values}

    return check


def join(asking: Asking) -> Answers:
    """Check JoinGroup: reading the group."""
    if asking.may(Operation.READ, GROUP, asking.body.group_id):
        return asking.go_on()
    name = None if asking.call.version >= 7 else ""
    return {"error_code": _NO_GROUP, "generation_id": -1, "protocol_name": name, "leader": "", "member_id": "",
            "members": []}  # fmt: skip


def find_coordinator(asking: Asking) -> Answers:
    """Check FindCoordinator: describing each group or transactional id."""
    resource = _KEYS.get(get(asking.body, "key_type", 0))
    if resource is None:
        return asking.go_on()
    if asking.call.version < _MANY_KEYS:
        if asking.may(Operation.DESCRIBE, resource, asking.body.key):
            return asking.go_on()
        return _no_coordinator(DENIED[resource])
    keys = asking.body.coordinator_keys
    allowed, others = asking.split(Operation.DESCRIBE, resource, keys, str)
    refused = [{"key": key, **_no_coordinator(DENIED[resource])} for key in dict.fromkeys(others)]
    if keys and not allowed:
        return {"coordinators": refused}
    return extended(asking.go_on(coordinator_keys=tuple(allowed)), "coordinators", refused)


def _no_coordinator(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "error_message": None, "node_id": -1, "host": "", "port": -1}


def list_groups(asking: Asking) -> Answers:
    """Check ListGroups: groups that may not be described are left out."""
    if asking.may(Operation.DESCRIBE, CLUSTER):
        return asking.go_on()

    def seen(values: Mapping[str, Any]) -> Mapping[str, object]:
        groups = [g for g in values.get("groups", ()) if asking.may(Operation.DESCRIBE, GROUP, g["group_id"])]
        return {**values, "groups": groups}

    return then(asking.go_on(), seen)


def describe_groups(asking: Asking) -> Answers:
    """Check DescribeGroups: describing each group."""
    allowed, others = asking.split(Operation.DESCRIBE, GROUP, asking.body.groups, str)

    def seen(group: dict[str, Any]) -> dict[str, Any]:
        if group["authorized_operations"] == OMITTED:
            return group
        return {**group, "authorized_operations": asking.rights.bits(GROUP, group["group_id"])}

    answer = then(asking.go_on(groups=tuple(allowed)), lambda values: {"groups": [seen(g) for g in values["groups"]]})
    refused = [
        {"group_id": name, "error_code": _NO_GROUP, "authorized_operations": OMITTED} for name in dict.fromkeys(others)
    ]
    return extended(answer, "groups", refused)


def delete_groups(asking: Asking) -> Answers:
    """Check DeleteGroups: deleting each group."""
    allowed, others = asking.split(Operation.DELETE, GROUP, asking.body.groups_names, str)
    refused = [{"group_id": name, "error_code": _NO_GROUP} for name in dict.fromkeys(others)]
    return extended(asking.go_on(groups_names=tuple(allowed)), "results", refused)


# ---- offsets


def commit(asking: Asking) -> Answers:
    """Check OffsetCommit: reading the group and each topic."""
    if not asking.may(Operation.READ, GROUP, asking.body.group_id):
        return _none_committed(asking, _NO_GROUP)
    return topics_checked(asking, Operation.READ, "topics", _not_committed)


def commit_in_transaction(asking: Asking) -> Answers:
    """Check TxnOffsetCommit: writing to the transactional id, reading the group and each topic."""
    if not asking.may(Operation.WRITE, TRANSACTION, asking.body.transactional_id):
        return _none_committed(asking, DENIED[TRANSACTION])
    return commit(asking)


def _none_committed(asking: Asking, code: ErrorCode) -> Answers:
    return {"topics": [_not_committed(topic, code) for topic in asking.body.topics]}


def _not_committed(topic: Any, code: ErrorCode) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions],
    }


def delete_offsets(asking: Asking) -> Answers:
    """Check OffsetDelete: deleting the group, reading each topic."""
    if not asking.may(Operation.DELETE, GROUP, asking.body.group_id):
        return {"error_code": _NO_GROUP}
    return topics_checked(asking, Operation.READ, "topics", _not_committed)


def fetch_offsets(asking: Asking) -> Answers:
    """Check OffsetFetch: describing each group and topic; unnamed topics that may not be described are left out."""
    body = asking.body
    if asking.call.version >= _MANY_GROUPS:
        allowed, others = asking.split(Operation.DESCRIBE, GROUP, body.groups, lambda group: str(group.group_id))
        refused = [{"group_id": group.group_id, "error_code": _NO_GROUP, "topics": []} for group in others]
        cut = [_topics_split(asking, group.topics) for group in allowed]
        groups = tuple(
            group if not others else _replaced(group, topics)
            for group, (topics, others) in zip(allowed, cut, strict=True)
        )
        answer = then(asking.go_on(groups=groups), lambda values: {
            "groups": [_seen(asking, group, others) for group, (_, others) in zip(values["groups"], cut, strict=True)]
        })  # fmt: skip
        return extended(answer, "groups", refused)
    if not asking.may(Operation.DESCRIBE, GROUP, body.group_id):
        if asking.call.version < _GROUP_ERROR:
            return {"topics": [_not_fetched(topic, _NO_GROUP) for topic in body.topics]}
        return {"error_code": _NO_GROUP, "topics": []}
    topics, others = _topics_split(asking, body.topics)
    answer = asking.go_on(topics=topics) if others else asking.go_on()
    return then(answer, lambda values: _seen(asking, values, others))


def _topics_split(asking: Asking, topics: Any) -> tuple[Any, list[Any]]:
    if topics is None:
        return None, []
    allowed, others = asking.split(Operation.DESCRIBE, TOPIC, topics, lambda topic: str(topic.name))
    return tuple(allowed), others


def _replaced(group: Any, topics: Any) -> Any:
    return dataclasses.replace(group, topics=topics)


def _seen(asking: Asking, values: Mapping[str, Any], others: list[Any]) -> Mapping[str, Any]:
    """Return the offsets of a group as far as the user may know of their topics."""
    if values.get("error_code"):
        return values
    topics = [topic for topic in values["topics"] if asking.may(Operation.DESCRIBE, TOPIC, topic["name"])]
    refused = [_not_fetched(topic, DENIED[TOPIC]) for topic in others]
    return {**values, "topics": [*topics, *refused]}


def _not_fetched(topic: Any, code: ErrorCode) -> dict[str, Any]:
    empty = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": code}
    return {
        "name": topic.name,
        "partitions": [{"partition_index": index, **empty} for index in topic.partition_indexes],
    }


# ---- transactions


def init_producer_id(asking: Asking) -> Answers:
    """Check InitProducerId: writing to the transactional id; without one idempotent writing, or to any topic."""
    name = asking.body.transactional_id
    if name is not None:
        is_allowed, resource = asking.may(Operation.WRITE, TRANSACTION, name), TRANSACTION
    else:
        is_allowed = asking.may(Operation.IDEMPOTENT_WRITE, CLUSTER)
        is_allowed, resource = is_allowed or asking.rights.may_with_any(Operation.WRITE, TOPIC), CLUSTER
    if is_allowed:
        return asking.go_on()
    return {"error_code": DENIED[resource], "producer_id": -1, "producer_epoch": -1}


def add_partitions(asking: Asking) -> Answers:
    """Check AddPartitionsToTxn: writing to the transactional id and each topic; all partitions or none."""
    topics = asking.body.v3_and_below_topics
    if not asking.may(Operation.WRITE, TRANSACTION, asking.body.v3_and_below_transactional_id):
        return _not_added(topics, lambda _topic, _index: DENIED[TRANSACTION])
    _, others = asking.split(Operation.WRITE, TOPIC, topics, lambda topic: str(topic.name))
    if not others:
        return asking.go_on()
    denied, known = {topic.name for topic in others} | INTERNAL_TOPICS, asking.topics.store.topics()

    def code(topic: str, index: int) -> ErrorCode:
        if topic in denied:
            return DENIED[TOPIC]
        is_there = topic in known and 0 <= index < known[topic].partitions
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return _not_added(topics, code)


def _not_added(topics: Any, code: Callable[[str, int], ErrorCode]) -> Answers:
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": code(topic.name, index)}
                    for index in topic.partitions
                ],
            }
            for topic in topics
        ]
    }


def add_offsets(asking: Asking) -> Answers:
    """Check AddOffsetsToTxn: writing to the transactional id, reading the group."""
    if not asking.may(Operation.WRITE, TRANSACTION, asking.body.transactional_id):
        return {"error_code": DENIED[TRANSACTION]}
    return asking.go_on() if asking.may(Operation.READ, GROUP, asking.body.group_id) else {"error_code": _NO_GROUP}


def end_transaction(asking: Asking) -> Answers:
    """Check EndTxn: writing to the transactional id."""
    if asking.may(Operation.WRITE, TRANSACTION, asking.body.transactional_id):
        return asking.go_on()
    return {"error_code": DENIED[TRANSACTION]}


def list_transactions(asking: Asking) -> Answers:
    """Check ListTransactions: transactional ids that may not be described are left out."""

    def seen(values: Mapping[str, Any]) -> Mapping[str, object]:
        states = values.get("transaction_states", ())
        visible = [s for s in states if asking.may(Operation.DESCRIBE, TRANSACTION, s["transactional_id"])]
        return {**values, "transaction_states": visible}

    return then(asking.go_on(), seen)


def describe_transactions(asking: Asking) -> Answers:
    """Check DescribeTransactions: describing each transactional id; topics that may not be described are left out."""
    allowed, others = asking.split(Operation.DESCRIBE, TRANSACTION, asking.body.transactional_ids, str)

    def seen(state: dict[str, Any]) -> dict[str, Any]:
        topics = [t for t in state.get("topics", ()) if asking.may(Operation.DESCRIBE, TOPIC, t["topic"])]
        return {**state, "topics": topics}

    answer = then(
        asking.go_on(transactional_ids=tuple(allowed)),
        lambda values: {"transaction_states": [seen(state) for state in values["transaction_states"]]},
    )
    refused = [
        {"error_code": DENIED[TRANSACTION], "transactional_id": name, "transaction_start_time": -1} for name in others
    ]
    return extended(answer, "transaction_states", refused)
