"""DescribeConfigs: the settings of topics, where each comes from, and the few of the broker that mean something here.

Source: Apache Kafka 4.3.0, ConfigHelper, ConfigAdminManager.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from server.api.dispatch import Call, Handler
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.api.views import ReadStore, TopicView
from server.handlers.parts import Parts
from storage.base.config import LogConfig, Property
from wire.messages import get

TOPIC: Final = 2
BROKER: Final = 4


class Source(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Kind(IntEnum):
    """Of which type a value is."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


def _properties() -> Iterable[tuple[str, Property]]:
    for field in dataclasses.fields(LogConfig):
        known: Property = field.metadata["property"]
        if field.name != "internal_segment_bytes":
            yield field.name, known


_PROPERTIES: Final = tuple(_properties())
_DEFAULTS: Final = LogConfig()


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler."""
    store: ReadStore = parts.store

    def describe(call: Call) -> Mapping[str, object]:
        with_synonyms = bool(get(call.body, "include_synonyms", False))
        results = []
        resources = {(each.resource_type, each.resource_name): each for each in reversed(call.body.resources)}
        for resource in reversed(resources.values()):
            described = _described(store, resource, call.info.node_id)
            if isinstance(described, list):
                keys = resource.configuration_keys
                entries = [each for each in described if not keys or each["name"] in keys]
                if not with_synonyms:
                    entries = [{**each, "synonyms": []} for each in entries]
                result: dict[str, object] = {"error_code": ErrorCode.NONE, "configs": entries}
            else:
                result = {"error_code": described[0], "error_message": described[1], "configs": []}
            results.append(result | {"resource_type": resource.resource_type, "resource_name": resource.resource_name})
        return {"results": results}

    return {ApiKey.DESCRIBE_CONFIGS: describe}


def _described(store: ReadStore, resource: Any, node_id: int) -> list[dict[str, object]] | tuple[ErrorCode, str]:
    if resource.resource_type == TOPIC:
        topic = store.topics().get(resource.resource_name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic"
        return topic_entries(topic)
    if resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(node_id)):
            return ErrorCode.INVALID_REQUEST, f"this is broker {node_id}"
        return broker_entries(node_id)
    return ErrorCode.INVALID_REQUEST, f"resources of type {resource.resource_type} have no settings here"


def topic_entries(topic: TopicView) -> list[dict[str, object]]:
    """Return all settings of a topic, in order of names."""
    return sorted((_entry(topic, *each) for each in _PROPERTIES), key=lambda entry: str(entry["name"]))


def _entry(topic: TopicView, attribute: str, setting: Property) -> dict[str, object]:
    value, default = getattr(topic.config, attribute), getattr(_DEFAULTS, attribute)
    is_set = setting.name in topic.settings
    source = Source.TOPIC if is_set else Source.DEFAULT if value == default else Source.STATIC_BROKER
    synonyms = [{"name": setting.name, "value": text(value), "source": source}]
    if source is not Source.DEFAULT:
        synonyms.append({"name": _broker_name(setting), "value": text(default), "source": Source.DEFAULT})
    return {
        "name": setting.name,
        "value": text(value),
        "read_only": False,
        "config_source": source,
        "is_default": source is Source.DEFAULT,
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _kind(value),
        "documentation": None,
    }


def _broker_name(known: Property) -> str:
    return known.broker[0][0] if known.broker else known.name


def broker_entries(node_id: int) -> list[dict[str, object]]:
    """Return the settings of the broker that admin clients read; none of them can be changed."""
    values: dict[str, tuple[object, Kind]] = {
        "auto.create.topics.enable": (False, Kind.BOOLEAN),
        "broker.id": (node_id, Kind.INT),
        "default.replication.factor": (1, Kind.INT),
        "delete.topic.enable": (True, Kind.BOOLEAN),
        "min.insync.replicas": (1, Kind.INT),
        "node.id": (node_id, Kind.INT),
        "num.partitions": (1, Kind.INT),
        "offsets.topic.replication.factor": (1, Kind.INT),
        "transaction.state.log.replication.factor": (1, Kind.INT),
    }
    return [
        {
            "name": name, "value": text(value), "read_only": True, "config_source": Source.STATIC_BROKER,
            "is_default": False, "is_sensitive": False, "config_type": kind, "documentation": None, "synonyms": [],
        }
        for name, (value, kind) in values.items()
    ]  # fmt: skip


_TEXTS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (bool, lambda value: str(value).lower()),
    (tuple, ",".join),
    (object, str),
)


def text(value: object) -> str | None:
    """Return a value as Kafka writes it."""
    if value is None:
        return None
    return next(write(value) for kind, write in _TEXTS if isinstance(value, kind))


def _kind(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.LONG
    if isinstance(value, float):
        return Kind.DOUBLE
    return Kind.LIST if isinstance(value, tuple) else Kind.STRING
