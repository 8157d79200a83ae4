"""Tasks: work of a coordinator that goes on whether or not a client waits for it, and work at intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from server.api.clock import Handle, Timers
from server.api.errors import ErrorCode

T = TypeVar("T")


class Tasks:
    """Everything that runs until `stop`; for the thread of the listener's loop."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._tasks: set[asyncio.Task[Any]] = set()
        self._intervals: dict[str, Handle] = {}
        self._is_stopped = False

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, T | ErrorCode]) -> T | ErrorCode:
        """Return the result of work, which goes on if the caller is cancelled; COORDINATOR_NOT_AVAILABLE at the end."""
        if self._is_stopped:
            work.close()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        task = self.spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling() or not task.cancelled():
                raise  # the caller gives up, not the work
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def every(self, name: str, interval_ms: int, work: Callable[[], None]) -> None:
        """Do some work at intervals."""

        def again() -> None:
            if not self._is_stopped:
                work()
                self._intervals[name] = self._timers.call_later(interval_ms, again)

        self._intervals[name] = self._timers.call_later(interval_ms, again)

    async def pause(self, delay_ms: int) -> None:
        """Wait for so long."""
        is_over = asyncio.Event()
        handle = self._timers.call_later(delay_ms, is_over.set)
        try:
            await is_over.wait()
        finally:
            handle.cancel()

    def begin_stop(self) -> None:
        """Take no more work."""
        self._is_stopped = True
        for handle in self._intervals.values():
            handle.cancel()

    async def stop(self) -> None:
        """Cancel what still runs."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
