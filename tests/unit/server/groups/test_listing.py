"""Looking at groups, and removing them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.coordinating import QUICK, Served, run, run_served
from support.group_world import NOW, RANGE
from support.serving import stored

from server.api.errors import ErrorCode
from server.api.versions import VERSIONS, ApiKey
from server.groups.coordinator import Lag
from server.groups.format.records import GroupKey, OffsetKey, OffsetValue
from server.groups.partitions import OFFSETS_TOPIC
from server.handlers.coordination import groups as handling
from storage.base.units import TopicPartition
from storage.batch.record import Record, encode_batch

# ---- looking at groups, and removing them


def test_groups_are_listed_by_state_and_type() -> None:
    async def test(one: Served) -> None:
        await one.member("members")
        await one.commit(1, "simple")
        members, simple = ("members", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
        assert sorted(await one.listed()) == [members, simple]
        assert await one.listed(states_filter=["stable"]) == [members]
        assert await one.listed(states_filter=[" EMPTY "]) == [simple]
        assert await one.listed(states_filter=["Dead"]) == []
        assert len(await one.listed(types_filter=["Classic"])) == 2
        assert await one.listed(types_filter=["share"]) == []
        assert len((await one(ApiKey.LIST_GROUPS, 0)).groups) == 2

    run_served(test)


@pytest.mark.parametrize("version", range(6))
def test_a_group_is_described_with_its_members(version: int) -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        answer = await one(ApiKey.DESCRIBE_GROUPS, version, groups=["g", "nobody"], include_authorized_operations=True)
        found, nobody = answer.groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        (member,) = found.members
        assert (member.member_id, member.client_host, member.member_metadata, member.member_assignment) == (
            joined.member_id, "/127.0.0.1", RANGE[0][1], b"all",
        )  # fmt: skip
        assert (nobody.group_state, nobody.error_code, nobody.members) == ("Dead", 0, ())

    run_served(test)


def test_a_group_is_described_once_and_an_answer_holds_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: Served) -> None:
        await one.member()
        names = ["g", "nobody"] * 1000
        assert [group.group_id for group in (await one(ApiKey.DESCRIBE_GROUPS, 5, groups=names)).groups] == names[:2]
        monkeypatch.setattr(handling, "_MOST_BYTES", 3)
        refused, nobody = (await one(ApiKey.DESCRIBE_GROUPS, 5, groups=names)).groups
        assert (refused.error_code, refused.members) == (ErrorCode.INVALID_REQUEST, ())
        assert nobody.group_id == "nobody"

    run_served(test)


def test_an_empty_group_can_be_removed_with_its_offsets() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        await one.commit(1, **mine)
        assert await one.delete("g", "nobody") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        await one(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": joined.member_id}])
        assert await one.delete("g") == [0]
        assert one.written("g")[-2:] == [(OffsetKey("g", "orders", 0), None), (GroupKey("g"), None)]
        for _ in range(2):
            assert await one.listed() == []
            assert await one.fetched() == (-1, 0)
            await one.restart()

    run_served(test)


def test_who_was_given_an_id_of_a_group_that_is_removed_is_not_known_any_more() -> None:
    async def test(one: Served) -> None:
        asked: Any = {"group_id": "g", "session_timeout": 10_000, "protocol_type": "consumer"}
        asked["protocols"] = [{"name": "range", "metadata": b""}]
        member_id = (await one(ApiKey.JOIN_GROUP, 9, **asked)).member_id
        before = one.timers.waiting
        assert await one.delete("g") == [0]
        assert one.timers.waiting == before - 1
        answer = await one(ApiKey.JOIN_GROUP, 9, member_id=member_id, **asked)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run_served(test)


def test_a_group_may_begin_again_while_its_removal_is_written() -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        removing = asyncio.ensure_future(one.groups.delete("g"))
        await asyncio.sleep(0)
        joined = await one.member()
        assert await removing == 0
        for _ in range(2):
            assert await one.listed() == [("g", "consumer", "Stable", "classic")]
            assert await one.fetched() == (-1, 0)
            await one.restart()
        assert joined.generation_id == 1

    run_served(test)


def test_offsets_of_topics_that_nobody_in_the_group_reads_can_be_removed() -> None:
    async def test(one: Served) -> None:
        async def delete(group: str, *topics: str) -> Any:
            asked = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in topics]
            return await one(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)

        assert (await delete("g", "orders")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await one.commit(1)
        answer = await delete("g", "orders", "nowhere")
        assert [int(t.partitions[0].error_code) for t in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await one.fetched() == (-1, 0)
        joined = await one.member("h")
        mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        await one.commit(1, "h", **mine)
        answer = await delete("h", "orders")
        assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await one.member("w", protocol_type="workers")
        assert (await delete("w", "orders")).error_code == ErrorCode.NON_EMPTY_GROUP

    run_served(test)


def test_the_offsets_of_a_topic_go_with_it() -> None:
    async def test(one: Served) -> None:
        for group in "abc":
            await one.commit(1, group)
        await one.groups.commits.topic_deleted("orders", one.store.topics()["orders"].topic_id)
        assert [await one.fetched(group) for group in "abc"] == [(-1, 0)] * 3
        await one.commit(2, "a")
        await one.groups.commits.topic_deleted("orders", b"another topic's id"[:16])
        assert await one.fetched("a") == (2, 0)

    run_served(test)


def test_lag_is_the_distance_to_the_high_watermark() -> None:
    async def test(one: Served) -> None:
        values = [Record(n, NOW, value=b"v") for n in range(10)]
        await one.store.append(TopicPartition("orders", 0), encode_batch(values))
        await one.commit(4)
        await one.commit(11, "ahead")
        shard = one.groups.partitions.shards[one.groups.partitions.partition_of("g")]
        await shard.write([(OffsetKey("g", "gone", 0), OffsetValue(4))])
        assert sorted(one.groups.lags()) == [
            Lag("ahead", "orders", 0, 11, 10, 0),
            Lag("g", "gone", 0, 4, None, None),
            Lag("g", "orders", 0, 4, 10, 6),
        ]

    run_served(test)


# ---- where the coordinator is


@pytest.mark.parametrize("version", range(6))
def test_groups_and_transactions_are_coordinated_here(version: int) -> None:
    async def test(one: Served) -> None:
        for kind in (0, 1) if version else (0,):
            answer = await one(ApiKey.FIND_COORDINATOR, version, key="g", key_type=kind, coordinator_keys=["g", "h"])
            found = answer.coordinators if version >= 4 else [answer]
            assert [(each.error_code, each.node_id, each.port) for each in found] == [(0, 1, 9092)] * len(found)
        if version:
            answer = await one(ApiKey.FIND_COORDINATOR, version, key="g", key_type=2, coordinator_keys=["g"])
            found = answer.coordinators[0] if version >= 4 else answer
            assert found.error_code == ErrorCode.INVALID_REQUEST

    run_served(test)


def test_whoever_looks_for_the_coordinator_first_makes_the_topic() -> None:
    async def test() -> None:
        async with stored() as (store, engine):
            one = Served(store, engine, QUICK)
            one.groups.start()
            assert await one.fetched() == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            assert await one.listed() == []
            await one(ApiKey.FIND_COORDINATOR, 5, key_type=0, coordinator_keys=["g"])
            assert store.topics()[OFFSETS_TOPIC].partitions == 50
            assert await one.fetched() == (-1, 0)
            one.groups.stop()

    run(test)


# ---- refusals, in every version


ASKED = {
    ApiKey.JOIN_GROUP: {"session_timeout": 1, "protocol_type": "consumer"},
    ApiKey.SYNC_GROUP: {"member_id": "x", "generation_id": 1},
    ApiKey.HEARTBEAT: {"member_id": "x", "generation_id": 1},
    ApiKey.OFFSET_DELETE: {"topics": []},
}
REFUSED = {
    ApiKey.JOIN_GROUP: ErrorCode.INVALID_SESSION_TIMEOUT,
    ApiKey.SYNC_GROUP: ErrorCode.UNKNOWN_MEMBER_ID,
    ApiKey.HEARTBEAT: ErrorCode.UNKNOWN_MEMBER_ID,
    ApiKey.OFFSET_DELETE: ErrorCode.GROUP_ID_NOT_FOUND,
}


@pytest.mark.parametrize("key", ASKED)
def test_refusals_can_be_told_in_every_version(key: ApiKey) -> None:
    async def test(one: Served) -> None:
        for version in range(VERSIONS[key].lowest, VERSIONS[key].highest + 1):
            answer = await one(key, version, group_id="g", **ASKED[key])
            assert answer.error_code == REFUSED[key]

    run_served(test)


@pytest.mark.parametrize("version", range(4))
def test_commits_in_transactions_are_refused_in_every_version(version: int) -> None:
    async def test(one: Served) -> None:
        topics = [{"name": "nowhere", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        asked = {"transactional_id": "t", "group_id": "g", "producer_id": 7, "producer_epoch": 0, "topics": topics}
        answer = await one(ApiKey.TXN_OFFSET_COMMIT, version, generation_id=-1, **asked)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_served(test)
