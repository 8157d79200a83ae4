"""ListOffsets and OffsetForLeaderEpoch: where a log begins and ends, by name, by time and by leader epoch.

Source: Apache Kafka 4.3.0, ReplicaManager.fetchOffset, UnifiedLog.fetchOffsetByTimestamp, KIP-320, KIP-734.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from server.api.dispatch import Call, Handler
from server.api.errors import ErrorCode
from server.api.lookup import code_for, log_for
from server.api.versions import ApiKey
from server.api.views import ReadStore
from server.handlers.parts import Parts
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition
from storage.log.log_types import ReadableLog
from wire.messages import get

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_COMMITTED: Final = 1
_NONE: Final = -1
_AT_ONCE: Final = 100
"""Partitions that one request reads before other clients have their turn."""
Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch; -1 each where there is none."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers."""
    store: ReadStore = parts.store

    async def list_offsets(call: Call) -> Mapping[str, object]:
        is_committed = get(call.body, "isolation_level", 0) == _COMMITTED
        counts = Counter(
            (topic.name, partition.partition_index) for topic in call.body.topics for partition in topic.partitions
        )
        topics, number = [], 0
        for topic in call.body.topics:
            partitions: list[dict[str, object]] = []
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                number += 1
                if not number % _AT_ONCE:
                    await asyncio.sleep(0)
                if counts[name] > 1:
                    partitions.append({"partition_index": name.partition, "error_code": ErrorCode.INVALID_REQUEST})
                else:
                    partitions.append(await _answered(store, name, partition, is_committed=is_committed))
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def epoch_ends(call: Call) -> Mapping[str, object]:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [_epoch_end(store, topic.topic, partition) for partition in topic.partitions],
                }
                for topic in call.body.topics
            ]
        }

    return {ApiKey.LIST_OFFSETS: list_offsets, ApiKey.OFFSET_FOR_LEADER_EPOCH: epoch_ends}


async def _answered(store: ReadStore, name: TopicPartition, request: Any, *, is_committed: bool) -> dict[str, object]:
    try:
        log = log_for(store, name, get(request, "current_leader_epoch", -1))
        bound = log.last_stable_offset if is_committed else log.high_watermark
        timestamp, offset, epoch = await _found(store, name, log, request.timestamp, bound)
    except LogmendError as error:
        return {"partition_index": name.partition, "error_code": code_for(store, name, error)}
    return {"partition_index": name.partition, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}


async def _found(store: ReadStore, name: TopicPartition, log: ReadableLog, timestamp: int, bound: int) -> Found:
    if timestamp == LATEST:
        return _NONE, bound, store.leader_epoch(name)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _NONE, log.log_start, _NONE
    if timestamp < LARGEST:
        return _NONE, _NONE, _NONE
    # It may read, and unpack, batches: not in the thread of the loop.
    found = await asyncio.to_thread(log.offset_for_time, timestamp)
    if found is None or found.offset >= bound:
        return _NONE, _NONE, _NONE
    return found.timestamp, found.offset, _NONE


def _epoch_end(store: ReadStore, topic: str, request: Any) -> dict[str, object]:
    name = TopicPartition(topic, request.partition)
    try:
        log_for(store, name, get(request, "current_leader_epoch", -1))
        found = store.end_offset_for_epoch(name, request.leader_epoch) if request.leader_epoch >= 0 else None
    except LogmendError as error:
        return {"partition": name.partition, "error_code": code_for(store, name, error)}
    epoch, end = (_NONE, _NONE) if found is None else found
    return {"partition": name.partition, "error_code": ErrorCode.NONE, "leader_epoch": epoch, "end_offset": end}
