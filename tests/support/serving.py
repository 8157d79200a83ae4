"""An engine for the listener's parts, without the service around it: a log manager and its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from support.managers import NOW, open_manager
from support.memory_fs import MemoryFs

from daemon.own.engine import NotServing
from daemon.own.turn import Turn
from engine.manager.manager import LogManager
from server.store.flushing import FlushPolicy, FlushSettings
from server.store.store import Store
from storage.disk.fs import Fs

T = TypeVar("T")


class TestEngine:
    """An `Engine`. `manager` is None while nothing is open."""

    __test__ = False

    def __init__(self, manager: LogManager | None) -> None:
        self.manager = manager
        self.turn = Turn()

    def run(self, call: Callable[[LogManager], T]) -> T:
        with self.turn.taken():
            return self._call(call)

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        if not self.turn.take_if_free():
            return None
        try:
            return self._call(call)
        finally:
            self.turn.give_back()

    def _call(self, call: Callable[[LogManager], T]) -> T:
        if self.manager is None:
            raise NotServing("the logs are not open")
        return call(self.manager)


@asynccontextmanager
async def stored(
    policy: FlushPolicy = FlushPolicy.SYNC, *, fs: Fs | None = None, flush: FlushSettings | None = None, **more: Any
) -> AsyncIterator[tuple[Store, TestEngine]]:
    """Give a store over a manager in memory that has the topic `orders` with two partitions."""
    engine = TestEngine(open_manager(fs or MemoryFs(), **more))
    assert engine.manager is not None
    engine.manager.topics.create("orders", 2, {}, NOW)
    store = Store(engine, asyncio.get_running_loop(), lambda: NOW, flush or FlushSettings(policy))
    store.start()
    try:
        yield store, engine
    finally:
        assert await asyncio.to_thread(store.stop)
