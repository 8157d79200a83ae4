"""A directory that is only read: as a recovery would leave it, with every change in memory.

Nothing on the disk changes. Where the directory has a lock file, the lock is taken, so that no broker begins to write
meanwhile; a lock that another process holds is respected.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from daemon.own.engine import NotServing
from engine.manager.manager import LogManager
from engine.settings.options import ManagerOptions
from server.store.jobs import Entry, Outcome
from server.store.store import Store
from storage.base.errors import ExitStatus, FileVanished, LogDirInUse, LogmendError
from storage.disk.fs import OsFs, ReadOnlyFs, lock_log_dir, lock_state
from storage.disk.overlay_fs import OverlayFs

T = TypeVar("T")


class ReadOnly(LogmendError):
    """Nothing may be written here."""

    status = ExitStatus.USAGE


class ReadOnlyEngine:
    """A log manager over directories of which nothing changes; a `daemon.own.engine.Engine`. From any thread."""

    def __init__(self, manager: LogManager) -> None:
        self._manager: LogManager | None = manager
        self._turn = threading.RLock()

    def run(self, call: Callable[[LogManager], T]) -> T:
        """Run `call` with the manager."""
        with self._turn:
            if self._manager is None:
                raise NotServing("the logs are not open")
            return call(self._manager)

    def run_at_once(self, call: Callable[[LogManager], T]) -> T | None:
        """Run `call` with the manager."""
        return self.run(call)

    def close(self) -> None:
        """Close all files and locks, as a crash would."""
        with self._turn:
            manager, self._manager = self._manager, None
            for log_dir in manager.log_dirs if manager is not None else ():
                log_dir.go_offline("closed")


def open_read_only(paths: Sequence[PurePath], options: ManagerOptions, now_ms: int) -> ReadOnlyEngine:
    """Return what reads these log directories; raises as `LogManager.open` does, but none of it for a write.

    Damage in flushed data is passed over, as with `--accept-loss`: nothing on the disk is lost by that.
    """
    overlay = OverlayFs(ReadOnlyFs(OsFs()), paths, now_ms * 1_000_000)
    read_only = replace(
        options, lock=_lock_if_there_is_one, compacts=False, recovery=options.recovery._replace(accept_loss=True)
    )
    return ReadOnlyEngine(LogManager.open(overlay, paths, now_ms, read_only))


@contextlib.contextmanager
def _lock_if_there_is_one(directory: PurePath) -> Iterator[None]:
    if lock_state(directory) is not None:
        raise LogDirInUse(directory)
    with contextlib.ExitStack() as held:
        try:
            OsFs().stat(directory / ".lock")
            held.enter_context(lock_log_dir(directory))
        except LogDirInUse:
            raise
        except (FileVanished, LogmendError):
            pass  # no lock file, or a disk that cannot be written
        yield


class ReadOnlyStore(Store):
    """The reading half of a store; appends are refused."""

    is_read_only = True

    def append_all(self, entries: Sequence[Entry], *, wait_durable: bool | None = None) -> list[Outcome]:
        del wait_durable
        return [ReadOnly("nothing may be written here") for _ in entries]
