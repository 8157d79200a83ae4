"""What follows from the batches of one segment: the indexes, epochs, gaps and producer events that a broker derives.

Rows go in as the scanner fills them, window after window; the results may be asked at any time. Two kernels give equal
results: C where it was built, otherwise Python. Sources: Apache Kafka 4.3.0, LogSegment.recover, OffsetIndex,
TimeIndex, ProducerAppendInfo.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Final

from storage.base.rows import BatchRows, Facts, Folded, Pair, ProducerEvent, Triple
from storage.kernel.scan import KERNEL, Fold, crc32c, kernel_of

EVENT_LIMIT: Final = 200_000
"""Producer events kept of one segment unless told otherwise: at most some 11 MiB in C, several times that in Python."""


STATE_VERSION: Final = 1
"""Of saved folds. It rises with whatever makes a fold of the same batches come out otherwise."""
_STATE_MAGIC: Final = b"LMfd"
_STATE: Final = struct.Struct(
    "<"
    "4s"  # magic
    "i"  # version
    "q"  # base offset of the segment
    "q"  # index interval
    "q"  # largest size of an index
    "q"  # limit of events
)
_STATE_SUM: Final = struct.Struct(
    "<I"  # CRC-32C of all before it
)
_OFFSETS_SIZE: Final = 29
"""Place among the numbers of a fold of the size of its offset index; that of the time index follows."""


def _numbers(data: bytes) -> array[int]:
    if len(data) % 8:
        raise ValueError("the state of a fold is damaged")
    numbers = array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class ProducerEvents:
    """An extract of the batches with a producer id that leads to the same producer state as all of them.

    Folding it gives the same entries, open transactions and aborted list: of consecutive data batches of one producer
    with equal epoch and equal transactional bit, and no control batch of it between, only the first and the last are
    here; every control batch is. First ones and control batches stand in the order of the log. A last one stands before
    the next event of its producer, or at the end, there in the order of base offsets: so the order between producers is
    not that of the log, which their states do not depend on.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    @property
    def overflowed(self) -> bool:
        """True if there were more than the limit: then nothing is kept, and a second, streaming pass is needed."""
        return self._fold.events_overflowed()

    def packed(self) -> array[int]:
        """Return them as numbers, those of each behind those of the one before, in the order of `ProducerEvent`."""
        return self._fold.events()

    def __iter__(self) -> Iterator[ProducerEvent]:
        numbers, width = self.packed(), len(ProducerEvent._fields)
        return map(ProducerEvent, *(numbers[field::width] for field in range(width)))


class SegmentFold:
    """The fold of one segment: a sequence of `add`, results valid after each. Not for several threads at once.

    Memory: both indexes (bounded by `max_index_size` each), the events (bounded by `event_limit`), a pair for each rise
    of the leader epoch, and 56 bytes a block where blocks are wanted.
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
        chosen = KERNEL if kernel is None else kernel_of(kernel)
        self._settings = (base_offset, index_interval_bytes, max_index_size, event_limit)
        self._saves = block_offsets == 0
        self._is_whole = True
        self._fold = chosen.new_fold(base_offset, index_interval_bytes, max_index_size, event_limit, block_offsets)

    @classmethod
    def restore(
        cls, state: bytes, indexes: tuple[bytes, bytes] | None = None, *, kernel: str | None = None
    ) -> SegmentFold:
        """Return the fold that `save` has put away: it goes on as if there had been no interruption.

        `indexes` are the bytes of offset index and time index up to there, without a closing entry, whose lengths are
        `index_sizes`. Without them the fold goes on like one whose indexes were taken out. Raises `ValueError` for a
        state that is damaged or of another version, and for indexes of other lengths.
        """
        if len(state) < _STATE.size + _STATE_SUM.size or crc32c(
            memoryview(state)[: -_STATE_SUM.size]
        ) != int.from_bytes(state[-_STATE_SUM.size :], "little"):
            raise ValueError("the state of a fold is damaged")
        magic, version, *settings = _STATE.unpack_from(state)
        if (magic, version) != (_STATE_MAGIC, STATE_VERSION):
            raise ValueError(f"a fold of version {version}, this is {STATE_VERSION}")
        base, interval, max_index_size, event_limit = settings
        fold = cls(
            base, index_interval_bytes=interval, max_index_size=max_index_size, event_limit=event_limit, kernel=kernel
        )
        fold._fold.load(_numbers(state[_STATE.size : -_STATE_SUM.size]))
        if indexes is not None:
            fold._fold.put_back(*indexes)
        else:
            fold._is_whole = fold.index_sizes == (0, 0)
        return fold

    def save(self) -> bytes:
        """Return all that the fold knows but the bytes of the indexes: the same of both kernels.

        With few producers it is some 400 bytes. A fold with `block_offsets` has more to tell than is saved.
        """
        if not self._saves:
            raise ValueError("a fold of blocks is not saved")
        numbers = self._fold.numbers()
        if sys.byteorder == "big":
            numbers.byteswap()
        state = _STATE.pack(_STATE_MAGIC, STATE_VERSION, *self._settings) + numbers.tobytes()
        return state + crc32c(memoryview(state)).to_bytes(_STATE_SUM.size, "little")

    def take_indexes(self) -> tuple[bytes, bytes]:
        """Take out and return what was added to offset index and time index since the last call, no closing entry.

        The fold goes on without them in a few hundred bytes of memory, and can no more return whole indexes.
        """
        self._is_whole = False
        return self._fold.take_indexes()

    @property
    def settings(self) -> tuple[int, int, int, int]:
        """Base offset, index interval in bytes, largest size of an index, and limit of events."""
        return self._settings

    @property
    def index_sizes(self) -> tuple[int, int]:
        """Bytes of offset index and time index, without a closing entry, whether or not they were taken out."""
        numbers = self._fold.numbers()
        return numbers[_OFFSETS_SIZE], numbers[_OFFSETS_SIZE + 1]

    def _whole(self) -> Fold:
        if not self._is_whole:
            raise ValueError("the indexes of this fold were taken out")
        return self._fold

    def add(self, rows: BatchRows, count: int) -> None:
        """Fold the first `count` rows, which follow those of the call before; positions are places in the `.log`."""
        self._fold.add(rows, count)

    def scan(self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Folded:
        """Do what `storage.kernel.scan.scan_batches` does and fold what it finds, to the first byte that is not sound.

        One call does the work of many: the rows, which should fit a cache, are refilled until the window ends. They
        hold nothing of use afterwards.
        """
        return self._fold.scan(window, rows, position, next_offset)

    def scan_file(
        self, descriptor: int, rows: BatchRows, *, position: int, end: int, next_offset: int = 0
    ) -> Folded | None:
        """Do the same with the bytes from `position` to `end` of an open file, at most 8 MiB, without copying them.

        It ends with NEED_MORE before bytes that cannot be read, because of a disk or because the file is shorter: a
        caller that reads them learns why. Returns None, and does nothing, where the kernel cannot do this.
        """
        return self._fold.scan_file(descriptor, rows, position, end, next_offset)

    def offset_index(self) -> bytes:
        """Return the `.index` that a broker's recovery writes, trimmed: 8 bytes an entry.

        A batch that begins more than `index_interval_bytes` behind the last one entered (or behind the beginning) is
        entered with its last offset and its own position.
        """
        return self._whole().offset_index()

    def time_index(self) -> bytes:
        """Return the `.timeindex` that a broker's recovery writes, with its closing entry: 12 bytes an entry."""
        return self._whole().time_index()

    def blocks(self) -> bytes:
        """Return what lies in each block of offsets, in order: numbers of 8 bytes as this machine has them, 7 a block.

        Block (base offset of its batches divided by `block_offsets`), digest, batches, bytes, first base offset, last
        offset of the last batch, highest leader epoch (-1 without any). The digest of a block is the exclusive or of a
        64-bit hash over base offset, last offset and stored checksum of each batch: so parts of a block that lie in
        several segments add up, wherever the segments of a log begin.
        """
        return self._fold.blocks()

    @property
    def epochs(self) -> list[Pair]:
        """(epoch, base offset of the batch) at each rise above the newest leader epoch met in this segment."""
        return self._fold.epochs()

    @property
    def producer_events(self) -> ProducerEvents:
        """The batches with a producer id, thinned out; iterating shows the state at that moment."""
        return ProducerEvents(self._fold)

    @property
    def facts(self) -> Facts:
        """All that the properties below tell, at once."""
        return self._fold.facts()

    @property
    def batch_count(self) -> int:
        return self.facts.batch_count

    @property
    def record_count(self) -> int:
        """Of magic 2 only: for older ones it would take decompression."""
        return self.facts.record_count

    @property
    def first_offset(self) -> int | None:
        """Base offset of the first batch; None without batches."""
        return self.facts.first_offset

    @property
    def next_offset(self) -> int:
        """Last offset of the last batch + 1, or the segment's base offset."""
        return self.facts.next_offset

    @property
    def max_timestamp(self) -> int:
        """Milliseconds; -1 if no batch has one."""
        return self.facts.max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the earliest batch with that timestamp, or the segment's base offset."""
        return self.facts.max_timestamp_offset

    @property
    def gaps(self) -> int:
        """Batches of magic 2 with a base offset above the last offset + 1 of the batch before, as after compaction."""
        return self.facts.gaps

    @property
    def magics(self) -> int:
        """Bit `1 << magic` for each magic met."""
        return self.facts.magics

    @property
    def codecs(self) -> int:
        """Bit `1 << codec` for each codec met, none (0) and unknown ones (5 to 7) included."""
        return self.facts.codecs

    @property
    def has_producers(self) -> bool:
        return self.facts.has_producers

    @property
    def digest(self) -> int:
        """64 bits over base offset, last offset and stored checksum of each batch in order, however cut into windows.

        CRC-32 in the high and CRC-32C in the low half, over the numbers as little-endian int64; 0 without batches.
        """
        return self.facts.digest

    @property
    def index_overflow(self) -> bool:
        """More entries are due than `max_index_size` allows, which makes a broker's rebuild fail.

        The offset index is full at that size, the time index one entry before; nothing is entered in either afterwards.
        """
        return self.facts.index_overflow

    @property
    def epoch_fall(self) -> Triple | None:
        """(position, epoch, newest epoch before) of the first batch whose leader epoch goes back."""
        return self.facts.epoch_fall

    @property
    def first_gap(self) -> Triple | None:
        """(position, expected offset, base offset found) of the first gap."""
        return self.facts.first_gap

    @property
    def range_fault(self) -> Pair | None:
        """(position, last offset) of the first batch whose last offset is not 0 to 2147483647 above the base offset.

        Such batches, and positions above 2147483647, get no index entry: it could not be written.
        """
        return self.facts.range_fault
