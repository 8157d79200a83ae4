"""Metadata and DescribeCluster: one node, which leads every partition.

A partition in trouble still has its leader: a client that sees none asks again thousands of times a second. It gets the
error when it reads or writes. A request for metadata creates no topic.
Source: Apache Kafka 4.3.0, KafkaApis.handleTopicMetadataRequest, AuthHelper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from server.api.dispatch import Answer, Call, Handler
from server.api.errors import ErrorCode
from server.api.lookup import ZERO_ID, TopicIds
from server.api.versions import ApiKey
from server.api.views import TopicView
from server.handlers.parts import Parts
from storage.base.errors import LogmendError
from storage.base.names import INTERNAL_TOPICS, is_legal_topic
from storage.base.units import TopicPartition
from wire.messages import get

_TOPIC_OPERATIONS: Final = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS: Final = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
"""Bits of `AclOperation`: there are no access rules, so every client may do everything."""
_NOT_ASKED: Final = -(2**31)
_BROKERS: Final = 1
_IDS_FROM: Final = 12
"""Two versions before have the field; a broker refuses them with it, and their answers have no null for a name."""
_AT_ONCE: Final = 100
"""Topics that one answer describes in the loop's thread."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers."""
    store, ids = parts.store, TopicIds(parts.store)

    def metadata(call: Call) -> Answer | Awaitable[Answer]:
        asked = call.body.topics
        is_short = len(store.topics() if asked is None else asked) <= _AT_ONCE
        return answered(call) if is_short else store.in_background(lambda: answered(call))

    def answered(call: Call) -> Mapping[str, object]:
        topics = store.topics()
        with_operations = bool(get(call.body, "include_topic_authorized_operations", False))
        answer = _Answer(topics, ids, store.leader_epoch, call.info.node_id, with_operations=with_operations)
        asked = call.body.topics
        is_all = asked is None or (call.version == 0 and not asked)
        if is_all:
            described = [answer.topic(topic) for topic in topics.values()]
        elif call.version < _IDS_FROM and any(map(_has_id, asked)):
            described = [answer.refused(ErrorCode.INVALID_REQUEST, each.name or "", ZERO_ID) for each in asked]
        else:
            described = answer.each(asked)
        with_cluster = get(call.body, "include_cluster_authorized_operations", False)
        return {
            "brokers": [_broker(call)],
            "cluster_id": call.info.cluster_id or None,
            "controller_id": call.info.node_id,
            "topics": described,
            "cluster_authorized_operations": _CLUSTER_OPERATIONS if with_cluster else _NOT_ASKED,
        }

    return {ApiKey.METADATA: metadata, ApiKey.DESCRIBE_CLUSTER: _describe_cluster}


class _Answer:
    """The topics of one answer."""

    def __init__(
        self,
        topics: Mapping[str, TopicView],
        ids: TopicIds,
        leader_epoch: Callable[[TopicPartition], int],
        node_id: int,
        *,
        with_operations: bool,
    ) -> None:
        self._topics, self._ids, self._leader_epoch, self._node_id = topics, ids, leader_epoch, node_id
        self._operations = _TOPIC_OPERATIONS if with_operations else _NOT_ASKED

    def each(self, asked: Iterable[Any]) -> list[dict[str, object]]:
        """Return the topics that a request names, by name or by id, each once, with its error."""
        answers: dict[tuple[str | None, bytes], dict[str, object]] = {}
        for one in asked:
            topic_id = get(one, "topic_id", None)
            key = (one.name, topic_id.bytes if topic_id is not None else ZERO_ID)
            if key not in answers:
                answers[key] = self._one(*key)
        return list(answers.values())

    def _one(self, name: str | None, topic_id: bytes) -> dict[str, object]:
        if name is None:
            known = self._ids.name_of(topic_id)
            if known is None:
                return self.refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            name = known
        topic = self._topics.get(name)
        if topic is not None:
            return self.topic(topic)
        is_legal = is_legal_topic(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        return self.refused(code, name, ZERO_ID)

    def refused(self, code: ErrorCode, name: str | None, topic_id: bytes) -> dict[str, object]:
        """Return the answer for a topic that is not shown."""
        operations = _NOT_ASKED if name is None else self._operations
        return {"error_code": code, "name": name, "topic_id": topic_id, "topic_authorized_operations": operations}

    def topic(self, topic: TopicView) -> dict[str, object]:
        """Return the answer for a topic that exists."""
        return {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.topic_id or ZERO_ID,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [self._partition(topic.name, index) for index in range(topic.partitions)],
            "topic_authorized_operations": self._operations,
        }

    def _partition(self, topic: str, index: int) -> dict[str, object]:
        try:
            epoch = self._leader_epoch(TopicPartition(topic, index))
        except LogmendError:
            epoch = -1  # unknown: clients keep what they know
        nodes = [self._node_id]
        return {
            "error_code": ErrorCode.NONE,
            "partition_index": index,
            "leader_id": self._node_id,
            "leader_epoch": epoch,
            "replica_nodes": nodes,
            "isr_nodes": nodes,
            "offline_replicas": [],
        }


def _has_id(topic: Any) -> bool:
    return topic.name is None or get(topic, "topic_id", None) is not None


def _broker(call: Call) -> dict[str, object]:
    return {"node_id": call.info.node_id, "host": call.info.host, "port": call.info.port, "rack": None}


def _describe_cluster(call: Call) -> Mapping[str, object]:
    if get(call.body, "endpoint_type", _BROKERS) != _BROKERS:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "this is a broker"
        return {"error_code": code, "error_message": text, "cluster_id": call.info.cluster_id}
    with_operations = call.body.include_cluster_authorized_operations
    return {
        "cluster_id": call.info.cluster_id,
        "controller_id": call.info.node_id,
        "brokers": [{"broker_id": call.info.node_id, "host": call.info.host, "port": call.info.port, "rack": None}],
        "cluster_authorized_operations": _CLUSTER_OPERATIONS if with_operations else _NOT_ASKED,
    }
