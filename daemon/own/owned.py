"""OwnWorker: the log directories that are ours. Locked, recovered, opened; then the engine's schedules; then closed.

Its thread drives the schedules of one `LogManager` over all of them. Whoever serves clients is a `Listener`: it is
started once the logs are open and stopped, drained, before they are closed. A listener's threads reach the manager by
`OwnWorker.run` alone, which keeps the thread rule of the manager; a compaction lets them in between two of its pieces.

A directory that fails, is held, or belongs to somebody else goes offline alone, with its reason; `reopen` closes all in
good order and opens all again. One that was ours and is not there is absent: nothing is made in its place.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final, Protocol, TypeVar

from daemon.own.known_dirs import id_of, read_known, reason_for_absence, write_known
from daemon.own.places import Places
from daemon.own.progress import Interrupted, RecoveryWatch
from daemon.own.recovery_events import tell_recovery
from daemon.own.turn import Turn
from daemon.scrub.orders import COMMANDS
from daemon.scrub.scrub import Scrubber
from daemon.scrub.verify_options import GuardOptions
from daemon.status.model import Clock, DirState, Events, ListenerStatus, LogDirStatus, Worker
from engine.logdir.log_dir import LogDir
from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from engine.settings.refusals import LogDirHeld, LogDirStopped, NoLogDir
from storage.base.errors import (
    CorruptData,
    EnvironmentFault,
    ExitStatus,
    LogDirInUse,
    LogmendError,
    printable,
)
from storage.base.units import TopicPartition
from storage.disk.fs import Fs

T = TypeVar("T")
MakeScrubber = Callable[[PurePath, Callable[[TopicPartition], int | None]], Scrubber]
"""Makes the scrubber of a log directory, which asks for recovery points."""

_STEP_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
_SETS_ASIDE: Final = (LogDirInUse, LogDirHeld, LogDirStopped, CorruptData)


class NotServing(LogmendError):
    """The logs are not open yet, or no more."""

    status = ExitStatus.ENVIRONMENT


class _Ended(LogmendError):
    """A piece of work is cut short because the service stops; it is done the next time."""

    status = ExitStatus.TERMINATED


class Engine(Protocol):
    """What a listener is given: the way to the log manager."""

    def run(self, call: Callable[[LogManager], T]) -> T:
        """Return what `call` returns, or raise what it raises, while nobody else is at the manager.

        Raises `NotServing` before the logs are open and once they are being closed.
        """

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        """Do as `run` does, but never wait: return None, with nothing done, while somebody else is at the manager."""


class Listener(Protocol):
    """Serves clients. All three are called by the worker's thread, `status` by any."""

    def start(self, engine: Engine) -> None:
        """Begin to serve; returns at once, its work is done by threads of its own."""

    def status(self) -> ListenerStatus:
        """Return what there is to show, at once."""

    def stop(self) -> None:
        """Take no more, finish what was begun within a bounded time, and let go."""


@dataclass(frozen=True, slots=True)
class OwnSetup:
    """What an `OwnWorker` works with. `state_dir` remembers which directories were ours; None: nothing does."""

    events: Events
    clock: Clock
    listeners: Sequence[Listener] = ()
    make_scrubber: MakeScrubber | None = None
    state_dir: PurePath | None = None
    moved: Callable[[], int] = lambda: 0
    """Rises whenever the disk has done something."""


class OwnWorker(Worker):
    """See the module."""

    def __init__(self, fs: Fs, paths: Sequence[PurePath], options: ManagerOptions, setup: OwnSetup) -> None:
        self._fs, self._paths, self._setup = fs, tuple(paths), setup
        self._events, self._clock = setup.events, setup.clock
        self._options = replace(options, sets_aside=_SETS_ASIDE, cleaner_throttle=self._throttle(options))
        self._places = Places(self._paths, setup.clock)
        self._watch = self._new_watch()
        self._turn = Turn()
        self._in_schedules: int | None = None
        """The thread that runs the schedules while they run."""
        self._manager: LogManager | None = None
        self._scrubbers: dict[PurePath, Scrubber] = {}
        self._scrub_due: dict[PurePath, float] = {}
        self._looked = self._tried = float("-inf")
        self._aside: dict[PurePath, str] = {}
        self._bytes = 0
        self._is_stopping = self._wants_reopen = False

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return self._paths

    def run(self, call: Callable[[LogManager], T]) -> T:
        """See `Engine`."""
        with self._turn.taken():
            if self._manager is None:
                raise NotServing("the logs are not open")
            return call(self._manager)

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        """See `Engine`."""
        if not self._turn.take_if_free():
            return None
        try:
            if self._manager is None:
                raise NotServing("the logs are not open")
            return call(self._manager)
        finally:
            self._turn.give_back()

    def beat(self) -> Hashable:
        """See `daemon.service.runner`: what the disk did, and what was scanned or compacted."""
        return self._setup.moved(), self._watch.calls, self._bytes

    def interrupt(self) -> None:
        """See `daemon.service.runner`: recoveries and compactions are cut short."""
        self._is_stopping = True
        self._watch.stop()

    def wake(self, paths: frozenset[PurePath]) -> None:
        """Changes are our own; a scrubber lists its directory in its own time."""

    # ---- start

    def start(self) -> None:
        self._open()

    def _open(self) -> None:
        """Open what can be opened; each directory's state says what came of it."""
        self._tried = self._clock.monotonic()
        known = {} if self._setup.state_dir is None else read_known(self._fs, self._setup.state_dir)
        there = []
        for path in self._paths:
            if reason := reason_for_absence(self._fs, path, known):
                self._places.change(path, DirState.ABSENT, reason)
                if self._aside.get(path) != reason:
                    self._aside[path] = reason
                    self._events.tell("log_dir_absent", log_dir=path, reason=reason)
            else:
                if self._places.state(path) is DirState.STOPPED:
                    self._places.change(path, DirState.STARTING)
                there.append(path)
        if not there or self._is_stopping:
            return
        self._watch = self._new_watch()
        options = replace(self._options, reporter=self._watch)
        try:
            manager = LogManager.open(self._fs, there, self._clock.now_ms(), options)
        except Interrupted:
            for path in there:
                self._places.change(path, DirState.STOPPED, "the recovery was cut short; the next start begins it anew")
            return
        except LogmendError as error:
            refused = error.refused if isinstance(error, NoLogDir) else {}
            for path in there:
                self._leave_aside(path, *refused.get(path, (str(error), error.status)))
                self._places.look(self._fs, path)
            return
        self._serve(manager, known)

    def _new_watch(self) -> RecoveryWatch:
        def began(path: PurePath) -> None:
            self._places.change(path, DirState.RECOVERING)
            self._events.tell("recovery_started", log_dir=path)

        watch = RecoveryWatch(self._clock.monotonic, began)
        self._places.watch = watch
        return watch

    def _serve(self, manager: LogManager, known: Mapping[str, str]) -> None:
        now_ms = self._clock.now_ms()
        for log_dir in manager.log_dirs:
            progress = tell_recovery(self._events, log_dir, self._watch, now_ms)
            self._places.finish(log_dir.path, progress)
            if log_dir.offline is not None:
                self._leave_aside(log_dir.path, log_dir.offline, log_dir.status)
                continue
            if log_dir.path in self._aside:
                del self._aside[log_dir.path]
                self._events.tell("log_dir_back", log_dir=log_dir.path)
            self._places.change(log_dir.path, DirState.SERVING)
            self._places.pin(self._fs, log_dir.path)
            self._events.tell("log_dir_opened", log_dir=log_dir.path, partitions=len(log_dir.partitions))
            self._begin_scrub(log_dir.path)
        self._remember(manager, known)
        with self._turn.taken():
            self._manager = manager
        for listener in self._setup.listeners:
            listener.start(self)

    def _leave_aside(self, path: PurePath, reason: str, status: ExitStatus) -> None:
        reason = reason.removeprefix(f"{printable(path)}: ")
        self._places.change(path, DirState.OFFLINE, reason, status)
        if self._aside.get(path) != reason:
            self._aside[path] = reason
            self._events.tell("log_dir_offline", log_dir=path, reason=reason)

    def _remember(self, manager: LogManager, known: Mapping[str, str]) -> None:
        """Note which directories are ours by now."""
        if self._setup.state_dir is None:
            return
        online = [log_dir.path for log_dir in manager.log_dirs if log_dir.offline is None]
        found = {str(path): each for path in online if (each := id_of(self._fs, path)) is not None}
        if all(known.get(path) == each for path, each in found.items()):
            return
        try:
            write_known(self._fs, self._setup.state_dir, {**known, **found})
        except EnvironmentFault as fault:
            self._events.tell("status_not_written", path=self._setup.state_dir, reason=str(fault))

    # ---- step

    def step(self) -> float:
        began = self._clock.monotonic()
        if self._wants_reopen:
            self._wants_reopen = False
            self._close()
            self._open()
        if self._manager is None:
            return self._look_again(began)
        self._look_at_places(self._manager, began)
        self._run_schedules(self._manager)
        self._leave_aside_what_failed(self._manager)
        wait = self._scrub(began)
        return max(min(_STEP_SECONDS - (self._clock.monotonic() - began), wait), 0.0)

    def _look_again(self, now: float) -> float:
        """Open once more what was absent or in use, now and then: volumes are mounted late, brokers stop."""
        if now - self._tried >= _RETRY_SECONDS and self._places.is_worth_a_try():
            self._open()
        return _STEP_SECONDS

    def _run_schedules(self, manager: LogManager) -> None:
        self._write_back(manager)
        with self._turn.taken():
            self._in_schedules = threading.get_ident()
            try:
                failed = manager.run_due(self._clock.now_ms())
            finally:
                self._in_schedules = None
        for fault in failed:
            if not isinstance(fault, _Ended):
                self._events.tell("schedule_failed", reason=str(fault))

    def _write_back(self, manager: LogManager) -> None:
        """Bring full segments to the disk before the turn is taken, so that nobody waits while they are flushed."""
        for _, partition in manager.partitions():
            if partition.rolled_to is not None and not self._is_stopping:
                try:
                    manager.write_back(partition.name)
                except EnvironmentFault as fault:
                    with self._turn.taken():
                        manager.fail(partition.name, fault)
                except LogmendError:  # deleted meanwhile
                    continue

    def _look_at_places(self, manager: LogManager, now: float) -> None:
        """Give up what is no longer the directory that was opened, before anything is written in its place."""
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for path in self._paths:
                self._places.look(self._fs, path)
        for log_dir in manager.log_dirs:
            if log_dir.offline is None and (reason := self._places.reason_for_change(self._fs, log_dir.path)):
                with self._turn.taken():
                    log_dir.go_offline(reason)

    def _leave_aside_what_failed(self, manager: LogManager) -> None:
        for log_dir in manager.log_dirs:
            if log_dir.offline is not None:
                self._leave_aside(log_dir.path, log_dir.offline, log_dir.status)
                self._end_scrub(log_dir.path)

    # ---- scrub: outside the turn, for it reads what does not change any more

    def _begin_scrub(self, path: PurePath) -> None:
        if self._setup.make_scrubber is None:
            return
        scrubber = self._setup.make_scrubber(path, self._recovery_point)
        scrubber.start()
        self._scrubbers[path] = self._places.scrubbers[path] = scrubber
        self._scrub_due[path] = float("-inf")

    def _end_scrub(self, path: PurePath) -> None:
        scrubber = self._scrubbers.pop(path, None)
        if scrubber is not None:
            scrubber.close()

    def _recovery_point(self, partition: TopicPartition) -> int | None:
        with contextlib.suppress(LogmendError):
            return self.run(lambda manager: int(manager.log(partition).recovery_point))
        return None

    def _scrub(self, now: float) -> float:
        """Let the scrubber that has waited longest take a step; return the seconds until the next one is due."""
        due = sorted((self._scrub_due[path], str(path), path) for path in self._scrubbers)
        if not due:
            return _STEP_SECONDS
        at, _, path = due[0]
        if at > now:
            return at - now
        self._scrub_due[path] = self._clock.monotonic() + self._scrubbers[path].step()
        return max(min(self._scrub_due[path] for path in self._scrubbers) - self._clock.monotonic(), 0.0)

    # ---- orders and looks

    def command(self, name: str, argument: str = "") -> str:
        if name == "reopen":
            self._wants_reopen = True
            return "all own log directories are closed in good order and opened again"
        if name not in COMMANDS:
            raise ValueError(f"unknown order {name}")
        answers = [scrubber.command(name, argument) for scrubber in tuple(self._scrubbers.values())]
        return "\n".join(dict.fromkeys(answers)) or "no own log directory is open"

    def adjust(self, options: GuardOptions) -> None:
        """Scrub by other options from now on."""
        for scrubber in tuple(self._scrubbers.values()):
            scrubber.adjust(options.scrub)

    def has_hope(self) -> bool:
        """Tell whether a directory that is left aside could be opened by now: it is there, and nobody holds it."""
        return any(self._places.looks_well(self._fs, path) for path in self._paths)

    def status(self) -> tuple[LogDirStatus, ...]:
        return tuple(self._places.status(path) for path in self._paths)

    # ---- stop

    def stop(self) -> None:
        self._is_stopping = True
        self._close()
        for path in self._paths:
            if self._places.state(path) in (DirState.STARTING, DirState.RECOVERING):
                self._places.change(path, DirState.STOPPED)

    def _close(self) -> None:
        """Drain, then flush, write the checkpoints and the markers; what fails is left as after a crash."""
        if self._manager is not None:
            for listener in reversed(self._setup.listeners):
                listener.stop()
        for path in tuple(self._scrubbers):
            self._end_scrub(path)
        with self._turn.taken():
            manager, self._manager = self._manager, None
            if manager is None:
                return
            open_ones = [log_dir for log_dir in manager.log_dirs if log_dir.offline is None]
            for log_dir in open_ones:
                self._close_one(log_dir)

    def _close_one(self, log_dir: LogDir) -> None:
        try:
            log_dir.close()
        except LogmendError as fault:
            log_dir.offline = str(fault)
            self._leave_aside(log_dir.path, str(fault), fault.status)
        else:
            log_dir.offline = "closed"
            self._places.change(log_dir.path, DirState.STOPPED)
            self._events.tell("log_dir_closed", log_dir=log_dir.path)

    def _throttle(self, options: ManagerOptions) -> Callable[[int], None]:
        """Return what is called between two pieces of a compaction: there clients get their turn."""

        def throttle(size: int) -> None:
            self._bytes += size
            if self._is_stopping:
                raise _Ended("the service stops")
            if self._in_schedules == threading.get_ident():
                with self._turn.passed_on():
                    options.cleaner_throttle(size)
            else:  # a client had it compacted
                options.cleaner_throttle(size)

        return throttle
