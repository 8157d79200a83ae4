"""Service: gives each worker a thread, passes changes to them, reports their status, and ends them cleanly.

`run` belongs to the main thread and returns when the service has ended; `status`, `command`, `request_stop`,
`request_reload` and `changed` may be called from any thread, the requests from a signal handler as well.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, Protocol

from daemon.service.runner import Runner
from daemon.service.systemd import Systemd
from daemon.status.file import StatusFile
from daemon.status.line import status_line
from daemon.status.model import PASSING, Clock, DirState, Events, ListenerStatus, LogDirStatus, ServiceStatus, Worker
from storage.base.errors import ConfigInvalid, ExitStatus, worst

_EXTEND_EVERY: Final = 5.0
_STILL_SECONDS: Final = 30.0
"""Time that a worker may stand still and count as moving, where systemd sets no watchdog."""
_SETTLED: Final = (DirState.SERVING, DirState.GUARDING, DirState.OFFLINE, DirState.ABSENT, DirState.STOPPED)


class Part(Protocol):
    """Runs beside the workers with threads of its own: the watcher, the HTTP server.

    The main thread calls `start` and `stop`.
    """

    def start(self) -> None:
        """Begin; returns at once. A fault is told as an event, and the service goes on without the part."""

    def beat(self) -> bool:
        """Tell whether its threads are alive; `True` where it has none. Called about once a second."""

    def stop(self) -> None:
        """End, within a second or two."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload: keys in force now, and keys that need a restart."""

    changed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What a service needs besides its workers."""

    version: str
    kernel: str
    events: Events
    clock: Clock
    systemd: Systemd = field(default_factory=Systemd)
    status_file: StatusFile | None = None
    reload: Callable[[], Reloaded] = Reloaded
    """Reads the configuration again and puts the live keys in force; `ConfigInvalid` if it is wrong."""
    config_path: str = ""
    counters: Callable[[], dict[str, int]] = dict
    listeners: Callable[[], tuple[ListenerStatus, ...]] = tuple
    tick_seconds: float = 1.0
    """Interval between two looks of the main thread."""


class Service:
    """Runs workers and parts until an order to stop comes."""

    def __init__(self, workers: Sequence[Worker], setup: Setup) -> None:
        self._setup, self._events, self._clock = setup, setup.events, setup.clock
        self._runners = [Runner(worker, setup.events) for worker in workers]
        self._parts: list[Part] = []
        # Signal handlers put orders in: no other queue allows that while the same thread is in a `get`.
        self._orders: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._started_ms = setup.clock.now_ms()
        self._stopping = self._was_ready = self._is_refused = False
        now = setup.clock.monotonic()
        self._moved = dict.fromkeys(range(len(self._runners)), now)
        self._parts_moved = self._extended = self._began = now
        self._line = ""

    def add(self, part: Part) -> None:
        """Add a part, before `run`. Parts start before the workers and stop after them, in reverse order."""
        self._parts.append(part)

    def changed(self, paths: Iterable[PurePath]) -> None:
        """Wake each worker with the changed paths in its log directories."""
        changed = frozenset(paths)
        for runner in self._runners:
            mine = frozenset(p for p in changed if any(p.is_relative_to(d) for d in runner.worker.log_dirs))
            if mine:
                runner.wake(mine)

    def status(self) -> ServiceStatus:
        """Return the status of the service, at once."""
        log_dirs = tuple(each for runner in self._runners for each in runner.status())
        listeners = self._setup.listeners()
        is_settled = all(each.state in _SETTLED for each in log_dirs)
        is_serving = any(each.state is DirState.SERVING for each in log_dirs)
        lacks_clients = is_serving and any(listener.reason for listener in listeners)
        return ServiceStatus(
            self._setup.version, self._setup.kernel, os.getpid(), self._started_ms, self._clock.now_ms(),
            ready=is_settled and not self._stopping and not lacks_clients,
            stopping=self._stopping, log_dirs=log_dirs, listeners=listeners, counters=self._setup.counters(),
            host=os.uname().nodename,
        )  # fmt: skip

    def command(self, name: str, argument: str = "", log_dir: PurePath | None = None) -> str:
        """Give an order to the worker of a log directory, or to every one; `ValueError` if none accepts it."""
        asked = [r for r in self._runners if log_dir is None or log_dir in r.worker.log_dirs]
        if not asked:
            raise ValueError(f"no such log directory: {log_dir}")
        answers, refusals = [], []
        for runner in asked:
            try:
                answers.append(runner.command(name, argument))
            except ValueError as error:
                refusals.append(error)
        if not answers:
            raise refusals[0]
        return "\n".join(dict.fromkeys(answers))

    def request_stop(self, reason: str = "asked to stop") -> None:
        """Have the service stop; returns at once."""
        self._orders.put(("stop", reason))

    def request_reload(self) -> None:
        """Have the configuration read again; returns at once."""
        self._orders.put(("reload", ""))

    def run(self) -> ExitStatus:
        """Work until asked to stop; return the worst status of the log directories."""
        paths = [str(path) for runner in self._runners for path in runner.worker.log_dirs]
        setup = self._setup
        self._events.tell(
            "service_started", version=setup.version, kernel=setup.kernel, pid=os.getpid(), log_dirs=paths
        )
        self._start_parts()
        for runner in self._runners:
            runner.start()
        reason = self._work()
        return self._end(reason)

    def _start_parts(self) -> None:
        """Start all parts; one that refuses ends the start, and is raised once the others are stopped."""
        with contextlib.ExitStack() as undo:
            for part in self._parts:
                part.start()
                undo.callback(part.stop)
            undo.pop_all()

    # ---- while it runs, all of it by the main thread

    def _work(self) -> str:
        """Tick until an order to stop comes, or no worker is left; return why."""
        while True:
            if all(runner.has_ended for runner in self._runners):
                return "no worker is left"
            if refusal := self._tick():
                self._is_refused = True
                return refusal
            try:
                order, reason = self._orders.get(timeout=self._setup.tick_seconds)
            except queue.Empty:
                continue
            if order == "stop":
                return reason
            self._reload()

    def _tick(self) -> str:
        """Look at the workers and parts; return why the start has failed, empty while it has not."""
        status = self.status()
        self._tell_systemd(status)
        if status.ready and not self._was_ready:
            self._was_ready = True
            self._setup.systemd.ready()
            self._events.tell("service_ready", seconds=round(self._clock.monotonic() - self._began, 3))
        if self._setup.status_file is not None:
            self._setup.status_file.write(status)
        refusals = [each.reason for each in status.listeners if each.reason and each.reason not in PASSING]
        return "" if self._was_ready or not refusals else f"Kafka clients cannot be served: {refusals[0]}"

    def _tell_systemd(self, status: ServiceStatus) -> None:
        """Send the status; a sign of life, or a request for time, only if every worker and part moves."""
        systemd = self._setup.systemd
        now = self._clock.monotonic()
        for number, runner in enumerate(self._runners):
            if runner.has_moved():
                self._moved[number] = now
        if not [part for part in self._parts if not part.beat()]:
            self._parts_moved = now
        if not systemd.is_listening:
            return
        if (line := status_line(status)) != self._line:
            self._line = line
            systemd.status(line)
        allowed = _STILL_SECONDS if systemd.watchdog_seconds is None else systemd.watchdog_seconds / 2
        if now - min([*self._moved.values(), self._parts_moved]) > allowed:
            return
        if self._was_ready:
            systemd.alive()
        if (not self._was_ready or self._stopping) and now - self._extended >= _EXTEND_EVERY:
            self._extended = now
            systemd.extend()

    def _reload(self) -> None:
        self._setup.systemd.reloading()
        path = self._setup.config_path
        try:
            done = self._setup.reload()
        except ConfigInvalid as error:
            self._events.tell("config_refused", path=path, reason=str(error))
        else:
            self._events.tell("config_reloaded", path=path, changed=done.changed, waiting=done.waiting)
        if self._was_ready:
            self._setup.systemd.ready()

    # ---- the end

    def _end(self, reason: str) -> ExitStatus:
        began = self._clock.monotonic()
        self._stopping = True
        self._setup.systemd.stopping()
        self._events.tell("service_stopping", reason=reason)
        before = self.status()
        for runner in self._runners:
            runner.request_stop()
        self._extended = 0.0
        for runner in self._runners:
            while not runner.join(self._setup.tick_seconds):
                self._tell_systemd(self.status())
        for part in reversed(self._parts):
            part.stop()
        after = self.status()
        status = worst(
            [
                ExitStatus.ENVIRONMENT if self._is_refused else ExitStatus.CLEAN,
                *(exit_status(*pair, has_failed=run.failure is not None) for run, pair in self._pairs(before, after)),
            ]
        )
        if self._setup.status_file is not None:
            self._setup.status_file.write(after, is_last=True)
        seconds = round(self._clock.monotonic() - began, 3)
        self._events.tell("service_stopped", status=status.value, seconds=seconds)
        return status

    def _pairs(
        self, before: ServiceStatus, after: ServiceStatus
    ) -> Iterable[tuple[Runner, tuple[LogDirStatus, LogDirStatus]]]:
        """Yield each log directory as it was when the end began and as it is now, with its runner."""
        runners = [runner for runner in self._runners for _ in runner.worker.log_dirs]
        return zip(runners, zip(before.log_dirs, after.log_dirs, strict=True), strict=True)


def exit_status(before: LogDirStatus, after: LogDirStatus, *, has_failed: bool) -> ExitStatus:
    """Return the exit status for a log directory, from its state before the end and after it."""
    statuses = [ExitStatus(each.exit_status) for each in (before, after)]
    if has_failed:
        statuses.append(ExitStatus.BUG)
    if before.findings:
        statuses.append(ExitStatus.FINDINGS)
    is_left_aside = any(each.state in (DirState.OFFLINE, DirState.ABSENT) for each in (before, after))
    if is_left_aside and not any(statuses):
        statuses.append(ExitStatus.ENVIRONMENT)
    return worst(statuses)
