"""Transactions over a log engine in memory: clients, zombies, time and crashes in one seeded order, and what must hold.

`Machine` is one life of the listener: engine, groups, coordinator. `Ledger` notes what clients were told; `check` holds
it against the logs. Appends wait in one queue, as in the store, and are carried out when the schedule says so.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from support.managers import A, open_manager
from support.memory_fs import Crashed, MemoryFs

from engine.manager.manager import LogManager
from server.api.errors import ErrorCode
from server.groups.commits import Committer, Position
from server.groups.coordinator import Groups
from server.store.producer_ids import ProducerIds, reserve_block
from server.txn.coordinator import Transactions
from server.txn.transaction import Producer
from server.txn.world import TransactionSettings
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition
from storage.batch.batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header, split_batches
from storage.batch.control import ControlType, EndTxnMarker, decode_control
from storage.batch.record import Record, encode_batch, records_of
from storage.log.log_types import Isolation
from storage.producers.producers import Origin

TIMEOUT_MS = 60_000
ORDERS = [TopicPartition("orders", number) for number in range(3)]
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
SETTINGS = {"cleanup.policy": "compact"}


class SimTimers:
    """Timers whose time goes on when it is told to."""

    def __init__(self, now_ms: int) -> None:
        self._now, self._numbers = now_ms, itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()

    def now_ms(self) -> int:
        return self._now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        number = next(self._numbers)
        heapq.heappush(self._due, (self._now + delay_ms, number, callback))
        timers = self

        class Handle:
            def cancel(self) -> None:
                timers._cancelled.add(number)

        return Handle()

    def advance(self, ms: int) -> None:
        end = self._now + ms
        while self._due and self._due[0][0] <= end:
            self._now, number, callback = heapq.heappop(self._due)
            if number not in self._cancelled:
                callback()
        self._now = end


class SimStore:
    """The store's methods that coordinators use; appends are carried out by `tick`."""

    is_read_only = False

    def __init__(self, manager: LogManager, timers: SimTimers, *, syncs: bool) -> None:
        self._manager, self._timers, self._syncs = manager, timers, syncs
        self._queue: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        self.appends = 0
        self._last: int | None = None
        self.refuses: Callable[[TopicPartition], LogmendError | None] = lambda _name: None

    def append(self, name: TopicPartition, batch: Any, *, origin: Origin = Origin.CLIENT, **_more: Any) -> Any:
        def call() -> Any:
            fault = self.refuses(name)
            if fault is not None:
                raise fault
            if self._last is not None and self.appends >= self._last:
                raise Crashed
            self.appends += 1
            done = self._manager.append(name, batch, self._timers.now_ms(), origin=origin)
            if self._syncs:
                self._manager.flush(name, self._timers.now_ms())
            return done

        return self._ask(call)

    def dies_behind(self, appends: int) -> None:
        """Raise `Crashed` in place of the append behind so many more."""
        self._last = self.appends + appends

    def _ask(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._queue.append((future, call))
        return future

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def tick(self, count: int = 1) -> None:
        """Carry out so many of those that wait."""
        for future, call in self._queue[:count]:
            try:
                result = call()
            except LogmendError as error:
                future.set_exception(error)
            else:
                future.set_result(result)
        del self._queue[:count]

    def topics(self) -> Any:
        return {topic.name: topic for topic in self._manager.topics.all()}

    def log(self, name: TopicPartition) -> Any:
        return self._manager.log(name)

    def batches(self, name: TopicPartition, start: int = 0) -> Iterator[memoryview]:
        log = self._manager.log(name)
        while start < log.high_watermark:
            data = log.read(start, 1 << 20, isolation=Isolation.HIGH_WATERMARK).load()
            yield data
            for batch in split_batches(data):
                start = parse_header(batch).last_offset + 1

    def in_background(self, call: Callable[[], Any]) -> Any:
        return self._ask(call)

    async def ensure_internal(self, topic: str) -> int:
        def make() -> int:
            if topic not in self.topics():
                self._manager.topics.create(topic, 2, SETTINGS, self._timers.now_ms())
            return int(self._manager.topics.get(topic).partitions)

        return int(await self._ask(make))

    async def reserve(self, fs: MemoryFs, least: int) -> range:
        found: range = await self._ask(lambda: reserve_block(fs, self._manager, least))
        return found


@dataclass
class Txn:
    """What a client did in a transaction, and what it was told of its end."""

    transactional_id: str
    number: int
    values: dict[TopicPartition, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    unsure: set[bytes] = field(default_factory=set)
    """Sent, and maybe not heard of again."""
    offset: int | None = None
    outcome: str = "left open"  # or: commit asked, committed, aborted


class Ledger:
    """Every transaction of every client; survives crashes."""

    def __init__(self) -> None:
        self.txns: list[Txn] = []

    def begin(self, transactional_id: str) -> Txn:
        self.txns.append(Txn(transactional_id, len(self.txns) + 1))
        return self.txns[-1]


class Machine:
    """One life of the listener over `fs`."""

    def __init__(self, fs: MemoryFs, timers: SimTimers, rng: random.Random, *, syncs: bool) -> None:
        self.fs, self.timers, self.rng = fs, timers, rng
        self.manager = open_manager(fs, now_ms=timers.now_ms())
        if "orders" not in {topic.name for topic in self.manager.topics.all()}:
            self.manager.topics.create("orders", len(ORDERS), {}, timers.now_ms())
        self.store = SimStore(self.manager, timers, syncs=syncs)
        self.groups = Groups(self.store, timers)
        ids = ProducerIds(lambda least: self.store.reserve(fs, least))
        self.transactions = Transactions(
            self.store, self.groups.commits, ids, timers, TransactionSettings(id_expiration_ms=40 * TIMEOUT_MS)
        )
        self.tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        self.groups.start()
        loading = self.transactions.start()
        while not loading.done():
            await self.turn()
        await self.groups.partitions.loaded()

    async def turn(self, count: int = 1) -> None:
        """Carry out appends that wait, and let everybody who was answered go on."""
        self.store.tick(count)
        for _ in range(12):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Go on until nobody has anything to do any more; transactions that were left open time out."""
        for _ in range(400):
            await self.turn(1000)
            status = self.transactions.status()
            if self.store.is_idle and not status["ending"] and not status["under_way"]:
                return
            self.timers.advance(5_000)
        raise AssertionError(f"it does not come to rest: {self.transactions.status()}")

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.groups.stop()
        await self.transactions.stop()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def pause(machine: Machine) -> None:
    """Let others go first."""
    for _ in range(machine.rng.randrange(4)):
        await asyncio.sleep(0)


async def persist(machine: Machine, ask: Callable[[], Any]) -> Any:
    """Ask until the answer is one that a client does not try again after."""
    while (answer := await ask()) in AGAIN:
        await asyncio.sleep(0)
    return answer


async def client(machine: Machine, ledger: Ledger, transactional_id: str, rounds: int) -> None:
    """Run transactions, each ended one way or the other or not at all, until one is refused."""
    rng, transactions = machine.rng, machine.transactions
    me = await persist(machine, lambda: transactions.init_producer_id(transactional_id, TIMEOUT_MS, None))
    if not isinstance(me, Producer):
        return
    sequences: dict[TopicPartition, int] = defaultdict(int)
    for _ in range(rounds):
        txn = ledger.begin(transactional_id)
        if not await fill(machine, txn, me, sequences):
            return
        await pause(machine)
        commits = rng.random() < 0.6
        if rng.random() < 0.1:
            return
        if commits:
            txn.outcome = "commit asked"
        late = [late_batch(machine, txn, me, sequences) for _ in range(rng.randrange(3))]
        asked = persist(machine, lambda commits=commits: transactions.end(transactional_id, me, commits=commits))
        code, *_ = await asyncio.gather(asked, *late)
        txn.outcome = "committed" if commits and code is ErrorCode.NONE else "aborted"
        if code is not ErrorCode.NONE:
            return


async def late_batch(machine: Machine, txn: Txn, me: Producer, sequences: dict[TopicPartition, int]) -> None:
    """Send once more while the end is under way, or over; it belongs to the transaction, or is refused."""
    for _ in range(machine.rng.randrange(60)):
        await asyncio.sleep(0)
    await produce(machine, txn, me, machine.rng.choice(ORDERS), sequences)


async def fill(machine: Machine, txn: Txn, me: Producer, sequences: dict[TopicPartition, int]) -> bool:
    """Write into some partitions, and commit an offset maybe; tell whether all of it was taken."""
    rng, transactions = machine.rng, machine.transactions
    for name in rng.sample(ORDERS, rng.randint(1, 3)):
        code = await persist(machine, lambda name=name: transactions.add_partitions(txn.transactional_id, me, [name]))
        if code is not ErrorCode.NONE:
            return False
        for _ in range(rng.randint(0, 2)):
            await pause(machine)
            if not await produce(machine, txn, me, name, sequences):
                return False
    return rng.random() < 0.6 or await commit_offset(machine, txn, me)


async def produce(
    machine: Machine, txn: Txn, me: Producer, name: TopicPartition, sequences: dict[TopicPartition, int]
) -> bool:
    if machine.transactions.verify(txn.transactional_id, me.id, me.epoch, name) is not ErrorCode.NONE:
        return False
    value = b"%s %d %d %d" % (txn.transactional_id.encode(), txn.number, name.partition, sequences[name])
    txn.unsure.add(value)
    batch = encode_batch(
        [Record(0, machine.timers.now_ms(), value=value)],
        producer_id=me.id, producer_epoch=me.epoch, base_sequence=sequences[name], flags=TRANSACTIONAL_BIT,
    )  # fmt: skip
    try:
        await machine.store.append(name, batch)
    except LogmendError:
        txn.unsure.discard(value)
        return False
    sequences[name] += 1
    txn.unsure.discard(value)
    txn.values[name].append(value)
    return True


async def commit_offset(machine: Machine, txn: Txn, me: Producer) -> bool:
    group = txn.transactional_id
    code = await persist(machine, machine.groups.partitions.ensure_topic)
    code = code or await persist(machine, lambda: machine.transactions.add_offsets(txn.transactional_id, me, group))
    if code is not ErrorCode.NONE:
        return False

    async def commit() -> ErrorCode:
        (answer,) = await machine.groups.commits.commit_in_transaction(
            txn.transactional_id, me, Committer(group), [Position(("orders", 0), txn.number)]
        )
        return answer

    if await persist(machine, commit) is not ErrorCode.NONE:
        return False
    txn.offset = txn.number
    return True


# ---- what must hold


def committed(manager: LogManager, name: TopicPartition) -> list[bytes]:
    """Return what the log says is committed: by its markers, batch by batch."""
    log, found, offset = manager.log(name), [], 0
    open_: dict[int, list[bytes]] = defaultdict(list)
    while offset < log.high_watermark:
        for batch in split_batches(log.read(offset, 1 << 20).load()):
            header = parse_header(batch)
            offset = header.last_offset + 1
            if not header.attributes & CONTROL_BIT:
                open_[header.producer_id] += [record.value or b"" for record in records_of(batch)]
                continue
            (record,) = records_of(batch)
            marker = decode_control(record.key, record.value)
            assert isinstance(marker, EndTxnMarker)
            values = open_.pop(header.producer_id, [])
            found += values if marker.type is ControlType.COMMIT else []
    return found


def check_ledger(machine: Machine, ledger: Ledger) -> None:
    """Hold what clients were told against the logs; all transactions are over by now."""
    there: set[bytes] = set()
    for name in ORDERS:
        log = machine.manager.log(name)
        assert log.last_stable_offset == log.high_watermark == log.log_end, f"{name} hangs"
        values = committed(machine.manager, name)
        assert len(values) == len(set(values)), "a record is there twice"
        there |= set(values)
    last_offset: dict[str, int] = {}
    for txn in ledger.txns:
        mine = {value for values in txn.values.values() for value in values}
        seen = mine & there
        assert seen in (set(), mine), f"half of {txn} is there"
        if txn.outcome == "committed":
            assert seen == mine, f"{txn} is lost"
        elif txn.outcome != "commit asked":
            assert not seen, f"{txn} is there"
        if txn.offset is not None and (txn.outcome == "committed" or (txn.outcome == "commit asked" and seen)):
            last_offset[txn.transactional_id] = txn.offset
        if txn.outcome in ("committed", "commit asked"):
            there -= txn.unsure
        there -= mine
    assert not there, f"nobody sent {there}"
    check_offsets(machine, ledger, last_offset)


def check_offsets(machine: Machine, ledger: Ledger, expected: dict[str, int]) -> None:
    unsure = {txn.offset for txn in ledger.txns if txn.outcome == "commit asked" and not any(txn.values.values())}
    for transactional_id in {txn.transactional_id for txn in ledger.txns}:
        found = machine.groups.commits.fetch(transactional_id, [("orders", 0)], is_stable=True)
        if isinstance(found, ErrorCode):
            assert not machine.groups.partitions.shards, found
            continue
        assert found[0].error is ErrorCode.NONE, "an offset waits for a transaction"
        offset = None if found[0].value is None else found[0].value.offset
        assert offset == expected.get(transactional_id) or offset in unsure, (transactional_id, offset, expected)


async def live(
    fs: MemoryFs, timers: SimTimers, rng: random.Random, ledger: Ledger, *, steps: int, syncs: bool
) -> MemoryFs | None:
    """Live one life; return None if it came to its steps, alive or killed there, or raise `Crashed` in a power cut."""
    machine = Machine(fs, timers, rng, syncs=syncs)
    await machine.start()
    try:
        for _ in range(steps):
            draw = rng.random()
            if draw < 0.15:
                work = client(machine, ledger, f"t{rng.randrange(3)}", rng.randint(1, 6))
                machine.tasks.append(asyncio.get_running_loop().create_task(work))
            elif draw < 0.2:
                timers.advance(rng.randrange(TIMEOUT_MS // 2))
            await machine.turn(rng.randint(1, 4))
        for task in machine.tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
    finally:
        await machine.end()
    return None


async def rest_and_check(fs: MemoryFs, timers: SimTimers, rng: random.Random, ledger: Ledger, *, syncs: bool) -> None:
    """Start once more, come to rest, and see whether all is as it was told."""
    machine = Machine(fs, timers, rng, syncs=syncs)
    try:
        await machine.start()
        await machine.settle()
        check_ledger(machine, ledger)
    finally:
        await machine.end()


__all__ = ["A", "Crashed", "Ledger", "Machine", "MemoryFs", "SimStore", "SimTimers", "live", "rest_and_check"]
