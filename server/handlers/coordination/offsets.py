"""Requests about committed offsets: to commit them, in a transaction or not, to ask for them, to remove them.

Source: Apache Kafka 4.3.0, KafkaApis, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.groups.commits import Commits, Committer, Fetched, Position
from server.handlers.parts import Parts
from wire.messages import get, milliseconds

_KNOWS_UNKNOWN_GROUP: Final = 9
_MANY_GROUPS: Final = 8
_GROUP_ERROR: Final = 2
_NO_OFFSET: Final = -1


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers; nothing without a coordinator of groups."""
    if parts.groups is None:
        return {}
    served = _Served(parts.groups.commits)
    return {
        ApiKey.OFFSET_COMMIT: served.commit,
        ApiKey.OFFSET_FETCH: served.fetch,
        ApiKey.OFFSET_DELETE: served.delete,
        ApiKey.TXN_OFFSET_COMMIT: served.commit_in_transaction,
    }


class _Served:
    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def commit(self, call: Call) -> Values:
        body, positions = call.body, _positions(call.body.topics)
        errors = await self._commits.commit(
            _committer(body, body.generation_id_or_member_epoch),
            positions,
            knows_unknown_group=call.version >= _KNOWS_UNKNOWN_GROUP,
            retention_ms=milliseconds(get(body, "retention_time", -1)),
        )
        return {"topics": _by_topic(body.topics, errors)}

    async def commit_in_transaction(self, call: Call) -> Values:
        body, positions = call.body, _positions(call.body.topics)
        errors = await self._commits.commit_in_transaction(
            body.transactional_id,
            (body.producer_id, body.producer_epoch),
            _committer(body, get(body, "generation_id", -1)),
            positions,
        )
        return {"topics": _by_topic(body.topics, errors)}

    def fetch(self, call: Call) -> Values:
        is_stable = get(call.body, "require_stable", False)
        if call.version >= _MANY_GROUPS:
            return {"groups": [self._of_group(group, is_stable=is_stable) for group in call.body.groups]}
        values = self._of_group(call.body, is_stable=is_stable)
        if call.version < _GROUP_ERROR and values["error_code"]:
            return {"topics": _failed(call.body.topics, values["error_code"])}
        return values

    def _of_group(self, group: Any, *, is_stable: bool) -> dict[str, Any]:
        places = None
        if group.topics is not None:
            places = [(topic.name, number) for topic in group.topics for number in topic.partition_indexes]
        answers = self._commits.fetch(group.group_id, places, is_stable=is_stable)
        if isinstance(answers, ErrorCode):
            return {"group_id": group.group_id, "error_code": answers, "topics": []}
        by_topic = groupby(answers, key=lambda each: each.place[0])
        topics = [{"name": name, "partitions": [_fetched(each) for each in fetched]} for name, fetched in by_topic]
        return {"group_id": group.group_id, "error_code": ErrorCode.NONE, "topics": topics}

    async def delete(self, call: Call) -> Values:
        topics = call.body.topics
        places = [(topic.name, each.partition_index) for topic in topics for each in topic.partitions]
        done = await self._commits.delete_offsets(call.body.group_id, places)
        if isinstance(done, ErrorCode):
            return {"error_code": done}
        return {"error_code": ErrorCode.NONE, "topics": _by_topic(topics, done)}


def _committer(body: Any, generation: int) -> Committer:
    return Committer(body.group_id, get(body, "member_id", ""), get(body, "group_instance_id", None), generation)


def _positions(topics: Iterable[Any]) -> list[Position]:
    return [
        Position(
            (topic.name, partition.partition_index),
            partition.committed_offset,
            get(partition, "committed_leader_epoch", -1),
            partition.committed_metadata,
        )
        for topic in topics
        for partition in topic.partitions
    ]


def _by_topic(topics: Iterable[Any], errors: Sequence[ErrorCode]) -> list[dict[str, Any]]:
    """Return one answer per partition of a request, in its order."""
    remaining = iter(errors)
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": partition.partition_index, "error_code": next(remaining)}
                for partition in topic.partitions
            ],
        }
        for topic in topics
    ]


def _fetched(offset: Fetched) -> dict[str, Any]:
    value = offset.value
    return {
        "partition_index": offset.place[1],
        "committed_offset": _NO_OFFSET if value is None else value.offset,
        "committed_leader_epoch": -1 if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": offset.error,
    }


def _failed(topics: Iterable[Any], error: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": [_fetched(Fetched((topic.name, number), None, error)) for number in topic.partition_indexes],
        }
        for topic in topics
    ]
