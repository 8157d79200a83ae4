"""DeleteRecords: lets logs begin later.

Source: Apache Kafka 4.3.0, KafkaApis.handleDeleteRecordsRequest, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

from typing import Any, Final

from engine.manager.manager import LogManager
from engine.settings.refusals import UnknownTopic
from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode, code_of
from server.api.versions import ApiKey
from server.handlers.parts import Parts
from server.store.store import Store
from storage.base.config import DELETE
from storage.base.errors import LogmendError
from storage.base.names import INTERNAL_TOPICS
from storage.base.units import Offset, TopicPartition

_UP_TO_THE_END: Final = -1
_NO_OFFSET: Final = -1


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler."""
    store: Store = parts.store

    async def delete_records(call: Call) -> Values:
        requests: dict[str, dict[int, Any]] = {}
        for topic in call.body.topics:  # a partition that is named again counts as it is named last
            requests.setdefault(topic.name, {}).update({each.partition_index: each for each in topic.partitions})
        topics = [
            {"name": name, "partitions": [await _delete(store, name, each) for each in partitions.values()]}
            for name, partitions in requests.items()
        ]
        return {"topics": topics}

    return {ApiKey.DELETE_RECORDS: delete_records}


async def _delete(store: Store, topic: str, request: Any) -> Values:
    name = TopicPartition(topic, request.partition_index)

    def delete(manager: LogManager) -> int:
        log = manager.log(name)
        before = log.high_watermark if request.offset == _UP_TO_THE_END else Offset(request.offset)
        manager.delete_records(name, before)
        return manager.log(name).log_start

    code, low = _refusal(store, name, request.offset), _NO_OFFSET
    if code is ErrorCode.NONE:
        try:
            low = await store.run(delete)
        except LogmendError as error:
            code = code_of(error)
    return {"partition_index": name.partition, "low_watermark": low, "error_code": code}


def _refusal(store: Store, name: TopicPartition, offset: int) -> ErrorCode:
    if name.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = store.topics().get(name.topic)
    if topic is None or not 0 <= name.partition < topic.partitions:
        return code_of(UnknownTopic(*name))
    if topic.config.cleanup_policy and DELETE not in topic.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.OFFSET_OUT_OF_RANGE if offset < _UP_TO_THE_END else ErrorCode.NONE
