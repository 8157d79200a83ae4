"""What a leader asks of its producers before it takes a batch, and which transactions are still undecided.

`storage.producers.producer_state` folds what is in the log; this module adds what only a running log knows: the last
five batches of each producer, so that one sent twice is answered instead of stored, and the transactions whose markers
are not replicated yet. Source: Apache Kafka 4.3.0, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from storage.base.errors import BatchCorrupt
from storage.base.refusals import CoordinatorFenced, InvalidProducerEpoch, InvalidTransaction, OutOfOrderSequence
from storage.base.rows import ABORT, CONTROL_EMPTY, CONTROL_NONE, BatchRows, ProducerEvent, control_parts
from storage.base.units import INT32_MAX, Offset
from storage.batch.batch import add_to_sequence
from storage.index.txn_index import AbortedTxn
from storage.producers.producer_state import ProducerEntry, ProducerState

REMEMBERED: Final = 5
"""Batches of a producer that are recognised when they come again: as many as a client may have in flight."""

_TRANSACTIONAL: Final = 0x10
_NO_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**15 - 1


class Origin(Enum):
    """Who sends an append, which decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class SeenBatch(NamedTuple):
    """A data batch that is in the log: its sequence numbers, offsets, and largest timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class _Completed(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    is_aborted: bool


class Producers:
    """The producers of a running log. `check` says whether a batch may come, `apply` takes those that were written."""

    __slots__ = ("_recent", "_undecided", "state")

    def __init__(self, state: ProducerState) -> None:
        self.state = state
        self._recent: dict[int, Sequence[SeenBatch]] = {}
        self._undecided: dict[int, int] = {}
        """First offset -> marker offset of the transactions completed at or above the high watermark."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is known."""
        return not self.state.entries and not self._undecided

    def reloaded(self, state: ProducerState, end: Offset) -> Producers:
        """Return what is known with `state` in place of this one, when the log was cut to `end`.

        Transactions whose markers are still there stay undecided: `state`, from a snapshot, knows nothing of them.
        """
        made = Producers(state)
        made._undecided = {first: marker for first, marker in self._undecided.items() if marker < end}
        return made

    # ---- before a batch is written

    def find_duplicate(self, event: ProducerEvent) -> SeenBatch | None:
        """Return the batch with the same producer, epoch and sequence numbers that is in the log already."""
        entry = self.state.entries.get(event.producer_id)
        if entry is None or entry.producer_epoch != event.producer_epoch:
            return None
        wanted = event.base_sequence, last_sequence(event)
        for seen in self.seen(entry):
            if seen[:2] == wanted:
                return seen
        return None

    def check(self, event: ProducerEvent, origin: Origin, transaction_version: int = 0) -> None:
        """Refuse a batch that may not follow what is known of its producer.

        `transaction_version` is that of the marker: from 2 on each transaction has an epoch of its own. Raises
        `InvalidProducerEpoch`, `OutOfOrderSequence`, `InvalidTransaction`, `CoordinatorFenced`, and `BatchCorrupt` for
        a control batch that is no marker.
        """
        entry = self.state.entries.get(event.producer_id)
        if event.control == CONTROL_NONE:
            if entry is not None:
                if origin is not Origin.REPLICATION and event.producer_epoch < entry.producer_epoch:
                    raise _stale_epoch(event, entry)
                if origin is Origin.CLIENT:
                    _check_sequence(event, entry)
                _check_transaction(event, is_open=entry.txn_first_offset >= 0)
        elif event.control == CONTROL_EMPTY:
            return
        elif event.control < 0:
            raise BatchCorrupt(f"control batch at offset {event.base_offset} holds no transaction marker")
        elif origin is not Origin.REPLICATION and entry is not None:
            _check_marker(event, entry, transaction_version)

    def check_replicated(self, events: Sequence[ProducerEvent]) -> None:
        """Check the batches of one follower's append, each as if those before it had been applied."""
        is_open: dict[int, bool] = {}
        for event in events:
            known = self.state.entries.get(event.producer_id)
            before = is_open.get(event.producer_id, known is not None and known.txn_first_offset >= 0)
            if event.control == CONTROL_NONE:
                _check_transaction(event, is_open=before)
                is_open[event.producer_id] = bool(event.attributes & _TRANSACTIONAL)
            elif event.control >= 0:
                is_open[event.producer_id] = False
            elif event.control != CONTROL_EMPTY:
                raise BatchCorrupt(f"control batch at offset {event.base_offset} holds no transaction marker")

    # ---- once it is written

    def apply(self, events: Iterable[ProducerEvent]) -> list[AbortedTxn]:
        """Take in the checked batches of one append; return the transactions they abort, for the transaction index.

        As in a broker, all of them count as begun before the first of them is completed: a last stable offset can be
        that of a transaction which only begins behind the marker.
        """
        begun: dict[int, int] = {}
        completed: list[_Completed] = []
        known_open: dict[int, int] | None = None
        for event in events:
            if event.control >= 0 and known_open is None:
                known_open = {int(first): key for key, first in self.state.open_transactions().items()}
            self._apply_one(event, begun, completed)
        if not completed:
            return []
        return list(self._complete({**(known_open or {}), **begun}, completed))

    def _apply_one(self, event: ProducerEvent, begun: dict[int, int], completed: list[_Completed]) -> None:
        producer_id = event.producer_id
        before = self.state.entries.get(producer_id)
        batches = [] if before is None or before.producer_epoch != event.producer_epoch else self.seen(before)
        if event.control >= 0 and before is not None and before.txn_first_offset >= 0:
            # Before it is no longer open: a reader in another thread must not find it neither open nor undecided.
            self._undecided[before.txn_first_offset] = event.base_offset
        self.state.add_batch(event)
        after = self.state.entries[producer_id]
        if event.control == CONTROL_NONE:
            batch = SeenBatch(
                event.base_sequence, after.last_sequence, event.base_offset, event.last_offset, event.max_timestamp
            )
            self._recent[producer_id] = [*batches[-(REMEMBERED - 1) :], batch]
            if after.txn_first_offset == event.base_offset:
                begun[event.base_offset] = producer_id
        elif event.control >= 0:
            self._recent[producer_id] = batches
            if before is not None and before.txn_first_offset >= 0:
                is_aborted = control_parts(event.control)[0] == ABORT
                completed.append(_Completed(producer_id, before.txn_first_offset, event.base_offset, is_aborted))

    def _complete(self, pending: dict[int, int], completed: list[_Completed]) -> Iterable[AbortedTxn]:
        for transaction in completed:
            others = [first for first, producer_id in pending.items() if producer_id != transaction.producer_id]
            stable = min(others, default=transaction.marker_offset + 1)
            pending.pop(transaction.first_offset, None)
            if transaction.is_aborted:
                first, marker = Offset(transaction.first_offset), Offset(transaction.marker_offset)
                yield AbortedTxn(transaction.producer_id, first, marker, Offset(stable))

    def seen(self, entry: ProducerEntry) -> Sequence[SeenBatch]:
        """Return the batches remembered of a producer; of one that came from a snapshot it is the last one."""
        seen = self._recent.get(entry.producer_id)
        if seen is not None:
            return seen
        if entry.last_offset < 0:
            return []
        first = add_to_sequence(entry.last_sequence, -entry.offset_delta) if entry.last_sequence >= 0 else -1
        base = entry.last_offset - entry.offset_delta
        return [SeenBatch(first, entry.last_sequence, base, entry.last_offset, entry.timestamp)]

    # ---- transactions

    def first_unstable_offset(self) -> Offset | None:
        """Return the first offset of the earliest transaction that is open, or whose marker may still be lost."""
        first_open = self.state.first_unstable_offset()
        undecided = self._undecided  # of one look, since another thread may replace it
        if not undecided:
            return first_open
        first = Offset(min(tuple(undecided)))
        return first if first_open is None else min(first, first_open)

    def forget_decided(self, offset: Offset) -> None:
        """Note that everything below `offset` is replicated, or no longer part of the log."""
        self._undecided = {first: marker for first, marker in self._undecided.items() if marker >= offset}

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that were silent for so long; return their number."""
        count = self.state.expire(now_ms, expiration_ms)
        if count:
            self._recent = {known: seen for known, seen in self._recent.items() if known in self.state.entries}
        return count


def last_sequence(event: ProducerEvent) -> int:
    """Return the sequence number of the last record, -1 for none."""
    if event.base_sequence == -1:
        return -1
    return add_to_sequence(event.base_sequence, event.last_offset - event.base_offset)


def _check_sequence(event: ProducerEvent, entry: ProducerEntry) -> None:
    if entry.producer_epoch == _NO_EPOCH:
        return
    if event.producer_epoch != entry.producer_epoch:
        expected, fits = 0, event.base_sequence == 0
    else:
        last = entry.last_sequence if entry.last_offset >= 0 else -1
        expected = 0 if last == INT32_MAX else last + 1
        fits = event.base_sequence == expected
    if not fits:
        raise OutOfOrderSequence(
            f"producer {event.producer_id}, epoch {event.producer_epoch}: "
            f"sequence number {event.base_sequence}, {expected} was to come"
        )


def _check_transaction(event: ProducerEvent, *, is_open: bool) -> None:
    if is_open and not event.attributes & _TRANSACTIONAL:
        raise InvalidTransaction(
            f"producer {event.producer_id}: data without transaction at offset {event.base_offset} while one is open"
        )


def _check_marker(event: ProducerEvent, entry: ProducerEntry, transaction_version: int) -> None:
    if event.producer_epoch < entry.producer_epoch:
        raise _stale_epoch(event, entry)
    if transaction_version >= 2 and event.producer_epoch == entry.producer_epoch:
        is_retry = entry.txn_first_offset < 0 or event.producer_epoch == _LAST_EPOCH
        if not is_retry:
            raise _stale_epoch(event, entry)
    coordinator_epoch = control_parts(event.control)[1]
    if coordinator_epoch < entry.coordinator_epoch:
        raise CoordinatorFenced(
            f"producer {event.producer_id}: marker of coordinator epoch {coordinator_epoch}, "
            f"{entry.coordinator_epoch} is known"
        )


def _stale_epoch(event: ProducerEvent, entry: ProducerEntry) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {event.producer_id}: epoch {event.producer_epoch}, {entry.producer_epoch} is known"
    )


def events_of(rows: BatchRows, count: int) -> Iterator[ProducerEvent]:
    """Yield what the batches with a producer among the first `count` rows tell, in their order."""
    for row in range(count):
        if rows.producer_id[row] >= 0:
            yield ProducerEvent(
                rows.base_offset[row],
                rows.last_offset[row],
                rows.attributes[row],
                rows.max_timestamp[row],
                rows.producer_id[row],
                rows.producer_epoch[row],
                rows.base_sequence[row],
                rows.control[row],
            )
