"""Makes several files durable at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.disk.fs import OsWriteFile, WriteFile
from storage.disk.pool import Pool

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
