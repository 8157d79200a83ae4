"""Writes marks to the store in the state directory, and goes on in memory where it cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, TypeVar

from daemon.verify.context import ScrubContext
from recovery.segment.mark_store import MarksNotWritten, MarkStore
from recovery.segment.marks import Mark

_RETRY_SECONDS: Final = 10.0
_Key = tuple[str, int]
T = TypeVar("T")


class Keeper:
    """The marks of a log directory, on their way to the store. One thread; nothing is raised."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self._store: MarkStore | None = None
        self._stored: dict[_Key, tuple[Mark, ...]] | None = None
        self._waiting: dict[tuple[str, int, bool], Mark] = {}
        self._dropped: set[_Key] = set()
        self._is_failing = False
        self._retry_at = context.clock.monotonic()

    def stored(self, directory: str, base: int) -> list[Mark]:
        """Return, once, the marks of a segment that an earlier run has left, the farthest first."""
        if self._stored is None:
            self._stored = dict(self._try(lambda store: store.read(self._context.log_dir)) or {})
        return list(self._stored.pop((directory, base), ()))

    def restart(self) -> None:
        """Read the store again when it is next asked."""
        self.flush()
        self._stored = None

    def drop_strangers(self, directories: Container[str]) -> None:
        """Drop what is stored of partitions that are not there any more."""
        for directory, base in [key for key in self._stored or {} if key[0] not in directories]:
            self.drop(directory, base)

    def put(self, mark: Mark) -> None:
        """Have a mark written with the next `flush`."""
        self._waiting[mark.directory, mark.base_offset, mark.is_durable] = mark

    def drop(self, directory: str, base: int) -> None:
        """Have the marks of a segment dropped with the next `flush`."""
        self._dropped.add((directory, base))
        if self._stored is not None:
            self._stored.pop((directory, base), None)
        for is_durable in (False, True):
            self._waiting.pop((directory, base, is_durable), None)

    def flush(self) -> None:
        """Write what waits; where that fails it waits on, and is tried again after a while."""
        if not self._waiting and not self._dropped:
            return
        if self._is_failing and self._context.clock.monotonic() < self._retry_at:
            return
        self._try(self._write)

    def _write(self, store: MarkStore) -> None:
        store.drop(self._context.log_dir, self._dropped)
        store.put(self._context.log_dir, self._waiting.values())
        self._dropped.clear()
        self._waiting.clear()

    def _try(self, work: Callable[[MarkStore], T]) -> T | None:
        """Return what comes of work with the store, None where the store refuses."""
        try:
            if self._store is None:
                self._store = MarkStore(self._context.ledger.state_dir)
            result = work(self._store)
        except MarksNotWritten as error:
            self.close()
            self._retry_at = self._context.clock.monotonic() + _RETRY_SECONDS
            if not self._is_failing:
                self._context.tell("marks_not_written", reason=str(error))
            self._is_failing = True
            return None
        self._is_failing = False
        return result

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None
