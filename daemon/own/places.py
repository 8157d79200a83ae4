"""The state of each own log directory, and whether it is still the directory that was opened."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from daemon.own.progress import RecoveryWatch
from daemon.scrub.scrub import Scrubber
from daemon.status.model import Clock, DirState, Events, LogDirStatus, Mode, Owner, RecoveryProgress
from daemon.status.owner import read_owner
from daemon.verify.follow_up import device_name
from storage.base.errors import EnvironmentFault, ExitStatus, printable
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
    owner: Owner = field(default_factory=Owner)
    device: str = ""
    holder: int | None = None
    aside: str | None = None
    """Why it is absent or offline, as it was reported; None while it is neither."""
    scrubber: Scrubber | None = None
    """The latest one: what it knows stays shown when it has ended."""


class Places:
    """One entry a log directory. Any thread may ask; the worker's thread changes them and reports the changes."""

    def __init__(self, fs: ReadFs, paths: Sequence[PurePath], clock: Clock, events: Events) -> None:
        self._fs, self._clock, self._events = fs, clock, events
        self._turn = threading.Lock()
        self._all = {path: _Place(clock.now_ms()) for path in paths}
        self.watch: RecoveryWatch | None = None

    # ---- changes

    def change(self, path: PurePath, state: DirState, reason: str = "", status: ExitStatus = ExitStatus.CLEAN) -> None:
        """Change the state of a directory."""
        with self._turn:
            place = self._all[path]
            if (place.state, place.reason) != (state, reason):
                place.state, place.reason, place.since_ms = state, reason, self._clock.now_ms()
            place.status = status

    def set_absent(self, path: PurePath, reason: str) -> None:
        """Note that a directory is absent; report it, once for each reason."""
        self.change(path, DirState.ABSENT, reason)
        if self._is_news(path, reason):
            self._events.tell("log_dir_absent", log_dir=path, reason=reason)

    def set_offline(self, path: PurePath, reason: str, status: ExitStatus) -> None:
        """Note that a directory is offline; report it, once for each reason."""
        reason = reason.removeprefix(f"{printable(path)}: ")
        self.change(path, DirState.OFFLINE, reason, status)
        if self._is_news(path, reason):
            self._events.tell("log_dir_offline", log_dir=path, reason=reason)

    def _is_news(self, path: PurePath, reason: str) -> bool:
        before, self._all[path].aside = self._all[path].aside, reason
        return before != reason

    def set_serving(self, path: PurePath) -> None:
        """Note that a directory is open, and remember which one it is; report it if it was away."""
        place = self._all[path]
        if place.aside is not None:
            place.aside = None
            self._events.tell("log_dir_back", log_dir=path)
        self.change(path, DirState.SERVING)
        with contextlib.suppress(EnvironmentFault):
            stat = self._fs.stat(path)
            place.identity = stat.device, stat.inode

    def show_scrubber(self, path: PurePath, scrubber: Scrubber) -> None:
        """Show what a scrubber knows of a directory from now on."""
        self._all[path].scrubber = scrubber

    # ---- questions

    def state(self, path: PurePath) -> DirState:
        """Return the state of a directory."""
        return self._all[path].state

    def finish(self, path: PurePath, progress: RecoveryProgress | None) -> None:
        """Note the result of the recovery of a directory."""
        with self._turn:
            self._all[path].recovery = progress

    def is_worth_a_try(self) -> bool:
        """Tell whether another opening may succeed: a directory was absent, or in use."""
        return any(place.state in _WORTH_A_TRY or place.status is ExitStatus.IN_USE for place in self._all.values())

    def looks_well(self, path: PurePath) -> bool:
        """Tell whether an absent or offline directory can be listed, and its lock is free."""
        if self.state(path) not in (DirState.OFFLINE, DirState.ABSENT):
            return False
        try:
            return bool(self._fs.entries(path)) and lock_state(path) is None
        except EnvironmentFault:
            return False

    def look(self, path: PurePath) -> None:
        """Note the owner, the free space, and the holder of a lock in use; the worker's thread alone."""
        place = self._all[path]
        with contextlib.suppress(EnvironmentFault):
            place.free_bytes = self._fs.free_bytes(path)
            place.device = device_name(self._fs.stat(path).device)
        place.owner = read_owner(self._fs, path)
        place.holder = None
        if place.status is ExitStatus.IN_USE:
            with contextlib.suppress(EnvironmentFault):
                place.holder = lock_state(path)

    def reason_for_change(self, path: PurePath) -> str:
        """Return why the path is no longer the directory that was opened; empty while it is."""
        try:
            stat = self._fs.stat(path)
        except EnvironmentFault as fault:
            return str(fault)
        if self._all[path].identity in (None, (stat.device, stat.inode)):
            return ""
        return "another directory is in its place: was its volume unmounted?"

    def status(self, path: PurePath) -> LogDirStatus:
        """Return the status of a directory, without a look at a disk."""
        with self._turn:
            place = replace(self._all[path])
        recovery = place.recovery
        if place.state is DirState.RECOVERING and self.watch is not None:
            recovery = self.watch.progress(path)
        status = LogDirStatus(
            path, Mode.OWN, place.state, place.reason, place.since_ms, broker_pid=place.holder, recovery=recovery,
            owner=place.owner, free_bytes=place.free_bytes, device=place.device, exit_status=place.status.value,
        )  # fmt: skip
        return status if place.scrubber is None else place.scrubber.board.complete(status)
