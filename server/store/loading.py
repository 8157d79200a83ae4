"""Reading bytes of a log beside whoever changes it."""

from __future__ import annotations

from typing import Final

from daemon.own.owned import NotServing
from storage.base.units import Offset
from storage.log.log_types import Isolation, ReadableLog

_ATTEMPTS: Final = 100


def load(log: ReadableLog, offset: int, size: int) -> memoryview:
    """Return bytes of a log from the batch of `offset` on, below its high watermark; any thread.

    A file that compaction has closed meanwhile is looked for again. Raises as `ReadableLog.read` does, and `NotServing`
    where the log itself is being closed.
    """
    for _ in range(_ATTEMPTS):
        try:
            return log.read(Offset(offset), size, isolation=Isolation.HIGH_WATERMARK).load()
        except ValueError:  # the file was closed between the two
            continue
    raise NotServing("the log is being closed")
