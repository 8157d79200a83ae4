"""Which batches of a fetch a reader of committed records takes: those of no aborted transaction.

Source: Apache Kafka 4.3.0, clients, CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.base.rows import ABORT
from storage.batch.batch import BatchHeader
from storage.batch.payload import control_kind
from storage.index.txn_index import AbortedTxn


class CommittedFilter:
    """Goes through the batches of one fetch in their order; `aborted` are the transactions that came with it."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._waiting: list[AbortedTxn] = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def takes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Tell whether the records of the next batch are committed; those of control batches never count.

        Raises `BatchCorrupt` for a control batch that cannot be read.
        """
        if header.producer_id >= 0:
            while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
                self._aborting.add(self._waiting.pop().producer_id)
            is_end = header.is_control and header.producer_id in self._aborting
            if is_end and control_kind(header, batch) == ABORT:
                self._aborting.discard(header.producer_id)
        is_aborted = header.is_transactional and header.producer_id in self._aborting
        return not header.is_control and not is_aborted
