"""Transactions: the coordinator of transactions by their first protocol.

Every change is in `__transaction_state` before it counts; every transaction that was decided gets its markers, over
restarts if need be, and is completed behind the last of them. Until then its id answers nothing else: who asks waits
for that, unless a partition is offline; then CONCURRENT_TRANSACTIONS tells the client to come again.

Protocol: `start` once, then anything, `stop` once. For the thread of the listener's loop. What a client asked for is
carried out to its end even if the client hangs up.
Source: Apache Kafka 4.3.0, TransactionCoordinator, TransactionStateManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from server.api.clock import Handle, Timers
from server.api.errors import ErrorCode
from server.txn.codes import coordinator_code, offsets_code
from server.txn.markers import write_markers
from server.txn.records import Facts, State, encode_key, encode_value
from server.txn.shards import Shards
from server.txn.transaction import Producer, Transaction, Wanted
from server.txn.world import OFFSETS_TOPIC, Ids, OffsetCommits, StateStore, TransactionSettings
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition
from storage.batch.record import Record, encode_batch
from storage.producers.producers import Origin

T = TypeVar("T")

_LONGEST_ID: Final = 2**15 - 1
"""Bytes: what the key of a record can hold."""


class _Ending:
    """A decided transaction on its way: `is_marked` once its markers are tried, `is_over` once it is completed, too.

    Both are done at the latest when something has to be tried again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_marked: asyncio.Future[None] = loop.create_future()
        self.is_over: asyncio.Future[None] = loop.create_future()

    def marked(self) -> None:
        if not self.is_marked.done():
            self.is_marked.set_result(None)

    def over(self) -> None:
        self.marked()
        if not self.is_over.done():
            self.is_over.set_result(None)


class Transactions:
    """See the module."""

    def __init__(
        self,
        store: StateStore,
        groups: OffsetCommits,
        producer_ids: Ids,
        timers: Timers,
        settings: TransactionSettings = TransactionSettings(),  # noqa: B008 (frozen)
    ) -> None:
        self._store, self._groups, self._ids, self._timers, self.settings = (
            store,
            groups,
            producer_ids,
            timers,
            settings,
        )
        self._shards = Shards(store)
        self._under_way: dict[str, Transaction] = {}
        self._endings: dict[str, _Ending] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._handles: dict[str, Handle] = {}
        self._is_stopped = False

    # ---- beginning and end

    def start(self) -> asyncio.Future[None]:
        """Begin to read what is there, in the running loop; the future is done when everything is answered for.

        From now on groups ask here whether offsets may be part of a transaction.
        """
        self._groups.verify = self._verify_offsets
        self._every("abort", self.settings.abort_interval_ms, self._abort_late_ones)
        self._every("expire", self.settings.expiration_interval_ms, self._forget_silent_ones)
        return self._spawn(self._load())

    async def stop(self) -> None:
        """Take nothing more, and let go; what is not finished is finished after the next start."""
        self._is_stopped = True
        for handle in self._handles.values():
            handle.cancel()
        for ending in self._endings.values():
            ending.over()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self) -> None:
        await self._shards.load()
        for transaction in self._shards:
            self._ids.note_seen(max(transaction.facts.producer_id, transaction.facts.next_producer_id))
            self._note(transaction)
            if transaction.facts.state.is_prepared:
                self._finish(transaction)

    def _every(self, what: str, interval_ms: int, work: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_stopped:
                work()
                self._handles[what] = self._timers.call_later(interval_ms, again)

        self._handles[what] = self._timers.call_later(interval_ms, again)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have something done to its end, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _to_its_end(self, work: Coroutine[Any, Any, T | ErrorCode]) -> T | ErrorCode:
        """Return what comes of `work`, which goes on if the client does not wait; who waits when all stops is told."""
        if self._is_stopped:
            work.close()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        task = self._spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is None or waiting.cancelling() or not task.cancelled():
                raise  # it is who waits that gives up
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    # ---- what clients ask for

    async def ensure_topic(self) -> ErrorCode:
        """See to it that there is a topic for the records; return what keeps it from being so."""
        if self._shards.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            await self._shards.create()
        except LogmendError as error:
            return coordinator_code(error)
        return ErrorCode.NONE

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, current: Producer | None
    ) -> Producer | ErrorCode:
        """Give a producer the next epoch of its id; what another one had under way is aborted first."""
        if not _is_legal(transactional_id):
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return await self._to_its_end(self._init(transactional_id, timeout_ms, current))

    async def _init(self, transactional_id: str, timeout_ms: int, current: Producer | None) -> Producer | ErrorCode:
        fault = self._shards.fault_of(transactional_id)
        if fault is not None:
            return fault
        try:
            await self._shards.create()
            transaction = await self._get_or_make(transactional_id, timeout_ms)
            new_id = await self._ids.draw() if transaction.is_exhausted else None
        except LogmendError as error:
            return coordinator_code(error)
        await self._until_over(transaction)
        if transaction.is_exhausted and new_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        wanted = transaction.init(timeout_ms, current, self._timers.now_ms(), new_id)
        code = await self._log(transaction, wanted)
        if code is not ErrorCode.NONE:
            if transaction.is_new and transaction.pending is None:
                self._shards.forget(transaction)
            return code
        assert isinstance(wanted, Facts), wanted
        if wanted.state is State.EMPTY:
            return Producer(wanted.producer_id, wanted.epoch)
        # The other one's transaction is aborted now; the epoch that fenced it off is nobody's, the next one is ours.
        await self._finish(transaction).is_over
        return await self._init(transactional_id, timeout_ms, current)

    async def _get_or_make(self, transactional_id: str, timeout_ms: int) -> Transaction:
        found = self._shards.get(transactional_id)
        if found is None:
            producer_id = await self._ids.draw()
            found = self._shards.get(transactional_id)  # somebody else may have made it meanwhile
            if found is None:
                found = Transaction.begin(transactional_id, producer_id, timeout_ms, self._timers.now_ms())
                self._shards.put(found)
        assert isinstance(found, Transaction), found
        return found

    async def add_partitions(
        self, transactional_id: str, producer: Producer, names: Collection[TopicPartition]
    ) -> ErrorCode:
        """Let partitions take part in a transaction, which the first of them begins."""
        return await self._to_its_end(self._add(transactional_id, producer, names))

    async def add_offsets(self, transactional_id: str, producer: Producer, group_id: str) -> ErrorCode:
        """Let the offsets of a group take part in a transaction."""
        if OFFSETS_TOPIC not in self._store.topics():
            try:
                await self._store.ensure_internal(OFFSETS_TOPIC)
            except LogmendError as error:
                return coordinator_code(error)
        name = TopicPartition(OFFSETS_TOPIC, self._groups.partition_of(group_id))
        return await self.add_partitions(transactional_id, producer, [name])

    async def _add(self, transactional_id: str, producer: Producer, names: Collection[TopicPartition]) -> ErrorCode:
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        await self._until_over(transaction)
        return await self._log(transaction, transaction.add_partitions(producer, names, self._timers.now_ms()))

    async def end(self, transactional_id: str, producer: Producer, *, commits: bool) -> ErrorCode:
        """Commit or abort a transaction; the answer comes when the markers are in the log, too."""
        return await self._to_its_end(self._end(transactional_id, producer, commits=commits))

    async def _end(self, transactional_id: str, producer: Producer, *, commits: bool) -> ErrorCode:
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        await self._until_over(transaction)
        wanted = transaction.end(producer, self._timers.now_ms(), commits=commits)
        code = await self._log(transaction, wanted)
        if code is ErrorCode.NONE and isinstance(wanted, Facts):
            await self._finish(transaction).is_marked
        return code

    def _known(self, transactional_id: str) -> Transaction | ErrorCode:
        if not _is_legal(transactional_id):
            return ErrorCode.INVALID_REQUEST
        found = self._shards.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if found is None else found

    def verify(self, transactional_id: str, producer_id: int, epoch: int, name: TopicPartition) -> ErrorCode:
        """Tell whether a producer's transactional batch may be appended to a partition now.

        Ask and append without awaiting anything in between: then no batch comes behind its marker. Answers are those of
        `Transaction.verify`; `produce_code` and `offsets_code` make of them what clients are told.
        """
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        return transaction.verify(Producer(producer_id, epoch), name)

    def _verify_offsets(self, transactional_id: str, producer_id: int, epoch: int, partition: int) -> ErrorCode:
        return offsets_code(self.verify(transactional_id, producer_id, epoch, TopicPartition(OFFSETS_TOPIC, partition)))

    # ---- what is there to see

    @property
    def is_loading(self) -> bool:
        """Whether not everything is read yet."""
        return self._shards.is_loading

    def get(self, transactional_id: str) -> Transaction | ErrorCode | None:
        """Return an id to look at, None for one that is not known, or why that cannot be said."""
        return self._shards.get(transactional_id)

    def all(self) -> Iterable[Transaction]:
        """Return the ids that are known."""
        return iter(self._shards)

    @property
    def faults(self) -> Mapping[int, str]:
        """Which partitions of the state are not answered for, and why."""
        return self._shards.faults

    def status(self) -> dict[str, object]:
        """Return what there is to show: counts, and which partitions are not answered for, with the reason."""
        return {
            "is_loading": self._shards.is_loading,
            "transactional_ids": sum(1 for _ in self._shards),
            "under_way": len(self._under_way),
            "ending": len(self._endings),
            "unavailable": {str(number): reason for number, reason in self._shards.faults.items()},
        }

    # ---- changes

    async def _log(self, transaction: Transaction, wanted: Wanted) -> ErrorCode:
        """Bring the pending facts into the log; they count if this returns NONE."""
        if isinstance(wanted, ErrorCode):
            return wanted
        tells = wanted.state is not State.DEAD
        key, value = encode_key(transaction.transactional_id), encode_value(wanted) if tells else None
        batch = encode_batch([Record(0, self._timers.now_ms(), key=key, value=value)])
        place = self._shards.place(transaction.transactional_id)
        try:
            await self._store.append(place, batch, origin=Origin.COORDINATOR)
        except LogmendError as error:
            transaction.give_up()
            return coordinator_code(error)
        transaction.settle()
        if tells:
            self._note(transaction)
        else:
            self._shards.forget(transaction)
        return ErrorCode.NONE

    def _note(self, transaction: Transaction) -> None:
        if transaction.facts.state is State.ONGOING:
            self._under_way[transaction.transactional_id] = transaction
        else:
            self._under_way.pop(transaction.transactional_id, None)

    # ---- the end of a transaction

    def _finish(self, transaction: Transaction) -> _Ending:
        """Begin to write the markers of a decided transaction, and to complete it."""
        ending = self._endings[transaction.transactional_id] = _Ending(asyncio.get_running_loop())
        self._spawn(self._carry_out(transaction, ending))
        return ending

    async def _until_over(self, transaction: Transaction) -> None:
        """Wait for the end that was begun, or until something has to be tried again."""
        ending = self._endings.get(transaction.transactional_id)
        if ending is not None:
            await ending.is_over

    async def _carry_out(self, transaction: Transaction, ending: _Ending) -> None:
        try:
            names = sorted(transaction.facts.partitions)
            while names := await self._mark(transaction.facts, names):
                ending.over()
                await self._pause()
            ending.marked()
            while await self._log(transaction, transaction.complete(self._timers.now_ms())) is not ErrorCode.NONE:
                ending.over()
                await self._pause()
            del self._endings[transaction.transactional_id]
        finally:  # nobody must wait for what will not come any more
            ending.over()

    async def _mark(self, facts: Facts, names: list[TopicPartition]) -> list[TopicPartition]:
        return await write_markers(self._store, self._groups, facts, names, self._timers.now_ms())

    async def _pause(self) -> None:
        is_over = asyncio.Event()
        handle = self._timers.call_later(self.settings.retry_ms, is_over.set)
        try:
            await is_over.wait()
        finally:
            handle.cancel()

    # ---- time

    def _abort_late_ones(self) -> None:
        now_ms = self._timers.now_ms()
        for transaction in tuple(self._under_way.values()):
            facts = transaction.time_out(now_ms)
            if facts is not None:
                self._spawn(self._abort(transaction, facts))

    async def _abort(self, transaction: Transaction, facts: Facts) -> None:
        if await self._log(transaction, facts) is ErrorCode.NONE:
            self._finish(transaction)

    def _forget_silent_ones(self) -> None:
        if not self._shards.is_loading:
            self._spawn(self._forget_each(tuple(self._shards)))

    async def _forget_each(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            facts = transaction.expire(self._timers.now_ms(), self.settings.id_expiration_ms)
            if facts is not None:
                await self._log(transaction, facts)


def _is_legal(transactional_id: str) -> bool:
    return 0 < len(transactional_id.encode("utf-8", "surrogateescape")) <= _LONGEST_ID
