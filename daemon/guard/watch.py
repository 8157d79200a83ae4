"""Watches the top of log directories and reports the paths that changed.

Kafka writes `<checkpoint>.tmp` and renames it, in bursts: inotify reports a move whose destination counts. Paths go
into a mailbox that keeps each once, and one thread empties it. Only the roots of log directories are watched, one
watch each, however many partitions they hold. Polling size, modification time and inode of the checkpoints every few
seconds catches what no event reports: lost events, network file systems, too few watches, a directory that was
unmounted and mounted again (its watch then hangs on the old directory, and is replaced).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, cast

from checkpoint.offsets import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from daemon.status.model import Clock, Events
from storage.base.errors import ReadFault
from storage.disk.fs import FileStat, OsFs, ReadFs

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver, ObservedWatch

OnChange = Callable[[frozenset[PurePath]], None]
WATCHED: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS)
_Mark = tuple[int, int, int]
_QUIET_SECONDS: Final = 0.05
"""How long the mailbox waits for the rest of a burst."""


class Watcher:
    """Watches the roots of log directories and calls `on_change` with the paths right below them, each once.

    A thread of the watcher calls `on_change`. With `poll_only` (network file systems) it only polls.
    `beat` rises as long as its thread is alive. `start` and `stop` on one thread.
    """

    def __init__(
        self,
        paths: Iterable[PurePath],
        on_change: OnChange,
        clock: Clock,
        poll_seconds: float,
        events: Events,
        *,
        poll_only: bool = False,
        fs: ReadFs | None = None,
        make_observer: Callable[[], BaseObserver] | None = None,
    ) -> None:
        self._roots = {path: _Root(path) for path in paths}
        self._on_change, self._clock, self._events = on_change, clock, events
        self._poll_seconds, self._poll_only = poll_seconds, poll_only
        self._fs: ReadFs = fs or OsFs()
        self._make_observer = make_observer or _real_observer
        self._observer: BaseObserver | None = None
        self._mailbox: set[PurePath] = set()
        self._mail = threading.Condition()
        self._stopping = False
        self._beats = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; each poll looks for the directories that are missing."""
        if not self._poll_only:
            self._observe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def beat(self) -> int:
        """Return a number that rises as long as its thread is alive."""
        return self._beats

    def stop(self) -> None:
        """End the threads; no call of `on_change` comes afterwards."""
        with self._mail:
            self._stopping = True
            self._mail.notify_all()
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_watching(self) -> frozenset[PurePath]:
        """The roots that are watched; the others are only polled."""
        return frozenset(root.path for root in self._roots.values() if root.watch is not None)

    # ---- events

    def _observe(self) -> None:
        try:
            self._observer = self._make_observer()
            self._observer.start()
        except OSError as error:  # no inotify instance is left, or the system has none
            self._observer = None
            self._degraded(PurePath("/"), error)
            return
        for root in self._roots.values():
            self._watch(root)

    def _watch(self, root: _Root) -> None:
        """Watch a root, or replace its watch after another directory took its place."""
        if self._observer is None:
            return
        if root.watch is not None:
            self._unwatch(root)
        try:
            handler = cast("FileSystemEventHandler", _Handler(self._heard, root.path))
            root.watch = self._observer.schedule(handler, str(root.path), recursive=False)
            root.is_degraded = False
        except FileNotFoundError:
            pass  # missing; the poll looks for it
        except OSError as error:
            if not root.is_degraded:
                self._degraded(root.path, error)
            root.is_degraded = True

    def _unwatch(self, root: _Root) -> None:
        assert self._observer is not None
        assert root.watch is not None
        watch, root.watch = root.watch, None
        with contextlib.suppress(KeyError, OSError):  # the kernel took it away together with the directory
            self._observer.unschedule(watch)

    def _degraded(self, path: PurePath, error: OSError) -> None:
        reason = f"{error.strerror or error}: changes are found by polling every {self._poll_seconds:g} s"
        self._events.tell("watch_degraded", log_dir=path, reason=reason)

    def _heard(self, path: PurePath) -> None:
        with self._mail:
            if path not in self._mailbox:
                self._mailbox.add(path)
                self._mail.notify()

    # ---- the one thread

    def _run(self) -> None:
        next_poll = self._clock.monotonic() + self._poll_seconds
        while True:
            with self._mail:
                if not self._mailbox and not self._stopping:
                    self._mail.wait(max(min(next_poll - self._clock.monotonic(), self._poll_seconds), 0.01))
                if self._mailbox and not self._stopping:
                    self._mail.wait_for(lambda: self._stopping, _QUIET_SECONDS)
                if self._stopping:
                    return
                changed, self._mailbox = frozenset(self._mailbox), set()
            self._beats += 1
            if self._clock.monotonic() >= next_poll:
                next_poll = self._clock.monotonic() + self._poll_seconds
                changed |= self.poll()
            if changed:
                self._on_change(changed)

    def poll(self) -> frozenset[PurePath]:
        """Look at every root; return the paths that have changed since the last poll."""
        changed: set[PurePath] = set()
        for root in self._roots.values():
            identity = self._identity(root.path)
            if identity != root.identity:
                changed.add(root.path)
                root.identity = identity
                if identity is not None:
                    self._watch(root)
            elif root.watch is None and identity is not None and not self._poll_only:
                self._watch(root)
            if identity is None:
                continue
            for name in WATCHED:
                path = root.path / name
                mark = self._mark(path)
                if mark != root.marks.get(name):
                    changed.add(path)
                    root.marks[name] = mark
        return frozenset(changed)

    def _identity(self, path: PurePath) -> tuple[int, int] | None:
        try:
            stat = self._fs.stat(path)
        except ReadFault:
            return None
        return stat.device, stat.inode

    def _mark(self, path: PurePath) -> _Mark | None:
        try:
            stat: FileStat = self._fs.stat(path)
        except ReadFault:
            return None
        return stat.size, stat.mtime_ns, stat.inode


class _Root:
    """One log directory as of the last poll."""

    def __init__(self, path: PurePath) -> None:
        self.path = path
        self.watch: ObservedWatch | None = None
        self.identity: tuple[int, int] | None = None
        self.marks: dict[str, _Mark | None] = {}
        self.is_degraded = False


class _Handler:
    """Gets the events of an observer; passes on the paths of checkpoints, whatever happened to them."""

    def __init__(self, heard: Callable[[PurePath], None], root: PurePath) -> None:
        self._heard, self._root = heard, root

    def dispatch(self, event: FileSystemEvent) -> None:
        if event.event_type in ("opened", "closed_no_write"):
            return  # a read, by us or by another process
        for name in (event.src_path, event.dest_path):
            path = PurePath(_text(name)) if name else None
            if path is not None and path.parent == self._root and path.name in WATCHED:
                self._heard(path)


def _text(name: Any) -> str:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)


def _real_observer() -> BaseObserver:
    from watchdog.observers import Observer  # noqa: PLC0415 (threads and inotify, only for a live directory)

    return Observer()
