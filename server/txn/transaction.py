"""Transaction: what a transactional id may do next, by the first protocol of transactions; pure.

Each request returns an error code, or the facts of the change that is wanted. Those are *pending*
until they are in the log: then `settle` makes them true, or `give_up` forgets them; meanwhile every other request is
refused with CONCURRENT_TRANSACTIONS. So a change that did not reach the log did not happen, and a restart at any moment
finds either the previous facts or the new ones.

    EMPTY, COMPLETE_* --add_partitions--> ONGOING --end--> PREPARE_COMMIT or PREPARE_ABORT --complete--> COMPLETE_*
    EMPTY, COMPLETE_* --init--> EMPTY with the next epoch        EMPTY, COMPLETE_* --expire--> DEAD, then forgotten
    ONGOING --init of another producer, or its timeout--> PREPARE_ABORT with the next epoch

A broker passes through a state PREPARE_EPOCH_FENCE in the last case; it never writes it, and it does not exist here.
Source: Apache Kafka 4.3.0, TransactionMetadata, TransactionCoordinator (its ways of transaction version 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from server.api.errors import ErrorCode
from server.txn.records import NO_EPOCH, NO_PRODUCER_ID, NO_TIME, Facts, State
from storage.base.units import TopicPartition

LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a producer gets: the one above it is kept for fencing that producer off."""

_SETTLED: Final = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
_BEFORE: Final = MappingProxyType(
    {
        State.EMPTY: _SETTLED,
        State.ONGOING: _SETTLED | {State.ONGOING},
        State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
        State.PREPARE_ABORT: frozenset((State.ONGOING,)),
        State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
        State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
        State.DEAD: _SETTLED,
    }
)
"""From which states each state is reached."""
_BUMPS_EPOCHS: Final = 2
"""From this client version on, each transaction has an epoch of its own."""


class Producer(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


Wanted: TypeAlias = Facts | ErrorCode
"""A change that is to be logged, or why there is none; NONE where nothing must change."""


class Transaction:
    """One transactional id. One change at a time: the caller logs the facts, then calls `settle` or `give_up`."""

    __slots__ = ("facts", "pending", "transactional_id")

    def __init__(self, transactional_id: str, facts: Facts) -> None:
        self.transactional_id, self.facts = transactional_id, facts
        self.pending: Facts | None = None

    @classmethod
    def begin(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Return a new id; its first `init` gives it epoch 0."""
        return cls(transactional_id, Facts(producer_id, NO_EPOCH, timeout_ms, updated_ms=now_ms))

    def __repr__(self) -> str:
        return f"Transaction({self.transactional_id!r}, {self.facts}, pending={self.pending})"

    @property
    def is_new(self) -> bool:
        """Whether no epoch was given out yet."""
        return self.facts.epoch == NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """Whether the next `init` needs a new producer id."""
        return self.facts.epoch >= LAST_EPOCH

    # ---- the pending change

    def settle(self) -> None:
        """Make the pending facts true: they are in the log."""
        pending = self.pending
        assert pending is not None, "nothing is pending"
        assert self.facts.state in _BEFORE[pending.state], f"{self.facts.state.name} to {pending.state.name}"
        self.facts, self.pending = pending, None

    def give_up(self) -> None:
        """Forget the pending facts: they did not get into the log."""
        self.pending = None

    def _want(self, state: State, **changes: object) -> Facts:
        assert self.pending is None, "a change is pending"
        facts = self.facts._replace(state=state, previous_producer_id=self.facts.producer_id, **changes)  # type: ignore[arg-type]
        self.pending = facts
        return facts

    # ---- a producer introduces itself

    def init(self, timeout_ms: int, current: Producer | None, now_ms: int, new_id: int | None = None) -> Wanted:
        """Return the next epoch, or, by its state, the abort of the transaction that is open.

        `current` is what the producer says that it is, None for one that has just come up. `new_id` is taken if
        `is_exhausted`.
        """
        if self.pending is not None or self.facts.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if current is not None and not self._may_be(current):
            return ErrorCode.PRODUCER_FENCED
        if self.facts.state is State.ONGOING:
            return self._fence(now_ms)
        given = self._next_producer(current, new_id)
        if isinstance(given, ErrorCode):
            return given
        producer, last_epoch = given
        return self._want(
            State.EMPTY, producer_id=producer.id, epoch=producer.epoch, last_epoch=last_epoch, timeout_ms=timeout_ms,
            partitions=frozenset(), started_ms=NO_TIME, updated_ms=now_ms,
        )  # fmt: skip

    def _may_be(self, current: Producer) -> bool:
        """Return whether this is our producer, maybe before its epochs ran out, if it never got the answer."""
        is_previous = current.id == self.facts.previous_producer_id and current.epoch >= LAST_EPOCH
        return self.is_new or current.id == self.facts.producer_id or is_previous

    def _next_producer(self, current: Producer | None, new_id: int | None) -> tuple[Producer, int] | ErrorCode:
        """Return who it is from now on, and the epoch of before for a retry to name, -1 if none may."""
        epoch = self.facts.epoch
        if self.is_exhausted and (current is None or current.epoch == epoch):
            assert new_id is not None, "the epochs are exhausted"
            return Producer(new_id, 0), NO_EPOCH if current is None else epoch
        if current is None:
            return self._bumped(), NO_EPOCH
        if self.is_new or current.epoch == epoch:
            return self._bumped(), epoch
        if current.epoch == self.facts.last_epoch:  # it never got the answer
            return Producer(self.facts.producer_id, epoch), self.facts.last_epoch
        return ErrorCode.PRODUCER_FENCED

    def _bumped(self) -> Producer:
        return Producer(self.facts.producer_id, self.facts.epoch + 1)

    # ---- a transaction

    def _refusal(self, producer: Producer) -> ErrorCode | None:
        if producer.id != self.facts.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.facts.epoch:
            return ErrorCode.PRODUCER_FENCED
        return None if self.pending is None else ErrorCode.CONCURRENT_TRANSACTIONS

    def add_partitions(self, producer: Producer, partitions: Iterable[TopicPartition], now_ms: int) -> Wanted:
        """Let partitions take part; the first ones begin a transaction."""
        refusal = self._refusal(producer)
        if refusal is not None:
            return refusal
        facts, added = self.facts, frozenset(partitions)
        if facts.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if facts.state is State.ONGOING and added <= facts.partitions:
            return ErrorCode.NONE
        started_ms = facts.started_ms if facts.state is State.ONGOING else now_ms
        return self._want(
            State.ONGOING, partitions=facts.partitions | added, started_ms=started_ms, updated_ms=now_ms,
            client_version=0,
        )  # fmt: skip

    def end(self, producer: Producer, now_ms: int, *, commits: bool) -> Wanted:
        """Decide the transaction; the same decision once more is answered with NONE when it is carried out."""
        refusal = self._refusal(producer)
        if refusal is not None:
            return refusal
        match self.facts.state:
            case State.ONGOING:
                state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
                return self._want(state, updated_ms=now_ms, next_producer_id=NO_PRODUCER_ID, client_version=0)
            case State.COMPLETE_COMMIT if commits:
                return ErrorCode.NONE
            case State.COMPLETE_ABORT if not commits:
                return ErrorCode.NONE
            case State.PREPARE_COMMIT if commits:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            case State.PREPARE_ABORT if not commits:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            case _:
                return ErrorCode.INVALID_TXN_STATE

    def time_out(self, now_ms: int) -> Facts | None:
        """Abort a transaction that took longer than its timeout, and fence its producer off; None if it did not."""
        facts = self.facts
        is_late = facts.state is State.ONGOING and facts.started_ms + facts.timeout_ms < now_ms
        return self._fence(now_ms) if is_late and self.pending is None else None

    def _fence(self, now_ms: int) -> Facts:
        epoch = min(self.facts.epoch + 1, LAST_EPOCH + 1)
        return self._want(
            State.PREPARE_ABORT, epoch=epoch, last_epoch=NO_EPOCH, updated_ms=now_ms,
            next_producer_id=NO_PRODUCER_ID, client_version=0,
        )  # fmt: skip

    def complete(self, now_ms: int) -> Facts:
        """Note that all markers are written; for a decided transaction without a pending change alone."""
        facts = self.facts
        assert facts.state.is_prepared, facts
        state = State.COMPLETE_COMMIT if facts.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        producer = Producer(facts.producer_id, facts.epoch)
        if facts.client_version >= _BUMPS_EPOCHS and facts.next_producer_id != NO_PRODUCER_ID:
            producer = Producer(facts.next_producer_id, 0)
        return self._want(
            state, producer_id=producer.id, epoch=producer.epoch, next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(), updated_ms=now_ms,
        )  # fmt: skip

    def verify(self, producer: Producer, name: TopicPartition) -> ErrorCode:
        """Return whether a producer may write to a partition: it takes part in the open transaction.

        TRANSACTION_ABORTABLE if it does not. A decision counts from the moment it is on its way to the log: a batch
        that came in behind it could stand behind the marker.
        """
        if producer.id != self.facts.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.facts.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.facts.state.is_prepared or (self.pending is not None and self.pending.state.is_prepared):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if name in self.facts.partitions else ErrorCode.TRANSACTION_ABORTABLE

    # ---- the end of an id

    def expire(self, now_ms: int, expiration_ms: int) -> Facts | None:
        """Forget an id without transaction that was silent for `expiration_ms`; None for any other."""
        facts = self.facts
        is_silent = facts.state in _SETTLED and facts.updated_ms <= now_ms - expiration_ms
        return self._want(State.DEAD, partitions=frozenset()) if is_silent and self.pending is None else None
