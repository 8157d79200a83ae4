"""What readers are answered: metadata, offsets, ranges, waits, and what is wrong in its own code."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.kio_messages import request_frame
from support.managers import NOW, P0, A, FailingFs, batch
from support.memory_fs import MemoryFs
from support.serving import TestEngine, stored
from support.wire_calls import call_of
from support.wrapped_fs import READING

from server.api.clock import LoopTimers
from server.api.dispatch import Call, ListenerInfo
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.handlers.data import fetch, list_offsets
from server.handlers.parts import Parts
from server.handlers.topics import describe, describe_configs, metadata
from server.store.flushing import FlushPolicy
from server.store.store import Store
from storage.base.units import TopicPartition
from storage.batch.batch import split_batches
from wire.messages import decode

P1 = TopicPartition("orders", 1)
WAIT = 60
INFO = ListenerInfo("host", 9092, 3, "cluster")


def call(key: int, version: int, values: dict[str, Any]) -> Call:
    made = call_of(key, version, **values)
    request = decode(memoryview(request_frame(made.body)))  # as it comes from a client
    return replace(made, request=request, body=request.body, info=INFO)


class Reading:
    """Handlers over a store in memory."""

    def __init__(self, store: Store, engine: TestEngine) -> None:
        assert engine.manager is not None
        self.store, self.manager = store, engine.manager
        parts = Parts(store, INFO, LoopTimers(asyncio.get_running_loop()))
        self.handlers: dict[int, Any] = {}
        for module in (describe, describe_configs, fetch, list_offsets, metadata):
            self.handlers |= module.handlers(parts)

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        answer = self.handlers[key](call(key, version, values))
        return await answer if isinstance(answer, Awaitable) else answer

    async def append(self, *values: str | bytes, name: TopicPartition = P0, **more: Any) -> None:
        await self.store.append(name, batch(*values, **more))

    def fetch(self, *parts: dict[str, Any], version: int = 12, **more: Any) -> Any:
        """Return what the handler returns for partitions of `orders`."""
        topic: dict[str, Any] = {"topic": "orders", "partitions": [
            {"partition": n, "fetch_offset": 0, "partition_max_bytes": 1 << 20, **part} for n, part in enumerate(parts)
        ]}  # fmt: skip
        if version >= 13:
            topic = {"topic_id": self.store.topics()["orders"].topic_id, "partitions": topic["partitions"]}
        values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [topic], **more}
        return self.handlers[ApiKey.FETCH](call(ApiKey.FETCH, version, values))


def run(test: Callable[[Reading], Awaitable[None]], **more: Any) -> None:
    async def within() -> None:
        async with stored(FlushPolicy.NONE, **more) as (store, engine):
            await asyncio.wait_for(test(Reading(store, engine)), WAIT)

    asyncio.run(within())


def shown(answer: Any, place: int = 0) -> dict[str, Any]:
    return dict(answer["responses"][0]["partitions"][place])


def batches_of(part: dict[str, Any]) -> list[int]:
    """Return the sizes of the batches in an answer; the last may be cut."""
    data = b"".join(bytes(piece) for piece in part["records"])
    return [len(each) for each in split_batches(memoryview(data))]


# ---- fetch


def test_the_first_batch_comes_whole_however_small_the_limits_are_and_the_next_partition_nothing() -> None:
    async def test(reading: Reading) -> None:
        await reading.append(b"x" * 5000)
        await reading.append(b"y" * 5000, name=P1)
        answer = reading.fetch({"partition_max_bytes": 10}, {"partition_max_bytes": 10}, max_bytes=20)
        assert batches_of(shown(answer)) == [len(batch(b"x" * 5000))]
        assert batches_of(shown(answer, 1)) == []
        assert shown(answer, 1)["error_code"] == ErrorCode.NONE

    run(test)


def test_an_answer_has_no_more_bytes_than_asked_for() -> None:
    async def test(reading: Reading) -> None:
        for _ in range(10):
            await reading.append(b"x" * 900)
            await reading.append(b"y" * 900, name=P1)
        size = len(batch(b"x" * 900))
        answer = reading.fetch({}, {}, max_bytes=13 * size)
        assert [sum(map(len, shown(answer, n)["records"])) for n in (0, 1)] == [10 * size, 3 * size]
        small = reading.fetch({"partition_max_bytes": 2 * size}, {})
        assert sum(map(len, shown(small)["records"])) == 2 * size

    run(test)


def test_a_fetch_waits_for_enough_bytes_and_is_answered_when_they_come() -> None:
    async def test(reading: Reading) -> None:
        waiting = reading.fetch({}, {}, max_wait=100_000, min_bytes=600)
        await reading.append(b"x" * 300)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        await reading.append(b"y" * 300, name=P1)
        answer = await waiting
        assert [len(batches_of(shown(answer, n))) for n in (0, 1)] == [1, 1]
        assert shown(answer)["high_watermark"] == 1

    run(test)


def test_a_fetch_that_gets_nothing_is_answered_when_its_time_is_over() -> None:
    async def test(reading: Reading) -> None:
        answer = await reading.fetch({}, max_wait=20)
        assert (batches_of(shown(answer)), shown(answer)["error_code"]) == ([], ErrorCode.NONE)

    run(test)


def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    async def test(reading: Reading) -> None:
        waiting = reading.fetch({}, {}, max_wait=100_000)
        assert reading.store._watchers
        waiting.cancel()
        await asyncio.sleep(0)
        assert not reading.store._watchers

    run(test)


def test_a_fetch_with_a_mistake_in_it_does_not_wait() -> None:
    async def test(reading: Reading) -> None:
        answer = reading.fetch({}, {"fetch_offset": 5}, max_wait=100_000)
        assert [shown(answer, n)["error_code"] for n in (0, 1)] == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]

    run(test)


@pytest.mark.parametrize(("part", "code"), [
    ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ({"fetch_offset": 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ({"fetch_offset": 2**63 - 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ({"current_leader_epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ({"current_leader_epoch": 0}, ErrorCode.NONE),
])  # fmt: skip
def test_what_is_wrong_with_a_partition_has_its_own_code(part: dict[str, Any], code: ErrorCode) -> None:
    async def test(reading: Reading) -> None:
        assert shown(reading.fetch(part))["error_code"] == code

    run(test)


def test_an_older_leader_epoch_is_fenced_and_a_cut_log_says_where_it_leaves_the_reader() -> None:
    async def test(reading: Reading) -> None:
        await reading.append("a", "b", "c")
        reading.manager.truncate(P0, 2, NOW)  # type: ignore[arg-type]
        await reading.append("d")
        fenced = reading.fetch({"current_leader_epoch": 0})
        assert shown(fenced)["error_code"] == ErrorCode.FENCED_LEADER_EPOCH
        diverging = reading.fetch({"fetch_offset": 1, "last_fetched_epoch": 0})
        assert "diverging_epoch" not in shown(diverging)
        beyond = reading.fetch({"fetch_offset": 1, "last_fetched_epoch": 9}, max_wait=100_000)
        assert shown(beyond)["diverging_epoch"] == {"epoch": -1, "end_offset": -1}
        ends = await reading.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [{"topic": "orders", "partitions": [
            {"partition": 0, "leader_epoch": 0}, {"partition": 0, "leader_epoch": 9},
            {"partition": 9, "leader_epoch": 0},
            {"partition": 0, "leader_epoch": 0, "current_leader_epoch": 0},
        ]}]})  # fmt: skip
        found = ends["topics"][0]["partitions"]
        end = reading.manager.log(P0).log_end - 1
        assert (found[0]["leader_epoch"], found[0]["end_offset"]) == (0, end)
        assert (found[1]["leader_epoch"], found[1]["end_offset"]) == (-1, -1)
        assert [each["error_code"] for each in found[2:]] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH,
        ]  # fmt: skip

    run(test)


def test_topics_are_fetched_by_id_and_an_unknown_id_has_its_code() -> None:
    async def test(reading: Reading) -> None:
        await reading.append("a")
        assert len(batches_of(shown(reading.fetch({}, version=17)))) == 1
        topic = {
            "topic_id": UUID(int=99).bytes,
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}],
        }
        values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 9, "topics": [topic]}
        answer = await reading.ask(ApiKey.FETCH, 17, values)
        assert shown(answer)["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
        assert answer["responses"][0]["topic_id"] == UUID(int=99).bytes

    run(test)


def test_there_are_no_fetch_sessions_and_a_full_fetch_is_answered_whatever_session_it_names() -> None:
    async def test(reading: Reading) -> None:
        for session in (0, 7):
            answer = reading.fetch({}, session_id=session, session_epoch=1)
            assert answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        for session, epoch in [(0, -1), (0, 0), (7, -1), (7, 0), (-1, -1)]:
            answer = reading.fetch({}, session_id=session, session_epoch=epoch)
            assert "error_code" not in answer
            assert "session_id" not in answer

    run(test)


def test_a_directory_that_is_offline_says_so_for_reads_and_offsets_and_metadata_still_name_a_leader() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method in ("sync", "sync_file"))

    async def test(reading: Reading) -> None:
        fs.is_broken = True
        for log_dir in reading.manager.log_dirs:
            log_dir.go_offline("it is gone")
        assert shown(reading.fetch({}))["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        offsets = await reading.ask(ApiKey.LIST_OFFSETS, 7, at(-1))
        assert offsets["topics"][0]["partitions"][0]["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        told = await reading.ask(ApiKey.METADATA, 12, {"topics": None})
        partition = told["topics"][0]["partitions"][0]
        assert (partition["error_code"], partition["leader_id"], partition["leader_epoch"]) == (0, 3, -1)
        directories = await reading.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        assert directories["results"][0]["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR

    run(test, fs=fs)


def test_a_log_that_cannot_be_read_takes_its_directory_offline() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method in READING)

    async def test(reading: Reading) -> None:
        await reading.append(b"x" * 100)
        assert reading.manager.offline == {}
        fs.is_broken = True
        assert shown(reading.fetch({}))["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(0)  # what was reported is passed on by the loop
        await reading.store.run(lambda _manager: None)  # behind it
        (reason,) = reading.manager.offline.values()
        assert "EIO" in reason

    run(test, fs=fs)


# ---- offsets


def at(timestamp: int, *, committed: bool = False, **more: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "timestamp": timestamp, **more}
    return {"isolation_level": int(committed), "topics": [{"name": "orders", "partitions": [partition]}]}


@pytest.mark.parametrize(("timestamp", "found"), [
    (-1, (-1, 3)), (-2, (-1, 0)), (-4, (-1, 0)), (-3, (NOW + 20, 1)), (NOW + 5, (NOW + 20, 1)), (NOW, (NOW, 0)),
    (NOW + 21, (-1, -1)), (-5, (-1, -1)),
])  # fmt: skip
def test_offsets_are_found_by_place_and_by_time(timestamp: int, found: tuple[int, int]) -> None:
    async def test(reading: Reading) -> None:
        for offset in (0, 20, 10):
            await reading.append("v", timestamp=NOW + offset)
        answer = await reading.ask(ApiKey.LIST_OFFSETS, 9, at(timestamp))
        partition = answer["topics"][0]["partitions"][0]
        assert (partition["timestamp"], partition["offset"]) == found

    run(test)


def test_offsets_of_unknown_partitions_and_of_other_epochs_have_their_codes() -> None:
    async def test(reading: Reading) -> None:
        for more, code in (
            ({"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            answer = await reading.ask(ApiKey.LIST_OFFSETS, 9, at(-1, **more))
            assert answer["topics"][0]["partitions"][0]["error_code"] == code

    run(test)


# ---- metadata and descriptions


@pytest.mark.parametrize("version", [10, 11])
def test_versions_of_metadata_that_cannot_answer_ids_refuse_the_request_as_a_broker_does(version: int) -> None:
    async def test(reading: Reading) -> None:
        asked = [{"name": "orders", "topic_id": None}, {"name": None, "topic_id": UUID(int=7).bytes}]
        answer = await reading.ask(ApiKey.METADATA, version, {"topics": asked})
        codes = [(each["error_code"], each["name"]) for each in answer["topics"]]
        assert codes == [(ErrorCode.INVALID_REQUEST, "orders"), (ErrorCode.INVALID_REQUEST, "")]

    run(test)


def test_offsets_of_a_partition_that_is_named_twice_are_not_looked_up_as_by_a_broker() -> None:
    async def test(reading: Reading) -> None:
        asked = [{"partition_index": number, "timestamp": -1} for number in (0, 1, 0)]
        answer = await reading.ask(ApiKey.LIST_OFFSETS, 5, {"topics": [{"name": "orders", "partitions": asked}]})
        codes = [each.get("error_code", 0) for each in answer["topics"][0]["partitions"]]
        assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]

    run(test)


def test_metadata_of_many_topics_are_looked_up_beside_the_loop() -> None:
    async def test(reading: Reading) -> None:
        asked = [{"name": f"n{number}", "topic_id": None} for number in range(5000)] + [{"name": "orders"}]
        answer = await reading.ask(ApiKey.METADATA, 12, {"topics": asked})
        assert [each["error_code"] for each in answer["topics"]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5000 + [0]

    run(test)


def test_metadata_tell_the_topics_that_were_asked_for_by_name_and_by_id() -> None:
    async def test(reading: Reading) -> None:
        topic_id = reading.store.topics()["orders"].topic_id
        assert topic_id is not None
        asked = [{"name": "orders", "topic_id": None}, {"name": "nothing", "topic_id": None},
                 {"name": "a/b", "topic_id": None}, {"name": None, "topic_id": topic_id},
                 {"name": None, "topic_id": UUID(int=7).bytes}]  # fmt: skip
        answer = await reading.ask(ApiKey.METADATA, 12, {"topics": asked})
        assert [(each["error_code"], each["name"]) for each in answer["topics"]] == [
            (0, "orders"),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing"), (ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
            (0, "orders"), (ErrorCode.UNKNOWN_TOPIC_ID, None),
        ]  # fmt: skip
        assert (answer["cluster_id"], answer["controller_id"]) == ("cluster", 3)
        assert answer["brokers"] == [{"node_id": 3, "host": "host", "port": 9092, "rack": None}]

    run(test)


@pytest.mark.parametrize(("version", "topics", "count"), [(0, [], 1), (1, [], 0), (1, None, 1), (12, None, 1)])
def test_no_topics_are_all_topics_in_version_0_and_none_in_later_ones(version: int, topics: Any, count: int) -> None:
    async def test(reading: Reading) -> None:
        answer = await reading.ask(ApiKey.METADATA, version, {"topics": topics})
        assert len(answer["topics"]) == count

    run(test)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_the_topics_of_coordinators_are_internal(topic: str) -> None:
    async def test(reading: Reading) -> None:
        await reading.store.run(lambda m: m.topics.create(topic, 1, {}, NOW))
        answer = await reading.ask(ApiKey.METADATA, 9, {"topics": None})
        assert {found["name"]: found["is_internal"] for found in answer["topics"]} == {"orders": False, topic: True}

    run(test)


def test_settings_tell_where_each_comes_from() -> None:
    async def test(reading: Reading) -> None:
        reading.manager.topics.create("small", 1, {"segment.bytes": "2000000"}, NOW)
        await reading.store.run(lambda _: None)
        keys = ["segment.bytes", "cleanup.policy"]
        asked = [{"resource_type": 2, "resource_name": "small", "configuration_keys": keys},
                 {"resource_type": 4, "resource_name": "3", "configuration_keys": None},
                 {"resource_type": 4, "resource_name": "4", "configuration_keys": None},
                 {"resource_type": 2, "resource_name": "nothing", "configuration_keys": None}]  # fmt: skip
        answer = await reading.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": asked, "include_synonyms": False})
        small, broker, other, nothing = answer["results"]
        assert [(e["name"], e["value"], e["config_source"], e["synonyms"]) for e in small["configs"]] == [
            ("cleanup.policy", "delete", 5, []), ("segment.bytes", "2000000", 1, []),
        ]  # fmt: skip
        assert ("node.id", "3") in [(e["name"], e["value"]) for e in broker["configs"]]
        assert [other["error_code"], nothing["error_code"]] == [ErrorCode.INVALID_REQUEST, 3]

    run(test)


def test_log_directories_tell_the_size_of_every_log() -> None:
    async def test(reading: Reading) -> None:
        await reading.append("a")
        answer = await reading.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        (found,) = answer["results"]
        assert found["log_dir"] == str(A)
        sizes = {each["partition_index"]: each["partition_size"] for each in found["topics"][0]["partitions"]}
        assert sizes == {0: len(batch("a")), 1: 0}
        only = await reading.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": "orders", "partitions": [1]}]})
        assert [each["partition_index"] for each in only["results"][0]["topics"][0]["partitions"]] == [1]

    run(test)


def test_settings_that_are_asked_for_twice_are_told_once_in_order() -> None:
    async def test(reading: Reading) -> None:
        names = ["orders", "nothing"] * 1000
        asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names]
        answer = await reading.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": asked})
        assert [found["resource_name"] for found in answer["results"]] == ["orders", "nothing"]

    run(test)


def test_producers_are_told_once_and_no_more_than_an_answer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(reading: Reading) -> None:
        for producer, name in [(1, P0), (2, P0), (3, P1)]:
            await reading.append("a", name=name, producer_id=producer, producer_epoch=0, base_sequence=0)
        asked = {"topics": [{"name": "orders", "partition_indexes": [0, 1, 0]}] * 500}
        (topic,) = (await reading.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked))["topics"]
        assert [len(partition["active_producers"]) for partition in topic["partitions"]] == [2, 1]
        monkeypatch.setattr(describe, "_MOST_PRODUCERS", 2)
        (topic,) = (await reading.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked))["topics"]
        first, second = topic["partitions"]
        assert len(first["active_producers"]) == 2
        assert (second["error_code"], second["error_message"]) == (
            ErrorCode.INVALID_REQUEST, "1 producers are too many for this answer: ask for fewer partitions",
        )  # fmt: skip

    run(test)


def test_producers_are_told_with_what_is_open() -> None:
    async def test(reading: Reading) -> None:
        await reading.append("a", producer_id=7, producer_epoch=2, base_sequence=0)
        asked = {"topics": [{"name": "orders", "partition_indexes": [0, 9]}]}
        answer = await reading.ask(ApiKey.DESCRIBE_PRODUCERS, 0, asked)
        known, unknown = answer["topics"][0]["partitions"]
        (producer,) = known["active_producers"]
        assert (producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]) == (7, 2, 0)
        assert producer["current_txn_start_offset"] == -1
        assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)
