"""What follows from the batches of one segment: the indexes, epochs, gaps and producer events that a broker derives.

Rows go in as the scanner fills them, window after window; the results may be asked at any time. Two kernels give equal
results: C where it was built, otherwise Python. Sources: Apache Kafka 4.3.0, LogSegment.recover, OffsetIndex,
TimeIndex, ProducerAppendInfo.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from storage.kernel.rows import BatchRows, Folded
from storage.kernel.scan import kernel_name
from storage.producers.producer_state import ProducerEvent

if TYPE_CHECKING:  # nothing of it is needed where the C kernel was built
    from storage.kernel.python.fold_python import Facts, Pair, Triple

EVENT_LIMIT: Final = 200_000
"""Producer events kept of one segment unless told otherwise: at most some 11 MiB in C, several times that in Python."""


class Kernel(Protocol):
    """What both kernels offer."""

    def add(self, rows: BatchRows, count: int) -> None: ...

    def scan(self, window: memoryview, rows: BatchRows, position: int, next_offset: int) -> Folded: ...

    def facts(self) -> Facts: ...

    def epochs(self) -> list[Pair]: ...

    def offset_index(self) -> bytes: ...

    def time_index(self) -> bytes: ...

    def blocks(self) -> bytes: ...

    def events(self) -> array[int]: ...

    def events_overflowed(self) -> bool: ...


def _make(
    kernel: str, base_offset: int, interval: int, max_index_size: int, event_limit: int, block_offsets: int
) -> Kernel:
    if kernel == "python":
        from storage.kernel.python.fold_python import PythonFold  # noqa: PLC0415

        return PythonFold(base_offset, interval, max_index_size, event_limit, block_offsets)
    from storage.kernel.native import NativeFold  # noqa: PLC0415 (may not have been built)

    return NativeFold(base_offset, interval, max_index_size, event_limit, block_offsets)


class ProducerEvents:
    """An extract of the batches with a producer id that leads to the same producer state as all of them.

    Folding it gives the same entries, open transactions and aborted list: of consecutive data batches of one producer
    with equal epoch and equal transactional bit, and no control batch of it between, only the first and the last are
    here; every control batch is. First ones and control batches stand in the order of the log. A last one stands before
    the next event of its producer, or at the end, there in the order of base offsets: so the order between producers is
    not that of the log, which their states do not depend on.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    @property
    def overflowed(self) -> bool:
        """True if there were more than the limit: then nothing is kept, and a second, streaming pass is needed."""
        return self._kernel.events_overflowed()

    def packed(self) -> array[int]:
        """Return them as numbers, those of each behind those of the one before, in the order of `ProducerEvent`."""
        return self._kernel.events()

    def __iter__(self) -> Iterator[ProducerEvent]:
        numbers, width = self.packed(), len(ProducerEvent._fields)
        return map(ProducerEvent, *(numbers[field::width] for field in range(width)))


class SegmentFold:
    """The fold of one segment: a sequence of `add`, results valid after each. Not for several threads at once.

    Memory: both indexes (bounded by `max_index_size` each), the events (bounded by `event_limit`), a pair for each rise
    of the leader epoch, and 56 bytes a block where blocks are wanted.
    """

    batch_count: int
    record_count: int
    """Of magic 2 only: for older ones it would take decompression."""
    first_offset: int | None
    """Base offset of the first batch; None without batches."""
    next_offset: int
    """Last offset of the last batch + 1, or the segment's base offset."""
    max_timestamp: int
    """Milliseconds; -1 if no batch has one."""
    max_timestamp_offset: int
    """Last offset of the earliest batch with that timestamp, or the segment's base offset."""
    gaps: int
    """Batches of magic 2 whose base offset is above the last offset + 1 of the batch before; compaction leaves such."""
    magics: int
    """Bit `1 << magic` for each magic met."""
    codecs: int
    """Bit `1 << codec` for each codec met, none (0) and unknown ones (5 to 7) included."""
    has_producers: bool
    digest: int
    """64 bits over base offset, last offset and stored checksum of each batch in order, however cut into windows.

    CRC-32 in the high and CRC-32C in the low half, over the three numbers as little-endian int64; 0 without batches.
    """
    index_overflow: bool
    """More entries are due than `max_index_size` allows, which makes a broker's rebuild fail.

    The offset index is full at that size, the time index one entry before; nothing is entered in either afterwards.
    """
    epoch_fall: Triple | None
    """(position, epoch, newest epoch before) of the first batch whose leader epoch goes back."""
    first_gap: Triple | None
    """(position, expected offset, base offset found) of the first gap."""
    range_fault: Pair | None
    """(position, last offset) of the first batch whose last offset is not 0 to 2147483647 above the base offset.

    Such batches, and positions above 2147483647, get no index entry: it could not be written.
    """

    def __init__(
        self,
        base_offset: int,
        *,
        index_interval_bytes: int = 4096,
        max_index_size: int = 10_485_760,
        event_limit: int = EVENT_LIMIT,
        block_offsets: int = 0,
        kernel: str | None = None,
    ) -> None:
        """Begin an empty segment; `kernel` is `c` or `python` where a test wants that one.

        `block_offsets`: how many offsets a block of `blocks` has; 0 for none.
        """
        chosen = kernel or kernel_name()
        self._kernel = _make(chosen, base_offset, index_interval_bytes, max_index_size, event_limit, block_offsets)

    def add(self, rows: BatchRows, count: int) -> None:
        """Fold the first `count` rows, which follow those of the call before; positions are places in the `.log`."""
        self._kernel.add(rows, count)
        self._forget()

    def scan(self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Folded:
        """Do what `storage.kernel.scan.scan_batches` does and fold what it finds, to the first byte that is not sound.

        One call for what would be many: the rows are those that fit a cache, and used anew until the window ends; what
        they hold afterwards is of no use to anybody.
        """
        folded = self._kernel.scan(window, rows, position, next_offset)
        self._forget()
        return folded

    def scan_file(
        self, descriptor: int, rows: BatchRows, *, position: int, end: int, next_offset: int = 0
    ) -> Folded | None:
        """Do the same with the bytes from `position` to `end` of an open file, at most 8 MiB, without copying them.

        It ends with NEED_MORE before bytes that cannot be had, because of a disk or because the file is shorter: who
        reads them learns why. Returns None, and does nothing, where the kernel cannot do this.
        """
        scan_file = getattr(self._kernel, "scan_file", None)
        if scan_file is None:
            return None
        folded: Folded = scan_file(descriptor, rows, position, end, next_offset)
        self._forget()
        return folded

    def offset_index(self) -> bytes:
        """Return the `.index` that a broker's recovery writes, trimmed: 8 bytes an entry.

        A batch that begins more than `index_interval_bytes` behind the last one entered (or behind the beginning) is
        entered with its last offset and its own position.
        """
        return self._kernel.offset_index()

    def time_index(self) -> bytes:
        """Return the `.timeindex` that a broker's recovery writes, with its closing entry: 12 bytes an entry."""
        return self._kernel.time_index()

    def blocks(self) -> bytes:
        """Return what lies in each block of offsets, in order: numbers of 8 bytes as this machine has them, 7 a block.

        Block (base offset of its batches divided by `block_offsets`), digest, batches, bytes, first base offset, last
        offset of the last batch, highest leader epoch (-1 without any). The digest of a block is the exclusive or of a
        64-bit hash over base offset, last offset and stored checksum of each batch: so parts of a block that lie in
        several segments add up, wherever the segments of a log begin.
        """
        return self._kernel.blocks()

    @property
    def epochs(self) -> list[Pair]:
        """(epoch, base offset of the batch) at each rise above the newest leader epoch met in this segment."""
        return self._kernel.epochs()

    @property
    def producer_events(self) -> ProducerEvents:
        """The batches with a producer id, thinned out; iterating shows the state at that moment."""
        return ProducerEvents(self._kernel)

    def _forget(self) -> None:
        for name in _FACTS if "digest" in self.__dict__ else ():
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        """Ask the kernel for its facts when one of them is wanted, for most windows are followed by another."""
        if name not in _FACTS:
            raise AttributeError(name)
        for fact, value in zip(_FACTS, self._kernel.facts(), strict=True):
            setattr(self, fact, value)
        return getattr(self, name)


_FACTS: Final = (
    "batch_count",
    "record_count",
    "first_offset",
    "next_offset",
    "max_timestamp",
    "max_timestamp_offset",
    "gaps",
    "magics",
    "codecs",
    "has_producers",
    "digest",
    "index_overflow",
    "epoch_fall",
    "first_gap",
    "range_fault",
)
"""In the order of `Facts`."""
