"""Endings: decided transactions on their way to completion: markers first, then the record that they are complete."""

from __future__ import annotations

import asyncio

from server.api.clock import Timers
from server.api.errors import ErrorCode
from server.txn.markers import write_markers
from server.txn.shards import Shards
from server.txn.tasks import Tasks
from server.txn.transaction import Transaction
from server.txn.world import OffsetCommits, StateStore


class Ending:
    """The end of one transaction. `is_marked` is done once its markers are tried, `is_over` once it is complete, too.

    Both are done at the latest when something has to be tried again.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.is_marked: asyncio.Future[None] = loop.create_future()
        self.is_over: asyncio.Future[None] = loop.create_future()

    def marked(self) -> None:
        """Wake the clients that wait for the markers."""
        if not self.is_marked.done():
            self.is_marked.set_result(None)

    def over(self) -> None:
        """Wake every client that waits."""
        self.marked()
        if not self.is_over.done():
            self.is_over.set_result(None)


class Endings:
    """Ends under way, by transactional id. Markers that a disk refuses are tried again after `retry_ms`."""

    def __init__(
        self, store: StateStore, commits: OffsetCommits, shards: Shards, tasks: Tasks, timers: Timers, retry_ms: int
    ) -> None:
        self._store, self._commits, self._shards, self._tasks = store, commits, shards, tasks
        self._timers, self._retry_ms = timers, retry_ms
        self._endings: dict[str, Ending] = {}

    def __len__(self) -> int:
        return len(self._endings)

    def begin(self, transaction: Transaction) -> Ending:
        """Begin to write the markers of a decided transaction, and to complete it."""
        ending = self._endings[transaction.transactional_id] = Ending()
        self._tasks.spawn(self._carry_out(transaction, ending))
        return ending

    async def wait_for(self, transaction: Transaction) -> None:
        """Wait for the end that was begun, if any, or until something has to be tried again."""
        ending = self._endings.get(transaction.transactional_id)
        if ending is not None:
            await ending.is_over

    def stop(self) -> None:
        """Wake every client that waits; ends that are not complete go on after the next start."""
        for ending in self._endings.values():
            ending.over()

    async def _carry_out(self, transaction: Transaction, ending: Ending) -> None:
        try:
            names = sorted(transaction.facts.partitions)
            while names := await write_markers(
                self._store, self._commits, transaction.facts, names, self._timers.now_ms()
            ):
                ending.over()
                await self._tasks.pause(self._retry_ms)
            ending.marked()
            while await self._complete(transaction) is not ErrorCode.NONE:
                ending.over()
                await self._tasks.pause(self._retry_ms)
            del self._endings[transaction.transactional_id]
        finally:  # no client must wait for an end that does not come any more
            ending.over()

    async def _complete(self, transaction: Transaction) -> ErrorCode:
        now_ms = self._timers.now_ms()
        return await self._shards.write(transaction, transaction.complete(now_ms), now_ms)
