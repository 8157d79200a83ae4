"""What a log is given and what it answers: the values and protocols around `storage.log.log`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final, NamedTuple, Protocol

from storage.base.units import Epoch, Offset, TimestampMs
from storage.disk.buffers import page_aligned
from storage.disk.fs import ReadFile
from storage.index.txn_index import AbortedTxn
from storage.producers.producers import Producers


class EpochKeeper(Protocol):
    """Keeps `leader-epoch-checkpoint` for a log, which does not know the file.

    The log calls `assign` before it writes the first batch of an epoch: the entry must be durable when that returns, or
    records could be there under an epoch that nobody knows. What the other calls change may reach the disk later. They
    come from the thread that changes the log, and what they raise ends the append or the change that they belong to.
    """

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` begins at `start_offset`, unless it is the newest one and began earlier."""

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Drop the entries that begin at `end_offset` or above."""

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Let the epoch in force at `start_offset` begin there, and drop those before."""

    def clear(self) -> None:
        """Drop all entries, durably."""


@dataclass(frozen=True, slots=True)
class LogSetup:
    """What a log needs besides its directory and its settings; times are ms.

    `producer_expiration_ms` is a broker's `producer.id.expiration.ms`. `draw` returns a number from 0 up to below the
    one it is given, which is above 0: the jitter of a segment's age.
    """

    epochs: EpochKeeper
    producer_expiration_ms: int = 86_400_000
    draw: Callable[[int], int] = lambda _bound: 0


class Rolled(NamedTuple):
    """A new segment has begun at `base_offset`; all below waits for `flush(base_offset)`."""

    base_offset: Offset


class Appended(NamedTuple):
    """Where an append is in the log: offsets of its first and last record, its largest timestamp (-1: none).

    For one that was there already, `is_duplicate`, the offsets are those of the first time and the timestamp that of
    then. `append_time_ms` is -1 where records keep their own time.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int = -1
    is_duplicate: bool = False
    rolled: Rolled | None = None


_LARGE: Final = 128 << 10


class Truncated(NamedTuple):
    """What a truncation did. `removed` are files that now end in `.deleted`, for the caller to remove in its own time.

    `recovery_point` is to be written to the checkpoint before anything is appended: should the checkpoint stay above
    the new end, a recovery would believe unsynced bytes to be flushed.
    """

    log_end: Offset
    recovery_point: Offset
    removed: tuple[PurePath, ...]


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "the log end offset"
    HIGH_WATERMARK = "the high watermark"
    COMMITTED = "the last stable offset"


class Fetched(NamedTuple):
    """Bytes of a `.log` from the beginning of a batch on; they may end inside a batch, and never cross a segment.

    `file` is shared and stays open as long as its segment: read from it, or pass the range on; None if there is nothing
    to read. The first batch may begin below the offset asked for. `is_first_cut`: not even that batch is whole.
    `aborted`, for committed reads only, has all transactions whose records a reader must drop, and maybe more.
    """

    file: ReadFile | None = None
    position: int = 0
    size: int = 0
    is_first_cut: bool = False
    aborted: tuple[AbortedTxn, ...] | None = None

    def load(self) -> memoryview:
        """Return the bytes. Raises `ReadFault`."""
        buffer = page_aligned(self.size) if self.size >= _LARGE else memoryview(bytearray(self.size))
        if self.file is None:
            return buffer
        return buffer[: self.file.read_into(self.position, buffer)]


class TimestampOffset(NamedTuple):
    """A record by time: its timestamp, -1 where the question was for the log's ends, and its offset."""

    timestamp: TimestampMs
    offset: Offset


class ReadableLog(Protocol):
    """What a reader sees of a log. `read` and `offset_for_time` are those of `storage.log.log.Log`; any thread."""

    @property
    def producers(self) -> Producers: ...

    @property
    def log_start(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def last_stable_offset(self) -> Offset: ...

    def read(
        self, start: Offset, max_bytes: int, *, isolation: Isolation = Isolation.LOG_END, min_one: bool = True
    ) -> Fetched: ...

    def offset_for_time(self, timestamp: int) -> TimestampOffset | None: ...
