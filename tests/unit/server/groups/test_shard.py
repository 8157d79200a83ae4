"""Groups of newer protocols beside ours, in one partition."""

from __future__ import annotations

from support.coordinating import Served, home, run_served
from support.group_world import NOW

from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.groups.format.records import NewerKey
from storage.batch.record import Record, encode_batch
from storage.producers.producers import Origin

WEEK = 7 * 24 * 60 * 60 * 1000


MEMBER = NewerKey(5, "g", bytes.fromhex("0005 0001 67 0001 6d"))
ITSELF = NewerKey(3, "g", bytes.fromhex("0003 0001 67"))
SHARE = NewerKey(11, "g", bytes.fromhex("000b 0001 67"))


async def with_newer(one: Served, *keys: NewerKey) -> None:
    records = [Record(n, NOW, key=key.raw, value=b"\0\0\0\0\0\1\0") for n, key in enumerate(keys)]
    await one.store.append(home("g"), encode_batch(records), origin=Origin.COORDINATOR)
    await one.restart()


def test_a_group_of_the_consumer_protocol_is_shown_and_nobody_joins_it_while_it_may_have_members() -> None:
    async def test(one: Served) -> None:
        await with_newer(one, ITSELF, MEMBER)
        assert await one.listed() == [("g", "consumer", "Stable", "consumer")]
        asked = {"group_id": "g", "session_timeout": 10_000, "protocol_type": "consumer"}
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await one.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await one.delete("g") == [ErrorCode.NON_EMPTY_GROUP]

    run_served(test)


def test_once_its_members_must_be_gone_a_classic_group_takes_its_place_and_keeps_its_offsets() -> None:
    async def test(one: Served) -> None:
        await one.commit(5)
        await with_newer(one, ITSELF, MEMBER)
        one.timers.pass_ms(45_000)
        joined = await one.member()
        assert joined.generation_id == 1
        assert await one.fetched() == (5, 0)
        gone = [key for key, value in one.written("g") if isinstance(key, NewerKey) and value is None]
        assert gone == [MEMBER, ITSELF]
        await one.restart()
        assert await one.listed() == [("g", "consumer", "Stable", "classic")]

    run_served(test)


def test_a_share_group_is_never_replaced() -> None:
    async def test(one: Served) -> None:
        await with_newer(one, SHARE)
        one.timers.pass_ms(WEEK)
        assert await one.listed() == [("g", "share", "Empty", "share")]
        asked = {"group_id": "g", "session_timeout": 10_000, "protocol_type": "consumer"}
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run_served(test)
