"""Transactions as compaction meets them: whose data goes, and which markers are no longer needed; pure.

Source: Apache Kafka 4.3.0, CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from storage.base.rows import ABORT, COMMIT
from storage.index.txn_index import AbortedTxn


class CleanedTransactions:
    """The transactions of one round: receives every batch in the order of the log, across all segments and groups.

    The aborted transactions that overlap a segment are to be `add`ed before its first batch; one may come several
    times. `kept` collects those whose ABORT marker was met after data of them: they belong in the transaction index of
    the segment that the marker is written to. The caller takes them away.
    """

    def __init__(self) -> None:
        self.kept: list[AbortedTxn] = []
        self._waiting: list[tuple[int, int, AbortedTxn]] = []
        self._added = 0
        self._aborted: dict[int, AbortedTxn] = {}
        self._with_data: set[int] = set()  # of the aborted ones, producers of which a batch was seen
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Take in aborted transactions, from transaction indexes."""
        for transaction in aborted:
            self._added += 1
            heapq.heappush(self._waiting, (transaction.first_offset, self._added, transaction))

    def meet_data(self, producer_id: int, last_offset: int, *, is_transactional: bool) -> bool:
        """Return whether a data batch belongs to an aborted transaction, so that its records may go."""
        self._begin_up_to(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._aborted:
            self._with_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def meet_marker(self, producer_id: int, last_offset: int, kind: int | None) -> bool:
        """Return whether a control batch is no longer needed: no data of its transaction is left.

        `kind` is ABORT, COMMIT, another type of control record, which is always needed, or None for an empty batch.
        """
        self._begin_up_to(last_offset)
        if kind == ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._with_data:
                return True
            self._with_data.discard(producer_id)
            self.kept.append(transaction)
            return False
        if kind == COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
            return False
        return kind is None

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            transaction = heapq.heappop(self._waiting)[2]
            self._aborted.setdefault(transaction.producer_id, transaction)
