"""A coordinator of groups over an engine in memory, asked as clients ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from support.group_world import NOW, RANGE, FakeTimers
from support.serving import TestEngine, stored
from support.wire_calls import INFO, answer_of

from server.api.versions import ApiKey
from server.groups.classic.world import GroupSettings
from server.groups.coordinator import Groups
from server.groups.format.records import Key, NewerKey, OffsetKey, decode_group, decode_key, decode_offset, partition_of
from server.groups.partitions import OFFSETS_TOPIC
from server.groups.settings import CoordinatorSettings
from server.handlers.coordination import groups as group_handlers
from server.handlers.coordination import offsets as offset_handlers
from server.handlers.parts import Parts
from server.store.flushing import FlushPolicy
from server.store.store import Store
from storage.base.units import TopicPartition
from storage.batch.batch import CONTROL_BIT, parse_header, split_batches
from storage.batch.control import ControlType, EndTxnMarker, encode_control_batch
from storage.batch.record import records_of
from storage.producers.producers import Origin

QUICK = CoordinatorSettings(GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1_000))
WAIT_SECONDS = 60


class Served:
    """A coordinator, its store, and clients' requests to it; versions are the newest unless said."""

    def __init__(self, store: Store, engine: TestEngine, settings: CoordinatorSettings) -> None:
        self.store, self.engine, self.settings = store, engine, settings
        self.timers = FakeTimers()
        store._appender.now_ms = self.timers.now_ms  # one clock for both
        self.groups = Groups(store, self.timers, settings)

    def __call__(self, api: ApiKey, version: int, /, **fields: object) -> Awaitable[Any]:
        parts = Parts(self.store, INFO, self.timers, self.groups)
        handlers = group_handlers.handlers(parts) | offset_handlers.handlers(parts)
        return answer_of(handlers, api, version, **fields)

    async def restart(self) -> None:
        """Go on with a new coordinator, which knows what the log says."""
        self.groups.stop()
        self.groups = Groups(self.store, self.timers, self.settings)
        self.groups.start()
        await self.groups.partitions.loaded()

    def written(self, group: str) -> list[tuple[Key, object]]:
        """Return what the log says of a group, record by record."""
        found: list[tuple[Key, object]] = []
        for number in range(50):
            for piece in self.store.batches(TopicPartition(OFFSETS_TOPIC, number)):
                for batch in split_batches(piece):
                    for record in () if parse_header(batch).attributes & CONTROL_BIT else records_of(batch):
                        key = decode_key(record.key)
                        if key.group == group:
                            found.append((key, _decoded(key, record.value)))
        return found

    async def member(self, group: str = "g", client: str = "c", **more: object) -> Any:
        """Have the one member of a group join and sync; return what it was told when it joined."""
        asked = {
            "group_id": group, "session_timeout": 10_000, "rebalance_timeout": 60_000, "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name, data in RANGE], "client_id": client, **more,
        }  # fmt: skip
        got = await self(ApiKey.JOIN_GROUP, 9, **asked)
        waits = asyncio.ensure_future(self(ApiKey.JOIN_GROUP, 9, **(asked | {"member_id": got.member_id})))
        await asyncio.sleep(0)
        self.timers.pass_ms(0)
        joined = await waits
        given = [{"member_id": joined.member_id, "assignment": b"all"}]
        of_it = {"group_id": group, "member_id": joined.member_id, "generation_id": joined.generation_id}
        synced = await self(ApiKey.SYNC_GROUP, 5, **of_it, protocol_name="range", assignments=given)
        assert synced.assignment == b"all"
        return joined

    async def commit(self, offset: int, group: str = "g", *, version: int = 9, **more: Any) -> int:
        """Commit an offset in orders-0; return the error."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 5}
        partition |= {key: more.pop(key) for key in ("committed_metadata",) if key in more}
        topics = [{"name": more.pop("topic", "orders"), "partitions": [partition]}]
        asked = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics, **more}
        answer = await self(ApiKey.OFFSET_COMMIT, version, **asked)
        return int(answer.topics[0].partitions[0].error_code)

    async def commit_in_transaction(self, offset: int, producer: int = 7, group: str = "g", **more: object) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        answer = await self(
            ApiKey.TXN_OFFSET_COMMIT, 3, transactional_id="t", group_id=group, producer_id=producer, producer_epoch=0,
            generation_id=-1, topics=[{"name": "orders", "partitions": [partition]}], **more,
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    async def fetched(self, group: str = "g", *, stable: bool = False) -> tuple[int, int]:
        """Return offset and error of orders-0."""
        topics = [{"name": "orders", "partition_indexes": [0]}]
        answer = await self(
            ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": topics}], require_stable=stable
        )
        (found,) = answer.groups
        if found.error_code:
            return -1, int(found.error_code)
        (partition,) = found.topics[0].partitions
        return partition.committed_offset, int(partition.error_code)

    async def listed(self, **filters: object) -> list[tuple[str, str, str, str]]:
        answer = await self(ApiKey.LIST_GROUPS, 5, **filters)
        assert not answer.error_code
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups]

    async def delete(self, *groups: str) -> list[int]:
        answer = await self(ApiKey.DELETE_GROUPS, 2, groups_names=groups)
        return [int(each.error_code) for each in answer.results]


def home(group: str) -> TopicPartition:
    """Return the partition of `__consumer_offsets` that a group is in."""
    return TopicPartition(OFFSETS_TOPIC, partition_of(group, 50))


async def end_transaction(one: Served, producer: int, kind: ControlType) -> None:
    """Write the end of a producer's transaction into the log of group `g`."""
    marker = encode_control_batch(
        [EndTxnMarker(kind, 0)], base_offset=0, timestamp=NOW, leader_epoch=0, producer_id=producer, producer_epoch=0
    )
    await one.store.append(home("g"), marker, origin=Origin.COORDINATOR)


def _decoded(key: Key, value: bytes | None) -> object:
    if value is None or isinstance(key, NewerKey):
        return value
    return decode_offset(value) if isinstance(key, OffsetKey) else decode_group(value)


@asynccontextmanager
async def served(
    settings: CoordinatorSettings = QUICK, *, policy: FlushPolicy = FlushPolicy.NONE, **more: Any
) -> AsyncIterator[Served]:
    """Give a coordinator whose topic is there."""
    async with stored(policy, **more) as (store, engine):
        one = Served(store, engine, settings)
        one.groups.start()
        assert not await one.groups.partitions.ensure_topic()
        await one.groups.partitions.loaded()
        try:
            yield one
        finally:
            one.groups.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test within a loop of its own."""

    async def within() -> None:
        await asyncio.wait_for(test(), WAIT_SECONDS)

    asyncio.run(within())


def run_served(test: Callable[[Served], Awaitable[None]], **more: Any) -> None:
    """Run a test with a coordinator."""

    async def within() -> None:
        async with served(**more) as one:
            await test(one)

    run(within)
