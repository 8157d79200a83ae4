"""Store: the only door from the listener to the log engine.

The listener's loop thread asks; what has to wait for the disk, or for the engine's turn, is done by one appender
thread. It takes all that waits, appends it, makes it durable where the flush policy says so, and answers: group commit.
Where an answer has to wait for nothing and the turn is free, the loop thread appends by itself. No append ever
overtakes one that was asked for before it.

Protocol: `start`, then anything, then `stop`. All methods are for the loop's thread unless they say otherwise, and that
is where callbacks are called and futures are set. Whoever reads logs may do so in any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeVar

from daemon.own.owned import Engine, NotServing
from engine.manager.manager import LogManager
from engine.settings.refusals import TopicExists
from server.api.views import LogDirView, TopicView
from server.store.flushing import Flusher, FlushPolicy, FlushSettings
from server.store.loading import load, whole_batches
from server.store.views import log_dir_view, topic_view
from storage.base.config import PRODUCER
from storage.base.errors import DiskFull, EnvironmentFault, LogmendError
from storage.base.refusals import InvalidRecord
from storage.base.units import INT64_MAX, Epoch, Offset, TopicPartition
from storage.log.log_types import Appended, Fetched, Isolation, ReadableLog
from storage.producers.producers import Origin

T = TypeVar("T")
Watcher = Callable[[], None]
Data = bytes | bytearray | memoryview
Outcome = Appended | LogmendError
"""What became of one append: where it is, or why it is not there."""

INTERNAL_TOPICS: Final = {
    "__consumer_offsets": (50, {"cleanup.policy": "compact", "segment.bytes": "104857600"}),
    "__transaction_state": (50, {"cleanup.policy": "compact", "segment.bytes": "104857600"}),
}
"""Partitions and settings with which a broker makes them; `compression.type` is `producer` without being said."""

PIECE: Final = 1 << 20
"""Bytes that `batches` reads at once."""
_GROUP_BYTES: Final = 32 << 20
"""Of one group commit: who waits longer than for that much is in the next one."""
_SYNCERS: Final = 8
"""Threads that sync the partitions of one group: the disk does them together."""
_READERS: Final = 2
_REMIND_MS: Final = 600_000
_AS_IT_IS: Final = (PRODUCER, "uncompressed")


class Entry(NamedTuple):
    """One batch for one partition."""

    name: TopicPartition
    batch: Data
    origin: Origin = Origin.CLIENT
    transaction_version: int = 0


class _Job:
    """What the appender is asked for: appends, which get one outcome each, or a call."""

    __slots__ = ("call", "entries", "error", "future", "is_durable", "result", "size")

    def __init__(
        self,
        future: asyncio.Future[Any],
        entries: Sequence[Entry] = (),
        call: Callable[[LogManager], object] | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        self.future, self.entries, self.call, self.is_durable = future, entries, call, is_durable
        self.size = sum(len(entry.batch) for entry in entries)
        self.result: Any = None
        self.error: Exception | None = None


class Store:
    """See the module; it is a `server.api.views.ReadStore` too. A fault of ours ends the store.

    `report` is told of it, and of a full disk, by kind and in words, in the loop's thread.
    """

    is_read_only = False

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        flush: FlushSettings = FlushSettings(),  # noqa: B008 (frozen)
        report: Callable[[str, str], None] = lambda _kind, _reason: None,
    ) -> None:
        self._engine, self._loop, self._now_ms, self.flush = engine, loop, now_ms, flush
        self._is_sync = flush.policy is FlushPolicy.SYNC
        self._report = report
        self._full: dict[PurePath, int] = {}
        """When was last told that a partition's disk is full, ms."""
        self._manager: LogManager | None = None
        self._topics: Mapping[str, TopicView] = {}
        self._revision = -1
        """Of the engine's topics when `_topics` was made of them."""
        self._asked = threading.Condition()
        self._queue: list[_Job] = []
        self._is_stopping = False
        self.fault = ""
        """What of ours has ended it before its time; empty while all is well."""
        self._open = 0
        """Jobs without an answer yet; the loop's thread alone counts."""
        self.backlog_bytes = 0
        """Of the appends among them."""
        self._plain: set[TopicPartition] = set()
        """Partitions that have been appended to, so that a leader epoch is noted, and whose topics ask for no more."""
        self._flusher = None if self._is_sync else Flusher(engine, flush)
        self._watchers: dict[TopicPartition, list[Watcher]] = {}
        self._moved: dict[TopicPartition, None] = {}
        self._syncers = ThreadPoolExecutor(_SYNCERS, "sync")
        self._readers = ThreadPoolExecutor(_READERS, "read")
        self._thread = threading.Thread(target=self._work, name="appender", daemon=True)

    # ---- beginning and end

    def start(self) -> None:
        """Learn the topics and begin; by the loop's thread or before it runs. Raises `NotServing`.

        With `SYNC`, what lies there and was never flushed is made durable first: consumers are going to see it.
        """

        def begin(manager: LogManager) -> None:
            self._manager = manager
            if self._is_sync:
                manager.sync(p.name for _, p in manager.partitions() if p.log.recovery_point < p.log.log_end)
            self._look_at_topics(manager)

        self._engine.run(begin)
        self._thread.start()
        if self._flusher is not None:
            self._flusher.start()

    def stop(self, seconds: float = 10.0) -> bool:
        """Take nothing more, finish what was asked for, and let go; tell whether that was done in time. Any thread."""
        with self._asked:
            self._is_stopping = True
            self._asked.notify()
        if self._flusher is not None:
            self._flusher.stop(seconds)
        if self._thread.ident is not None:
            self._thread.join(seconds)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._syncers.shutdown(wait=False)
        return not self._thread.is_alive()

    # ---- appending

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
        made = self.append_all([Entry(name, batch, origin, transaction_version)], wait_durable=wait_durable)
        answer: asyncio.Future[Appended] = self._loop.create_future()
        if isinstance(made, list):
            _settle(answer, made[0])
        else:
            made.add_done_callback(lambda done: _pass_on(done, answer))
        return answer

    def append_all(
        self, entries: Sequence[Entry], *, wait_durable: bool | None = None
    ) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append batches, each for itself, in this order; return one outcome for each.

        A list where nothing had to be waited for, else a future, which raises `NotServing` and what is wrong with us.
        """
        flusher = self._flusher
        if (
            flusher is not None
            and not self._open
            and not wait_durable
            and not flusher.is_full
            and all(entry.name in self._plain for entry in entries)
        ):
            try:
                done = self._engine.run_at_once(lambda manager: self._append_each(manager, entries))
            except NotServing as refusal:
                return [refusal] * len(entries)
            if done is not None:
                self._tell_moved(entries)
                self._mind(done)
                return done
        return self._ask(_Job(self._loop.create_future(), entries, is_durable=self._is_sync or bool(wait_durable)))

    def _append_each(self, manager: LogManager, entries: Sequence[Entry]) -> list[Outcome]:
        append = manager.append_unsynced if self._is_sync else manager.append
        flusher, now_ms = self._flusher, self._now_ms()
        outcomes: list[Outcome] = []
        for name, batch, origin, transaction_version in entries:
            try:
                done = append(name, batch, now_ms, origin=origin, transaction_version=transaction_version)
            except LogmendError as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(InvalidRecord("no whole batch") if done is None else done)
            if flusher is not None:
                flusher.note(name, len(batch))
        return outcomes

    @property
    def unsynced_bytes(self) -> int:
        """What was appended and is not known to be on the disk."""
        return 0 if self._flusher is None else self._flusher.dirty_bytes

    # ---- asking the appender

    def run(self, call: Callable[[LogManager], T]) -> asyncio.Future[T]:
        """Have `call` made by the appender, in its order; the future has what it returns, or raises."""
        return self._ask(_Job(self._loop.create_future(), call=call))

    def in_background(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have `call` made by a thread for long reads, beside the engine."""
        return asyncio.ensure_future(self._loop.run_in_executor(self._readers, call), loop=self._loop)

    def _ask(self, job: _Job) -> asyncio.Future[Any]:
        with self._asked:
            is_taken = not self._is_stopping
            if is_taken:
                self._queue.append(job)
                self._asked.notify()
        if is_taken:
            self._open += 1
            self.backlog_bytes += job.size
        else:
            job.future.set_exception(NotServing("the listener stops"))
        return job.future

    # ---- the appender's thread

    def _work(self) -> None:
        while group := self._take():
            if self._flusher is not None:
                self._flusher.wait_for_room()
            try:
                self._engine.run(lambda manager, group=group: self._carry_out(manager, group))  # type: ignore[misc]
            except LogmendError as error:  # `NotServing`
                _refuse(group, error)
            except Exception as error:  # noqa: BLE001 (a fault of ours: all who wait must hear of it, and nobody go on)
                _refuse(group, error)
                with self._asked:
                    self._is_stopping, self.fault = True, f"a fault of logmend itself: {type(error).__name__}: {error}"
                self._call_loop(self._tell_fault, error)
            self._call_loop(self._answer, group)
        rest, self._queue = self._queue, []
        _refuse(rest, NotServing("the listener stops"))
        self._call_loop(self._answer, rest)

    def _take(self) -> list[_Job]:
        """Wait for jobs; return those of one group, none at the end."""
        with self._asked:
            while not self._queue and not self._is_stopping:
                self._asked.wait()
            if self.fault:
                return []
            size = count = 0
            for job in self._queue:
                size += job.size
                if count and size > _GROUP_BYTES:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
            return group

    def _carry_out(self, manager: LogManager, group: list[_Job]) -> None:
        self._manager = manager
        for job in group:
            if job.call is None:
                job.result = self._append_each(manager, job.entries)
                self._plain.update(
                    e.name for e, done in zip(job.entries, job.result, strict=True) if self._is_plain(e, done)
                )
            else:
                try:
                    job.result = job.call(manager)
                except LogmendError as error:
                    job.error = error
        self._sync(manager, [job for job in group if job.is_durable])
        if manager.topics.revision != self._revision:
            self._look_at_topics(manager)

    def _look_at_topics(self, manager: LogManager) -> None:
        before, self._revision = self._topics, manager.topics.revision
        self._plain.clear()  # a topic may have other settings now, or be another one of that name
        self._topics = {topic.name: topic_view(topic, before.get(topic.name)) for topic in manager.topics.all()}

    def _is_plain(self, entry: Entry, outcome: Outcome) -> bool:
        """Tell whether what comes after this append is done at once: nothing is encoded anew, and nothing synced."""
        if isinstance(outcome, LogmendError) or entry.name.topic not in self._topics:
            return False
        config = self._topics[entry.name.topic].config
        return config.compression_type in _AS_IT_IS and config.flush_messages == INT64_MAX

    def _sync(self, manager: LogManager, jobs: list[_Job]) -> None:
        """Make the appends of these jobs durable; those for which that fails did not happen."""
        names = dict.fromkeys(entry.name for job in jobs for entry in job.entries)
        if not names:
            return
        failed = manager.sync(names, map if len(names) == 1 else self._syncers.map)
        if failed:
            for job in jobs:
                job.result = [
                    outcome if isinstance(outcome, LogmendError) else failed.get(entry.name, outcome)
                    for entry, outcome in zip(job.entries, job.result, strict=True)
                ]

    def _call_loop(self, call: Callable[[Any], None], argument: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(call, argument)

    # ---- answers, in the loop's thread

    def _answer(self, group: list[_Job]) -> None:
        for job in group:
            self._open -= 1
            self.backlog_bytes -= job.size
            if not job.future.done():  # who asked may have given up
                if job.error is None:
                    job.future.set_result(job.result)
                else:
                    job.future.set_exception(job.error)
            self._tell_moved(job.entries)
            if job.entries and job.error is None:
                self._mind(job.result)

    def _tell_fault(self, error: Exception) -> None:
        self._report("fault", f"store: {error!r}")

    def _mind(self, outcomes: Sequence[Outcome]) -> None:
        """Tell of a full disk, for each partition once in a while."""
        for outcome in outcomes:
            if isinstance(outcome, DiskFull):
                place, now_ms = outcome.path.parent, self._now_ms()
                if now_ms - self._full.get(place, -_REMIND_MS) >= _REMIND_MS:
                    self._full[place] = now_ms
                    self._report("full", str(outcome))

    def on_append(self, name: TopicPartition, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher`, soon after, whenever the high watermark of a partition has moved; return what ends that."""
        watchers = self._watchers.setdefault(name, [])
        watchers.append(watcher)

        def end() -> None:
            with contextlib.suppress(ValueError):
                watchers.remove(watcher)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]

        return end

    def _tell_moved(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.name in self._watchers:
                if not self._moved:
                    self._loop.call_soon(self._call_watchers)
                self._moved[entry.name] = None

    def _call_watchers(self) -> None:
        moved, self._moved = self._moved, {}
        for name in moved:
            for watcher in tuple(self._watchers.get(name, ())):
                watcher()

    # ---- looking: in any thread

    def topics(self) -> Mapping[str, TopicView]:
        """Return all topics by name, as they are now; what is returned does not change."""
        return self._topics

    def log(self, name: TopicPartition) -> ReadableLog:
        """Return the log of a partition, for reading; raises `UnknownTopic`, `PartitionOffline`, `NotServing`."""
        if self._manager is None:
            raise NotServing("the logs are not open")
        return self._manager.log(name)

    def leader_epoch(self, name: TopicPartition) -> Epoch:
        """Return the epoch of the next append; raises as `log` does."""
        if self._manager is None:
            raise NotServing("the logs are not open")
        return self._manager.partition(name).leader_epoch

    def end_offset_for_epoch(self, name: TopicPartition, epoch: int) -> tuple[Epoch, Offset] | None:
        """Return what `LogManager.end_offset_for_epoch` does; raises as `log` does."""
        if self._manager is None:
            raise NotServing("the logs are not open")
        return self._manager.end_offset_for_epoch(name, Epoch(epoch))

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
        return () if self._manager is None else [log_dir_view(each) for each in self._manager.log_dirs]

    def report(self, name: TopicPartition, fault: EnvironmentFault) -> None:
        """Take note of a fault of the disk in a read, as the manager would; any thread."""
        self._loop.call_soon_threadsafe(lambda: self.run(lambda manager: manager.fail(name, fault)))

    async def ensure_internal(self, topic: str) -> int:
        """Return the number of partitions of a coordinator's topic, which is made as a broker makes it if missing.

        Raises as `Topics.create` does.
        """
        found = self._topics.get(topic)
        if found is None:
            partitions, settings = INTERNAL_TOPICS[topic]

            def make(manager: LogManager) -> None:
                with contextlib.suppress(TopicExists):  # by somebody who asked at the same time
                    manager.topics.create(topic, partitions, settings, self._now_ms())

            await self.run(make)
            found = self._topics[topic]
        return found.partitions


def _refuse(jobs: list[_Job], error: Exception) -> None:
    for job in jobs:
        job.error = error


def _settle(answer: asyncio.Future[Appended], outcome: Outcome) -> None:
    if isinstance(outcome, LogmendError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _pass_on(done: asyncio.Future[list[Outcome]], answer: asyncio.Future[Appended]) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        _settle(answer, done.result()[0])
