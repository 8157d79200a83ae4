"""Calls in a few threads. `concurrent.futures` does that too, but brings logging: 7 ms of every start."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_LOOK_UP_SECONDS: Final = 0.1


class Task(Generic[R]):
    """A call that is made sooner or later, and what came of it."""

    __slots__ = ("_call", "_ended", "_error", "_result")

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = deque([call])  # who takes it out makes it
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._result: R | None = None

    def run(self) -> None:
        """Make the call, unless another thread has begun it; `result` raises again what it raises."""
        try:
            call = self._call.popleft()
        except IndexError:
            return
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001 (raised again by `result`)
            self._error = error
        self._ended.set()

    @property
    def is_done(self) -> bool:
        """The call has returned or raised."""
        return self._ended.is_set()

    def result(self) -> R:
        """Wait for the call to end; return what it returned, raise what it raised."""
        # Looked up now and then: a signal that was delivered to another thread does not wake this one.
        while not self._ended.wait(_LOOK_UP_SECONDS):
            pass
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # R itself may be optional


class Pool:
    """At most `threads` threads, which make calls in the order in which they were given.

    At the end of the context all have ended. Calls that have not begun by then are still made, unless the context ends
    by an error. Only the thread that made it may use a pool.
    """

    def __init__(self, threads: int, name: str) -> None:
        assert threads > 0
        self._most, self._name = threads, name
        self._threads: list[threading.Thread] = []
        self._first: deque[Task[object] | None] = deque()
        self._waiting: deque[Task[object] | None] = deque()
        self._count = threading.Semaphore(0)

    def submit(self, call: Callable[[], R], *, first: bool = False) -> Task[R]:
        """Have a call made, with `first` before those that wait."""
        task = Task(call)
        (self._first if first else self._waiting).append(task)  # type: ignore[arg-type]  # of whatever kind
        self._count.release()
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}")
            thread.start()
            self._threads.append(thread)
        return task

    def drop(self) -> None:
        """Forget the calls that have not begun."""
        self._first.clear()
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.drop()
        for _thread in self._threads:
            self._waiting.append(None)
            self._count.release()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            self._count.acquire()
            for queue in (self._first, self._waiting):
                with contextlib.suppress(IndexError):  # it is in the other one, or was dropped
                    task = queue.popleft()
                    if task is None:
                        return
                    task.run()
                    break


def run_all(call: Callable[[T], R], items: Iterable[T], threads: int, name: str) -> list[R]:
    """Call it with each item, side by side, and return what came of each, in their order.

    Once one has failed no more are begun; when all that began have ended, the first in order that failed is raised.
    """
    failed = threading.Event()

    def one(item: T) -> R | None:
        if failed.is_set():
            return None  # nobody sees it
        try:
            return call(item)
        except BaseException:
            failed.set()
            raise

    with Pool(threads, name) as pool:
        tasks = [pool.submit(partial(one, item)) for item in items]
        # One that was not made because of another stands behind it, so nobody gets its None.
        return [task.result() for task in tasks]  # type: ignore[misc]
