"""Reading whole batches of a log while another thread appends to it, compacts it, or closes it."""

from __future__ import annotations

from typing import Final

from daemon.own.engine import NotServing
from storage.base.units import Offset
from storage.batch.batch import HEADER_V2, parse_header
from storage.log.log_types import Isolation, ReadableLog

_ATTEMPTS: Final = 100


def load(log: ReadableLog, offset: int, size: int) -> memoryview:
    """Return bytes of a log from the batch of `offset` on, below its high watermark; any thread.

    It looks a file up again that compaction has closed meanwhile. Raises as `ReadableLog.read` does, and `NotServing`
    where the log itself is being closed.
    """
    for _ in range(_ATTEMPTS):
        try:
            return log.read(Offset(offset), size, isolation=Isolation.HIGH_WATERMARK).load()
        except ValueError:  # the file was closed between the two
            continue
    raise NotServing("the log is being closed")


def whole_batches(data: memoryview, offset: Offset) -> tuple[int, Offset]:
    """Return the size of the whole batches that `data` begins with, and the offset after the last of them."""
    position = 0
    while len(data) - position >= HEADER_V2.size:
        header = parse_header(data, position)
        if header.size > len(data) - position:
            break
        position, offset = position + header.size, Offset(header.last_offset + 1)
    return position, offset
