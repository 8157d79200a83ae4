"""Makes durable what is marked, file after file, and says so in marks that hold after a power cut as well."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from daemon.ends.following import Followed
from daemon.ends.keeping import Keeper
from daemon.ends.tail import TailFile
from daemon.verify.context import ScrubContext
from recovery.segment.marks import Mark
from storage.base.errors import FileVanished, ReadFault
from storage.base.names import FileRole

_SHARE: Final = 0.8
"""Share of the time within which marks are to be durable after which a round of syncs begins."""
_IDLE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05


class Syncer:
    """Syncs one file at a time and rests as long as that took, so that a broker's own writes come first.

    A sync runs in a thread of its own, since a busy disk may take seconds for it. Only the mark that was made before a
    sync began is durable after it. All calls on one thread.
    """

    def __init__(self, context: ScrubContext, keeper: Keeper) -> None:
        self._context, self._keeper = context, keeper
        self._queue: deque[Followed] = deque()
        self._job: _Job | None = None
        self._round_at = self._next_at = context.clock.monotonic()
        self._is_off = False
        self._has_failed = False

    def step(self, within: float, *, is_busy: bool, candidates: Callable[[], list[Followed]]) -> None:
        """Take in a sync that has ended, and begin the next when it is time; `within` 0: none."""
        self._is_off = within == 0
        if self._job is not None and self._job.has_ended:
            self._finish(self._job)
        now = self._context.clock.monotonic()
        if self._is_off or is_busy or self._job is not None or now < self._next_at:
            return
        if not self._queue and now >= self._round_at:
            self._round_at = now + within * _SHARE
            self._queue.extend(candidates())
        while self._queue and self._job is None:
            segment = self._queue.popleft()
            if segment.mark is not None:
                self._job = _Job(segment, segment.mark, self._context.clock.monotonic)

    def wait_seconds(self) -> float:
        """Return after how many seconds there is something to do."""
        if self._job is not None:
            return _POLL_SECONDS
        if self._is_off:
            return _IDLE_SECONDS
        return max((self._next_at if self._queue else self._round_at) - self._context.clock.monotonic(), 0.0)

    def close(self) -> None:
        """Take in the sync that is under way, unless it takes long."""
        if self._job is not None and self._job.join(1.0):
            self._finish(self._job)

    def _finish(self, job: _Job) -> None:
        self._job = None
        self._next_at = self._context.clock.monotonic() + job.seconds
        segment = job.segment
        if isinstance(job.fault, FileVanished):
            return
        if job.fault is not None:
            if not self._has_failed:
                self._context.tell("sync_failed", path=segment.log, reason=str(job.fault))
            self._has_failed = True
            return
        self._has_failed = False
        if segment.mark is not None and segment.mark.inode == job.mark.inode:
            segment.durable = job.mark._replace(is_durable=True)
            self._keeper.put(segment.durable)


class _Job:
    """The sync of one segment: its log, and its indexes, without which a recovery reads the whole log."""

    def __init__(self, segment: Followed, mark: Mark, monotonic: Callable[[], float]) -> None:
        self.segment, self.mark = segment, mark
        self.fault: ReadFault | None = None
        self.seconds = 0.0
        self._monotonic = monotonic
        self._thread = threading.Thread(target=self._run, name="sync marks", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait for the end; tell whether it came."""
        self._thread.join(seconds)
        return self.has_ended

    def _run(self) -> None:
        began = self._monotonic()
        try:
            with TailFile(self.segment.log) as file:
                if file.stat.inode != self.mark.inode or file.stat.size < self.mark.position:
                    raise FileVanished("syncing", self.segment.log, FileNotFoundError())
                file.sync()
            for role in (FileRole.INDEX, FileRole.TIME_INDEX):
                _sync_beside(self.segment.log.with_suffix(role.value))
        except ReadFault as fault:
            self.fault = fault
        self.seconds = self._monotonic() - began


def _sync_beside(path: PurePath) -> None:
    with suppress(FileVanished), TailFile(path) as file:
        file.sync()
