"""Produce, topics, their settings and the deletion of records: what clients are told, code by code."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.managers import NOW, P0, FailingFs, batch
from support.memory_fs import MemoryFs
from support.serving import stored
from support.wire_calls import INFO, answer_of

from server.api.dispatch import Call, Handler
from server.api.errors import CloseConnection, ErrorCode
from server.api.versions import ApiKey
from server.handlers.data import produce, records
from server.handlers.parts import Parts
from server.handlers.topics import configs, metadata, topics
from server.handlers.topics.auto_create import creating
from server.store.flushing import FlushPolicy
from server.store.store import Store
from storage.base.units import TopicPartition
from storage.disk.fs import Fs
from wire.building import build
from wire.messages import Request
from wire.produce import PartitionProduceData, ProduceBody, TopicProduceData

E = ErrorCode


class Served:
    """Handlers over a store with the topic `orders`, which has two partitions."""

    def __init__(self, store: Store) -> None:
        self.store, self.verified = store, ErrorCode.NONE
        self.parts = Parts(store, INFO, self)  # type: ignore[arg-type]
        self.parts.transactions = self
        self.handlers: Mapping[int, Handler] = {
            **produce.handlers(self.parts), **topics.handlers(self.parts), **configs.handlers(self.parts),
            **records.handlers(self.parts), **metadata.handlers(self.parts),
        }  # fmt: skip

    def now_ms(self) -> int:
        return NOW

    def verify(self, transactional_id: str, producer_id: int, epoch: int, name: TopicPartition) -> ErrorCode:
        return self.verified

    async def ask(self, key: ApiKey, version: int, **fields: object) -> Any:
        return await answer_of(self.handlers, key, version, **fields)

    async def produce(
        self,
        *batches: bytes | None,
        topic: str = "orders",
        partition: int = 0,
        acks: int = -1,
        version: int = 11,
        client: str = "test",
        transactional_id: str | None = None,
    ) -> Any:
        """Return the answers for the partitions, one for each batch; None without an answer."""
        data = tuple(PartitionProduceData(partition, None if b is None else memoryview(b)) for b in batches)
        body = ProduceBody(transactional_id, acks, 1000, (TopicProduceData(topic, data),))
        call = Call(Request(0, version, 1, client, body), body, version, client, "h", "ANONYMOUS", NOW, INFO)
        answer = self.handlers[ApiKey.PRODUCE](call)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return None
        found = build(ApiKey.PRODUCE, version, answer)
        return found.responses[0].partition_responses


@asynccontextmanager
async def served(policy: FlushPolicy = FlushPolicy.NONE, fs: Fs | None = None) -> AsyncIterator[Served]:
    async with stored(policy, fs=fs) as (store, _):
        yield Served(store)


def run(
    test: Callable[[Served], Awaitable[None]], policy: FlushPolicy = FlushPolicy.NONE, fs: Fs | None = None
) -> None:
    async def within() -> None:
        async with served(policy, fs) as made:
            await asyncio.wait_for(test(made), 60)

    asyncio.run(within())


def numbered(sequence: int, epoch: int = 0, **more: Any) -> bytes:
    return batch("a", producer_id=7, producer_epoch=epoch, base_sequence=sequence, **more)


# ---- produce


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_batches_are_answered_with_their_first_offsets(policy: FlushPolicy) -> None:
    async def test(it: Served) -> None:
        told = await it.produce(batch("a", "b"), batch("c"))
        assert [(each.error_code, each.base_offset, each.log_start_offset) for each in told] == [(0, 0, 0), (0, 2, 0)]
        assert told[0].log_append_time is None
        (told,) = await it.produce(batch("d"), acks=1, version=3)
        assert (told.error_code, told.base_offset) == (0, 3)

    run(test, policy)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_a_producer_that_sends_again_is_told_the_first_offset_and_no_error(policy: FlushPolicy) -> None:
    async def test(it: Served) -> None:
        for sequence in range(3):
            await it.produce(numbered(sequence))
        (told,) = await it.produce(numbered(1))
        assert (told.error_code, told.base_offset) == (0, 1)
        assert it.store.log(P0).log_end == 3

    run(test, policy)


def test_the_codes_that_producers_have_state_machines_for_are_exact() -> None:
    async def test(it: Served) -> None:
        async def code(*sent: bytes | None, **how: Any) -> int:
            return int((await it.produce(*sent, **how))[0].error_code)

        assert await code(numbered(0)) == 0
        assert await code(numbered(5)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await code(numbered(0, epoch=1)) == 0
        assert await code(numbered(1, epoch=0)) == E.INVALID_PRODUCER_EPOCH
        damaged = bytearray(batch("a"))
        damaged[-1] ^= 1
        assert await code(bytes(damaged)) == E.CORRUPT_MESSAGE
        assert await code(batch(b"x" * 2_000_000)) == E.MESSAGE_TOO_LARGE
        assert await code(batch("a", timestamp=NOW + 7_200_000)) == E.INVALID_TIMESTAMP
        assert await code(None) == E.INVALID_RECORD
        assert await code(b"") == E.INVALID_RECORD
        assert await code(batch("a") + batch("b")) == E.INVALID_RECORD
        old = bytearray(batch("a"))
        old[16] = 1
        assert await code(bytes(old)) == E.INVALID_RECORD
        assert await code(batch("a", codec=4), version=6) == E.UNSUPPORTED_COMPRESSION_TYPE
        assert await code(batch("a", codec=4), version=7) == 0
        assert await code(batch("a"), topic="gone") == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(batch("a"), partition=2) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(batch("a"), partition=-1) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(batch("a"), acks=2) == E.INVALID_REQUIRED_ACKS

    run(test)


def test_only_an_admin_client_writes_to_the_topics_of_coordinators() -> None:
    async def test(it: Served) -> None:
        await it.store.ensure_internal("__consumer_offsets")
        sent = batch("a", key=b"k")
        (told,) = await it.produce(sent, topic="__consumer_offsets")
        assert told.error_code == E.INVALID_TOPIC_EXCEPTION
        (told,) = await it.produce(sent, topic="__consumer_offsets", client="__admin_client")
        assert told.error_code == 0

    run(test)


def test_a_transactional_batch_is_taken_for_a_transaction_that_has_the_partition() -> None:
    async def test(it: Served) -> None:
        sent = numbered(0, flags=0x10)
        assert [each.error_code for each in await it.produce(sent)] == [E.INVALID_TXN_STATE]
        assert [each.error_code for each in await it.produce(sent, transactional_id="till")] == [0]
        for code, version, told in [
            (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
            (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
            (E.PRODUCER_FENCED, 11, E.INVALID_PRODUCER_EPOCH),
            (E.CONCURRENT_TRANSACTIONS, 11, E.NOT_ENOUGH_REPLICAS),
        ]:
            it.verified = code
            (found,) = await it.produce(numbered(1, flags=0x10), transactional_id="till", version=version)
            assert found.error_code == told
        assert it.store.log(P0).log_end == 1

    run(test)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_without_acknowledgement_nothing_is_answered_and_an_error_ends_the_connection(policy: FlushPolicy) -> None:
    async def test(it: Served) -> None:
        assert await it.produce(batch("a"), acks=0) is None
        assert it.store.log(P0).log_end == 1
        with pytest.raises(CloseConnection):
            await it.produce(batch("a"), topic="gone", acks=0)
        with pytest.raises(CloseConnection):
            await it.produce(numbered(1), numbered(7), acks=0)

    run(test, policy)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_a_full_disk_is_a_storage_error_that_says_so(policy: FlushPolicy) -> None:
    fs = FailingFs(MemoryFs(), errno.ENOSPC, lambda call: call.method == "append" and call.path.suffix == ".log")

    async def test(it: Served) -> None:
        fs.is_broken = True
        (told,) = await it.produce(batch("a"))
        assert (told.error_code, told.base_offset) == (E.KAFKA_STORAGE_ERROR, -1)
        assert told.error_message == "no space is left on the disk of this partition"
        fs.is_broken = False
        (told,) = await it.produce(batch("a"))
        assert (told.error_code, told.base_offset) == (0, 0)

    run(test, policy, fs)


def test_an_offline_log_directory_is_a_storage_error_and_closed_logs_have_no_leader() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method == "sync")

    async def within() -> None:
        async with stored(FlushPolicy.SYNC, fs=fs) as (store, engine):
            it = Served(store)
            fs.is_broken = True
            for _ in range(2):
                (told,) = await it.produce(batch("a"))
                assert told.error_code == E.KAFKA_STORAGE_ERROR
            engine.manager = None
            (told,) = await it.produce(batch("a"))
            assert told.error_code == E.NOT_LEADER_OR_FOLLOWER

    asyncio.run(within())


# ---- topics


def wanted(name: str, partitions: int = 1, factor: int = 1, assign: Any = (), **settings: str | None) -> dict[str, Any]:
    return {
        "name": name, "num_partitions": partitions, "replication_factor": factor,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assign],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()],
    }  # fmt: skip


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_made_with_its_settings(version: int) -> None:
    async def test(it: Served) -> None:
        made = await it.ask(ApiKey.CREATE_TOPICS, version, topics=[wanted("pay", 3, retention_ms="5")])
        assert [(each.name, each.error_code) for each in made.topics] == [("pay", 0)]
        topic = it.store.topics()["pay"]
        assert (topic.partitions, topic.settings) == (3, {"retention.ms": "5"})
        if version >= 5:
            assert (made.topics[0].num_partitions, made.topics[0].replication_factor) == (3, 1)
            told = {each.name: (each.value, each.config_source) for each in made.topics[0].configs}
            assert (told["retention.ms"], told["cleanup.policy"]) == (("5", 1), ("delete", 5))
        if version >= 7:
            assert made.topics[0].topic_id.bytes == topic.topic_id

    run(test)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("orders"), E.TOPIC_ALREADY_EXISTS),
        (wanted(""), E.INVALID_TOPIC_EXCEPTION),
        (wanted("a b"), E.INVALID_TOPIC_EXCEPTION),
        (wanted("x" * 250), E.INVALID_TOPIC_EXCEPTION),
        (wanted(".."), E.INVALID_TOPIC_EXCEPTION),
        (wanted("__cluster_metadata"), E.INVALID_TOPIC_EXCEPTION),
        (wanted("a.b"), E.INVALID_TOPIC_EXCEPTION),
        (wanted("pay", factor=2), E.INVALID_REPLICATION_FACTOR),
        (wanted("pay", factor=0), E.INVALID_REPLICATION_FACTOR),
        (wanted("pay", 0), E.INVALID_PARTITIONS),
        (wanted("pay", -2), E.INVALID_PARTITIONS),
        (wanted("pay", 10_001), E.POLICY_VIOLATION),
        (wanted("pay", retention_ms="long"), E.INVALID_CONFIG),
        (wanted("pay", no_such_setting="1"), E.INVALID_CONFIG),
        (wanted("pay", retention_ms=None), E.INVALID_CONFIG),
        (wanted("pay", 1, -1, [(0, [1])]), E.INVALID_REQUEST),
        (wanted("pay", -1, 1, [(0, [1])]), E.INVALID_REQUEST),
        (wanted("pay", -1, -1, [(0, [1]), (2, [1])]), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("pay", -1, -1, [(0, [1, 2])]), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("pay", -1, -1, [(0, [9])]), E.INVALID_REPLICA_ASSIGNMENT),
        (wanted("pay", -1, -1, [(0, [])]), E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_code(topic: dict[str, Any], code: ErrorCode) -> None:
    async def test(it: Served) -> None:
        await it.store.run(lambda m: m.topics.create("a_b", 1, {}, NOW))
        for only_judge in (True, False):
            made = await it.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], validate_only=only_judge)
            assert made.topics[0].error_code == code
            assert made.topics[0].error_message
            assert list(it.store.topics()) == ["a_b", "orders"]

    run(test)


def test_partitions_may_be_left_to_the_default_or_assigned_to_this_node() -> None:
    async def test(it: Served) -> None:
        found = await it.ask(
            ApiKey.CREATE_TOPICS, 7, topics=[wanted("one", -1, -1), wanted("two", -1, -1, [(0, [1]), (1, [1])])]
        )
        assert [(each.error_code, each.num_partitions) for each in found.topics] == [(0, 1), (0, 2)]

    run(test)


def test_a_topic_that_is_only_judged_is_not_made_and_one_named_twice_neither() -> None:
    async def test(it: Served) -> None:
        made = await it.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted("pay", 2)], validate_only=True)
        assert (made.topics[0].error_code, made.topics[0].num_partitions) == (0, 2)
        made = await it.ask(ApiKey.CREATE_TOPICS, 7, topics=[wanted("pay"), wanted("pay"), wanted("other")])
        assert [(each.name, each.error_code) for each in made.topics] == [("pay", E.INVALID_REQUEST), ("other", 0)]
        assert list(it.store.topics()) == ["orders", "other"]

    run(test)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def test(it: Served) -> None:
        for name in ("one", "two"):
            await it.store.run(lambda m, name=name: m.topics.create(name, 1, {}, NOW))  # type: ignore[misc]
        two = it.store.topics()["two"].topic_id
        assert two is not None
        gone = await it.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["one", "gone"])
        assert [(each.name, each.error_code) for each in gone.responses] == [("one", 0), ("gone", 3)]
        asked = [
            {"name": None, "topic_id": two}, {"name": None, "topic_id": b"x" * 16}, {"name": "orders", "topic_id": two},
            {"name": None, "topic_id": bytes(16)},
        ]  # fmt: skip
        gone = await it.ask(ApiKey.DELETE_TOPICS, 6, topics=asked)
        assert [(each.name, each.error_code) for each in gone.responses] == [
            ("two", 0), (None, E.UNKNOWN_TOPIC_ID), ("orders", E.INVALID_REQUEST), (None, E.INVALID_REQUEST),
        ]  # fmt: skip
        assert list(it.store.topics()) == ["orders"]

    run(test)


def test_the_topics_of_coordinators_are_neither_deleted_nor_widened() -> None:
    async def test(it: Served) -> None:
        await it.store.ensure_internal("__consumer_offsets")
        gone = await it.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["__consumer_offsets"])
        wider = await it.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": "__consumer_offsets", "count": 60}])
        assert [gone.responses[0].error_code, wider.results[0].error_code] == [E.POLICY_VIOLATION] * 2
        assert it.store.topics()["__consumer_offsets"].partitions == 50

    run(test)


@pytest.mark.parametrize(
    ("count", "assignments", "code", "partitions"),
    [
        (5, None, E.NONE, 5),
        (3, [{"broker_ids": [1]}], E.NONE, 3),
        (2, None, E.INVALID_PARTITIONS, 2),
        (1, None, E.INVALID_PARTITIONS, 2),
        (4, [{"broker_ids": [1]}], E.INVALID_REPLICA_ASSIGNMENT, 2),
        (3, [{"broker_ids": [2]}], E.INVALID_REPLICA_ASSIGNMENT, 2),
        (10_003, None, E.POLICY_VIOLATION, 2),
    ],
)
def test_partitions_are_only_added(count: int, assignments: Any, code: ErrorCode, partitions: int) -> None:
    async def test(it: Served) -> None:
        asked = [{"name": "orders", "count": count, "assignments": assignments}]
        for only_judge in (True, False):
            told = await it.ask(ApiKey.CREATE_PARTITIONS, 3, topics=asked, validate_only=only_judge)
            assert told.results[0].error_code == code
            assert it.store.topics()["orders"].partitions == (2 if only_judge else partitions)
        unknown = await it.ask(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": "gone", "count": 3}])
        assert unknown.results[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


# ---- settings


def change(name: str, value: str | None, operation: int = 0) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


async def altered(
    it: Served, *changes: dict[str, Any], name: str = "orders", kind: int = 2, judge: bool = False
) -> int:
    resources = [{"resource_type": kind, "resource_name": name, "configs": list(changes)}]
    told = await it.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=judge)
    return int(told.responses[0].error_code)


def test_settings_are_set_unset_and_lists_added_to() -> None:
    async def test(it: Served) -> None:
        def settings() -> Mapping[str, str]:
            return it.store.topics()["orders"].settings

        assert await altered(it, change("retention.ms", "5"), change("flush.ms", "6")) == 0
        assert settings() == {"retention.ms": "5", "flush.ms": "6"}
        assert await altered(it, change("retention.ms", None, 1), change("cleanup.policy", "compact", 2)) == 0
        assert settings() == {"flush.ms": "6", "cleanup.policy": "delete,compact"}
        assert await altered(it, change("cleanup.policy", "delete", 3)) == 0
        assert it.store.topics()["orders"].config.cleanup_policy == ("compact",)
        assert await altered(it, change("retention.ms", "7"), judge=True) == 0
        assert "retention.ms" not in settings()

    run(test)


def test_settings_that_make_no_sense_change_nothing() -> None:
    async def test(it: Served) -> None:
        for judge in (True, False):
            assert await altered(it, change("retention.ms", "x"), judge=judge) == E.INVALID_CONFIG
            assert await altered(it, change("nothing", "1"), judge=judge) == E.INVALID_CONFIG
            assert await altered(it, change("retention.ms", "1", 2), judge=judge) == E.INVALID_CONFIG
            assert await altered(it, change("retention.ms", None), judge=judge) == E.INVALID_REQUEST
            assert await altered(it, change("retention.ms", "1", 9), judge=judge) == E.INVALID_REQUEST
            twice = [change("flush.ms", "1"), change("flush.ms", "2")]
            assert await altered(it, *twice, judge=judge) == E.INVALID_REQUEST
            assert await altered(it, change("a", "1"), kind=4, name="1", judge=judge) == E.INVALID_REQUEST
            assert await altered(it, change("flush.ms", "1"), name="x", judge=judge) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert it.store.topics()["orders"].settings == {}

    run(test)


def test_the_old_request_replaces_all_settings() -> None:
    async def test(it: Served) -> None:
        await altered(it, change("retention.ms", "5"))
        asked = [{"resource_type": 2, "resource_name": "orders", "configs": [{"name": "flush.ms", "value": "6"}]}]
        told = await it.ask(ApiKey.ALTER_CONFIGS, 2, resources=asked)
        assert told.responses[0].error_code == 0
        assert it.store.topics()["orders"].settings == {"flush.ms": "6"}

    run(test)


# ---- deleting records


async def deleted(it: Served, offset: int, topic: str = "orders", partition: int = 0) -> tuple[int, int]:
    asked = [{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}]
    told = await it.ask(ApiKey.DELETE_RECORDS, 2, topics=asked)
    found = told.topics[0].partitions[0]
    return int(found.error_code), int(found.low_watermark)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_records_are_deleted_up_to_an_offset_or_all(policy: FlushPolicy) -> None:
    async def test(it: Served) -> None:
        for _ in range(5):
            await it.produce(batch("a"))
        assert await deleted(it, 2) == (0, 2)
        assert await deleted(it, 1) == (0, 2)
        asked = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]} for offset in (4, 3)]
        told = await it.ask(ApiKey.DELETE_RECORDS, 2, topics=asked)
        (once,) = [each for topic in told.topics for each in topic.partitions]  # by what is said last, as by a broker
        assert (once.error_code, once.low_watermark) == (0, 3)
        assert await deleted(it, 6) == (E.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(it, -2) == (E.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(it, -1) == (0, 5)
        assert it.store.log(P0).log_start == 5

    run(test, policy)


def test_records_that_may_not_be_deleted_stay() -> None:
    async def test(it: Served) -> None:
        await it.store.ensure_internal("__consumer_offsets")
        await it.store.run(lambda m: m.topics.create("kept", 1, {"cleanup.policy": "compact"}, NOW))
        assert await deleted(it, 0, "__consumer_offsets") == (E.INVALID_TOPIC_EXCEPTION, -1)
        assert await deleted(it, 0, "kept") == (E.POLICY_VIOLATION, -1)
        assert await deleted(it, 0, "gone") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await deleted(it, 0, partition=2) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)

    run(test)


# ---- topics by asking


def test_asking_makes_a_topic_only_where_that_is_wanted_by_both() -> None:
    async def test(it: Served) -> None:
        changes = topics.TopicChanges(it.parts, topics.TopicOptions(partitions=3))
        it.handlers = creating(dict(it.handlers), it.store, changes.auto_create)

        async def ask(version: int, *names: str, allow: bool = True) -> list[int]:
            asked = [{"name": name, "topic_id": bytes(16)} for name in names]
            told = await it.ask(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=allow)
            return [int(each.error_code) for each in told.topics]

        assert await ask(12, "pay", allow=False) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await ask(12, "pay", "orders") == [E.UNKNOWN_TOPIC_OR_PARTITION, 0], "as a broker answers first"
        assert await ask(12, "pay", "orders") == [0, 0]
        assert it.store.topics()["pay"].partitions == 3
        assert await ask(12, "a b") == [E.INVALID_TOPIC_EXCEPTION]
        assert await ask(12, "__consumer_offsets") == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await ask(3, "old") == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert list(it.store.topics()) == ["old", "orders", "pay"]

    run(test)
