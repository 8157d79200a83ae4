"""DescribeLogDirs and DescribeProducers: where logs lie, and who has written to them.

Source: Apache Kafka 4.3.0, ReplicaManager.describeLogDirs, UnifiedLog.activeProducers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from server.api.dispatch import Call, Handler
from server.api.errors import ErrorCode, code_of
from server.api.versions import ApiKey
from server.api.views import LogDirView, ReadStore
from server.handlers.parts import Parts
from storage.base.errors import LogmendError, printable
from storage.base.units import TopicPartition
from storage.producers.producer_state import ProducerEntry

_NONE = -1
_MOST_PRODUCERS: Final = 200_000
"""Of all partitions in one answer."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers."""
    store: ReadStore = parts.store

    def log_dirs(call: Call) -> Mapping[str, object]:
        asked = call.body.topics
        wanted = None if asked is None else {(topic.topic, index) for topic in asked for index in topic.partitions}
        return {"results": [_log_dir(each, wanted) for each in store.log_dirs()]}

    def producers(call: Call) -> Mapping[str, object]:
        room, topics = _MOST_PRODUCERS, []
        indexes: dict[str, dict[int, None]] = {}
        for topic in call.body.topics:
            indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        for name, partitions in indexes.items():
            described = []
            for index in partitions:
                described.append(_producers(store, name, index, room))
                room -= len(described[-1].get("active_producers", ()))
            topics.append({"name": name, "partitions": described})
        return {"topics": topics}

    return {ApiKey.DESCRIBE_LOG_DIRS: log_dirs, ApiKey.DESCRIBE_PRODUCERS: producers}


def _log_dir(view: LogDirView, names: set[tuple[str, int]] | None) -> dict[str, object]:
    path = _text(view.path)
    if view.offline is not None:
        return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": path}
    topics: dict[str, list[dict[str, object]]] = {}
    for name, size in sorted(view.sizes.items()):
        if names is None or name in names:
            one: dict[str, object] = {
                "partition_index": name.partition,
                "partition_size": size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            topics.setdefault(name.topic, []).append(one)
    return {
        "error_code": ErrorCode.NONE,
        "log_dir": path,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        "total_bytes": view.total_bytes,
        "usable_bytes": view.free_bytes,
    }


def _text(path: PurePath) -> str:
    """Return a path as a text of the protocol; one that is not UTF-8 is shown with escapes."""
    plain = str(path)
    try:
        plain.encode()
    except UnicodeEncodeError:
        return printable(plain)
    return plain


def _producers(store: ReadStore, topic: str, index: int, room: int) -> dict[str, Any]:
    try:
        state = store.log(TopicPartition(topic, index)).producers.state
    except LogmendError as error:
        return {"partition_index": index, "error_code": code_of(error), "error_message": None}
    if len(state.entries) > room:
        reason = f"{len(state.entries)} producers are too many for this answer: ask for fewer partitions"
        return {"partition_index": index, "error_code": ErrorCode.INVALID_REQUEST, "error_message": reason}
    entries = tuple(state.entries.copy().values())  # appends go on meanwhile
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "active_producers": [_producer(entry) for entry in entries],
    }


def _producer(entry: ProducerEntry) -> dict[str, object]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.timestamp,
        "coordinator_epoch": max(entry.coordinator_epoch, 0),
        "current_txn_start_offset": entry.txn_first_offset if entry.txn_first_offset >= 0 else _NONE,
    }
