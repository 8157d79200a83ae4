"""Follows one log directory that a broker owns: verifies what was flushed, scrubs what is old, changes nothing.

F_GETLK tells whether a broker runs, so the guard can never keep one from starting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from daemon.ends.ends import Ends
from daemon.guard.checkpoint import Checkpoint
from daemon.guard.flushed import FlushedRanges
from daemon.ledger.disk import Disk, read_pressure
from daemon.ledger.ledger import Ledger
from daemon.scrub.scrub import Scrubber
from daemon.status.model import Clock, DirState, Events, LogDirStatus, Mode, Owner, VerificationLag
from daemon.status.owner import read_owner
from daemon.verify.context import ScrubContext
from daemon.verify.device_health import DeviceHealth
from daemon.verify.follow_up import device_name
from daemon.verify.options import GuardOptions
from storage.base.errors import FileVanished, ReadFault
from storage.base.units import TopicPartition
from storage.disk.fs import lock_state

_SHOWN_SECONDS: Final = 1.0
_FREE_SECONDS: Final = 30.0


class GuardWorker:
    """A `Worker` for one log directory. It never takes the lock and never writes below the directory."""

    def __init__(  # noqa: PLR0913 (what it works on, and what stands for the machine)
        self,
        log_dir: PurePath,
        ledger: Ledger,
        clock: Clock,
        events: Events,
        options: GuardOptions,
        *,
        disk: Disk | None = None,
        draw: Callable[[], float] | None = None,
        pressure: Callable[[], float | None] | None = None,
        health: DeviceHealth | None = None,
    ) -> None:
        self._options = options
        self._scrubber = Scrubber(
            log_dir, ledger, clock, events, options.scrub, flushed=self._point_of, disk=disk, draw=draw,
            pressure=pressure, health=health,
        )  # fmt: skip
        self._context = self._scrubber.context
        self._checkpoint = Checkpoint(self._context)
        self._ranges: FlushedRanges | None = None
        self._ends = Ends(self._context, options, pressure or read_pressure, self._topic_id_of)
        self._broker = _Broker(self._context)
        self._display = _Display(self._context)
        self._root: tuple[int, int] | None = None
        self._is_behind = False
        self._woken = threading.Event()
        self._adjusted: deque[GuardOptions] = deque()
        self._look_at = clock.monotonic()
        self._status = self._make_status()

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return (self._context.log_dir,)

    @property
    def is_listed(self) -> bool:
        """The segments of every partition have been listed since the start."""
        return self._scrubber.generation.census.is_complete

    # ---- from any thread

    def wake(self, paths: frozenset[PurePath]) -> None:
        if self._checkpoint.path in paths or self._context.log_dir in paths:
            self._woken.set()

    def command(self, name: str, argument: str = "") -> str:
        return self._scrubber.command(name, argument)

    def status(self) -> tuple[LogDirStatus, ...]:
        return (self._status,)

    def adjust(self, options: GuardOptions) -> None:
        """Work with other options from the next step on."""
        self._adjusted.append(options)

    # ---- on its own thread

    def start(self) -> None:
        self._scrubber.start()
        self._ranges = self._new_ranges()
        self._broker.look(self._options.broker_seconds)
        self._look()
        if self._display.state is DirState.GUARDING:
            self._context.tell("log_dir_guarded", partitions=len(self._scrubber.generation.census.partitions))
        self._show()

    def _new_ranges(self) -> FlushedRanges:
        return FlushedRanges(self._context, self._scrubber.generation, self._options, self._read_again)

    def step(self) -> float:
        while self._adjusted:
            self._adjust(self._adjusted.popleft())
        now = self._context.clock.monotonic()
        if self._woken.is_set() or now >= self._look_at or self._is_ledger_new():
            self._woken.clear()
            self._look()
        if now >= self._broker.look_at:
            self._broker.look(self._options.broker_seconds)
        wait = self._look_at - now
        if self._display.state is DirState.GUARDING:
            wait = min(wait, self._ends.step(), self._work(now))
        if now >= self._display.show_at:
            self._show()
        return max(min(wait, self._broker.look_at - now), 0.0)

    def _work(self, now: float) -> float:
        assert self._ranges is not None
        rest = self._ranges.step()
        lag = self._ranges.backlog.lag()
        was_behind, self._is_behind = self._is_behind, lag.seconds > self._options.verify_within_seconds
        if self._is_behind and not was_behind:
            self._context.tell("verification_behind", seconds=int(lag.seconds), bytes=lag.bytes)
        if rest is not None:
            return rest  # what is new comes first: the scrubber has days
        wait = self._scrubber.step()
        retry_at = self._ranges.backlog.next_at()
        return wait if retry_at is None else min(wait, max(retry_at - now, 0.0))

    def stop(self) -> None:
        if self._ranges is not None:
            self._ranges.close()
        self._ends.close()
        self._scrubber.close()
        self._display.enter(DirState.STOPPED, "")
        self._show()

    def _adjust(self, options: GuardOptions) -> None:
        self._options = self._ends.options = options
        self._scrubber.adjust(options.scrub)
        if self._ranges is not None:
            self._ranges.options = options
        self._look_at = self._broker.look_at = self._context.clock.monotonic()

    # ---- the directory and its checkpoint

    def _look(self) -> None:
        """Look at the directory and its checkpoint; a fault of theirs becomes a state, never an exception."""
        self._look_at = self._context.clock.monotonic() + self._options.poll_seconds
        try:
            if not self._is_there():
                self._leave(DirState.ABSENT, "it is empty: is its file system mounted?")
                return
            self._come_back()
            self._read_checkpoint()
        except FileVanished as fault:
            self._leave(DirState.ABSENT, str(fault))
        except ReadFault as fault:
            self._leave(DirState.OFFLINE, str(fault))

    def _is_there(self) -> bool:
        """Tell whether it is the log directory, not an empty mount point that took its place. Raises `ReadFault`."""
        stat = self._context.disk.stat(self._context.log_dir)
        root = (stat.device, stat.inode)
        if root == self._root and self._display.state is DirState.GUARDING:
            return True
        census = self._scrubber.generation.census
        if census.partitions and not census.has_anything():
            return False
        if self._root is not None and root != self._root:
            self._checkpoint.forget()
        self._root = root
        return True

    def _leave(self, state: DirState, reason: str) -> None:
        if self._display.state is not state:
            self._context.tell("log_dir_absent" if state is DirState.ABSENT else "log_dir_offline", reason=reason)
            if self._ranges is not None:
                self._ranges.close()
            self._scrubber.pause_reading()
        self._display.enter(state, reason)

    def _come_back(self) -> None:
        if self._display.state in (DirState.ABSENT, DirState.OFFLINE):
            self._context.tell("log_dir_back")
            self._scrubber.restart()
            self._ends.restart()
        if self._display.state is not DirState.GUARDING:
            self._scrubber.generation.census.look_at_root()
            self._display.enter(DirState.GUARDING, "")

    def _is_ledger_new(self) -> bool:
        return self._ranges is not None and self._ranges.generation is not self._scrubber.generation

    def _read_checkpoint(self) -> None:
        assert self._ranges is not None
        if self._is_ledger_new():
            self._ranges.close()
            self._ranges = self._new_ranges()
            self._checkpoint.forget()
        points = self._checkpoint.read()
        if points is None:
            return
        self._ends.take_points(points)
        if moved := self._ranges.take_points(points):
            self._context.tell("checkpoint_changed", partitions=moved)

    def _read_again(self) -> None:
        """Read the checkpoint again, changed or not, to confirm what it claims."""
        self._checkpoint.forget()
        self._look()

    def _point_of(self, name: TopicPartition) -> int | None:
        return None if self._ranges is None else self._ranges.backlog.points.get(name)

    def _topic_id_of(self, directory: str) -> str:
        return self._scrubber.generation.census.topic_id(directory)

    # ---- showing

    def _show(self) -> None:
        self._display.renew()
        self._status = self._make_status()

    def _make_status(self) -> LogDirStatus:
        display = self._display
        status = LogDirStatus(
            self._context.log_dir, Mode.GUARD, display.state, display.reason or self._context.ledger.trouble,
            display.since_ms, broker_pid=self._broker.pid,
            lag=VerificationLag(0, 0, 0.0) if self._ranges is None else self._ranges.backlog.lag(),
            exposure=self._ends.exposure, owner=display.owner, free_bytes=display.free_bytes,
            device="" if self._root is None else device_name(self._root[0]),
        )  # fmt: skip
        return self._scrubber.board.complete(status)


class _Broker:
    """The process that holds the lock of the log directory."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.pid: int | None = None
        self.look_at = context.clock.monotonic()

    def look(self, interval: float) -> None:
        """Ask for the holder of the lock, and set the time of the next look."""
        self.look_at = self._context.clock.monotonic() + interval
        try:
            pid = lock_state(self._context.log_dir)
        except ReadFault:
            return  # the lock cannot be queried; what is known stays
        if pid != self.pid:
            if pid is not None:
                self._context.tell("broker_appeared", pid=pid)
            else:
                self._context.tell("broker_gone")
        self.pid = pid


class _Display:
    """The state of the log directory, why and since when, the space on its disk, and when to show them next."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.state, self.reason, self.since_ms = DirState.STARTING, "", context.clock.now_ms()
        self.free_bytes: int | None = None
        self.owner = Owner()
        self.show_at = self._free_at = context.clock.monotonic()

    def enter(self, state: DirState, reason: str) -> None:
        """Change the state; another one is shown at once."""
        if state is not self.state:
            self.since_ms = self._context.clock.now_ms()
            self.show_at = self._context.clock.monotonic()
        self.state, self.reason = state, reason

    def renew(self) -> None:
        """Look at the free space and the owner, if it is time, and set the time of the next showing."""
        now = self._context.clock.monotonic()
        self.show_at = now + _SHOWN_SECONDS
        if now >= self._free_at:
            self._free_at = now + _FREE_SECONDS
            self.owner = read_owner(self._context.disk, self._context.log_dir)
            try:
                self.free_bytes = self._context.disk.free_bytes(self._context.log_dir)
            except ReadFault:
                self.free_bytes = None
