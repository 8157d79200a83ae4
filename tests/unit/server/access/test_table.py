"""Every kind of request that is served, with every operation denied and allowed."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import pytest
from support.kinds_of_requests import NAMES, OTHER, REQUESTS, TOPIC, operations_on
from support.kio_messages import request_frame
from support.serving import stored
from support.wire_calls import INFO, call_of

from daemon.service.access import Operation, Pattern, Resource, Rule
from server.access.rights import Access
from server.access.table import CHECKS, guarded
from server.api.clock import LoopTimers
from server.api.dispatch import Answer, Call
from server.api.errors import ErrorCode
from server.api.versions import VERSIONS, ApiKey
from server.handlers.data import produce
from server.handlers.parts import Parts
from server.handlers.topics import metadata
from storage.base.units import TopicPartition
from wire.building import build
from wire.messages import decode

R, W, C, D, A, S = (Operation[name] for name in ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"))
DC, AC, IW = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE
T, G, K, X = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID
NEEDS: dict[ApiKey, tuple[tuple[Operation, Resource], ...]] = {
    ApiKey.PRODUCE: ((W, T),),
    ApiKey.FETCH: ((R, T),),
    ApiKey.LIST_OFFSETS: ((S, T),),
    ApiKey.OFFSET_COMMIT: ((R, G), (R, T)),
    ApiKey.OFFSET_FETCH: ((S, G), (S, T)),
    ApiKey.FIND_COORDINATOR: ((S, G),),
    ApiKey.JOIN_GROUP: ((R, G),),
    ApiKey.HEARTBEAT: ((R, G),),
    ApiKey.LEAVE_GROUP: ((R, G),),
    ApiKey.SYNC_GROUP: ((R, G),),
    ApiKey.DESCRIBE_GROUPS: ((S, G),),
    ApiKey.CREATE_TOPICS: ((C, T),),
    ApiKey.DELETE_TOPICS: ((D, T),),
    ApiKey.DELETE_RECORDS: ((D, T),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((S, T),),
    ApiKey.ADD_PARTITIONS_TO_TXN: ((W, X), (W, T)),
    ApiKey.ADD_OFFSETS_TO_TXN: ((W, X), (R, G)),
    ApiKey.END_TXN: ((W, X),),
    ApiKey.TXN_OFFSET_COMMIT: ((W, X), (R, G), (R, T)),
    ApiKey.DESCRIBE_CONFIGS: ((DC, T), (DC, K)),
    ApiKey.ALTER_CONFIGS: ((AC, T),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ((AC, T),),
    ApiKey.DESCRIBE_LOG_DIRS: ((S, K),),
    ApiKey.CREATE_PARTITIONS: ((A, T),),
    ApiKey.DELETE_GROUPS: ((D, G),),
    ApiKey.OFFSET_DELETE: ((D, G), (R, T)),
    ApiKey.INIT_PRODUCER_ID: ((IW, K),),
    ApiKey.DESCRIBE_PRODUCERS: ((R, T),),
    ApiKey.DESCRIBE_TRANSACTIONS: ((S, X),),
}
"""What a request needs before its handler sees all that it names."""
FILTERED = {ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
"""Requests that everybody may send; rules decide what is in the answer."""
FREE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
INCLUDED = {S: {S, R, W, D, A, Operation.ALL}, DC: {DC, AC, Operation.ALL}}


def rules(needs: Iterable[tuple[Operation, Resource]]) -> list[Rule]:
    return [Rule("User:alice", frozenset((op,)), kind, "*" if kind is not K else NAMES[K]) for op, kind in needs]


def request(key: ApiKey) -> Call:
    version, fields = next((version, fields) for kind, version, fields in REQUESTS if kind is key)
    if key is ApiKey.DELETE_TOPICS:
        fields = {**fields, "topic_names": [TOPIC]}  # who may describe an unknown one learns that it is unknown
    call = call_of(key, version, **fields)
    decoded = decode(memoryview(request_frame(call.body)))
    return dataclasses.replace(call, request=decoded, body=decoded.body, principal="alice")


class Seen(Exception):
    """The handler was asked."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.body = call.body


def body_seen(key: ApiKey, access: Access | None) -> Any:
    """Return the body that the handler is asked with, None if it is not asked."""

    def handler(call: Call) -> Answer:
        raise Seen(call)

    async def ask() -> Any:
        async with stored() as (store, engine):
            assert engine.manager is not None
            engine.manager.topics.create(OTHER, 1, {}, 1)
            try:
                answer = guarded({key: handler}, access, store)[key](request(key))
                assert build(key, request(key).version, answer) is not None, "what refuses it can be encoded"  # type: ignore[arg-type]
            except Seen as seen:
                return seen.body
            return None

    return asyncio.run(ask())


def test_every_kind_that_can_be_served_has_a_check_and_stands_in_this_test() -> None:
    assert set(CHECKS) == set(VERSIONS) == NEEDS.keys() | FILTERED | FREE


def test_a_kind_without_a_check_is_not_served_even_without_rules() -> None:
    with pytest.raises(KeyError):
        guarded({11_111: lambda _: None}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", NEEDS, ids=lambda key: key.name)
def test_the_handler_sees_the_whole_request_with_every_permission_and_less_without_one_of_them(key: ApiKey) -> None:
    whole = body_seen(key, None)
    assert body_seen(key, Access(rules(NEEDS[key]), ())) == whole
    for need in NEEDS[key]:
        rest = [each for each in NEEDS[key] if each != need]
        others = [
            (op, kind)
            for kind in NAMES
            for op in operations_on(kind)
            if kind is not need[1] or op not in INCLUDED.get(need[0], {need[0]})
        ]
        if key is ApiKey.INIT_PRODUCER_ID:
            others = [each for each in others if each != (W, T)]  # who may write to any topic may have a producer id
        if key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
            others = [each for each in others if each[1] is not K]  # the permission for the cluster is enough
        if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            others = [each for each in others if each != (Operation.CLUSTER_ACTION, K)]
        assert body_seen(key, Access(rules([*others, *(each for each in rest if each not in others)]), ())) != whole


@pytest.mark.parametrize("key", [*NEEDS, *FILTERED], ids=lambda key: key.name)
def test_a_super_user_is_asked_about_nothing(key: ApiKey) -> None:
    assert body_seen(key, Access([], ["User:alice"])) == body_seen(key, None)


def test_metadata_for_all_topics_leaves_out_what_may_not_be_described_and_a_named_one_is_refused() -> None:
    async def ask() -> None:
        async with stored() as (store, engine):
            assert engine.manager is not None
            engine.manager.topics.create(OTHER, 1, {}, 1)
            handlers = metadata.handlers(Parts(store, INFO, LoopTimers(asyncio.get_running_loop())))
            access = Access([Rule("User:alice", frozenset((R,)), T, "ord", Pattern.PREFIXED)], ())
            ours = guarded(handlers, access, store)[ApiKey.METADATA]

            def topics(version: int, **fields: Any) -> list[tuple[str, int, int]]:
                call = dataclasses.replace(call_of(ApiKey.METADATA, version, **fields), principal="alice")
                answer = build(ApiKey.METADATA, version, ours(call))  # type: ignore[arg-type]
                return [(t.name, t.error_code, getattr(t, "topic_authorized_operations", 0)) for t in answer.topics]

            bits = 1 << R | 1 << S
            assert topics(8, topics=None, include_topic_authorized_operations=True) == [(TOPIC, 0, bits)]
            assert topics(0, topics=()) == [(TOPIC, 0, 0)]
            assert topics(0, topics=[{"name": OTHER}]) == [(OTHER, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)]

    asyncio.run(ask())


def test_a_denied_batch_is_not_written_and_the_others_keep_their_places_in_the_request() -> None:
    async def ask() -> None:
        async with stored() as (store, engine):
            assert engine.manager is not None
            engine.manager.topics.create(OTHER, 1, {}, 1)
            handlers = produce.handlers(Parts(store, INFO, LoopTimers(asyncio.get_running_loop())))
            access = Access([Rule("User:alice", frozenset((W,)), T, OTHER)], ())
            answer = guarded(handlers, access, store)[ApiKey.PRODUCE](request(ApiKey.PRODUCE))
            values = await answer if inspect.isawaitable(answer) else answer
            assert values is not None
            found = build(ApiKey.PRODUCE, 9, values).responses
            codes = [(topic.name, int(topic.partition_responses[0].error_code)) for topic in found]
            assert codes == [(TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (OTHER, 0)]
            logs = [engine.manager.log(TopicPartition(name, 0)) for name in (TOPIC, OTHER)]
            assert [log.log_end for log in logs] == [0, 1]

    asyncio.run(ask())
