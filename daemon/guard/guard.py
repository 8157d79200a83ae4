"""Follows one log directory that a broker owns: verifies what was flushed, scrubs what is old, changes nothing.

Whether a broker is there is asked with F_GETLK, so that looking can never keep one from starting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from checkpoint.offsets import LIMIT, RECOVERY_POINTS, decode_offsets
from daemon.guard.flushed import FlushedRanges
from daemon.ledger.disk import Disk
from daemon.ledger.ledger import Ledger
from daemon.scrub.device_health import DeviceHealth
from daemon.scrub.scrub import Scrubber
from daemon.scrub.verdicts import device_name
from daemon.scrub.verify_options import GuardOptions
from daemon.status.model import Clock, DirState, Events, LogDirStatus, Mode, VerificationLag
from recovery.plan.findings import Damage, Finding
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.base.units import TopicPartition
from storage.disk.fs import FileStat, lock_state

_SHOWN_SECONDS: Final = 1.0
_FREE_SECONDS: Final = 30.0
_Mark = tuple[int, int, int]


def _mark(stat: FileStat) -> _Mark:
    return stat.size, stat.mtime_ns, stat.inode


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
        self._log_dir, self._ledger, self._clock, self._events, self._options = log_dir, ledger, clock, events, options
        self._disk = disk or Disk()
        self._scrubber = Scrubber(
            log_dir, ledger, clock, events, options.scrub, flushed=self._point_of, disk=self._disk, draw=draw,
            pressure=pressure, health=health,
        )  # fmt: skip
        self._ranges: FlushedRanges | None = None
        self._checkpoint = log_dir / RECOVERY_POINTS
        self._mark: _Mark | None = None
        self._bad_mark: _Mark | None = None
        self._root: tuple[int, int] | None = None
        self._broker: int | None = None
        self._woken = threading.Event()
        self._adjusted: deque[GuardOptions] = deque()
        self._look_at = self._broker_at = self._shown_at = self._free_at = clock.monotonic()
        self._behind_told = False
        self._free: int | None = None
        self._state, self._reason, self._since_ms = DirState.STARTING, "", clock.now_ms()
        self._status = self._made_status()

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return (self._log_dir,)

    @property
    def is_listed(self) -> bool:
        """Every partition has been asked for its segments since the start."""
        return self._scrubber.census.is_complete

    # ---- from any thread

    def wake(self, paths: frozenset[PurePath]) -> None:
        if self._checkpoint in paths or self._log_dir in paths:
            self._woken.set()

    def command(self, name: str, argument: str = "") -> str:
        return self._scrubber.command(name, argument)

    def status(self) -> tuple[LogDirStatus, ...]:
        return (self._status,)

    def adjust(self, options: GuardOptions) -> None:
        """Go on with other options."""
        self._adjusted.append(options)

    # ---- on its own thread

    def start(self) -> None:
        self._scrubber.start()
        self._ranges = self._new_ranges()
        self._ask_for_broker()
        self._look()
        if self._state is DirState.GUARDING:
            self._events.tell(
                "log_dir_guarded", log_dir=self._log_dir, partitions=len(self._scrubber.census.partitions)
            )
        self._show()

    def _new_ranges(self) -> FlushedRanges:
        return FlushedRanges(self._scrubber, self._clock, self._events, self._options, self._read_again)

    def step(self) -> float:
        while self._adjusted:
            self._adjust(self._adjusted.popleft())
        now = self._clock.monotonic()
        if self._woken.is_set() or now >= self._look_at:
            self._woken.clear()
            self._look()
        if now >= self._broker_at:
            self._ask_for_broker()
        wait = self._look_at - now
        if self._state is DirState.GUARDING:
            wait = min(wait, self._work(now))
        if now >= self._shown_at:
            self._show()
        return max(min(wait, self._broker_at - now), 0.0)

    def _work(self, now: float) -> float:
        assert self._ranges is not None
        rest = self._ranges.step()
        lag = self._ranges.lag()
        is_behind = lag.seconds > self._options.verify_within_seconds
        if is_behind and not self._behind_told:
            self._events.tell("verification_behind", log_dir=self._log_dir, seconds=int(lag.seconds), bytes=lag.bytes)
        self._behind_told = is_behind
        if rest is not None:
            return rest  # what is new comes first: the scrubber has days
        wait = self._scrubber.step()
        retry_at = self._ranges.next_at()
        return wait if retry_at is None else min(wait, max(retry_at - now, 0.0))

    def stop(self) -> None:
        if self._ranges is not None:
            self._ranges.close()
        self._scrubber.close()
        self._enter(DirState.STOPPED, "")
        self._show()

    def _adjust(self, options: GuardOptions) -> None:
        self._options = options
        self._scrubber.adjust(options.scrub)
        if self._ranges is not None:
            self._ranges.options = options
        self._look_at = self._broker_at = self._clock.monotonic()

    # ---- looking

    def _look(self) -> None:
        """Look at the directory and its checkpoint; whatever is wrong with them is a state, never an exception."""
        self._look_at = self._clock.monotonic() + self._options.poll_seconds
        try:
            if not self._is_there():
                self._absent("it is empty: is its file system mounted?")
                return
            self._come_back()
            self._read_checkpoint()
        except FileVanished as fault:
            self._absent(str(fault))
        except ReadFault as fault:
            self._leave(DirState.OFFLINE, "log_dir_offline", str(fault))

    def _is_there(self) -> bool:
        """Tell whether it is the log directory; an empty mount point that took its place is not. Raises `ReadFault`."""
        stat = self._disk.stat(self._log_dir)
        root = (stat.device, stat.inode)
        if root == self._root and self._state is DirState.GUARDING:
            return True
        census = self._scrubber.census
        if census.partitions and not census.has_anything():
            return False
        if self._root is not None and root != self._root:
            self._mark = None
        self._root = root
        return True

    def _absent(self, reason: str) -> None:
        self._leave(DirState.ABSENT, "log_dir_absent", reason)

    def _leave(self, state: DirState, event: str, reason: str) -> None:
        if self._state is not state:
            self._events.tell(event, log_dir=self._log_dir, reason=reason)
            if self._ranges is not None:
                self._ranges.close()
            self._scrubber.pause_reading()
        self._enter(state, reason)

    def _come_back(self) -> None:
        if self._state in (DirState.ABSENT, DirState.OFFLINE):
            self._events.tell("log_dir_back", log_dir=self._log_dir)
            self._scrubber.restart()
            self._ranges = self._new_ranges()
            self._mark = None
        if self._state is not DirState.GUARDING:
            self._scrubber.census.look_at_root()
            self._enter(DirState.GUARDING, "")

    def _enter(self, state: DirState, reason: str) -> None:
        if state is not self._state:
            self._since_ms = self._clock.now_ms()
            self._shown_at = self._clock.monotonic()
        self._state, self._reason = state, reason

    def _read_checkpoint(self) -> None:
        assert self._ranges is not None
        if self._ranges.generation != self._scrubber.generation:  # the ledger began anew
            self._ranges.close()
            self._ranges, self._mark = self._new_ranges(), None
        try:
            mark = _mark(self._disk.stat(self._checkpoint))
        except FileVanished:
            self._mark = None  # a broker that has not flushed anything yet, or one that was stopped by force
            return
        if mark != self._mark:
            self._take(mark)

    def _read_again(self) -> None:
        """Read the checkpoint again, changed or not, for whoever doubts what it says."""
        self._mark = None
        self._look()

    def _take(self, mark: _Mark) -> None:
        assert self._ranges is not None
        try:
            points = decode_offsets(self._disk.read_small(self._checkpoint, LIMIT))
        except (CorruptData, UnsupportedFormat) as error:
            self._corrupt(mark, str(error))
            return
        self._scrubber.open_findings.close_path(self._checkpoint, "sound")
        self._mark, self._bad_mark = mark, None
        moved = self._ranges.take_points(points)
        if self._ranges.has_strangers:
            self._scrubber.census.look_at_root()
            moved += self._ranges.take_points(points)
        if moved:
            self._events.tell("checkpoint_changed", log_dir=self._log_dir, partitions=moved)

    def _corrupt(self, mark: _Mark, reason: str) -> None:
        """Tell of a checkpoint that cannot be read at two looks; brokers replace it whole, so it never is half done."""
        if mark != self._bad_mark:
            self._bad_mark = mark
            return
        self._mark = mark
        finding = Finding(Damage.CHECKPOINT_CORRUPT, self._checkpoint, reason)
        self._scrubber.open_findings.put(None, [finding], "on disk")

    def _point_of(self, name: TopicPartition) -> int | None:
        return None if self._ranges is None else self._ranges.points.get(name)

    def _ask_for_broker(self) -> None:
        self._broker_at = self._clock.monotonic() + self._options.broker_seconds
        try:
            holder = lock_state(self._log_dir)
        except ReadFault:
            return  # it cannot be asked; what is known stays known
        if holder != self._broker:
            if holder is not None:
                self._events.tell("broker_appeared", log_dir=self._log_dir, pid=holder)
            else:
                self._events.tell("broker_gone", log_dir=self._log_dir)
        self._broker = holder

    # ---- showing

    def _show(self) -> None:
        now = self._clock.monotonic()
        self._shown_at = now + _SHOWN_SECONDS
        if now >= self._free_at:
            self._free_at = now + _FREE_SECONDS
            try:
                self._free = self._disk.free_bytes(self._log_dir)
            except ReadFault:
                self._free = None
        self._status = self._made_status()

    def _made_status(self) -> LogDirStatus:
        scrubber = self._scrubber
        lag = VerificationLag(0, 0, 0.0) if self._ranges is None else self._ranges.lag()
        return LogDirStatus(
            self._log_dir, Mode.GUARD, self._state, self._reason or self._ledger.trouble, self._since_ms,
            self._broker, None, lag, scrubber.status(), scrubber.board.quarantine, scrubber.findings(),
            scrubber.cells(), self._free, scrubber.size_bytes(),
            "" if self._root is None else device_name(self._root[0]),
        )  # fmt: skip
