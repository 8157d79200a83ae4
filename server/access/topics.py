"""Checks of requests about topics, their records and their settings.

Source: Apache Kafka 4.3.0, KafkaApis, ControllerApis, AuthHelper, ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from daemon.service.access import Operation, Resource
from server.access.asking import DENIED, MESSAGES, OMITTED, Answers, Asking, extended, then
from server.api.errors import CloseConnection, ErrorCode
from server.api.lookup import ZERO_ID
from wire.messages import get
from wire.produce import PartitionProduceData

TOPIC, CLUSTER = Resource.TOPIC, Resource.CLUSTER
_NO_TOPIC: Final = DENIED[TOPIC]
_REASON: Final = MESSAGES[_NO_TOPIC]
_TRANSACTIONAL: Final = 0x10
_ATTRIBUTES: Final = 22
_OF_TOPIC: Final = 2
_OF_NODE: Final = (4, 8, 16)
"""Resources whose settings are those of the cluster: broker, logger, client metrics."""
_OF_GROUP: Final = 32

Denied = Callable[[Any, ErrorCode], dict[str, Any]]


def of_each_topic(
    operation: Operation, field: str, denied: Denied, *, name: str = "name"
) -> Callable[[Asking], Answers]:
    """Return the check of a request whose answer has an entry for each topic in the field of the same name."""

    def check(asking: Asking) -> Answers:
        return topics_checked(asking, operation, field, denied, name=name)

    return check


def topics_checked(asking: Asking, operation: Operation, field: str, denied: Denied, *, name: str = "name") -> Answers:
    """Answer by the handler for the topics that are allowed, and by `denied` for the others."""
    topics = getattr(asking.body, field)
    allowed, others = asking.split(operation, TOPIC, topics, lambda topic: getattr(topic, name))
    if not others:
        return asking.go_on()
    refused = [denied(topic, _NO_TOPIC) for topic in others]
    return extended(asking.go_on(**{field: tuple(allowed)}), field, refused) if allowed else {field: refused}


# ---- records


def produce(asking: Asking) -> Answers:
    """Check Produce: writing to each topic, and to the transactional id of a transactional batch."""
    body = asking.body
    if _is_transactional(body):
        resource = Resource.TRANSACTIONAL_ID
        if body.transactional_id is None or not asking.may(Operation.WRITE, resource, body.transactional_id):
            return _not_produced(body.acks, body.topic_data, DENIED[resource])
    allowed, others = asking.split(Operation.WRITE, TOPIC, body.topic_data, lambda topic: topic.name)
    if not others:
        return asking.go_on()
    refused = {topic.name for topic in others}
    if not allowed:
        return _not_produced(body.acks, others, _NO_TOPIC)
    # Each batch keeps its place in the request; those that are denied are gone, which the handler refuses.
    topics = tuple(_emptied(topic) if topic.name in refused else topic for topic in body.topic_data)

    def seen(values: Mapping[str, Any]) -> Mapping[str, object]:
        pairs = zip(body.topic_data, values["responses"], strict=True)
        return {
            **values,
            "responses": [_not_written(t, _NO_TOPIC) if t.name in refused else answer for t, answer in pairs],
        }

    return then(asking.go_on(topic_data=topics), seen)


def _emptied(topic: Any) -> Any:
    return topic._replace(partition_data=tuple(PartitionProduceData(each.index, None) for each in topic.partition_data))


def _is_transactional(body: Any) -> bool:
    batches = (partition.records for topic in body.topic_data for partition in topic.partition_data)
    return any(
        records is not None and len(records) > _ATTRIBUTES and records[_ATTRIBUTES] & _TRANSACTIONAL
        for records in batches
    )


def _not_produced(acks: int, topics: Iterable[Any], code: ErrorCode) -> dict[str, Any]:
    if acks == 0:
        raise CloseConnection(f"produce with acks 0: {code.name}")
    return {"responses": [_not_written(topic, code) for topic in topics]}


def _not_written(topic: Any, code: ErrorCode) -> dict[str, Any]:
    entries = [{"index": each.index, "error_code": code, "base_offset": -1} for each in topic.partition_data]
    return {"name": topic.name, "partition_responses": entries}


def fetch(asking: Asking) -> Answers:
    """Check Fetch: reading each topic; every fetch is that of a consumer."""
    body = asking.body

    def is_allowed(topic: Any) -> bool:
        name = topic.topic if topic.topic_id == ZERO_ID else asking.topics.ids.name_of(topic.topic_id)
        return name is None or asking.may(Operation.READ, TOPIC, name)

    verdicts = [is_allowed(topic) for topic in body.topics]
    if all(verdicts):
        return asking.go_on()
    allowed = [topic for topic, verdict in zip(body.topics, verdicts, strict=True) if verdict]
    refused = [
        _not_fetched(topic, _NO_TOPIC) for topic, verdict in zip(body.topics, verdicts, strict=True) if not verdict
    ]
    # An error is answered at once, so nothing is waited for.
    return extended(asking.go_on(topics=allowed, max_wait=0), "responses", refused)


def _not_fetched(topic: Any, code: ErrorCode) -> dict[str, Any]:
    partitions = [{"partition_index": each.partition, "error_code": code, "records": []} for each in topic.partitions]
    return {"topic": topic.topic, "topic_id": topic.topic_id, "partitions": partitions}


def offsets_not_listed(topic: Any, code: ErrorCode) -> dict[str, Any]:
    """Return the answer of ListOffsets for a topic that is denied."""
    return {
        "name": topic.name,
        "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions],
    }


def records_not_deleted(topic: Any, code: ErrorCode) -> dict[str, Any]:
    """Return the answer of DeleteRecords for a topic that is denied."""
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": each.partition_index, "low_watermark": -1, "error_code": code}
            for each in topic.partitions
        ],
    }


def producers_not_described(topic: Any, code: ErrorCode) -> dict[str, Any]:
    """Return the answer of DescribeProducers for a topic that is denied."""
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": index, "error_code": code, "error_message": _REASON}
            for index in topic.partition_indexes
        ],
    }


def epoch_ends(asking: Asking) -> Answers:
    """Check OffsetForLeaderEpoch: describing each topic, or acting for the cluster."""
    if asking.may(Operation.CLUSTER_ACTION, CLUSTER):
        return asking.go_on()

    def denied(topic: Any, code: ErrorCode) -> dict[str, Any]:
        partitions = [{"partition": each.partition, "error_code": code} for each in topic.partitions]
        return {"topic": topic.topic, "partitions": partitions}

    return topics_checked(asking, Operation.DESCRIBE, "topics", denied, name="topic")


# ---- the cluster and its topics


def metadata(asking: Asking) -> Answers:
    """Check Metadata: topics that may not be described are left out, or refused where they are named."""
    call, body = asking.call, asking.body
    is_all = body.topics is None or (call.version == 0 and not body.topics)
    allowed: list[Any] = []
    refused: dict[tuple[str | None, bytes], dict[str, Any]] = {}
    for topic in () if is_all else body.topics:
        topic_id = get(topic, "topic_id", None)
        key = (topic.name, ZERO_ID if topic_id is None else topic_id.bytes)
        if _may_know(asking, *key):
            allowed.append(topic)
        else:
            refused[key] = {"error_code": _NO_TOPIC, "name": key[0], "topic_id": key[1] if key[0] is None else ZERO_ID,
                            "topic_authorized_operations": OMITTED}  # fmt: skip

    def seen(values: Mapping[str, Any]) -> Mapping[str, object]:
        # Version 0 takes no name for every name.
        described = values["topics"] if is_all or allowed else ()
        if is_all:
            described = [topic for topic in described if asking.may(Operation.DESCRIBE, TOPIC, topic["name"])]
        topics = [_with_operations(asking, topic) for topic in described]
        return {**_with_cluster_operations(asking, values), "topics": [*topics, *refused.values()]}

    return then(asking.go_on() if is_all else asking.go_on(topics=tuple(allowed)), seen)


def _may_know(asking: Asking, name: str | None, topic_id: bytes) -> bool:
    """Return whether the answer may be about this topic, which a request may create besides."""
    if name is None:
        name = asking.topics.ids.name_of(topic_id)
        return name is None or asking.may(Operation.DESCRIBE, TOPIC, name)
    if not asking.may(Operation.DESCRIBE, TOPIC, name):
        return False
    is_created = (
        asking.topics.auto_create
        and get(asking.body, "allow_auto_topic_creation", True)
        and name not in asking.topics.store.topics()
    )
    return not is_created or may_create(asking, name)


def may_create(asking: Asking, name: str) -> bool:
    """Return whether the user may create this topic."""
    return asking.may(Operation.CREATE, CLUSTER) or asking.may(Operation.CREATE, TOPIC, name)


def _with_operations(asking: Asking, topic: dict[str, Any]) -> dict[str, Any]:
    if topic["topic_authorized_operations"] == OMITTED or topic["name"] is None:
        return topic
    return {**topic, "topic_authorized_operations": asking.rights.bits(TOPIC, topic["name"])}


def _with_cluster_operations(asking: Asking, values: Mapping[str, Any]) -> Mapping[str, Any]:
    if values.get("cluster_authorized_operations", OMITTED) == OMITTED:
        return values
    bits = asking.rights.bits(CLUSTER) if asking.may(Operation.DESCRIBE, CLUSTER) else 0
    return {**values, "cluster_authorized_operations": bits}


def describe_cluster(asking: Asking) -> Answers:
    """Check DescribeCluster: only what the user may do with the cluster depends on rules."""
    return then(asking.go_on(), lambda values: _with_cluster_operations(asking, values))


def describe_log_dirs(asking: Asking) -> Answers:
    """Check DescribeLogDirs: describing the cluster."""
    if asking.may(Operation.DESCRIBE, CLUSTER):
        return asking.go_on()
    return {"error_code": DENIED[CLUSTER], "results": []}


# ---- changes of topics


def create_topics(asking: Asking) -> Answers:
    """Check CreateTopics: creating in the cluster or each topic; settings are shown to who may describe them."""
    counts = Counter(topic.name for topic in asking.body.topics)  # the handler refuses a topic that is named twice
    allowed, refused = [], []
    for topic in asking.body.topics:
        if counts[topic.name] > 1 or may_create(asking, topic.name):
            allowed.append(topic)
        else:
            reason = {"error_code": _NO_TOPIC, "error_message": "Authorization failed."}
            refused.append({"name": topic.name, "topic_id": ZERO_ID, **reason})

    def seen(topic: Mapping[str, Any]) -> Mapping[str, Any]:
        if topic["error_code"] or asking.may(Operation.DESCRIBE_CONFIGS, TOPIC, topic["name"]):
            return topic
        hidden = {"configs": [], "num_partitions": -1, "replication_factor": -1}
        return {**topic, **hidden, "topic_config_error_code": _NO_TOPIC}

    answer = then(asking.go_on(topics=tuple(allowed)), lambda values: {"topics": [seen(t) for t in values["topics"]]})
    return extended(answer, "topics", refused)


def create_partitions(asking: Asking) -> Answers:
    """Check CreatePartitions: altering each topic."""
    counts = Counter(topic.name for topic in asking.body.topics)
    allowed: list[Any] = []
    others: list[Any] = []
    for topic in asking.body.topics:
        is_fine = counts[topic.name] > 1 or asking.may(Operation.ALTER, TOPIC, topic.name)
        (allowed if is_fine else others).append(topic)
    refused = [{"name": topic.name, "error_code": _NO_TOPIC, "error_message": None} for topic in others]
    return extended(asking.go_on(topics=tuple(allowed)), "results", refused)


def delete_topics(asking: Asking) -> Answers:
    """Check DeleteTopics: deleting in the cluster or each topic; what may not be described keeps its name or id."""
    refused: list[dict[str, Any]] = []

    def is_allowed(name: str | None, topic_id: bytes) -> bool:
        known = name if name is not None else asking.topics.ids.name_of(topic_id)
        if known is None or (name is not None and topic_id != ZERO_ID) or asking.may(Operation.DELETE, CLUSTER):
            return True  # the handler says what is wrong with it
        denial = {"name": name, "topic_id": topic_id, "error_code": _NO_TOPIC, "error_message": _REASON}
        if asking.may(Operation.DESCRIBE, TOPIC, known):
            topic = asking.topics.store.topics().get(known)
            if topic is None or asking.may(Operation.DELETE, TOPIC, known):
                return True
            denial |= {"name": known, "topic_id": topic.topic_id or ZERO_ID}
        refused.append(denial)
        return False

    if asking.call.version < 6:
        names = tuple(name for name in asking.body.topic_names if is_allowed(name, ZERO_ID))
        return extended(asking.go_on(topic_names=names), "responses", refused)
    topics = tuple(
        topic
        for topic in asking.body.topics
        if is_allowed(topic.name, ZERO_ID if topic.topic_id is None else topic.topic_id.bytes)
    )
    return extended(asking.go_on(topics=topics), "responses", refused)


# ---- settings


def describe_configs(asking: Asking) -> Answers:
    """Check DescribeConfigs: describing the settings of each resource."""
    return _of_configs(asking, Operation.DESCRIBE_CONFIGS, "results")


def alter_configs(asking: Asking) -> Answers:
    """Check AlterConfigs and IncrementalAlterConfigs: altering the settings of each resource."""
    return _of_configs(asking, Operation.ALTER_CONFIGS, "responses")


def _of_configs(asking: Asking, operation: Operation, field: str) -> Answers:
    allowed, refused = [], []
    for entry in asking.body.resources:
        resource = _resource(entry.resource_type)
        names = () if resource is CLUSTER else (entry.resource_name,)
        if resource is None or asking.may(operation, resource, *names):
            allowed.append(entry)
        else:
            code = DENIED[resource]
            refused.append({
                "error_code": code, "error_message": MESSAGES[code], "configs": [],
                "resource_type": entry.resource_type, "resource_name": entry.resource_name,
            })  # fmt: skip
    return extended(asking.go_on(resources=tuple(allowed)), field, refused)


def _resource(number: int) -> Resource | None:
    if number == _OF_TOPIC:
        return TOPIC
    if number in _OF_NODE:
        return CLUSTER
    return Resource.GROUP if number == _OF_GROUP else None
