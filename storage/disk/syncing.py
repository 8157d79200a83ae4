"""Makes several files durable at once: side by side, or in one go for many threads.

`sync_all` syncs a few files in a few threads. `GroupSync` is for work that changes a few files and waits for them to be
durable, several times over, in thousands of places. One of its threads runs at a time. A thread that asks for something
to be durable waits until all others ask as well, or have ended; then the whole file system is synced once, for all of
them, as a database commits many transactions with one write of its log. To each thread it is as if its file had been
synced: `sync` returns when it is durable, or raises.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final, Self, TypeVar

from storage.disk.fs import FileStat, Fs, OsWriteFile, Volume, WriteFile
from storage.disk.pool import Pool, Task
from storage.disk.wrapped_fs import WrappedFs

T = TypeVar("T")
R = TypeVar("R")
SYNC_THREADS: Final = 16


def sync_all(files: Sequence[WriteFile], threads: int = SYNC_THREADS) -> None:
    """Make several files durable, side by side where they are real: a disk does many syncs in the time of a few.

    The thread that asks is one of the `threads`. Raises the first fault once none of them is under way any more.
    """
    threads = min(threads, len(files))
    if threads < 2 or not all(isinstance(file, OsWriteFile) for file in files):
        for file in files:
            file.sync()
        return
    with Pool(threads - 1, "sync") as pool:
        tasks = [pool.submit(file.sync) for file in files]
        for task in tasks:
            task.run()  # what no other thread has begun
    for task in tasks:
        task.result()


class GroupSync:
    """The threads that wait for one another, and the volume that is synced for them."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._turn = threading.Lock()  # who has it runs, and may change what is below
        self._inside = self._waiting = 0
        self._round = threading.Event()  # set when the sync that is waited for has ended
        self._error: BaseException | None = None
        self.syncs = 0
        """How many have succeeded."""

    def run(self, call: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
        """Call it with each item in that many threads; return what came of each, in their order.

        Raises what the first call raised that failed; no more are begun then, and those that began have ended.
        """
        left = deque(enumerate(items))
        results: dict[int, R] = {}

        def work() -> None:
            with self._turn:
                try:
                    while left:
                        number, item = left.popleft()
                        results[number] = call(item)
                except BaseException:
                    left.clear()
                    raise
                finally:
                    self._leave()

        with Pool(threads, "group") as pool:
            try:
                for task in self._begin(pool, work, threads):
                    task.result()
            except BaseException:
                left.clear()
                raise
        return [results[number] for number in range(len(items))]

    def wait(self) -> None:
        """Return when all that this thread has changed is durable; raise what the sync raised, now or before."""
        ended = self._round
        self._waiting += 1
        if self._waiting == self._inside:
            self._sync()
        else:
            self._turn.release()
            ended.wait()
            self._turn.acquire()
        if self._error is not None:
            raise self._error

    def _begin(self, pool: Pool, work: Callable[[], None], threads: int) -> list[Task[None]]:
        """Start the threads, none of which runs before all are there: who is alone syncs for itself."""
        tasks = []
        with self._turn:
            for _ in range(threads):
                try:
                    tasks.append(pool.submit(work))
                except BaseException:  # no thread could be started; no other may do the work
                    pool.drop()
                    raise
                self._inside += 1
        return tasks

    def _leave(self) -> None:
        self._inside -= 1
        if self._waiting and self._waiting == self._inside:
            self._sync()

    def _sync(self) -> None:
        """Sync for all who wait, and let them go on. After an error there is no telling what is durable, ever."""
        ended, self._round, self._waiting = self._round, threading.Event(), 0
        try:
            if self._error is None:
                self._volume.sync()
                self.syncs += 1
        except BaseException as error:  # noqa: BLE001 (raised by all who wait)
            self._error = error
        finally:
            ended.set()


class GroupedFs(WrappedFs):
    """`inner`, whose syncs are those of a group. Everything that is changed by it has to be on the group's volume."""

    def __init__(self, inner: Fs, group: GroupSync) -> None:
        super().__init__(inner)
        self._group = group

    def create(self, path: PurePath, like: FileStat | None = None) -> WriteFile:
        return _GroupedFile(self._inner.create(path, like), self._group)

    def open_append(self, path: PurePath) -> WriteFile:
        return _GroupedFile(self._inner.open_append(path), self._group)

    def sync_file(self, path: PurePath) -> None:
        self._inner.stat(path)
        self._group.wait()

    def sync_dir(self, directory: PurePath) -> None:
        self._inner.stat(directory)
        self._group.wait()


class _GroupedFile:
    def __init__(self, inner: WriteFile, group: GroupSync) -> None:
        self._inner, self._group = inner, group
        self._changed_after = group.syncs

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._changed_after = self._group.syncs
        self._inner.append(data)

    def sync(self) -> None:
        """See `WriteFile.sync`; of several files that were written one after the other the first waits for all."""
        if self._changed_after == self._group.syncs:
            self._group.wait()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
