"""OwnWorker: the log directories that are ours. Locked, recovered, opened; then the engine's schedules; then closed.

Its thread drives the schedules of one `LogManager` over all of them. A `Listener` serves clients: it is started once
the logs are open and stopped, drained, before they are closed. A listener's threads reach the manager by the `Engine`
alone, which keeps the thread rule of the manager; a compaction lets them in between two of its pieces.

A directory that fails, is held, or belongs to a broker goes offline alone, with its reason; `reopen` closes all of them
cleanly and opens them again. One that was ours and is missing is absent: nothing is created in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Final

from daemon.own.engine import Listener, SharedManager
from daemon.own.known_dirs import KnownDirs
from daemon.own.places import Places
from daemon.own.progress import Interrupted, RecoveryWatch
from daemon.own.recovery_events import tell_recovery
from daemon.own.scrubbers import MakeScrubber, OwnScrubbers
from daemon.status.model import Clock, DirState, Events, LogDirStatus, Worker
from daemon.verify.options import GuardOptions
from engine.logdir.log_dir import LogDir
from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from engine.settings.refusals import LogDirHeld, LogDirStopped, NoLogDir
from storage.base.errors import CorruptData, EnvironmentFault, ExitStatus, LogDirInUse, LogmendError
from storage.base.units import TopicPartition
from storage.disk.fs import Fs

_STEP_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
_SETS_ASIDE: Final = (LogDirInUse, LogDirHeld, LogDirStopped, CorruptData)


class _Ended(LogmendError):
    """A piece of work is cut short because the service stops; it is done the next time."""

    status = ExitStatus.TERMINATED


@dataclass(frozen=True, slots=True)
class OwnSetup:
    """What an `OwnWorker` works with. `state_dir` keeps which directories were ours; None: they are not kept."""

    events: Events
    clock: Clock
    listeners: Sequence[Listener] = ()
    make_scrubber: MakeScrubber | None = None
    state_dir: PurePath | None = None
    moved: Callable[[], int] = lambda: 0
    """Rises with every call of the disk."""


class OwnWorker(Worker):
    """Recovers, opens, drives and closes own log directories; `engine` is how clients reach them."""

    def __init__(self, fs: Fs, paths: Sequence[PurePath], options: ManagerOptions, setup: OwnSetup) -> None:
        self._fs, self._paths, self._setup = fs, tuple(paths), setup
        self._options = replace(options, sets_aside=_SETS_ASIDE, cleaner_throttle=self._throttle(options))
        self.engine = SharedManager()
        self._places = Places(fs, self._paths, setup.clock, setup.events)
        self._known = KnownDirs(fs, setup.state_dir, setup.events)
        self._scrubbers = OwnScrubbers(setup.make_scrubber, setup.clock, self.engine)
        self._watch = self._new_watch()
        self._looked = self._tried = float("-inf")
        self._compacted_bytes = 0
        self._is_stopping = self._wants_reopen = False

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return self._paths

    def beat(self) -> Hashable:
        """See `daemon.service.runner`: what the disk did, and what was scanned or compacted."""
        return self._setup.moved(), self._watch.calls, self._compacted_bytes

    def interrupt(self) -> None:
        """See `daemon.service.runner`: recoveries and compactions are cut short."""
        self._is_stopping = True
        self._watch.stop()

    def wake(self, paths: frozenset[PurePath]) -> None:
        """Ignore changes: they are our own, and a scrubber lists its directory at its own interval."""

    # ---- start

    def start(self) -> None:
        self._open()

    def _open(self) -> None:
        """Open the directories that are present; the state of each says whether it is open."""
        self._tried = self._setup.clock.monotonic()
        self._known.load()
        present = []
        for path in self._paths:
            if reason := self._known.reason_for_absence(path):
                self._places.set_absent(path, reason)
            else:
                if self._places.state(path) is DirState.STOPPED:
                    self._places.change(path, DirState.STARTING)
                present.append(path)
        if not present or self._is_stopping:
            return
        self._watch = self._new_watch()
        options = replace(self._options, reporter=self._watch)
        try:
            manager = LogManager.open(self._fs, present, self._setup.clock.now_ms(), options)
        except Interrupted:
            for path in present:
                self._places.change(path, DirState.STOPPED, "the recovery was cut short; the next start repeats it")
            return
        except LogmendError as error:
            refused = error.refused if isinstance(error, NoLogDir) else {}
            for path in present:
                self._places.set_offline(path, *refused.get(path, (str(error), error.status)))
                self._places.look(path)
            return
        self._serve(manager)

    def _new_watch(self) -> RecoveryWatch:
        def began(path: PurePath) -> None:
            self._places.change(path, DirState.RECOVERING)
            self._setup.events.tell("recovery_started", log_dir=path)

        watch = RecoveryWatch(self._setup.clock.monotonic, began)
        self._places.watch = watch
        return watch

    def _serve(self, manager: LogManager) -> None:
        now_ms = self._setup.clock.now_ms()
        for log_dir in manager.log_dirs:
            progress = tell_recovery(self._setup.events, log_dir, self._watch, now_ms)
            self._places.finish(log_dir.path, progress)
            if log_dir.offline is not None:
                self._places.set_offline(log_dir.path, log_dir.offline, log_dir.status)
                continue
            self._places.set_serving(log_dir.path)
            self._setup.events.tell("log_dir_opened", log_dir=log_dir.path, partitions=len(log_dir.partitions))
            scrubber = self._scrubbers.begin(log_dir.path)
            if scrubber is not None:
                self._places.show_scrubber(log_dir.path, scrubber)
        self._known.remember(log_dir.path for log_dir in manager.log_dirs if log_dir.offline is None)
        self.engine.open(manager)
        for listener in self._setup.listeners:
            listener.start(self.engine)

    # ---- step

    def step(self) -> float:
        began = self._setup.clock.monotonic()
        if self._wants_reopen:
            self._wants_reopen = False
            self._close()
            self._open()
        manager = self.engine.manager
        if manager is None:
            return self._try_again(began)
        self._look_at_places(manager, began)
        self._run_schedules(manager)
        for log_dir in manager.log_dirs:
            if log_dir.offline is not None:
                self._places.set_offline(log_dir.path, log_dir.offline, log_dir.status)
                self._scrubbers.end(log_dir.path)
        wait = self._scrubbers.step(began, _STEP_SECONDS)
        return max(min(_STEP_SECONDS - (self._setup.clock.monotonic() - began), wait), 0.0)

    def _try_again(self, now: float) -> float:
        """Open absent directories and those in use now and then: volumes are mounted late, brokers stop."""
        if now - self._tried >= _RETRY_SECONDS and self._places.is_worth_a_try():
            self._open()
        return _STEP_SECONDS

    def _run_schedules(self, manager: LogManager) -> None:
        self._write_back(manager)
        for fault in self.engine.run_due(self._setup.clock.now_ms()):
            if not isinstance(fault, _Ended):
                self._setup.events.tell("schedule_failed", reason=str(fault))

    def _write_back(self, manager: LogManager) -> None:
        """Write full segments to the disk without the turn, so that no client waits while they are flushed."""
        for _, partition in manager.partitions():
            if partition.rolled_to is not None and not self._is_stopping:
                try:
                    manager.write_back(partition.name)
                except EnvironmentFault as fault:
                    self._fail(partition.name, fault)
                except LogmendError:  # deleted meanwhile
                    continue

    def _fail(self, partition: TopicPartition, fault: EnvironmentFault) -> None:
        self.engine.run(lambda manager: manager.fail(partition, fault))

    def _look_at_places(self, manager: LogManager, now: float) -> None:
        """Take a directory offline that another one has replaced, before anything is written to the other."""
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for path in self._paths:
                self._places.look(path)
        for log_dir in manager.log_dirs:
            if log_dir.offline is None and (reason := self._places.reason_for_change(log_dir.path)):
                self._go_offline(log_dir, reason)

    def _go_offline(self, log_dir: LogDir, reason: str) -> None:
        self.engine.run(lambda _: log_dir.go_offline(reason))

    # ---- from any thread

    def command(self, name: str, argument: str = "") -> str:
        if name == "reopen":
            self._wants_reopen = True
            return "all own log directories are closed cleanly and opened again"
        return self._scrubbers.command(name, argument)

    def adjust(self, options: GuardOptions) -> None:
        """Scrub by other options from the next step on."""
        self._scrubbers.adjust(options.scrub)

    def has_hope(self) -> bool:
        """Tell whether an absent or offline directory could be opened by now: it is present, and its lock is free."""
        return any(self._places.looks_well(path) for path in self._paths)

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
        """Drain, then flush, write the checkpoints and the markers; a fault leaves a directory as after a crash."""
        if self.engine.manager is not None:
            for listener in reversed(self._setup.listeners):
                listener.stop()
        self._scrubbers.end_all()
        with self.engine.closed() as manager:
            if manager is not None:
                for log_dir in [log_dir for log_dir in manager.log_dirs if log_dir.offline is None]:
                    self._close_one(log_dir)

    def _close_one(self, log_dir: LogDir) -> None:
        try:
            log_dir.close()
        except LogmendError as fault:
            log_dir.offline = str(fault)
            self._places.set_offline(log_dir.path, str(fault), fault.status)
        else:
            log_dir.offline = "closed"
            self._places.change(log_dir.path, DirState.STOPPED)
            self._setup.events.tell("log_dir_closed", log_dir=log_dir.path)

    def _throttle(self, options: ManagerOptions) -> Callable[[int], None]:
        """Return what is called between two pieces of a compaction: there clients get their turn."""

        def throttle(size: int) -> None:
            self._compacted_bytes += size
            if self._is_stopping:
                raise _Ended("the service stops")
            self.engine.pause(lambda: options.cleaner_throttle(size))

        return throttle
