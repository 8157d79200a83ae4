"""The store: what is answered when, what consumers see when, and what a failing disk does to those who wait."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Awaitable, Callable

import pytest
from support.managers import NOW, P0, A, B, FailingFs, batch, open_manager
from support.managers import values as recorded
from support.memory_fs import MemoryFs
from support.serving import TestEngine, stored
from support.wrapped_fs import Call, WrappedFs

from daemon.own.engine import NotServing
from engine.manager.manager import LogManager
from engine.settings.refusals import PartitionOffline, UnknownTopic
from server.store.flushing import FlushPolicy, FlushSettings
from server.store.jobs import Entry
from server.store.store import Store
from storage.base.errors import LogmendError
from storage.base.refusals import OutOfOrderSequence, RecordTooLarge
from storage.base.units import TopicPartition
from storage.batch.batch import split_batches
from storage.batch.record import records_of
from storage.log.log_types import Appended, Isolation

P1 = TopicPartition("orders", 1)
WAIT = 60


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(test(), WAIT)

    asyncio.run(within())


class HeldFs(WrappedFs):
    """Holds every sync of a `.log` while `gate` is closed; counts them."""

    def __init__(self) -> None:
        super().__init__(MemoryFs())
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        self.syncs = 0

    def _do(self, call: Call, action: Callable[[], object]) -> object:  # type: ignore[override]
        if call.method in ("sync", "sync_file") and call.path.suffix == ".log":
            self.syncs += 1
            self.reached.set()
            assert self.gate.wait(WAIT)
        return action()


def values(store: Store, name: TopicPartition = P0) -> list[bytes | None]:
    return [r.value for piece in store.batches(name) for each in split_batches(piece) for r in records_of(each)]


async def flushed(store: Store) -> None:
    while store.unsynced_bytes:
        store.log(P0)
        await asyncio.sleep(0.005)


def survivors(fs: MemoryFs) -> set[tuple[str, ...]]:
    """Return what may be left of the first partition if the power is cut now."""
    states, _ = fs.some_crash_states(50, random.Random(1))
    return {tuple(recorded(open_manager(state.to_fs(fs)))) for state in states}


async def wait_for_ever(store: Store) -> None:
    while True:
        store.log(P0)
        await asyncio.sleep(0.005)


async def elsewhere(call: Callable[[], object]) -> None:
    await asyncio.to_thread(call)


# ---- sync


def test_with_sync_nothing_is_answered_or_shown_before_it_is_on_the_disk() -> None:
    fs = HeldFs()

    async def test() -> None:
        async with stored(fs=fs) as (store, _):
            fs.gate.clear()
            fs.reached.clear()
            answer = store.append(P0, batch("a", "b"))
            await elsewhere(lambda: fs.reached.wait(WAIT))
            log = store.log(P0)
            assert (log.log_end, log.high_watermark, log.last_stable_offset) == (2, 0, 0)
            assert not answer.done()
            assert store.read(P0, 0, 1000).size == 0
            assert store.read(P0, 0, 1000, Isolation.COMMITTED).size == 0
            fs.gate.set()
            assert await answer == Appended(0, 1, NOW)
            assert (log.high_watermark, log.last_stable_offset) == (2, 2)
            assert values(store) == [b"a", b"b"]

    run(test)


def test_what_waits_while_a_sync_runs_is_made_durable_by_the_next_one_together() -> None:
    fs = HeldFs()

    async def test() -> None:
        async with stored(fs=fs) as (store, _):
            fs.gate.clear()
            fs.reached.clear()
            first = store.append(P0, batch("a"))
            await elsewhere(lambda: fs.reached.wait(WAIT))
            more = [store.append(P0, batch(str(n))) for n in range(100)]
            before = fs.syncs
            fs.gate.set()
            await first
            assert [(await each).first_offset for each in more] == list(range(1, 101))
            assert fs.syncs == before + 1

    run(test)


def test_a_batch_that_comes_again_while_the_first_waits_is_answered_when_that_is_durable() -> None:
    fs = HeldFs()
    sent = batch("a", producer_id=7, producer_epoch=0, base_sequence=0)

    async def test() -> None:
        async with stored(fs=fs) as (store, _):
            fs.gate.clear()
            fs.reached.clear()
            first = store.append(P0, sent)
            await elsewhere(lambda: fs.reached.wait(WAIT))
            again = store.append(P0, sent)
            await asyncio.sleep(0)
            assert not again.done()
            fs.gate.set()
            assert await first == Appended(0, 0, NOW)
            assert await again == Appended(0, 0, NOW, is_duplicate=True)
            assert values(store) == [b"a"]

    run(test)


def test_a_sync_that_fails_fails_all_who_wait_and_those_who_come_later() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method == "sync" and call.path.suffix == ".log")

    async def test() -> None:
        async with stored(fs=fs) as (store, _):
            await store.append(P0, batch("before"))
            fs.is_broken = True
            answers = await asyncio.gather(*(store.append(P0, batch("a")) for _ in range(3)), return_exceptions=True)
            assert all(isinstance(each, LogmendError) for each in answers), answers
            fs.is_broken = False
            with pytest.raises(PartitionOffline):
                await store.append(P1, batch("b"))
            with pytest.raises(PartitionOffline):
                store.log(P0)

    run(test)


def test_a_sync_that_fails_in_one_log_directory_leaves_the_others_alone() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method == "sync" and A in call.path.parents)

    async def test() -> None:
        async with stored(fs=fs, paths=(A, B)) as (store, engine):
            assert engine.manager is not None
            (lost,) = (p.name for d, p in engine.manager.partitions() if d.path == A)
            (kept,) = (p.name for d, p in engine.manager.partitions() if d.path == B)
            fs.is_broken = True
            made = store.append_all([Entry(lost, batch("a")), Entry(kept, batch("b")), Entry(lost, batch("c"))])
            assert isinstance(made, asyncio.Future)
            first, second, third = await made
            assert isinstance(first, LogmendError)
            assert isinstance(third, LogmendError)
            assert second == Appended(0, 0, NOW)
            assert values(store, kept) == [b"b"]

    run(test)


def test_with_sync_what_was_never_flushed_is_made_durable_before_anybody_can_see_it() -> None:
    fs = HeldFs()

    async def test() -> None:
        manager = open_manager(fs)
        manager.topics.create("orders", 1, {}, NOW)
        manager.append(P0, batch("a"), NOW)
        before = fs.syncs
        store = Store(TestEngine(manager), asyncio.get_running_loop(), lambda: NOW)
        store.start()
        assert fs.syncs == before + 1
        assert await asyncio.to_thread(store.stop)

    run(test)


# ---- none and interval


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.INTERVAL])
def test_without_sync_an_append_is_made_by_who_asks_and_seen_at_once(policy: FlushPolicy) -> None:
    async def test() -> None:
        async with stored(policy) as (store, _):
            await store.append(P0, batch("0"))
            made = store.append_all([Entry(P0, batch("a")), Entry(P0, batch("b", "c"))])
            assert made == [Appended(1, 1, NOW), Appended(2, 3, NOW)]
            assert values(store) == [b"0", b"a", b"b", b"c"]

    run(test)


@pytest.mark.parametrize("settings", [{"compression.type": "zstd"}, {"flush.messages": "1"}])
def test_an_append_for_which_more_is_to_be_done_is_left_to_the_appender(settings: dict[str, str]) -> None:
    async def test() -> None:
        async with stored(FlushPolicy.NONE) as (store, _):
            await store.run(lambda m: m.topics.alter("orders", NOW, settings=settings))
            await store.append(P0, batch("a"))
            made = store.append_all([Entry(P0, batch("b"))])
            assert isinstance(made, asyncio.Future)
            await made
            await store.run(lambda m: m.topics.alter("orders", NOW, unset=settings))
            await store.append(P0, batch("c"))
            assert isinstance(store.append_all([Entry(P0, batch("d"))]), list)
            assert values(store) == [b"a", b"b", b"c", b"d"]

    run(test)


def test_an_append_waits_in_line_while_somebody_has_the_engine_and_none_overtakes_it() -> None:
    async def test() -> None:
        async with stored(FlushPolicy.NONE) as (store, engine):
            has_turn, go_on = threading.Event(), threading.Event()

            def hold(_: LogManager) -> None:
                has_turn.set()
                assert go_on.wait(WAIT)

            holder = threading.Thread(target=lambda: engine.run(hold))
            holder.start()
            await elsewhere(lambda: has_turn.wait(WAIT))
            first = store.append_all([Entry(P0, batch("a"))])
            assert isinstance(first, asyncio.Future), "the loop does not wait for the turn"
            go_on.set()
            await elsewhere(holder.join)
            second = store.append_all([Entry(P0, batch("b"))])
            assert await first == [Appended(0, 0, NOW)]
            assert (second if isinstance(second, list) else await second) == [Appended(1, 1, NOW)]
            assert store.append_all([Entry(P0, batch("c"))]) == [Appended(2, 2, NOW)]

    run(test)


def test_who_asks_for_it_waits_for_the_disk_whatever_the_policy() -> None:
    fs = HeldFs()

    async def test() -> None:
        async with stored(FlushPolicy.NONE, fs=fs) as (store, _):
            fs.gate.clear()
            fs.reached.clear()
            answer = store.append(P0, batch("a"), wait_durable=True)
            await elsewhere(lambda: fs.reached.wait(WAIT))
            assert not answer.done()
            fs.gate.set()
            assert await answer == Appended(0, 0, NOW)

    run(test)


@pytest.mark.parametrize(
    "settings",
    [
        FlushSettings(FlushPolicy.INTERVAL, interval_ms=5),
        FlushSettings(FlushPolicy.INTERVAL, interval_ms=3_600_000, interval_bytes=100),
        FlushSettings(FlushPolicy.NONE, dirty_limit=400),
    ],
)
def test_what_is_due_is_brought_to_the_disk_while_appends_go_on(settings: FlushSettings) -> None:
    fs = MemoryFs()

    async def test() -> None:
        async with stored(flush=settings, fs=fs) as (store, _):
            await store.append(P0, batch("a"))
            assert () in survivors(fs) or not store.unsynced_bytes
            await store.append(P0, batch("b" * 100))
            await flushed(store)
            assert survivors(fs) == {("a", "b" * 100)}

    run(test)


def test_with_too_much_that_is_not_on_the_disk_appends_wait_for_it() -> None:
    fs = HeldFs()

    async def test() -> None:
        async with stored(flush=FlushSettings(FlushPolicy.NONE, dirty_limit=1000), fs=fs) as (store, _):
            await store.append(P0, batch("a"))
            fs.gate.clear()
            assert isinstance(store.append_all([Entry(P0, batch("x" * 1000))]), list)
            late = store.append_all([Entry(P0, batch("y"))])
            assert isinstance(late, asyncio.Future)
            await elsewhere(lambda: fs.reached.wait(WAIT))
            assert not late.done()
            fs.gate.set()
            assert await late == [Appended(2, 2, NOW)]

    run(test)


def test_a_write_back_that_fails_takes_the_log_directory_offline() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method == "sync_file" and call.path.suffix == ".log")

    async def test() -> None:
        settings = FlushSettings(FlushPolicy.INTERVAL, interval_ms=5)
        async with stored(flush=settings, fs=fs) as (store, _):
            fs.is_broken = True
            await store.append(P0, batch("a"))
            with pytest.raises(PartitionOffline):
                await wait_for_ever(store)

    run(test)


# ---- what is refused


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_each_batch_is_refused_for_itself(policy: FlushPolicy) -> None:
    def numbered(sequence: int) -> bytes:
        return batch("a", producer_id=7, producer_epoch=0, base_sequence=sequence)

    async def test() -> None:
        async with stored(policy) as (store, _):
            gone = TopicPartition("gone", 0)
            made = store.append_all([
                Entry(P0, numbered(0)), Entry(P0, numbered(5)), Entry(gone, batch("a")),
                Entry(P0, batch(b"x" * 2_000_000)), Entry(P0, batch("b")[:30]), Entry(P1, batch("b")),
            ])  # fmt: skip
            found = made if isinstance(made, list) else await made
            kinds = [type(each) for each in found]
            assert kinds[:4] == [Appended, OutOfOrderSequence, UnknownTopic, RecordTooLarge]
            assert issubclass(kinds[4], LogmendError)
            assert kinds[5] is Appended
            assert values(store) == [b"a"]

    run(test)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_a_full_disk_refuses_appends_and_takes_them_again_when_there_is_room(policy: FlushPolicy) -> None:
    fs = FailingFs(MemoryFs(), errno.ENOSPC, lambda call: call.method == "append" and call.path.suffix == ".log")

    async def test() -> None:
        async with stored(policy, fs=fs) as (store, _):
            told: list[tuple[str, str]] = []
            store._appender.report = lambda *what: told.append(what)
            fs.is_broken = True
            for _ in range(2):
                with pytest.raises(LogmendError, match="No space left"):
                    await store.append(P0, batch("a"))
            ((kind, reason),) = told
            assert (kind, "orders-0" in reason, "No space left" in reason) == ("full", True, True)
            fs.is_broken = False
            assert await store.append(P0, batch("b")) == Appended(0, 0, NOW)

    run(test)


@pytest.mark.parametrize("policy", [FlushPolicy.NONE, FlushPolicy.SYNC])
def test_while_the_logs_are_closed_everything_is_refused_and_goes_on_when_they_are_open(policy: FlushPolicy) -> None:
    async def test() -> None:
        async with stored(policy) as (store, engine):
            manager, engine.manager = engine.manager, None
            with pytest.raises(NotServing):
                await store.append(P0, batch("a"))
            with pytest.raises(NotServing):
                await store.run(lambda _: None)
            engine.manager = manager
            assert await store.append(P0, batch("a")) == Appended(0, 0, NOW)

    run(test)


def test_a_fault_of_ours_is_heard_by_all_who_wait_and_ends_the_store() -> None:
    async def test() -> None:
        async with stored() as (store, _):
            told: list[tuple[str, str]] = []
            store._appender.report = lambda *what: told.append(what)

            def fail(_: LogManager) -> None:
                raise AssertionError("planted")

            with pytest.raises(AssertionError):
                await store.run(fail)
            with pytest.raises(NotServing):
                await store.append(P0, batch("a"))
            assert told == [("fault", "store: AssertionError('planted')")]
            assert store.fault == "a fault of logmend itself: AssertionError: planted"

    run(test)


def test_what_was_asked_for_is_finished_before_the_end_and_nothing_taken_behind_it() -> None:
    async def test() -> None:
        async with stored() as (store, _):
            asked = [store.append(P0, batch(str(n))) for n in range(10)]
            assert await asyncio.to_thread(store.stop)
            assert [(await each).first_offset for each in asked] == list(range(10))
            with pytest.raises(NotServing):
                await store.append(P0, batch("late"))

    run(test)


# ---- looking


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_whoever_waits_for_a_partition_hears_when_there_is_more_to_see(policy: FlushPolicy) -> None:
    async def test() -> None:
        async with stored(policy) as (store, _):
            heard: list[int] = []
            end = store.on_append(P0, lambda: heard.append(store.log(P0).high_watermark))
            await store.append(P1, batch("other"))
            await asyncio.sleep(0)
            assert heard == []
            await store.append(P0, batch("a"))
            await asyncio.sleep(0)
            assert heard == [1]
            end()
            await store.append(P0, batch("b"))
            await asyncio.sleep(0)
            assert heard == [1]

    run(test)


def test_batches_come_whole_in_pieces_below_the_high_watermark() -> None:
    async def test() -> None:
        async with stored() as (store, _):
            sent = [batch(b"%d" % n + b"x" * 300_000) for n in range(10)] + [batch(b"y" * 900_000)]
            for each in sent:
                await store.append(P0, each)
            pieces = list(store.batches(P0))
            assert len(pieces) > 2
            assert all(len(piece) <= 1 << 20 for piece in pieces)
            assert [len(each) for piece in pieces for each in split_batches(piece)] == [len(each) for each in sent]
            assert [len(p) for p in store.batches(P0, 10)] == [len(sent[-1])]
            assert list(store.batches(P0, 11)) == []

    run(test)


def test_topics_are_a_picture_that_is_replaced_when_something_changes() -> None:
    async def test() -> None:
        async with stored() as (store, _):
            before = store.topics()
            assert list(before) == ["orders"]
            await store.run(lambda m: m.topics.create("more", 3, {"retention.ms": "5"}, NOW))
            after = store.topics()
            assert (list(before), list(after)) == (["orders"], ["more", "orders"])
            assert after["orders"] is before["orders"]
            assert (after["more"].partitions, after["more"].settings) == (3, {"retention.ms": "5"})
            await store.run(lambda m: m.topics.alter("more", NOW, partitions=4, unset=["retention.ms"]))
            assert (store.topics()["more"].partitions, store.topics()["more"].settings) == (4, {})
            await store.run(lambda m: m.topics.delete("more", NOW))
            assert list(store.topics()) == ["orders"]

    run(test)


def test_the_topics_of_coordinators_are_made_once_as_a_broker_makes_them() -> None:
    async def test() -> None:
        async with stored() as (store, _):
            found = await asyncio.gather(*(store.ensure_internal("__consumer_offsets") for _ in range(3)))
            assert found == [50, 50, 50]
            config = store.topics()["__consumer_offsets"].config
            assert (config.cleanup_policy, config.compression_type, config.segment_bytes) == (
                ("compact",), "producer", 104_857_600,
            )  # fmt: skip
            await store.run(lambda m: m.topics.create("__transaction_state", 3, {}, NOW))
            assert await store.ensure_internal("__transaction_state") == 3

    run(test)
