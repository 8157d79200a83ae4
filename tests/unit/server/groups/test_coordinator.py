"""Offsets, transactions and members at the coordinator of groups: what is answered, and what is in the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.coordinating import Served, end_transaction, home, run, run_served, served
from support.group_world import NOW, RANGE
from support.managers import FailingFs
from support.memory_fs import MemoryFs

from server.api.errors import ErrorCode
from server.api.versions import VERSIONS, ApiKey
from server.groups.format.records import GroupKey, GroupValue, OffsetKey, OffsetValue
from server.store.flushing import FlushPolicy
from storage.batch.control import ControlType

# ---- offsets


def test_a_committed_offset_is_told_and_still_is_after_a_restart() -> None:
    async def test(one: Served) -> None:
        assert await one.fetched() == (-1, 0)
        assert await one.commit(42, committed_metadata="here") == 0
        assert await one.fetched() == (42, 0)
        await one.restart()
        assert await one.fetched() == (42, 0)
        assert await one.commit(43) == 0
        assert await one.fetched() == (43, 0)

    run_served(test)


def test_a_commit_is_the_record_that_a_broker_writes() -> None:
    async def test(one: Served) -> None:
        await one.commit(42, committed_metadata="here")
        topic_id = one.store.topics()["orders"].topic_id
        assert topic_id is not None
        value = OffsetValue(42, 5, "here", NOW, -1, topic_id)
        assert one.written("g") == [(OffsetKey("g", "orders", 0), value)]

    run_served(test)


@pytest.mark.parametrize(
    "version", range(VERSIONS[ApiKey.OFFSET_FETCH].lowest, VERSIONS[ApiKey.OFFSET_FETCH].highest + 1)
)
def test_every_version_of_the_question_is_answered(version: int) -> None:
    async def test(one: Served) -> None:
        await one.commit(42)
        topics: Any = [{"name": "orders", "partition_indexes": [0, 1]}]
        asked = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
        answer = await one(ApiKey.OFFSET_FETCH, version, **asked)
        found = answer.groups[0] if version >= 8 else answer
        ((first, second),) = [topic.partitions for topic in found.topics]
        assert (first.committed_offset, second.committed_offset) == (42, -1)
        assert (first.partition_index, second.partition_index) == (0, 1)
        assert getattr(first, "committed_leader_epoch", 5) == 5

    run_served(test)


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_a_commit_is_taken(version: int) -> None:
    async def test(one: Served) -> None:
        assert await one.commit(42, version=version, retention_time=-1) == 0
        assert await one.fetched() == (42, 0)

    run_served(test)


def test_without_partitions_all_that_a_group_has_committed_is_told() -> None:
    async def test(one: Served) -> None:
        await one.commit(42)
        for version, asked in (
            (7, {"group_id": "g", "topics": None}),
            (8, {"groups": [{"group_id": "g", "topics": None}]}),
        ):
            answer = await one(ApiKey.OFFSET_FETCH, version, **asked)
            topics = (answer.groups[0] if version == 8 else answer).topics
            assert [(t.name, [p.committed_offset for p in t.partitions]) for t in topics] == [("orders", [42])]

    run_served(test)


def test_who_is_in_the_group_commits_in_its_generation_alone() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        assert await one.commit(1, **mine) == 0
        assert await one.commit(2, **(mine | {"generation_id_or_member_epoch": 9})) == ErrorCode.ILLEGAL_GENERATION
        assert await one.commit(2, **(mine | {"member_id": "x"})) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await one.commit(2) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await one.fetched() == (1, 0)

    run_served(test)


def test_whoever_commits_is_there() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        for number in range(3):
            one.timers.pass_ms(9_000)
            assert await one.commit(number, **mine) == 0

    run_served(test)


def test_a_member_of_a_group_that_is_not_there_is_told_so() -> None:
    async def test(one: Served) -> None:
        asked = {"member_id": "x", "generation_id_or_member_epoch": 1}
        assert await one.commit(1, version=9, **asked) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await one.commit(1, version=8, **asked) == ErrorCode.ILLEGAL_GENERATION

    run_served(test)


def test_what_cannot_be_committed_does_not_keep_the_rest_from_it() -> None:
    async def test(one: Served) -> None:
        partitions = [
            {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 4_096},
            {"partition_index": 1, "committed_offset": 1, "committed_metadata": "m" * 4_097},
        ]
        topics = [{"name": name, "partitions": partitions} for name in ("orders", "nowhere")]
        asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
        answer = await one(ApiKey.OFFSET_COMMIT, 8, **asked)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [[int(p.error_code) for p in t.partitions] for t in answer.topics] == [
            [0, ErrorCode.OFFSET_METADATA_TOO_LARGE],
            [unknown, unknown],
        ]
        assert await one.fetched() == (1, 0)

    run_served(test)


def test_the_offset_of_a_topic_that_was_made_anew_is_not_told() -> None:
    async def test(one: Served) -> None:
        shard = one.groups.partitions.shards[one.groups.partitions.partition_of("g")]
        await shard.write([(OffsetKey("g", "orders", 0), OffsetValue(42, topic_id=b"another topic's id"[:16]))])
        assert await one.fetched() == (-1, 0)

    run_served(test)


def test_a_commit_counts_once_it_is_on_the_disk_and_fails_with_it() -> None:
    fs = FailingFs(MemoryFs(), 5, lambda call: call.method == "sync" and call.path.suffix == ".log")

    async def test() -> None:
        async with served(policy=FlushPolicy.SYNC, fs=fs) as one:
            assert await one.commit(1) == 0
            fs.is_broken = True
            assert await one.commit(2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await one.fetched() == (1, 0)
            fs.is_broken = False

    run(test)


# ---- transactions


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("restarts", [(), ("open",), ("ended",), ("open", "ended")])
def test_what_a_transaction_commits_counts_when_it_does(restarts: tuple[str, ...], *, is_committed: bool) -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        assert await one.commit_in_transaction(2) == 0
        if "open" in restarts:
            await one.restart()
        assert await one.fetched() == (1, 0)
        assert await one.fetched(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await end_transaction(one, 7, ControlType.COMMIT if is_committed else ControlType.ABORT)
        one.groups.commits.end_transaction(home("g").partition, 7, 0, is_committed)
        if "ended" in restarts:
            await one.restart()
        assert await one.fetched(stable=True) == (2 if is_committed else 1, 0)

    run_served(test)


def test_a_commit_that_came_after_that_of_a_transaction_stays() -> None:
    async def test(one: Served) -> None:
        await one.commit_in_transaction(2)
        await one.commit(3)
        one.groups.commits.end_transaction(home("g").partition, 7, 0, committed=True)
        assert await one.fetched() == (3, 0)

    run_served(test)


def test_two_open_transactions_do_not_end_one_another() -> None:
    async def test(one: Served) -> None:
        await one.commit_in_transaction(2, producer=7)
        await one.commit_in_transaction(3, producer=8)
        one.groups.commits.end_transaction(home("g").partition, 8, 0, committed=True)
        assert await one.fetched() == (3, 0)
        assert (await one.fetched(stable=True))[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        one.groups.commits.end_transaction(home("g").partition, 7, 0, committed=False)
        assert await one.fetched(stable=True) == (3, 0)

    run_served(test)


def test_what_is_removed_while_a_transaction_is_open_does_not_come_back_with_it() -> None:
    async def test(one: Served) -> None:
        await one.commit_in_transaction(2)
        topics = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
        answer = await one(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert answer.topics[0].partitions[0].error_code == 0
        one.groups.commits.end_transaction(home("g").partition, 7, 0, committed=True)
        assert await one.fetched() == (-1, 0)
        await end_transaction(one, 7, ControlType.COMMIT)
        await one.restart()
        assert await one.fetched() == (-1, 0)

    run_served(test)


def test_a_transaction_that_is_not_open_commits_nothing() -> None:
    async def test(one: Served) -> None:
        asked: list[tuple[object, ...]] = []

        def verify(*of: object) -> ErrorCode:
            asked.append(of)
            return ErrorCode.INVALID_TXN_STATE

        one.groups.commits.verify = verify
        assert await one.commit_in_transaction(2) == ErrorCode.INVALID_TXN_STATE
        assert asked == [("t", 7, 0, home("g").partition)]
        assert one.written("g") == []

    run_served(test)


def test_in_a_transaction_a_member_of_the_group_must_be_of_its_generation() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        mine = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        partition = {"partition_index": 0, "committed_offset": 2}
        common = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 0, "group_id": "g"}
        topics = [{"name": "orders", "partitions": [partition]}]
        for more, error in ((mine, 0), (mine | {"generation_id": 9}, ErrorCode.ILLEGAL_GENERATION)):
            answer = await one(ApiKey.TXN_OFFSET_COMMIT, 3, **common, **more, topics=topics)
            assert answer.topics[0].partitions[0].error_code == error

    run_served(test)


# ---- members


def test_what_is_stored_of_a_group_is_what_a_broker_stores() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        empty, stable = one.written("g")
        assert empty == (GroupKey("g"), GroupValue(state_timestamp=NOW))
        assert stable[0] == GroupKey("g")
        value = stable[1]
        assert isinstance(value, GroupValue)
        assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
            "consumer", 1, "range", joined.member_id,
        )  # fmt: skip
        (member,) = value.members
        assert member[1:] == ("test", "/127.0.0.1", 10_000, 60_000, None, RANGE[0][1], b"all")

    run_served(test)


def test_after_a_restart_members_go_on_in_their_generation() -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        await one.restart()
        mine = {"group_id": "g", "member_id": joined.member_id, "generation_id": joined.generation_id}
        assert (await one(ApiKey.HEARTBEAT, 4, **mine)).error_code == 0
        one.timers.pass_ms(10_000)
        assert (await one(ApiKey.HEARTBEAT, 4, **mine)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await asyncio.sleep(0)
        value = one.written("g")[-1][1]
        assert isinstance(value, GroupValue)
        assert (value.generation, value.members) == (2, ())

    run_served(test)


def test_members_that_do_not_come_back_after_a_restart_are_out_after_their_sessions() -> None:
    async def test(one: Served) -> None:
        await one.member()
        await one.restart()
        one.timers.pass_ms(9_999)
        assert await one.listed() == [("g", "consumer", "Stable", "classic")]
        one.timers.pass_ms(1)
        assert await one.listed() == [("g", "consumer", "Empty", "classic")]

    run_served(test)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leaving_is_answered(version: int) -> None:
    async def test(one: Served) -> None:
        joined = await one.member()
        mine = {"member_id": joined.member_id, "members": [{"member_id": joined.member_id}]}
        answer = await one(ApiKey.LEAVE_GROUP, version, group_id="g", **mine)
        assert answer.error_code == 0
        again = await one(ApiKey.LEAVE_GROUP, version, group_id="g", **mine)
        error = again.members[0].error_code if version >= 3 else again.error_code
        assert error == ErrorCode.UNKNOWN_MEMBER_ID

    run_served(test)


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_joining_is_answered(version: int) -> None:
    async def test(one: Served) -> None:
        asked = {
            "group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name, data in RANGE],
        }  # fmt: skip
        if version >= 4:
            first = await one(ApiKey.JOIN_GROUP, version, **asked)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            asked["member_id"] = first.member_id
        waits = asyncio.ensure_future(one(ApiKey.JOIN_GROUP, version, **asked))
        await asyncio.sleep(0)
        one.timers.pass_ms(0)
        joined = await waits
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id == joined.members[0].member_id

    run_served(test)


@pytest.mark.parametrize(("session", "error"), [(999, 26), (1_000, 79), (1_800_000, 79), (1_800_001, 26)])
def test_sessions_have_bounds(session: int, error: int) -> None:
    async def test(one: Served) -> None:
        asked = {"group_id": "g", "session_timeout": session, "rebalance_timeout": 1, "protocol_type": "consumer"}
        protocols = [{"name": "range", "metadata": b""}]
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked, protocols=protocols)).error_code == error

    run_served(test)


def test_a_group_without_a_name_is_no_group() -> None:
    async def test(one: Served) -> None:
        for key, version in (
            (ApiKey.JOIN_GROUP, 9),
            (ApiKey.SYNC_GROUP, 5),
            (ApiKey.HEARTBEAT, 4),
            (ApiKey.LEAVE_GROUP, 5),
        ):
            answer = await one(key, version, group_id="")
            assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        assert await one.commit(1, group="") == 0  # as with a broker

    run_served(test)


def test_a_member_that_nobody_knows_cannot_begin_a_group() -> None:
    async def test(one: Served) -> None:
        asked = {"group_id": "g", "member_id": "x", "session_timeout": 10_000, "protocol_type": "consumer"}
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await one(ApiKey.HEARTBEAT, 4, group_id="g", member_id="x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await one(ApiKey.SYNC_GROUP, 5, group_id="g", member_id="x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run_served(test)
