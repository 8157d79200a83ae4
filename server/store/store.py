"""Store: the only door from the listener to the log engine.

Appends and changes go through the `Appender`; reads go to the logs directly.

Protocol: `start`, then anything, then `stop`. All methods are for the loop's thread unless they say otherwise, and that
is where callbacks are called and futures are set. Logs may be read in any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from daemon.own.engine import Engine
from engine.manager.manager import LogManager
from engine.settings.refusals import TopicExists
from server.api.views import LogDirView, TopicView
from server.store.appender import Appender, Report
from server.store.checker import Checker
from server.store.flushing import Flusher, FlushPolicy, FlushSettings
from server.store.jobs import Data, Entry, Outcome
from server.store.loading import load, whole_batches
from server.store.open_logs import OpenLogs
from server.store.watchers import Watcher, Watchers
from storage.base.errors import EnvironmentFault, LogmendError
from storage.base.units import Epoch, Offset, TopicPartition
from storage.log.log_types import Appended, Fetched, Isolation, ReadableLog
from storage.producers.producers import Origin

T = TypeVar("T")

INTERNAL_TOPICS: Final = {
    "__consumer_offsets": (50, {"cleanup.policy": "compact", "segment.bytes": "104857600"}),
    "__transaction_state": (50, {"cleanup.policy": "compact", "segment.bytes": "104857600"}),
}
"""Partitions and settings with which a broker makes them; `compression.type` is `producer` by default."""

PIECE: Final = 1 << 20
"""Bytes that `batches` reads at once."""
_READERS: Final = 2


class Store:
    """A `server.api.views.ReadStore` that also appends. A fault of ours ends the store.

    `report` receives it, and full disks, by kind and in words, in the loop's thread.
    """

    is_read_only = False

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        flush: FlushSettings = FlushSettings(),  # noqa: B008 (frozen)
        report: Report = lambda _kind, _reason: None,
    ) -> None:
        self._engine, self._loop = engine, loop
        self._logs = OpenLogs()
        self._flusher = None if flush.policy is FlushPolicy.SYNC else Flusher(engine, flush)
        self._watchers = Watchers(loop)
        self._appender = Appender(engine, loop, now_ms, self._logs, self._flusher, self._watchers, report)
        self._readers = ThreadPoolExecutor(_READERS, "read")
        self.checker = Checker(self.topics)

    # ---- beginning and end

    def start(self) -> None:
        """Learn the topics and begin; by the loop's thread or before it runs. Raises `NotServing`.

        With `SYNC`, bytes that were never flushed are synced first: consumers are going to see them.
        """

        def begin(manager: LogManager) -> None:
            self._logs.see(manager)
            if self._flusher is None:
                manager.sync(p.name for _, p in manager.partitions() if p.log.recovery_point < p.log.log_end)
            self._logs.refresh_topics(manager)

        self._engine.run(begin)
        self._appender.start()
        if self._flusher is not None:
            self._flusher.start()

    def stop(self, seconds: float = 10.0) -> bool:
        """Take nothing more and finish what was asked for; return whether that was done in time. Any thread."""
        self._appender.close()
        self.checker.stop()
        if self._flusher is not None:
            self._flusher.stop(seconds)
        is_done = self._appender.stop(seconds)
        self._readers.shutdown(wait=False, cancel_futures=True)
        return is_done

    @property
    def fault(self) -> str:
        """The fault of ours that has ended the store before its time; empty while all is well."""
        return self._appender.fault

    @property
    def backlog_bytes(self) -> int:
        """Bytes of appends without an answer yet."""
        return self._appender.backlog_bytes

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that were appended and are not known to be on the disk."""
        return 0 if self._flusher is None else self._flusher.dirty_bytes

    # ---- changing

    def append(
        self,
        name: TopicPartition,
        batch: Data,
        *,
        origin: Origin = Origin.CLIENT,
        wait_durable: bool | None = None,
        transaction_version: int = 0,
    ) -> asyncio.Future[Appended]:
        """Append a batch; the future is done when it counts by the flush policy, or raises what refused it.

        With `wait_durable` it is durable by then, whatever the policy.
        """
        outcomes = self.append_all([Entry(name, batch, origin, transaction_version)], wait_durable=wait_durable)
        answer: asyncio.Future[Appended] = self._loop.create_future()
        if isinstance(outcomes, list):
            _settle(answer, outcomes[0])
        else:
            outcomes.add_done_callback(lambda done: _pass_on(done, answer))
        return answer

    def append_all(
        self, entries: Sequence[Entry], *, wait_durable: bool | None = None
    ) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append batches as `Appender.append_all` does; with `wait_durable` they are durable, whatever the policy."""
        return self._appender.append_all(entries, is_durable=bool(wait_durable))

    def run(self, call: Callable[[LogManager], T]) -> asyncio.Future[T]:
        """Have `call` made by the appender, in its order; the future has what it returns, or raises."""
        return self._appender.run(call)

    async def ensure_internal(self, topic: str) -> int:
        """Return the number of partitions of a coordinator's topic, which is created as a broker does it if missing.

        Raises as `Topics.create` does.
        """
        view = self._logs.topics.get(topic)
        if view is None:
            partitions, settings = INTERNAL_TOPICS[topic]

            def create(manager: LogManager) -> None:
                with contextlib.suppress(TopicExists):  # by another request at the same time
                    manager.topics.create(topic, partitions, settings, self._appender.now_ms())

            await self.run(create)
            view = self._logs.topics[topic]
        return view.partitions

    # ---- watching

    def on_append(self, name: TopicPartition, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher`, soon after, whenever the high watermark of a partition has moved; return what ends that."""
        return self._watchers.add(name, watcher)

    def in_background(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have `call` made by a thread for long reads, beside the engine."""
        return asyncio.ensure_future(self._loop.run_in_executor(self._readers, call), loop=self._loop)

    # ---- reading: in any thread

    def topics(self) -> Mapping[str, TopicView]:
        """Return all topics by name, as they are now; what is returned does not change."""
        return self._logs.topics

    def log(self, name: TopicPartition) -> ReadableLog:
        """Return the log of a partition, for reading; raises `UnknownTopic`, `PartitionOffline`, `NotServing`."""
        return self._logs.manager.log(name)

    def leader_epoch(self, name: TopicPartition) -> Epoch:
        """Return the epoch of the next append; raises as `log` does."""
        return self._logs.manager.partition(name).leader_epoch

    def end_offset_for_epoch(self, name: TopicPartition, epoch: int) -> tuple[Epoch, Offset] | None:
        """Return what `LogManager.end_offset_for_epoch` does; raises as `log` does."""
        return self._logs.manager.end_offset_for_epoch(name, Epoch(epoch))

    def read(
        self, name: TopicPartition, start: int, max_bytes: int, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> Fetched:
        """Return a range of batches as `Log.read` does; raises as it and `log` do."""
        return self.log(name).read(Offset(start), max_bytes, isolation=isolation)

    def batches(self, name: TopicPartition, start: int = 0) -> Iterator[memoryview]:
        """Yield the batches from `start` on, below the high watermark of now, whole ones in pieces of up to 1 MiB.

        One that is larger is a piece of its own; the first may begin below `start`. Raises as `read` does.
        """
        log = self.log(name)
        end = log.high_watermark
        offset = max(Offset(start), log.log_start)
        while offset < end:
            data = load(log, offset, PIECE)
            size, offset = whole_batches(data, offset)
            if not size:
                return
            yield data[:size]

    def log_dirs(self) -> Sequence[LogDirView]:
        """Return the log directories with the sizes of their partitions."""
        return self._logs.log_dirs()

    def report(self, name: TopicPartition, fault: EnvironmentFault) -> None:
        """Take note of a fault of the disk in a read, as the manager would; any thread."""
        self._loop.call_soon_threadsafe(lambda: self.run(lambda manager: manager.fail(name, fault)))


def _settle(answer: asyncio.Future[Appended], outcome: Outcome) -> None:
    if isinstance(outcome, LogmendError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _pass_on(outcomes: asyncio.Future[list[Outcome]], answer: asyncio.Future[Appended]) -> None:
    if answer.done():
        return
    if outcomes.cancelled():
        answer.cancel()
    elif (error := outcomes.exception()) is not None:
        answer.set_exception(error)
    else:
        _settle(answer, outcomes.result()[0])
