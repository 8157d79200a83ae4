"""Offsets that nobody uses any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from support.coordinating import QUICK, Served, run_served
from support.group_world import NOW

from server.api.versions import ApiKey
from server.groups.format.records import GroupKey, OffsetKey, OffsetValue

DAY = 24 * 60 * 60 * 1000
WEEK = 7 * DAY


KEEPS = replace(QUICK, retention_ms=DAY, check_interval_ms=60_000)


async def later(one: Served, passed: int) -> None:
    one.timers.pass_ms(passed)
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_nobody_has_committed_for_long_goes_with_its_group() -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        await later(one, DAY - 60_000)
        assert await one.fetched() == (1, 0)
        await later(one, 60_000)
        assert await one.fetched() == (-1, 0)
        assert one.written("g")[-2:] == [(OffsetKey("g", "orders", 0), None), (GroupKey("g"), None)]
        await one.restart()
        assert await one.listed() == []

    run_served(test, settings=KEEPS)


def test_while_consumers_read_a_topic_their_offsets_stay() -> None:
    async def test(one: Served) -> None:
        joined = await one.member(session_timeout=1_800_000)
        mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        await one.commit(1, **mine)
        for _ in range(150):
            await later(one, 1_000_000)
            beat = {"group_id": "g", "member_id": joined.member_id, "generation_id": joined.generation_id}
            assert (await one(ApiKey.HEARTBEAT, 4, **beat)).error_code == 0
        assert await one.fetched() == (1, 0)
        await one(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": joined.member_id}])
        await later(one, DAY - 60_000)
        assert await one.fetched() == (1, 0)
        await later(one, 120_000)
        assert await one.fetched() == (-1, 0)

    run_served(test, settings=KEEPS)


def test_a_group_without_offsets_stays_while_it_has_members_and_no_longer() -> None:
    async def test(one: Served) -> None:
        joined = await one.member(session_timeout=1_800_000)
        await later(one, 120_000)
        assert await one.listed() == [("g", "consumer", "Stable", "classic")]
        await one(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": joined.member_id}])
        await later(one, 60_000)
        assert await one.listed() == []

    run_served(test, settings=KEEPS)


def test_an_old_client_may_say_how_long_an_offset_is_kept() -> None:
    async def test(one: Served) -> None:
        assert await one.commit(1, version=4, retention_time=600_000) == 0
        ((_, value),) = one.written("g")
        assert isinstance(value, OffsetValue)
        assert value.expire_timestamp == NOW + 600_000
        await one.restart()
        await later(one, 540_000)
        assert await one.fetched() == (1, 0)
        await later(one, 60_000)
        assert await one.fetched() == (-1, 0)

    run_served(test, settings=KEEPS)


def test_what_an_open_transaction_may_change_stays() -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        await one.commit_in_transaction(2)
        await later(one, WEEK)
        assert await one.fetched() == (1, 0)

    run_served(test, settings=KEEPS)
