"""What there is to show of the log directories that are ours, and whether they are still the ones that were opened."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from daemon.own.progress import RecoveryWatch
from daemon.scrub.scrub import Scrubber
from daemon.scrub.verdicts import device_name
from daemon.status.model import Clock, DirState, LogDirStatus, Mode, RecoveryProgress
from storage.base.errors import EnvironmentFault, ExitStatus
from storage.disk.fs import ReadFs, lock_state

_WORTH_A_TRY: Final = (DirState.ABSENT, DirState.STARTING)


@dataclass(slots=True)
class _Place:
    since_ms: int
    state: DirState = DirState.STARTING
    reason: str = ""
    status: ExitStatus = ExitStatus.CLEAN
    recovery: RecoveryProgress | None = None
    identity: tuple[int, int] | None = None
    free_bytes: int | None = None
    device: str = ""
    holder: int | None = None


@dataclass(slots=True)
class Places:
    """One entry a log directory. Any thread may ask; the worker's thread changes."""

    paths: Sequence[PurePath]
    clock: Clock
    watch: RecoveryWatch | None = None
    scrubbers: dict[PurePath, Scrubber] = field(default_factory=dict)
    """The latest of each directory: what it knows is shown on when it has ended."""
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _all: dict[PurePath, _Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        now_ms = self.clock.now_ms()
        self._all = {path: _Place(now_ms) for path in self.paths}

    def change(self, path: PurePath, state: DirState, reason: str = "", status: ExitStatus = ExitStatus.CLEAN) -> bool:
        """Note the state of a directory; tell whether it is another one than before."""
        with self._turn:
            place = self._all[path]
            is_new = (place.state, place.reason) != (state, reason)
            if is_new:
                place.state, place.reason, place.since_ms = state, reason, self.clock.now_ms()
            place.status = status
        return is_new

    def state(self, path: PurePath) -> DirState:
        """Return the state of a directory."""
        return self._all[path].state

    def finish(self, path: PurePath, progress: RecoveryProgress | None) -> None:
        """Note how the recovery of a directory went."""
        with self._turn:
            self._all[path].recovery = progress

    def is_worth_a_try(self) -> bool:
        """Tell whether an opening might fare better than the last: something was absent, or in use."""
        return any(place.state in _WORTH_A_TRY or place.status is ExitStatus.IN_USE for place in self._all.values())

    def looks_well(self, fs: ReadFs, path: PurePath) -> bool:
        """Tell whether a directory that is left aside can be listed, and nobody holds its lock."""
        if self.state(path) not in (DirState.OFFLINE, DirState.ABSENT):
            return False
        try:
            return bool(fs.entries(path)) and lock_state(path) is None
        except EnvironmentFault:
            return False

    def look(self, fs: ReadFs, path: PurePath) -> None:
        """See how much room there is, and who holds the lock of what is left aside; the worker's thread alone."""
        place = self._all[path]
        with contextlib.suppress(EnvironmentFault):
            place.free_bytes = fs.free_bytes(path)
            place.device = device_name(fs.stat(path).device)
        place.holder = None
        if place.status is ExitStatus.IN_USE:
            with contextlib.suppress(EnvironmentFault):
                place.holder = lock_state(path)

    def pin(self, fs: ReadFs, path: PurePath) -> None:
        """Remember which directory it is that was opened under this path."""
        with contextlib.suppress(EnvironmentFault):
            stat = fs.stat(path)
            self._all[path].identity = stat.device, stat.inode

    def reason_for_change(self, fs: ReadFs, path: PurePath) -> str:
        """Return why the path leads elsewhere than when it was opened; empty while it does not."""
        try:
            stat = fs.stat(path)
        except EnvironmentFault as fault:
            return str(fault)
        if self._all[path].identity in (None, (stat.device, stat.inode)):
            return ""
        return "another directory is in its place: was its volume unmounted?"

    def status(self, path: PurePath) -> LogDirStatus:
        """Return what there is to show of a directory, without asking a disk."""
        with self._turn:
            place = replace(self._all[path])
        recovery = place.recovery
        if place.state is DirState.RECOVERING and self.watch is not None:
            recovery = self.watch.progress(path)
        found = LogDirStatus(
            path, Mode.OWN, place.state, place.reason, place.since_ms, broker_pid=place.holder, recovery=recovery,
            free_bytes=place.free_bytes, device=place.device, exit_status=place.status.value,
        )  # fmt: skip
        scrubber = self.scrubbers.get(path)
        return found if scrubber is None else scrubber.board.complete(found)
