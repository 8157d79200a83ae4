"""What the log says of groups: while it is being read, when it cannot be read, and where it is only looked at."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.coordinating import QUICK, Served, end_transaction, home, run, run_served
from support.group_world import NOW, FakeTimers
from support.managers import SMALL
from support.serving import stored

from daemon.own.engine import NotServing
from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.groups.coordinator import Groups
from server.groups.format.records import OffsetKey, OffsetValue, encode_key
from server.groups.image import Image, read_image
from server.groups.partitions import OFFSETS_TOPIC
from server.groups.settings import CoordinatorSettings, settings_of_broker
from server.groups.shard import NotStored
from storage.base.errors import BatchCorrupt, ConfigInvalid
from storage.batch.control import ControlType
from storage.batch.record import Record, encode_batch
from storage.producers.producers import Origin

WEEK = 7 * 24 * 60 * 60 * 1000

# ---- reading the log


def test_while_a_partition_is_being_read_its_groups_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def slow(log: Any) -> Image:
        assert gate.wait(60)
        return read_image(log)

    async def test(one: Served) -> None:
        await one.commit(1)
        monkeypatch.setattr("server.groups.partitions.read_image", slow)
        one.groups = Groups(one.store, one.timers, QUICK)
        one.groups.start()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await one.fetched() == (-1, loading)
        assert await one.commit(2) == loading
        asked = {"group_id": "g", "session_timeout": 10_000, "protocol_type": "consumer"}
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked)).error_code == loading
        assert (await one(ApiKey.HEARTBEAT, 4, group_id="g", member_id="x")).error_code == 0
        assert (await one(ApiKey.LIST_GROUPS, 5)).error_code == loading
        answer = await one(ApiKey.OFFSET_FETCH, 1, group_id="g", topics=[{"name": "orders", "partition_indexes": [0]}])
        assert answer.topics[0].partitions[0].error_code == loading
        empty = next(g for g in map(str, range(99)) if home(g) != home("g"))
        assert await one.fetched(empty) == (-1, 0)
        await end_transaction(one, 7, ControlType.ABORT)
        gate.set()
        await one.groups.partitions.loaded()
        assert await one.fetched() == (1, 0)

    run_served(test)


def test_what_was_written_while_a_partition_was_read_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a transaction that the transaction coordinator finishes at the same time."""
    read, gate = threading.Event(), threading.Event()

    def slow(log: Any) -> Image:
        image = read_image(log)
        read.set()
        assert gate.wait(60)
        return image

    async def test(one: Served) -> None:
        await one.commit_in_transaction(2)
        monkeypatch.setattr("server.groups.partitions.read_image", slow)
        one.groups = Groups(one.store, one.timers, QUICK)
        one.groups.start()
        await asyncio.to_thread(read.wait, 60)
        await end_transaction(one, 7, ControlType.COMMIT)
        one.groups.commits.end_transaction(home("g").partition, 7, 0, committed=True)
        gate.set()
        await one.groups.partitions.loaded()
        assert await one.fetched(stable=True) == (2, 0)

    run_served(test)


def test_a_record_that_cannot_be_read_keeps_its_partition_from_being_answered_and_is_told() -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        nonsense = Record(0, NOW, key=encode_key(OffsetKey("g", "orders", 1)), value=b"\0\7")
        await one.store.append(home("g"), encode_batch([nonsense]), origin=Origin.COORDINATOR)
        one.groups.stop()
        one.groups, told = Groups(one.store, one.timers, QUICK), list[tuple[str, str]]()
        one.groups.partitions.report = lambda kind, reason: told.append((kind, reason))
        one.groups.start()
        await one.groups.partitions.loaded()
        assert await one.fetched() == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert [kind for kind, _ in told] == ["coordinator"]
        assert told[0][1].startswith(str(home("g")))
        assert "version 7" in one.groups.partitions.faults[home("g").partition]

    run_served(test)


def test_a_group_in_a_partition_that_is_not_its_own_tells_that_partitions_are_missing() -> None:
    async def test(one: Served) -> None:
        shard = one.groups.partitions.shards[one.groups.partitions.partition_of("g")]
        stranger = next(g for g in map(str, range(99)) if home(g) != home("g"))
        await shard.write([(OffsetKey(stranger, "orders", 0), OffsetValue(1))])
        await one.restart()
        assert await one.fetched() == (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert "does not belong here" in one.groups.partitions.faults[home("g").partition]

    run_served(test)


def test_the_log_is_read_batch_by_batch_with_compacted_and_aborted_ones() -> None:
    async def test(one: Served) -> None:
        for number in range(200):
            await one.commit(number, committed_metadata="m" * 4_000)
        image = read_image(one.store.log(home("g")))
        assert image.next_offset == 200
        value = image.offsets.get("g", ("orders", 0), None)
        assert value is not None
        assert value.offset == 199

    run_served(test)


def test_what_compaction_leaves_says_the_same() -> None:
    async def test() -> None:
        settings = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        async with stored() as (store, engine):
            await store.run(lambda manager: manager.topics.create(OFFSETS_TOPIC, 50, settings, NOW))
            one = Served(store, engine, QUICK)
            one.groups.start()
            await one.groups.partitions.loaded()
            for number in range(30):
                await one.commit(number)
                await one.commit_in_transaction(100 + number, producer=number)
                kind = ControlType.COMMIT if number % 3 else ControlType.ABORT
                await end_transaction(one, number, kind)
                one.groups.commits.end_transaction(home("g").partition, number, 0, committed=bool(number % 3))
            await one.commit_in_transaction(500, producer=99)
            told = await one.fetched(), await one.fetched(stable=True), await one.listed()
            assert told[:2] == ((129, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            before = len(one.written("g"))
            for passed in (0, 1, 2):
                assert await store.run(lambda manager, at=NOW + passed * WEEK: manager.compact(at)) == []
            assert len(one.written("g")) < before / 2
            await one.restart()
            assert (await one.fetched(), await one.fetched(stable=True), await one.listed()) == told
            one.groups.stop()

    run(test)


class Closing:
    """A log of which the file is closed `times` times when it is read."""

    def __init__(self, log: Any, times: int) -> None:
        self.log, self.left = log, times
        self.log_start, self.high_watermark = log.log_start, log.high_watermark

    def read(self, *arguments: Any, **more: Any) -> Any:
        found = self.log.read(*arguments, **more)
        self.left -= 1
        return found._replace(file=Closed()) if self.left >= 0 else found


class Closed:
    def read_into(self, position: int, target: memoryview) -> int:
        raise ValueError("seek of closed file")


def test_a_file_that_compaction_takes_away_is_looked_for_again() -> None:
    async def test(one: Served) -> None:
        await one.commit(1)
        log = one.store.log(home("g"))
        assert read_image(Closing(log, 3)).next_offset == 1  # type: ignore[arg-type]
        with pytest.raises(NotServing):
            read_image(Closing(log, 1_000))  # type: ignore[arg-type]

    run_served(test)


# ---- reading only


class Looked:
    """A store that is only looked at."""

    is_read_only = True

    def __init__(self, store: Any) -> None:
        self.topics, self.log = store.topics, store.log


def test_where_nothing_is_written_positions_and_groups_are_shown_and_everything_else_is_refused() -> None:
    async def test(one: Served) -> None:
        await one.member()
        await one.commit(1, "h")
        timers = FakeTimers()
        groups = Groups(Looked(one.store), timers, QUICK)
        groups.start()
        await groups.partitions.loaded()
        assert timers.waiting == 0
        writing, one.groups = one.groups, groups
        assert await one.fetched("h") == (1, 0)
        assert sorted(await one.listed()) == [("g", "consumer", "Stable", "classic"), ("h", "", "Empty", "classic")]
        (found,) = (await one(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])).groups
        assert [each.member_assignment for each in found.members] == [b"all"]
        assert not await groups.partitions.ensure_topic()
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        asked = {"group_id": "n", "session_timeout": 10_000, "protocol_type": "consumer"}
        assert (await one(ApiKey.JOIN_GROUP, 9, **asked)).error_code == refused
        assert (await one(ApiKey.HEARTBEAT, 4, group_id="g", member_id="x")).error_code == refused
        assert (await one(ApiKey.SYNC_GROUP, 5, group_id="g", member_id="x")).error_code == refused
        assert (await one(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": "x"}])).error_code == refused
        assert await one.commit(1, "h") == refused
        assert await one.delete("h") == [refused]
        groups.stop()
        one.groups = writing

    run_served(test)


def test_where_nothing_is_written_a_group_is_found_in_whatever_partition_it_is() -> None:
    async def test(one: Served) -> None:
        shard = one.groups.partitions.shards[one.groups.partitions.partition_of("g")]
        stranger = next(g for g in map(str, range(99)) if home(g) != home("g"))
        await shard.write([(OffsetKey(stranger, "orders", 0), OffsetValue(9))])
        groups = Groups(Looked(one.store), FakeTimers(), QUICK)
        groups.start()
        await groups.partitions.loaded()
        found = groups.commits.fetch(stranger, [("orders", 0)], is_stable=False)
        assert isinstance(found, list)
        assert [each.value and each.value.offset for each in found] == [9]
        groups.stop()

    run_served(test)


# ---- settings and the rest


def test_settings_are_a_brokers() -> None:
    assert settings_of_broker({}) == CoordinatorSettings()
    made = settings_of_broker({
        "group.initial.rebalance.delay.ms": "5", "group.min.session.timeout.ms": "6",
        "group.max.session.timeout.ms": "7", "group.max.size": "8",
        "offset.metadata.max.bytes": "9", "offsets.retention.minutes": "10",
        "offsets.retention.check.interval.ms": "11",
    })  # fmt: skip
    group = made.group
    assert (group.initial_rebalance_delay_ms, group.min_session_timeout_ms, group.max_session_timeout_ms) == (5, 6, 7)
    assert (group.max_size, made.metadata_max_size, made.retention_ms, made.check_interval_ms) == (8, 9, 600_000, 11)


@pytest.mark.parametrize(
    "properties",
    [{"group.max.size": "0"}, {"offsets.retention.minutes": "x"}, {"group.min.session.timeout.ms": "9999999"}],
)
def test_settings_that_make_no_sense_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid):
        settings_of_broker(properties)


def test_a_change_that_cannot_be_written_says_why() -> None:
    async def test(one: Served) -> None:
        shard = one.groups.partitions.shards[0]
        with pytest.raises(NotStored) as refused:
            await shard.write([(OffsetKey("g", "orders", 0), OffsetValue(1, metadata="m" * 2_000_000))])
        assert refused.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        one.engine.manager = None
        with pytest.raises(NotStored) as refused:
            await shard.write([(OffsetKey("g", "orders", 0), OffsetValue(1))])
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run_served(test)


def test_bytes_that_are_no_key_are_refused() -> None:
    with pytest.raises(BatchCorrupt):
        Image().take(Record(0, NOW, key=None, value=b""))
