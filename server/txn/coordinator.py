"""Transactions: the coordinator of transactions by their first protocol.

Every change is in `__transaction_state` before it counts; every transaction that was decided gets its markers, also
after a restart, and is completed after the last of them. Until then other
requests of its id wait, unless a partition is offline; then CONCURRENT_TRANSACTIONS makes the client try again.

Protocol: `start` once, then anything, `stop` once. For the thread of the listener's loop. A request is
carried out to its end even if the client disconnects.
Source: Apache Kafka 4.3.0, TransactionCoordinator, TransactionStateManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.txn.codes import coordinator_code, offsets_code
from server.txn.endings import Endings
from server.txn.expiry import Expiry
from server.txn.records import Facts, State
from server.txn.shards import Shards
from server.txn.tasks import Tasks
from server.txn.transaction import Producer, Transaction, Wanted
from server.txn.world import OFFSETS_TOPIC, Ids, OffsetCommits, StateStore, TransactionSettings
from storage.base.errors import LogmendError
from storage.base.units import TopicPartition

_LONGEST_ID: Final = 2**15 - 1
"""Bytes: what the key of a record can hold."""


class Transactions:
    """Requests of producers, over `shards` for what is known of each id."""

    def __init__(
        self,
        store: StateStore,
        commits: OffsetCommits,
        producer_ids: Ids,
        timers: Timers,
        settings: TransactionSettings = TransactionSettings(),  # noqa: B008 (frozen)
    ) -> None:
        self._store, self._commits, self._ids = store, commits, producer_ids
        self._timers, self.settings = timers, settings
        self.shards = Shards(store)
        self._tasks = Tasks(timers)
        self._endings = Endings(store, commits, self.shards, self._tasks, timers, settings.retry_ms)
        self._expiry = Expiry(self.shards, self._endings, self._tasks, timers, settings)

    # ---- beginning and end

    def start(self) -> asyncio.Future[None]:
        """Begin to read the ids, in the running loop; the future is done once all are read.

        From now on `commits` asks here whether offsets may be part of a transaction.
        """
        self._commits.verify = self._verify_offsets
        self._expiry.start()
        return self._tasks.spawn(self._load())

    async def stop(self) -> None:
        """Take no more requests and end; open ends of transactions go on after the next start."""
        self._tasks.begin_stop()
        self._endings.stop()
        await self._tasks.stop()

    async def _load(self) -> None:
        await self.shards.load()
        for transaction in self.shards:
            self._ids.note_seen(max(transaction.facts.producer_id, transaction.facts.next_producer_id))
            if transaction.facts.state.is_prepared:
                self._endings.begin(transaction)

    # ---- requests

    async def ensure_topic(self) -> ErrorCode:
        """Create `__transaction_state` if it is missing; return why that failed, or NONE."""
        if self.shards.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            await self.shards.create()
        except LogmendError as error:
            return coordinator_code(error)
        return ErrorCode.NONE

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, current: Producer | None
    ) -> Producer | ErrorCode:
        """Return the next epoch of an id; an open transaction of its former producer is aborted first."""
        if not _is_legal(transactional_id):
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return await self._tasks.finish(self._init(transactional_id, timeout_ms, current))

    async def _init(self, transactional_id: str, timeout_ms: int, current: Producer | None) -> Producer | ErrorCode:
        fault = self.shards.fault_of(transactional_id)
        if fault is not None:
            return fault
        try:
            await self.shards.create()
            transaction = await self._get_or_make(transactional_id, timeout_ms)
            new_id = await self._ids.draw() if transaction.is_exhausted else None
        except LogmendError as error:
            return coordinator_code(error)
        await self._endings.wait_for(transaction)
        if transaction.is_exhausted and new_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        outcome = transaction.init(timeout_ms, current, self._timers.now_ms(), new_id)
        code = await self._write(transaction, outcome)
        if code is not ErrorCode.NONE:
            if transaction.is_new and transaction.pending is None:
                self.shards.forget(transaction)
            return code
        assert isinstance(outcome, Facts), outcome
        if outcome.state is State.EMPTY:
            return Producer(outcome.producer_id, outcome.epoch)
        # The former transaction is aborted now. Its producer was fenced with an epoch of its own; the next one is ours.
        await self._endings.begin(transaction).is_over
        return await self._init(transactional_id, timeout_ms, current)

    async def _get_or_make(self, transactional_id: str, timeout_ms: int) -> Transaction:
        transaction = self.shards.get(transactional_id)
        if transaction is None:
            producer_id = await self._ids.draw()
            transaction = self.shards.get(transactional_id)  # another request may have made it meanwhile
            if transaction is None:
                transaction = Transaction.begin(transactional_id, producer_id, timeout_ms, self._timers.now_ms())
                self.shards.put(transaction)
        assert isinstance(transaction, Transaction), transaction
        return transaction

    async def add_partitions(
        self, transactional_id: str, producer: Producer, names: Collection[TopicPartition]
    ) -> ErrorCode:
        """Add partitions to a transaction, which the first of them begins."""
        return await self._tasks.finish(self._add(transactional_id, producer, names))

    async def add_offsets(self, transactional_id: str, producer: Producer, group_id: str) -> ErrorCode:
        """Add the offsets of a group to a transaction."""
        if OFFSETS_TOPIC not in self._store.topics():
            try:
                await self._store.ensure_internal(OFFSETS_TOPIC)
            except LogmendError as error:
                return coordinator_code(error)
        name = TopicPartition(OFFSETS_TOPIC, self._commits.partition_of(group_id))
        return await self.add_partitions(transactional_id, producer, [name])

    async def _add(self, transactional_id: str, producer: Producer, names: Collection[TopicPartition]) -> ErrorCode:
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        await self._endings.wait_for(transaction)
        return await self._write(transaction, transaction.add_partitions(producer, names, self._timers.now_ms()))

    async def end(self, transactional_id: str, producer: Producer, *, commits: bool) -> ErrorCode:
        """Commit or abort a transaction; the answer comes when the markers are in the log, too."""
        return await self._tasks.finish(self._end(transactional_id, producer, commits=commits))

    async def _end(self, transactional_id: str, producer: Producer, *, commits: bool) -> ErrorCode:
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        await self._endings.wait_for(transaction)
        wanted = transaction.end(producer, self._timers.now_ms(), commits=commits)
        code = await self._write(transaction, wanted)
        if code is ErrorCode.NONE and isinstance(wanted, Facts):
            await self._endings.begin(transaction).is_marked
        return code

    def _known(self, transactional_id: str) -> Transaction | ErrorCode:
        if not _is_legal(transactional_id):
            return ErrorCode.INVALID_REQUEST
        transaction = self.shards.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transaction is None else transaction

    def verify(self, transactional_id: str, producer_id: int, epoch: int, name: TopicPartition) -> ErrorCode:
        """Return whether a producer's transactional batch may be appended to a partition now.

        Verify and append without awaiting anything in between: then no batch comes after its marker. Codes are those of
        `Transaction.verify`; `produce_code` and `offsets_code` turn them into codes for clients.
        """
        transaction = self._known(transactional_id)
        if isinstance(transaction, ErrorCode):
            return transaction
        return transaction.verify(Producer(producer_id, epoch), name)

    def _verify_offsets(self, transactional_id: str, producer_id: int, epoch: int, partition: int) -> ErrorCode:
        return offsets_code(self.verify(transactional_id, producer_id, epoch, TopicPartition(OFFSETS_TOPIC, partition)))

    # ---- state

    def status(self) -> dict[str, object]:
        """Return counts, and the partitions that cannot be read, with the reason."""
        return {
            "is_loading": self.shards.is_loading,
            "transactional_ids": sum(1 for _ in self.shards),
            "under_way": len(self.shards.under_way),
            "ending": len(self._endings),
            "unavailable": {str(number): reason for number, reason in self.shards.faults.items()},
        }

    async def _write(self, transaction: Transaction, wanted: Wanted) -> ErrorCode:
        return await self.shards.write(transaction, wanted, self._timers.now_ms())


def _is_legal(transactional_id: str) -> bool:
    return 0 < len(transactional_id.encode("utf-8", "surrogateescape")) <= _LONGEST_ID
