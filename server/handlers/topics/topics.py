"""CreateTopics, DeleteTopics, CreatePartitions: what kafka-topics and admin clients do with topics.

There is one node, so one replica. Source: Apache Kafka 4.3.0, ControllerApis, ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.logdir.partitions import ensure_new_topic_name
from engine.manager.manager import LogManager
from engine.manager.topics import Topic
from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode, Refusal, code_of
from server.api.versions import ApiKey
from server.api.views import TopicView
from server.handlers.parts import Parts
from server.handlers.topics.describe_configs import topic_entries
from server.store.store import Store
from storage.base.errors import ConfigInvalid, LogmendError
from storage.base.names import INTERNAL_TOPICS

MOST_AT_ONCE: Final = 10_000
"""Partitions that one request may make."""
MOST_MS: Final = 20_000
"""For how long one request goes on to the next topic: each is synced by itself."""
_DEFAULT: Final = -1
_NO_ID: Final = bytes(16)
_CONFIG_KEYS: Final = ("name", "value", "read_only", "config_source", "is_sensitive")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """What holds where a request does not say."""

    partitions: int = 1
    """Of a topic that is made without a number: `num.partitions`."""


def handlers(parts: Parts, changes: TopicChanges | None = None) -> dict[int, Handler]:
    """Return the handlers."""
    changes = changes or TopicChanges(parts)
    return {
        ApiKey.CREATE_TOPICS: changes.create_topics,
        ApiKey.CREATE_PARTITIONS: changes.create_partitions,
        ApiKey.DELETE_TOPICS: _Deleting(parts).delete_topics,
    }


def refusal_of(error: LogmendError) -> tuple[ErrorCode, str]:
    """Return code and words for what speaks against a change of topics."""
    code = code_of(error)
    return code, "the disk fails" if code is ErrorCode.KAFKA_STORAGE_ERROR else str(error)


class _Budget:
    """How much one request may make, and until when it may begin with another topic."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms, self._ends_ms, self._left = now_ms, now_ms() + MOST_MS, MOST_AT_ONCE

    def take(self, partitions: int) -> None:
        """Take so many partitions from it; raises `Refusal`."""
        self._left -= partitions
        if self._left < 0:
            raise Refusal(ErrorCode.POLICY_VIOLATION, f"more than {MOST_AT_ONCE} partitions in one request")
        if self._now_ms() >= self._ends_ms:
            reason = f"{MOST_MS // 1000} s have passed, this one was not begun; ask for it again"
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, reason)


class TopicChanges:
    """Makes topics and partitions."""

    def __init__(self, parts: Parts, options: TopicOptions = TopicOptions()) -> None:
        self._store: Store = parts.store
        self._node_id, self._now_ms, self._options = parts.info.node_id, parts.timers.now_ms, options

    # ---- topics

    async def create_topics(self, call: Call) -> Values:
        body = call.body
        counts = Counter(topic.name for topic in body.topics)
        budget = _Budget(self._now_ms)
        results: dict[str, Values] = {}
        for topic in body.topics:
            try:
                if counts[topic.name] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "the same topic twice")
                partitions = self._partitions_of(topic)
                budget.take(partitions)
                outcome: TopicView | LogmendError = await self._create(topic, partitions, only_judge=body.validate_only)
            except LogmendError as error:
                outcome = error
            results[topic.name] = _created(topic.name, outcome)
        return {"topics": list(results.values())}

    async def _create(self, wanted: Any, partitions: int, *, only_judge: bool) -> TopicView:
        name = wanted.name
        settings = _settings(wanted.configs)
        self._ensure_name(name)
        if only_judge:
            config = await self._store.run(lambda manager: manager.topics.judge(settings))
            return TopicView(name, None, partitions, config, settings)
        await self._store.run(lambda manager: manager.topics.create(name, partitions, settings, self._now_ms()))
        return self._store.topics()[name]

    async def auto_create(self, name: str) -> TopicView:
        """Return a topic that a client asked about, made by the defaults. Raises `Refusal` and as `Topics.create`."""
        return await self._create(_Asked(name), self._options.partitions, only_judge=False)

    def _ensure_name(self, name: str) -> None:
        try:
            ensure_new_topic_name(name)
        except ConfigInvalid as error:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
        topics = self._store.topics()
        if name in topics:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        plain = name.replace(".", "_")
        if plain == name and "_" not in name:
            return
        for other in topics:
            if other.replace(".", "_") == plain:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"metrics could not tell topic {name} from {other}")

    def _partitions_of(self, request: Any) -> int:
        """Return how many partitions a topic is to have; raises `Refusal` for what one node cannot do."""
        if request.assignments:
            if request.replication_factor != _DEFAULT:
                raise Refusal(ErrorCode.INVALID_REQUEST, "replicas are assigned, so that no replication factor is due")
            if request.num_partitions != _DEFAULT:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST, "replicas are assigned, so that no number of partitions is due"
                )
            numbers = sorted(each.partition_index for each in request.assignments)
            if numbers != list(range(len(numbers))):
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are numbered 0, 1, 2 and so on")
            self._ensure_here(each.broker_ids for each in request.assignments)
            return len(numbers)
        factor, partitions = request.replication_factor, request.num_partitions
        if factor not in (_DEFAULT, 1):
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: there is one node")
        if partitions != _DEFAULT and partitions < 1:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: one is the least")
        return self._options.partitions if partitions == _DEFAULT else int(partitions)

    def _ensure_here(self, assignments: Iterable[Sequence[int]]) -> None:
        for brokers in assignments:
            if list(brokers) != [self._node_id]:
                reason = f"replicas {list(brokers)}: there is one node, {self._node_id}"
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    # ---- partitions

    async def create_partitions(self, call: Call) -> Values:
        body = call.body
        counts = Counter(topic.name for topic in body.topics)
        budget = _Budget(self._now_ms)
        results: dict[str, Values] = {}
        for topic in body.topics:
            code, reason = ErrorCode.NONE, None
            try:
                if counts[topic.name] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "the same topic twice")
                budget.take(self._added(topic))
                if not body.validate_only:
                    await self._add(topic)
            except LogmendError as error:
                code, reason = refusal_of(error)
            results[topic.name] = {"name": topic.name, "error_code": code, "error_message": reason}
        return {"results": list(results.values())}

    def _added(self, request: Any) -> int:
        """Return how many partitions are to be added; raises `Refusal`."""
        topic = self._store.topics().get(request.name)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {request.name} does not exist")
        ensure_not_of_coordinators(request.name)
        added = int(request.count) - topic.partitions
        if added < 1:
            reason = f"topic {request.name} has {topic.partitions} partitions; their number can only grow"
            raise Refusal(ErrorCode.INVALID_PARTITIONS, reason)
        if request.assignments is not None:
            if len(request.assignments) != added:
                reason = f"{added} partitions to be added, {len(request.assignments)} assignments"
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
            self._ensure_here(each.broker_ids for each in request.assignments)
        return added

    async def _add(self, wanted: Any) -> Topic:
        now_ms = self._now_ms()
        return await self._store.run(lambda m: m.topics.alter(wanted.name, now_ms, partitions=int(wanted.count)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a client wants that only asks about a topic."""

    name: str
    configs: tuple[Any, ...] = ()


def ensure_not_of_coordinators(name: str) -> None:
    """Refuse what coordinators could not live with."""
    if name in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"topic {name} belongs to the coordinators")


def _settings(configs: Iterable[Any]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in configs:
        if each.value is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{each.name}: a value is wanted")
        settings[each.name] = each.value
    return settings


def _created(name: str, outcome: TopicView | LogmendError) -> Values:
    if isinstance(outcome, LogmendError):
        code, reason = refusal_of(outcome)
        return {"name": name, "error_code": code, "error_message": reason, "topic_id": _NO_ID}
    return {
        "name": name,
        "topic_id": outcome.topic_id or _NO_ID,
        "error_code": ErrorCode.NONE,
        "num_partitions": outcome.partitions,
        "replication_factor": 1,
        "configs": [{key: entry[key] for key in _CONFIG_KEYS} for entry in topic_entries(outcome)],
    }


class _Deleting:
    """Deletes topics, by name or by id."""

    def __init__(self, parts: Parts) -> None:
        self._store: Store = parts.store
        self._groups = parts.groups

    async def delete_topics(self, call: Call) -> Values:
        if call.version < 6:
            requests = [(name, _NO_ID) for name in call.body.topic_names]
        else:
            requests = [(topic.name, _id(topic.topic_id)) for topic in call.body.topics]
        counts = Counter(requests)
        results: list[Values] = []
        for name, topic_id in dict.fromkeys(requests):
            code, reason = ErrorCode.NONE, None
            try:
                if counts[name, topic_id] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "the same topic twice")
                name, topic_id = self._find(name, topic_id)  # noqa: PLW2901 (as the topic is named now)
                await self._delete(name, call.now_ms)
                if self._groups is not None:
                    await self._groups.commits.topic_deleted(name, topic_id)
            except LogmendError as error:
                code, reason = refusal_of(error)
            results.append({"name": name, "topic_id": topic_id, "error_code": code, "error_message": reason})
        return {"responses": results}

    def _find(self, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
        """Return name and id of a topic that is given by one of them; raises `Refusal`."""
        topics: Mapping[str, TopicView] = self._store.topics()
        if name is not None and topic_id != _NO_ID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a topic is deleted by its name or by its id, not by both")
        if name is not None:
            if name not in topics:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
            return name, topics[name].topic_id or _NO_ID
        if topic_id == _NO_ID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "neither a name nor an id")
        for view in topics.values():
            if view.topic_id == topic_id:
                return view.name, topic_id
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of that id")

    async def _delete(self, name: str, now_ms: int) -> None:
        ensure_not_of_coordinators(name)

        def delete(manager: LogManager) -> None:
            manager.topics.delete(name, now_ms)

        await self._store.run(delete)


def _id(given: Any) -> bytes:
    return _NO_ID if given is None else bytes(given.bytes)
