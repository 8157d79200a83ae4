"""What members say of themselves takes bounded memory, and what a lost connection left goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.coordinating import Served, run_served
from support.group_world import RANGE, Room

from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.groups.classic.world import GroupSettings, GroupState
from server.groups.settings import CoordinatorSettings

KIB = 1024
SMALL = CoordinatorSettings(
    GroupSettings(0, min_session_timeout_ms=1_000, most_of_member=100 * KIB, most_of_members=300 * KIB)
)


def join(one: Served, metadata: bytes, **more: Any) -> asyncio.Future[Any]:
    """Return what comes of a request of version 3, which makes a member at once."""
    fields: dict[str, Any] = {
        "group_id": "g", "session_timeout": 1_800_000, "rebalance_timeout": 60_000, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}], **more,
    }  # fmt: skip
    return asyncio.ensure_future(one(ApiKey.JOIN_GROUP, 3, **fields))


async def joined(one: Served, metadata: bytes, **more: Any) -> Any:
    answer = join(one, metadata, **more)
    await asyncio.sleep(0)
    one.timers.pass_ms(0)
    return await answer


def test_a_member_that_says_too_much_is_refused_and_makes_no_group() -> None:
    async def test(one: Served) -> None:
        answer = await joined(one, bytes(100 * KIB))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert await one.listed() == []
        assert one.groups.partitions.kept.total == 0

    run_served(test, settings=SMALL)


def test_members_of_all_groups_have_one_bound_and_those_that_are_in_may_join_again() -> None:
    async def test(one: Served) -> None:
        first, *_ = [await joined(one, bytes(90 * KIB), group_id=f"g{number}") for number in range(3)]
        assert (await joined(one, bytes(90 * KIB), group_id="g3")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        again = await joined(one, bytes(90 * KIB), group_id="g0", member_id=first.member_id)
        assert (again.error_code, again.member_id) == (0, first.member_id)
        left = await one(ApiKey.LEAVE_GROUP, 0, group_id="g0", member_id=first.member_id)
        assert not left.error_code
        assert (await joined(one, bytes(90 * KIB), group_id="g3")).error_code == 0

    run_served(test, settings=SMALL)


def test_a_new_member_goes_with_the_connection_that_it_asked_on() -> None:
    async def test(one: Served) -> None:
        asked = [join(one, bytes(90 * KIB), client_id=f"c{number}") for number in range(3)]
        await asyncio.sleep(0)
        assert one.groups.partitions.kept.total > 3 * 90 * KIB
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        await asyncio.sleep(0)
        assert one.groups.partitions.kept.total == 0
        assert (await joined(one, bytes(90 * KIB))).error_code == 0

    run_served(test, settings=SMALL)


def test_a_member_of_a_generation_outlives_its_connection() -> None:
    room = Room()
    (one,) = room.stable("a")
    room.join(client_id="b")  # has an id and holds the rebalance up
    again = room.join(one.member_id)
    room.group.abandon(again)
    assert one.member_id in room.group.facts.roster.members
    assert not again.is_answered


def test_the_others_go_on_without_a_new_member_whose_connection_is_gone() -> None:
    room = Room()
    (one,) = room.stable("a")
    new = room.enter("b")
    assert room.group.facts.state is GroupState.PREPARING
    room.group.abandon(new)
    assert list(room.group.facts.roster.members) == [one.member_id]
    assert room.join(one.member_id).join.generation == 2


@pytest.mark.parametrize("ending", ["leave", "session", "die"])
def test_nothing_is_counted_once_all_members_are_gone(ending: str) -> None:
    room = Room()
    (one,) = room.stable("a")
    assert room.world.kept.total > len(RANGE[0][1])
    if ending == "leave":
        room.group.leave([(one.member_id, None)])
    elif ending == "session":
        room.world.pass_ms(10_000)
    else:
        room.group.die()
    assert room.world.kept.total == 0


def test_ids_that_were_given_and_a_static_member_that_came_back_are_counted_once() -> None:
    room = Room()
    room.join(client_id="x" * 30_000)
    assert room.world.kept.total > 30_000
    room.world.pass_ms(10_000)
    assert room.world.kept.total == 0
    room.join(instance_id="i")
    room.world.pass_ms(0)
    before = room.world.kept.total
    room.join(instance_id="i")
    assert room.world.kept.total == before
    room.group.die()
    assert room.world.kept.total == 0
