"""Turn: a lock that one thread has at a time, and may pass on in the middle of long work."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turn:
    """A reentrant lock that its owner can pass on for a while. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._waiting = self._served = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for it."""
        return self._waiting

    def take_if_free(self) -> bool:
        """Take the turn if no thread has it, without waiting; return whether it was taken. `give_back` ends it."""
        return self._lock.acquire(blocking=False)

    def give_back(self) -> None:
        """End what `take_if_free` began, in the same thread."""
        self._lock.release()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have the turn within the context."""
        with self._changed:
            self._waiting += 1
        self._lock.acquire()
        try:
            with self._changed:
                self._waiting -= 1
                self._served += 1
                self._changed.notify_all()
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[None]:
        """Release the turn within the context, and take it again once every thread that waited has had it.

        The caller has taken it exactly once. A plain lock would return to the thread that releases it.
        """
        with self._changed:
            target = self._served + self._waiting
        self._lock.release()
        try:
            yield
            with self._changed:
                self._changed.wait_for(lambda: self._served >= target)
        finally:
            self._lock.acquire()
