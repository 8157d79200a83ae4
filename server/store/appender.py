"""Appender: one thread that appends all that waits, makes it durable where the flush policy says so, and answers.

That is group commit. Where an answer waits for nothing and the engine's turn is free, the loop's thread appends by
itself. No append ever overtakes one that was asked for before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Any, Final, TypeAlias, TypeVar

from daemon.own.engine import Engine, NotServing
from engine.manager.manager import LogManager
from server.store.flushing import Flusher
from server.store.jobs import Entry, Job, JobQueue, Outcome
from server.store.open_logs import OpenLogs
from server.store.watchers import Watchers
from storage.base.config import PRODUCER
from storage.base.errors import DiskFull, LogmendError
from storage.base.refusals import InvalidRecord
from storage.base.units import INT64_MAX, TopicPartition

T = TypeVar("T")
Report: TypeAlias = Callable[[str, str], None]
"""Receives a kind and a reason, in the loop's thread."""

_SYNCERS: Final = 8
"""Threads that sync the partitions of one group: the disk does them together."""
_REMIND_MS: Final = 600_000
_AS_IT_IS: Final = (PRODUCER, "uncompressed")


class FullDisks:
    """Reports full disks, each directory of a partition once in a while."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._reported: dict[PurePath, int] = {}

    def note(self, outcomes: Sequence[Outcome], now_ms: int) -> None:
        """Report those of these outcomes that are due."""
        for outcome in outcomes:
            if isinstance(outcome, DiskFull):
                place = outcome.path.parent
                if now_ms - self._reported.get(place, -_REMIND_MS) >= _REMIND_MS:
                    self._reported[place] = now_ms
                    self.report("full", str(outcome))


class Appender:
    """Without a `flusher` every append is durable before it is answered. A fault of ours ends the appender.

    Methods are for the loop's thread, but for `close` and `stop`.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        logs: OpenLogs,
        flusher: Flusher | None,
        watchers: Watchers,
        report: Report,
    ) -> None:
        self._engine, self._loop, self.now_ms, self._logs = engine, loop, now_ms, logs
        self._flusher, self._watchers = flusher, watchers
        self._full = FullDisks(report)
        self._queue = JobQueue()
        self.fault = ""
        """The fault of ours that ended it before its time; empty while all is well."""
        self._open = 0
        """Jobs without an answer yet; the loop's thread alone counts."""
        self.backlog_bytes = 0
        """Of the appends among them."""
        self._plain: set[TopicPartition] = set()
        """Partitions that have been appended to, so that a leader epoch is noted, and whose topics ask for no more."""
        self._syncers = ThreadPoolExecutor(_SYNCERS, "sync")
        self._thread = threading.Thread(target=self._work, name="appender", daemon=True)

    @property
    def report(self) -> Report:
        """Receives faults of ours and full disks."""
        return self._full.report

    @report.setter
    def report(self, report: Report) -> None:
        self._full.report = report

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Take nothing more. Any thread."""
        self._queue.close()

    def stop(self, seconds: float) -> bool:
        """Finish what was asked for, once it is closed; return whether that was done in time. Any thread."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        self._syncers.shutdown(wait=False)
        return not self._thread.is_alive()

    def append_all(
        self, entries: Sequence[Entry], *, is_durable: bool
    ) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append batches, each for itself, in this order; return one outcome for each.

        A list where nothing had to be waited for, else a future, which raises `NotServing` and faults of ours.
        """
        flusher = self._flusher
        if (
            flusher is not None
            and not self._open
            and not is_durable
            and not flusher.is_full
            and all(entry.name in self._plain for entry in entries)
        ):
            try:
                outcomes = self._engine.run_at_once(lambda manager: self._append_each(manager, entries))
            except NotServing as refusal:
                return [refusal] * len(entries)
            if outcomes is not None:
                self._watchers.moved(entry.name for entry in entries)
                self._full.note(outcomes, self.now_ms())
                return outcomes
        return self._ask(Job(self._loop.create_future(), entries, is_durable=flusher is None or is_durable))

    def run(self, call: Callable[[LogManager], T]) -> asyncio.Future[T]:
        """Have `call` made by the appender, in its order; the future has what it returns, or raises."""
        return self._ask(Job(self._loop.create_future(), call=call))

    def _ask(self, job: Job) -> asyncio.Future[Any]:
        if self._queue.put(job):
            self._open += 1
            self.backlog_bytes += job.size
        else:
            job.future.set_exception(NotServing("the listener stops"))
        return job.future

    def _append_each(self, manager: LogManager, entries: Sequence[Entry]) -> list[Outcome]:
        flusher, now_ms = self._flusher, self.now_ms()
        append = manager.append_unsynced if flusher is None else manager.append
        outcomes: list[Outcome] = []
        for name, batch, origin, transaction_version, verdict in entries:
            try:
                appended = append(
                    name, batch, now_ms, origin=origin, transaction_version=transaction_version, verdict=verdict
                )
            except LogmendError as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(InvalidRecord("no whole batch") if appended is None else appended)
            if flusher is not None:
                flusher.note(name, len(batch))
        return outcomes

    # ---- the appender's thread

    def _work(self) -> None:
        while group := self._queue.take_group():
            if self._flusher is not None:
                self._flusher.wait_for_room()
            try:
                self._engine.run(lambda manager, group=group: self._carry_out(manager, group))  # type: ignore[misc]
            except LogmendError as error:  # `NotServing`
                _refuse(group, error)
            except Exception as error:  # noqa: BLE001 (a fault of ours: every waiting client gets it, and nothing goes on)
                _refuse(group, error)
                self.fault = f"a fault of logmend itself: {type(error).__name__}: {error}"
                self._queue.close(is_broken=True)
                self._call_loop(self._report_fault, error)
            self._call_loop(self._answer, group)
        rest = self._queue.take_rest()
        _refuse(rest, NotServing("the listener stops"))
        self._call_loop(self._answer, rest)

    def _carry_out(self, manager: LogManager, group: list[Job]) -> None:
        self._logs.see(manager)
        for job in group:
            if job.call is None:
                job.result = self._append_each(manager, job.entries)
                self._plain.update(
                    entry.name
                    for entry, outcome in zip(job.entries, job.result, strict=True)
                    if self._is_plain(entry, outcome)
                )
            else:
                try:
                    job.result = job.call(manager)
                except LogmendError as error:
                    job.error = error
        self._sync(manager, [job for job in group if job.is_durable])
        if self._logs.refresh_topics(manager):
            self._plain.clear()  # a topic may have other settings now, or be another one of that name

    def _is_plain(self, entry: Entry, outcome: Outcome) -> bool:
        """Return whether the next append needs nothing else: no batch is re-encoded, and nothing synced."""
        if isinstance(outcome, LogmendError) or entry.name.topic not in self._logs.topics:
            return False
        config = self._logs.topics[entry.name.topic].config
        return config.compression_type in _AS_IT_IS and config.flush_messages == INT64_MAX

    def _sync(self, manager: LogManager, jobs: list[Job]) -> None:
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: no client waits
            self._loop.call_soon_threadsafe(call, argument)

    # ---- answers, in the loop's thread

    def _answer(self, group: list[Job]) -> None:
        for job in group:
            self._open -= 1
            self.backlog_bytes -= job.size
            if not job.future.done():  # the client may have given up
                if job.error is None:
                    job.future.set_result(job.result)
                else:
                    job.future.set_exception(job.error)
            self._watchers.moved(entry.name for entry in job.entries)
            if job.entries and job.error is None:
                self._full.note(job.result, self.now_ms())

    def _report_fault(self, error: Exception) -> None:
        self.report("fault", f"store: {error!r}")


def _refuse(jobs: list[Job], error: Exception) -> None:
    for job in jobs:
        job.error = error
