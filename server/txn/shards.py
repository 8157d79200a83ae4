"""Shards: transactional ids by the partition of `__transaction_state` that holds their records: loading and writing.

An id is served only if its partition was read whole and every record in it was understood. For the thread of the
listener's loop; reading is done beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from server.api.errors import ErrorCode
from server.txn.codes import coordinator_code
from server.txn.loading import find_stranger, fold
from server.txn.records import Facts, State, encode_key, encode_value, partition_of
from server.txn.transaction import Transaction, Wanted
from server.txn.world import STATE_TOPIC, StateStore
from storage.base.errors import LogmendError
from storage.base.units import Offset, TopicPartition
from storage.batch.record import Record, encode_batch
from storage.producers.producers import Origin

_LOADING: Final = "its partition is being read"


class Shards:
    """Ids by partition. `load` or `create` once; until then every id is answered COORDINATOR_LOAD_IN_PROGRESS."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._ids: list[dict[str, Transaction]] = []
        self._faults: dict[int, str] = {}
        """By partition: why it cannot be read."""
        self.under_way: dict[str, Transaction] = {}
        """Ids with an open transaction."""
        self.is_loading = True

    def __iter__(self) -> Iterator[Transaction]:
        for ids in self._ids:
            yield from ids.values()

    @property
    def partitions(self) -> int:
        """The number of partitions, 0 while there is no topic."""
        return len(self._ids)

    @property
    def faults(self) -> Mapping[int, str]:
        """Partitions that cannot be read, and why."""
        return self._faults

    # ---- beginning

    async def load(self) -> None:
        """Read all partitions; ids of those that cannot be read are answered with an error."""
        topic = self._store.topics().get(STATE_TOPIC)
        if topic is not None:
            self._ids = [{} for _ in range(topic.partitions)]
            for number in range(topic.partitions):
                await self._load_one(number)
        for transaction in self:  # not before: what times out must not be aborted while others are being read
            self._note(transaction)
        self.is_loading = False

    async def _load_one(self, number: int) -> None:
        self._faults[number] = _LOADING
        try:
            facts_by_id = await self._store.in_background(lambda: self._read(TopicPartition(STATE_TOPIC, number)))
        except LogmendError as error:
            self._faults[number] = str(error)
            return
        stranger = find_stranger(facts_by_id, number, self.partitions)
        if stranger is not None:
            counted = f"there were other than {self.partitions} partitions"
            self._faults[number] = f"transactional id {stranger!r} does not belong here: {counted}"
            return
        self._ids[number] = {each: Transaction(each, facts) for each, facts in facts_by_id.items()}
        del self._faults[number]

    def _read(self, name: TopicPartition) -> dict[str, Facts]:
        log = self._store.log(name)
        return fold(self._store.batches(name, Offset(log.log_start)))

    async def create(self) -> None:
        """Create the topic if it is missing; raises what that raises."""
        if not self._ids:
            count = await self._store.ensure_internal(STATE_TOPIC)
            if not self._ids:  # another request may have waited for it, too
                self._ids = [{} for _ in range(count)]

    # ---- ids

    def place(self, transactional_id: str) -> TopicPartition:
        """Return the partition that holds the records of an id; the topic must exist."""
        return TopicPartition(STATE_TOPIC, partition_of(transactional_id, self.partitions))

    def fault_of(self, transactional_id: str) -> ErrorCode | None:
        """Return why nothing is known of an id, None if its partition was read."""
        if self.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self._ids and self.place(transactional_id).partition in self._faults:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def get(self, transactional_id: str) -> Transaction | ErrorCode | None:
        """Return an id, None for one that is unknown, or why it could not be read."""
        fault = self.fault_of(transactional_id)
        if fault is not None:
            return fault
        return self._ids[self.place(transactional_id).partition].get(transactional_id) if self._ids else None

    def put(self, transaction: Transaction) -> None:
        """Keep a new id."""
        self._ids[self.place(transaction.transactional_id).partition][transaction.transactional_id] = transaction

    def forget(self, transaction: Transaction) -> None:
        """Drop an id."""
        self._ids[self.place(transaction.transactional_id).partition].pop(transaction.transactional_id, None)

    async def write(self, transaction: Transaction, outcome: Wanted, now_ms: int) -> ErrorCode:
        """Write the pending facts of an id into its partition; they count if this returns NONE."""
        if isinstance(outcome, ErrorCode):
            return outcome
        is_dead = outcome.state is State.DEAD
        record = Record(
            0, now_ms, key=encode_key(transaction.transactional_id), value=None if is_dead else encode_value(outcome)
        )
        try:
            await self._store.append(
                self.place(transaction.transactional_id), encode_batch([record]), origin=Origin.COORDINATOR
            )
        except LogmendError as error:
            transaction.give_up()
            return coordinator_code(error)
        transaction.settle()
        if is_dead:
            self.forget(transaction)
        else:
            self._note(transaction)
        return ErrorCode.NONE

    def _note(self, transaction: Transaction) -> None:
        if transaction.facts.state is State.ONGOING:
            self.under_way[transaction.transactional_id] = transaction
        else:
            self.under_way.pop(transaction.transactional_id, None)
