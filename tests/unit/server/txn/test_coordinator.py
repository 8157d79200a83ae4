"""The coordinator: what is logged before it counts, what waits, and what becomes of it when a disk says no."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import PurePath
from typing import Any

import pytest
from support.managers import NOW
from support.memory_fs import MemoryFs
from support.txn_sim import ORDERS, TIMEOUT_MS, Ledger, Machine, SimTimers, client, committed

from engine.settings.refusals import PartitionOffline, UnknownTopic
from server.api.errors import ErrorCode
from server.store.producer_ids import FIRST
from server.txn.records import State, encode_key, encode_value
from server.txn.transaction import Producer
from storage.base.errors import DiskFull, LogmendError
from storage.base.refusals import InvalidProducerEpoch
from storage.base.units import TopicPartition
from storage.batch.batch import TRANSACTIONAL_BIT
from storage.batch.record import Record, encode_batch
from storage.producers.producers import Origin

STATE = TopicPartition("__transaction_state", 0)
FULL = DiskFull("write", PurePath("/a"), OSError(28, "full"))


def on_a_machine(test: Callable[[Machine], Awaitable[None]], fs: MemoryFs | None = None, now_ms: int = NOW) -> None:
    """Run `test` with a machine that has started."""

    async def main() -> None:
        machine = Machine(fs or MemoryFs(), SimTimers(now_ms), random.Random(0), syncs=False)
        await machine.start()
        try:
            await test(machine)
        finally:
            await machine.end()

    asyncio.run(main())


async def told(machine: Machine, asked: Awaitable[Any]) -> Any:
    """Return the answer; appends are carried out meanwhile."""
    waiting = asyncio.ensure_future(asked)
    for _ in range(200):
        await machine.turn()
        if waiting.done():
            return waiting.result()
    raise AssertionError("no answer")


async def begun(machine: Machine, *names: TopicPartition, transactional_id: str = "t") -> Producer:
    """Return a producer with a record in each of these partitions."""
    transactions = machine.transactions
    me = await told(machine, transactions.init_producer_id(transactional_id, TIMEOUT_MS, None))
    assert await told(machine, transactions.add_partitions(transactional_id, me, names)) is ErrorCode.NONE
    for name in names:
        await told(machine, machine.store.append(name, batch(me)))
    return Producer(*me)


def batch(me: Producer, sequence: int = 0, value: bytes = b"v") -> bytes:
    record = Record(0, NOW, value=value)
    return encode_batch(
        [record], producer_id=me.id, producer_epoch=me.epoch, base_sequence=sequence, flags=TRANSACTIONAL_BIT
    )


def refuse(machine: Machine, fault: LogmendError | None, *names: TopicPartition) -> None:
    machine.store.refuses = lambda name: fault if name in names else None


def test_a_first_producer_gets_a_new_id_and_the_next_one_its_next_epoch() -> None:
    async def test(machine: Machine) -> None:
        asked = machine.transactions.init_producer_id
        assert await told(machine, asked("t", TIMEOUT_MS, None)) == (FIRST, 0)
        assert await told(machine, asked("t", TIMEOUT_MS, None)) == (FIRST, 1)
        assert await told(machine, asked("u", TIMEOUT_MS, None)) == (FIRST + 1, 0)

    on_a_machine(test)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1, ErrorCode.INVALID_REQUEST), ("x" * 32_768, 1, ErrorCode.INVALID_REQUEST),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT), ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(transactional_id: str, timeout_ms: int, code: ErrorCode) -> None:
    async def test(machine: Machine) -> None:
        assert await told(machine, machine.transactions.init_producer_id(transactional_id, timeout_ms, None)) is code

    on_a_machine(test)


def test_an_id_that_nobody_knows_is_that_of_no_producer() -> None:
    async def test(machine: Machine) -> None:
        transactions, me = machine.transactions, Producer(1, 0)
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await told(machine, transactions.add_partitions("t", me, ORDERS)) is unknown
        assert await told(machine, transactions.end("t", me, commits=True)) is unknown
        assert transactions.verify("t", 1, 0, ORDERS[0]) is unknown
        assert transactions.shards.get("t") is None

    on_a_machine(test)


def test_a_change_that_cannot_be_logged_does_not_happen() -> None:
    async def test(machine: Machine) -> None:
        transactions = machine.transactions
        me = await begun(machine, ORDERS[0])
        refuse(machine, FULL, STATE, STATE._replace(partition=1))
        for asked in (
            transactions.end("t", me, commits=True),
            transactions.add_partitions("t", me, ORDERS),
            transactions.init_producer_id("t", TIMEOUT_MS, None),
            transactions.init_producer_id("new", TIMEOUT_MS, None),
        ):
            assert await told(machine, asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert transactions.shards.get("new") is None
        refuse(machine, None)
        assert transactions.verify("t", *me, ORDERS[0]) is ErrorCode.NONE
        assert await told(machine, transactions.end("t", me, commits=True)) is ErrorCode.NONE
        assert committed(machine.manager, ORDERS[0]) == [b"v"]

    on_a_machine(test)


def test_the_end_is_answered_when_the_markers_are_in_the_log() -> None:
    async def test(machine: Machine) -> None:
        me = await begun(machine, *ORDERS)
        waiting = asyncio.ensure_future(machine.transactions.end("t", me, commits=True))
        await asyncio.sleep(0)
        while not waiting.done():
            assert sum(bool(committed(machine.manager, name)) for name in ORDERS) < 3 or machine.store.is_idle is False
            await machine.turn()
        assert all(committed(machine.manager, name) == [b"v"] for name in ORDERS)

    on_a_machine(test)


def test_who_comes_while_the_end_is_under_way_waits_for_it() -> None:
    async def test(machine: Machine) -> None:
        transactions, me = machine.transactions, await begun(machine, *ORDERS)
        ending = asyncio.ensure_future(transactions.end("t", me, commits=True))
        await machine.turn()
        next_one = asyncio.ensure_future(transactions.add_partitions("t", me, [ORDERS[1]]))
        again = asyncio.ensure_future(transactions.end("t", me, commits=True))
        assert await told(machine, ending) is ErrorCode.NONE
        assert await told(machine, next_one) is ErrorCode.NONE
        assert await told(machine, again) in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
        found = transactions.shards.get("t")
        assert not isinstance(found, ErrorCode)
        assert found is not None
        assert found.facts.partitions == {ORDERS[1]}

    on_a_machine(test)


def test_a_marker_that_cannot_be_written_is_tried_until_it_can_and_the_client_does_not_wait() -> None:
    async def test(machine: Machine) -> None:
        transactions, me = machine.transactions, await begun(machine, *ORDERS)
        refuse(machine, PartitionOffline(ORDERS[1], "gone"), ORDERS[1])
        assert await told(machine, transactions.end("t", me, commits=True)) is ErrorCode.NONE
        assert [committed(machine.manager, name) for name in ORDERS] == [[b"v"], [], [b"v"]]
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await told(machine, transactions.add_partitions("t", me, ORDERS)) is busy
        assert await told(machine, transactions.init_producer_id("t", TIMEOUT_MS, None)) is busy
        assert transactions.status()["ending"] == 1
        refuse(machine, None)
        await machine.settle()
        assert [committed(machine.manager, name) for name in ORDERS] == [[b"v"]] * 3
        assert await told(machine, transactions.init_producer_id("t", TIMEOUT_MS, None)) == (me.id, 1)

    on_a_machine(test)


@pytest.mark.parametrize("refusal", [UnknownTopic("orders", 1), InvalidProducerEpoch("a later epoch is known")])
def test_where_a_marker_would_end_nothing_none_is_needed(refusal: LogmendError) -> None:
    async def test(machine: Machine) -> None:
        me = await begun(machine, *ORDERS)
        refuse(machine, refusal, ORDERS[1])
        assert await told(machine, machine.transactions.end("t", me, commits=False)) is ErrorCode.NONE
        await machine.settle()
        assert machine.transactions.status()["ending"] == 0

    on_a_machine(test)


def test_a_client_that_hangs_up_does_not_stop_what_it_asked_for() -> None:
    async def test(machine: Machine) -> None:
        me = await begun(machine, *ORDERS)
        waiting = asyncio.ensure_future(machine.transactions.end("t", me, commits=True))
        await asyncio.sleep(0)
        waiting.cancel()
        await machine.settle()
        assert waiting.cancelled()
        assert all(committed(machine.manager, name) == [b"v"] for name in ORDERS)

    on_a_machine(test)


def test_who_waits_when_all_stops_is_told() -> None:
    async def test(machine: Machine) -> None:
        me = await begun(machine, ORDERS[0])
        waiting = asyncio.ensure_future(machine.transactions.end("t", me, commits=True))
        await asyncio.sleep(0)
        await machine.transactions.stop()
        assert await waiting is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await machine.transactions.end("t", me, commits=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    on_a_machine(test)


def test_ids_are_above_those_that_the_log_of_transactions_knows() -> None:
    fs = MemoryFs()

    async def first(machine: Machine) -> None:
        await begun(machine, ORDERS[0])

    async def second(machine: Machine) -> None:
        fs.remove(PurePath("/a/logmend-producer-ids.json"))
        machine.manager.topics.delete("orders", NOW)
        assert (await told(machine, machine.transactions.init_producer_id("u", TIMEOUT_MS, None))).id > FIRST

    on_a_machine(first, fs)
    on_a_machine(second, fs)


def test_a_silent_id_is_forgotten_by_a_tombstone_and_begins_anew() -> None:
    fs = MemoryFs()

    async def test(machine: Machine) -> None:
        me = await begun(machine, ORDERS[0])
        await told(machine, machine.transactions.end("t", me, commits=True))
        await machine.settle()
        machine.timers.advance(2 * 3_600_000)
        await machine.settle()
        assert machine.transactions.shards.get("t") is None

    async def later(machine: Machine) -> None:
        assert machine.transactions.shards.get("t") is None
        again = await told(machine, machine.transactions.init_producer_id("t", TIMEOUT_MS, None))
        assert again == (FIRST + 1_000, 0)

    on_a_machine(test, fs)
    on_a_machine(later, fs)


def put(machine: Machine, transactional_id: str, value: bytes | None, partition: int) -> None:
    record = Record(0, NOW, key=encode_key(transactional_id), value=value)
    place = STATE._replace(partition=partition)
    machine.manager.append(place, encode_batch([record]), NOW, origin=Origin.COORDINATOR)


def test_what_cannot_be_understood_is_not_answered_for_and_the_rest_is() -> None:
    fs = MemoryFs()

    async def spoil(machine: Machine) -> None:
        await begun(machine, ORDERS[0], transactional_id="t-1")  # of partition 0
        await begun(machine, ORDERS[1], transactional_id="t-2")  # of partition 1
        put(machine, "t-1", b"\0\7", 0)

    async def test(machine: Machine) -> None:
        transactions = machine.transactions
        assert transactions.shards.get("t-1") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = await told(machine, transactions.init_producer_id("t-1", TIMEOUT_MS, None))
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert transactions.verify("t-1", FIRST, 0, ORDERS[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        unavailable = transactions.status()["unavailable"]
        assert isinstance(unavailable, dict)
        assert "version 7" in unavailable["0"]
        assert await told(machine, transactions.init_producer_id("t-2", TIMEOUT_MS, None)) == (FIRST + 1, 2)

    on_a_machine(spoil, fs)
    on_a_machine(test, fs)


def test_where_partitions_are_missing_no_id_is_answered_for_wrongly() -> None:
    fs = MemoryFs()

    async def first(machine: Machine) -> None:
        await begun(machine, ORDERS[0], transactional_id="t-2")
        found = machine.transactions.shards.get("t-2")
        assert not isinstance(found, ErrorCode)
        assert found is not None
        put(machine, "t-2", encode_value(found.facts), 0)  # as if there had been more partitions once

    async def test(machine: Machine) -> None:
        unavailable = machine.transactions.status()["unavailable"]
        assert isinstance(unavailable, dict)
        assert "t-2" in unavailable["0"]

    on_a_machine(first, fs)
    on_a_machine(test, fs)


def test_a_decided_transaction_is_completed_at_the_next_start() -> None:
    fs = MemoryFs()

    async def first(machine: Machine) -> None:
        me = await begun(machine, *ORDERS)
        waiting = asyncio.ensure_future(machine.transactions.end("t", me, commits=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await machine.turn()  # the decision, and no marker
        found = machine.transactions.shards.get("t")
        assert not isinstance(found, ErrorCode)
        assert found is not None
        assert found.facts.state is State.PREPARE_COMMIT
        assert not waiting.done()
        assert not any(committed(machine.manager, name) for name in ORDERS)
        waiting.cancel()

    async def second(machine: Machine) -> None:
        await machine.settle()
        assert all(committed(machine.manager, name) == [b"v"] for name in ORDERS)

    on_a_machine(first, fs)
    on_a_machine(second, fs)


def test_until_all_is_read_everything_is_loading() -> None:
    async def main() -> None:
        machine = Machine(MemoryFs(), SimTimers(NOW), random.Random(0), syncs=False)
        transactions = machine.transactions
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert transactions.shards.is_loading
        assert transactions.shards.get("t") is loading
        assert transactions.verify("t", 1, 0, ORDERS[0]) is loading
        assert await transactions.init_producer_id("t", TIMEOUT_MS, None) is loading
        assert await transactions.end("t", Producer(1, 0), commits=True) is loading
        await machine.start()
        assert not transactions.shards.is_loading
        await machine.end()

    asyncio.run(main())


def test_a_marker_carries_no_higher_coordinator_epoch_than_a_broker_had_reached() -> None:
    async def test(machine: Machine) -> None:
        me = await begun(machine, ORDERS[0])
        await told(machine, machine.transactions.end("t", me, commits=True))
        log = machine.manager.log(ORDERS[0])
        assert log.producers.state.entries[me.id].coordinator_epoch == 0

    on_a_machine(test)


def test_transactions_of_many_ids_go_on_side_by_side() -> None:
    async def test(machine: Machine) -> None:
        ledger = Ledger()
        work = [asyncio.ensure_future(client(machine, ledger, f"id {number}", 3)) for number in range(20)]
        while not all(each.done() for each in work):
            await machine.turn(5)
        assert sum(txn.outcome == "committed" for txn in ledger.txns) > 5

    on_a_machine(test)
