"""One request of each kind that is served, and what users with one permission each are answered."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from kio.index import load_request_schema, load_response_schema
from support.kio_messages import request_frame
from support.managers import batch

from daemon.service.access import Operation, Pattern, Permission, Resource, Rule
from server.access.rights import OPERATIONS
from server.api.versions import ApiKey
from wire.building import builder
from wire.messages import decode_response

OMITTED: Final = -(1 << 31)
ROOT: Final = "admin"
TOPIC, OTHER, GROUP, TXN = "orders", "secret", "readers", "payments"
IDS = {"orders": bytes(16)}
PART: Final = {"partition_index": 0}


def _named(**parts: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [{**PART, **parts}]} for name in (TOPIC, OTHER)]


_INDEXES: Final = [{"name": name, "partition_indexes": [0]} for name in (TOPIC, OTHER)]
_FETCHED: Final = [
    {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    for name in (TOPIC, OTHER)
]
_ENDS: Final = [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in (TOPIC, OTHER)]
_COMMITS: Final = _named(committed_offset=1, committed_metadata="")
_MEMBER: Final = {"group_id": GROUP, "member_id": "nobody", "generation_id": 1, "group_instance_id": None}
_PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0}
_CONFIG: Final = {"configs": [{"name": "retention.ms", "value": "1", "config_operation": 0}]}


def _produced(**more: Any) -> dict[str, Any]:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch("v", **more)}]} for name in (TOPIC, OTHER)]
    return {"acks": -1, "timeout": 30000, "topic_data": data, "transactional_id": TXN if more else None}


def _resources(*kinds: tuple[int, str], **more: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **more} for kind, name in kinds]}


_NEW: Final = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
REQUESTS: Final[tuple[tuple[ApiKey, int, dict[str, Any]], ...]] = (
    (ApiKey.PRODUCE, 9, _produced()),
    (ApiKey.PRODUCE, 9, _produced(flags=0x10, producer_id=7, producer_epoch=0, base_sequence=0)),
    (ApiKey.FETCH, 12, {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "topics": _FETCHED, "session_epoch": -1}),
    (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": _named(timestamp=-2)}),
    (ApiKey.METADATA, 8, {"topics": None, "include_topic_authorized_operations": True,
                          "include_cluster_authorized_operations": True}),
    (ApiKey.METADATA, 12, {"topics": [{"name": TOPIC}, {"name": OTHER}, {"name": "unknown"}],
                           "include_topic_authorized_operations": True, "allow_auto_topic_creation": False}),
    (ApiKey.METADATA, 12, {"topics": [{"name": None, "topic_id": TOPIC}, {"name": None, "topic_id": OTHER}]}),
    (ApiKey.METADATA, 0, {"topics": [{"name": OTHER}]}),
    (ApiKey.OFFSET_COMMIT, 8, {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": _COMMITS}),
    (ApiKey.OFFSET_FETCH, 1, {"group_id": GROUP, "topics": _INDEXES}),
    (ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None}),
    (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": GROUP, "topics": _INDEXES}, {"group_id": "x", "topics": None}]}),
    (ApiKey.FIND_COORDINATOR, 1, {"key": GROUP, "key_type": 0}),
    (ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": [GROUP, "x"], "key_type": 0}),
    (ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": [TXN, "x"], "key_type": 1}),
    (ApiKey.JOIN_GROUP, 5, {"group_id": GROUP, "session_timeout": 10000, "rebalance_timeout": 10000,
                            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
    (ApiKey.HEARTBEAT, 3, _MEMBER),
    (ApiKey.LEAVE_GROUP, 2, _MEMBER),
    (ApiKey.SYNC_GROUP, 3, _MEMBER),
    (ApiKey.DESCRIBE_GROUPS, 4, {"groups": [GROUP, "x"], "include_authorized_operations": True}),
    (ApiKey.LIST_GROUPS, 3, {}),
    (ApiKey.API_VERSIONS, 0, {}),
    (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
    (ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "orders.new", **_NEW}, {"name": TOPIC, **_NEW}],
                               "timeout": 30000, "validate_only": True}),
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["unknown"], "timeout": 30000}),
    (ApiKey.DELETE_RECORDS, 2, {"topics": _named(offset=0), "timeout": 30000}),
    (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 60000, "producer_id": -1,
                                  "producer_epoch": -1}),
    (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": TXN, "transaction_timeout": 60000, "producer_id": -1,
                                  "producer_epoch": -1}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {"replica_id": -1, "topics": _ENDS}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 3, {
        "v3_and_below_transactional_id": TXN, "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in (TOPIC, OTHER, "unknown")]}),
    (ApiKey.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": TXN, "group_id": GROUP, **_PRODUCER}),
    (ApiKey.END_TXN, 3, {"transactional_id": TXN, "committed": True, **_PRODUCER}),
    (ApiKey.TXN_OFFSET_COMMIT, 3, {"transactional_id": TXN, "group_id": GROUP, **_PRODUCER, "generation_id": -1,
                                   "topics": _COMMITS}),
    (ApiKey.DESCRIBE_CONFIGS, 4, _resources((2, TOPIC), (2, "unknown"), (4, "1"), configuration_keys=["retention.ms"])),
    (ApiKey.ALTER_CONFIGS, 2, {**_resources((2, TOPIC), (2, "unknown"), **_CONFIG), "validate_only": True}),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
     {**_resources((2, TOPIC), (2, "unknown"), **_CONFIG), "validate_only": True}),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": TOPIC, "count": 5, "assignments": None}, {
        "name": "unknown", "count": 5, "assignments": None}], "timeout": 30000, "validate_only": True}),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["x"]}),
    (ApiKey.OFFSET_DELETE, 0, {"group_id": GROUP, "topics": _named()}),
    (ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": _INDEXES}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [TXN, "x"]}),
    (ApiKey.LIST_TRANSACTIONS, 1, {}),
)  # fmt: skip
"""Nothing that is there before changes by them, so that each user finds the same."""

NAMES: Final = {
    Resource.TOPIC: TOPIC, Resource.GROUP: GROUP, Resource.CLUSTER: "kafka-cluster", Resource.TRANSACTIONAL_ID: TXN,
}  # fmt: skip
_OF_TRANSACTION: Final = (Operation.WRITE, Operation.DESCRIBE)


def operations_on(resource: Resource) -> list[Operation]:
    """Return the operations that there are on a resource."""
    return [Operation(number) for number in OPERATIONS.get(resource, _OF_TRANSACTION)]


def users() -> Mapping[str, tuple[Rule, ...]]:
    """Return users with their rules: one permission each, some with combinations, and one without any."""
    found: dict[str, tuple[Rule, ...]] = {"nothing": ()}
    for resource, name in NAMES.items():
        for operation in (*operations_on(resource), Operation.ALL):
            user = f"{resource.value}.{operation.name}"
            found[user] = (Rule(f"User:{user}", frozenset((operation,)), resource, name),)
    every = {
        resource: Rule("", frozenset((Operation.ALL,)), resource, "*" if resource is not Resource.CLUSTER else name)
        for resource, name in NAMES.items()
    }
    denial = Rule("", frozenset((Operation.READ,)), Resource.TOPIC, "sec", Pattern.PREFIXED, Permission.DENY)
    found["all.but.secret"] = (*every.values(), denial)
    found["prefixed"] = (Rule("", frozenset((Operation.ALL,)), Resource.TOPIC, "ord", Pattern.PREFIXED),)
    found["no.writing"] = (*every.values(), dataclasses.replace(
        denial, operations=frozenset((Operation.WRITE,)), name="*", pattern=Pattern.LITERAL))  # fmt: skip
    for resource in NAMES:
        found[f"all.but.{resource.value}"] = tuple(rule for kind, rule in every.items() if kind is not resource)
    found["describing"] = (Rule("", frozenset((Operation.DESCRIBE,)), Resource.TOPIC, "*"),)
    return {
        user: tuple(dataclasses.replace(rule, principal=f"User:{user}") for rule in rules)
        for user, rules in found.items()
    }


class RawClient:
    """A connection that sends any request. It logs in by PLAIN; the password is the name of the user."""

    def __init__(self, bootstrap: str, user: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 60)
        self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        answer = self.ask(ApiKey.SASL_AUTHENTICATE, 0, {"auth_bytes": f"\0{user}\0{user}".encode()})
        assert answer.error_code == 0, answer

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the answer to a request."""
        frame = request_frame(builder(load_request_schema(key, version))(fields))
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(self._exactly(4), "big")
        return decode_response(self._exactly(size), load_response_schema(key, version))[1]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the connection was closed"
            data += more
        return bytes(data)

    def topic_ids(self, *names: str) -> dict[str, bytes]:
        """Return the ids of topics."""
        answer = self.ask(ApiKey.METADATA, 12, {"topics": [{"name": name} for name in names]})
        return {topic.name: topic.topic_id.bytes for topic in answer.topics}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def requests(ids: Mapping[str, bytes]) -> Iterator[tuple[str, ApiKey, int, dict[str, Any]]]:
    """Yield the requests, each with a name of its own; topics that are named by id get theirs."""
    for number, (key, version, fields) in enumerate(REQUESTS):
        body = dict(fields)
        if key is ApiKey.METADATA and fields["topics"] and "topic_id" in fields["topics"][0]:
            body["topics"] = [{"name": None, "topic_id": ids[each["topic_id"]]} for each in fields["topics"]]
        yield f"{number} {key.name} {version}", key, version, body


_SHOWN: Final = ("name", "topic", "group_id", "key", "resource_name", "transactional_id", "resource_type")


def verdict(entity: Any) -> Any:
    """Return names, error codes and operations that an answer holds, in an order of their own."""
    if dataclasses.is_dataclass(entity):
        return {
            field.name: value
            for field in dataclasses.fields(entity)
            if (value := _shown(field.name, getattr(entity, field.name))) is not None
        }
    return entity


def _shown(name: str, value: Any) -> Any:
    if name.endswith("error_code"):
        return int(value)
    if name.endswith("authorized_operations") or name in _SHOWN:
        return value
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]) and name not in ("brokers", "configs"):
        return sorted((verdict(each) for each in value), key=str)
    return None
