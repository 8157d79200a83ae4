"""Expiry: transactions that are open for too long are aborted, ids that were not used for long are removed."""

from __future__ import annotations

from collections.abc import Iterable

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.txn.endings import Endings
from server.txn.records import Facts
from server.txn.shards import Shards
from server.txn.tasks import Tasks
from server.txn.transaction import Transaction
from server.txn.world import TransactionSettings


class Expiry:
    """Checks at intervals, from `start` until `tasks` are stopped."""

    def __init__(
        self, shards: Shards, endings: Endings, tasks: Tasks, timers: Timers, settings: TransactionSettings
    ) -> None:
        self._shards, self._endings, self._tasks = shards, endings, tasks
        self._timers, self._settings = timers, settings

    def start(self) -> None:
        """Begin to check."""
        self._tasks.every("abort", self._settings.abort_interval_ms, self._abort_expired)
        self._tasks.every("expire", self._settings.expiration_interval_ms, self._remove_unused)

    def _abort_expired(self) -> None:
        now_ms = self._timers.now_ms()
        for transaction in tuple(self._shards.under_way.values()):
            facts = transaction.time_out(now_ms)
            if facts is not None:
                self._tasks.spawn(self._abort(transaction, facts))

    async def _abort(self, transaction: Transaction, facts: Facts) -> None:
        if await self._shards.write(transaction, facts, self._timers.now_ms()) is ErrorCode.NONE:
            self._endings.begin(transaction)

    def _remove_unused(self) -> None:
        if not self._shards.is_loading:
            self._tasks.spawn(self._remove_each(tuple(self._shards)))

    async def _remove_each(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            facts = transaction.expire(self._timers.now_ms(), self._settings.id_expiration_ms)
            if facts is not None:
                await self._shards.write(transaction, facts, self._timers.now_ms())
