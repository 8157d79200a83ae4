"""IncrementalAlterConfigs and AlterConfigs: the settings of topics.

Those of the node itself stand in its configuration file, and nowhere else. Source: Apache Kafka 4.3.0,
ConfigAdminManager, ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from engine.manager.manager import LogManager
from server.api.dispatch import Call, Handler, Values
from server.api.errors import ErrorCode, Refusal
from server.api.versions import ApiKey
from server.api.views import TopicView
from server.handlers.parts import Parts
from server.handlers.topics.topics import refusal_of
from server.store.store import Store
from storage.base.errors import LogmendError

TOPIC: Final = 2
"""The kind of resource whose settings can be changed."""
_KINDS: Final = {4: "the node", 8: "loggers", 16: "client metrics", 32: "groups"}

LISTS: Final = frozenset((
    "cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
))  # fmt: skip
"""Settings that take a list, so that something can be added to it."""


class Operation(IntEnum):
    """What becomes of one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handlers."""
    altering = _Altering(parts.store, parts.timers.now_ms)
    return {
        ApiKey.INCREMENTAL_ALTER_CONFIGS: altering.alter_some,
        ApiKey.ALTER_CONFIGS: altering.alter_all,
    }


class _Altering:
    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms

    async def alter_some(self, call: Call) -> Values:
        """Change the settings that are named, and leave the others."""
        return await self._each(call, _changed)

    async def alter_all(self, call: Call) -> Values:
        """Let a topic have the settings that are given, and no others."""
        return await self._each(call, lambda _topic, configs: _given(configs))

    async def _each(self, call: Call, settings_for: Callable[[TopicView, Any], dict[str, str]]) -> Values:
        resources = call.body.resources
        counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        responses: list[Values] = []
        for resource in resources:
            code, reason = ErrorCode.NONE, None
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, "the same resource twice")
                topic = self._find(resource)
                await self._alter(topic, settings_for(topic, resource.configs), only_judge=call.body.validate_only)
            except LogmendError as error:
                code, reason = refusal_of(error)
            responses.append({
                "error_code": code, "error_message": reason,
                "resource_type": resource.resource_type, "resource_name": resource.resource_name,
            })  # fmt: skip
        return {"responses": responses}

    def _find(self, resource: Any) -> TopicView:
        if resource.resource_type != TOPIC:
            what = _KINDS.get(resource.resource_type, f"resources of type {resource.resource_type}")
            raise Refusal(ErrorCode.INVALID_REQUEST, f"settings of {what} cannot be changed by a client")
        topic = self._store.topics().get(resource.resource_name)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.resource_name} does not exist")
        if any(count > 1 for count in Counter(each.name for each in resource.configs).values()):
            raise Refusal(ErrorCode.INVALID_REQUEST, "the same setting twice")
        return topic

    async def _alter(self, topic: TopicView, settings: dict[str, str], *, only_judge: bool) -> None:
        unset = [name for name in topic.settings if name not in settings]

        def alter(manager: LogManager) -> None:
            if only_judge:
                manager.topics.judge(settings)
            else:
                manager.topics.alter(topic.name, self._now_ms(), settings=settings, unset=unset)

        await self._store.run(alter)


def _given(configs: Iterable[Any]) -> dict[str, str]:
    for each in configs:
        if each.value is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{each.name}: a value is wanted")
    return {each.name: each.value for each in configs}


def _changed(topic: TopicView, configs: Iterable[Any]) -> dict[str, str]:
    """Return all settings of a topic after the changes; raises `Refusal`."""
    settings = dict(topic.settings)
    for config in configs:
        try:
            operation = Operation(config.config_operation)
        except ValueError:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{config.name}: operation {config.config_operation}") from None
        if operation is Operation.DELETE:
            settings.pop(config.name, None)
            continue
        if config.value is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{config.name}: a value is wanted")
        settings[config.name] = config.value
        if operation is not Operation.SET:
            settings[config.name] = _list_changed(topic, topic.settings, config, operation)
    return settings


def _list_changed(topic: TopicView, settings: Mapping[str, str], config: Any, operation: Operation) -> str:
    if config.name not in LISTS:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{config.name} is no list, to which something could be added")
    in_force: tuple[str, ...] = getattr(topic.config, config.name.replace(".", "_"))
    now = _parts(settings[config.name]) if config.name in settings else list(in_force)
    named = _parts(config.value)
    if operation is Operation.APPEND:
        return ",".join([*now, *(each for each in named if each not in now)])
    return ",".join(each for each in now if each not in named)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
