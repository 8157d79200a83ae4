"""What the scanner says of each batch: one row a batch, one int64 column a field.

The columns lie one after another in one block of memory, so that the C kernel and the Python twin fill the very same
bytes and nothing is allocated for a batch.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

COLUMNS: Final = (
    "position",  # byte place of the batch in its file
    "size",  # bytes of the whole batch, its first 12 included
    "base_offset",  # v2: of the header; v0 and v1: the entry's own offset, which is the last one of a wrapper
    "last_offset",  # v2: base offset + last offset delta; v0 and v1: the entry's offset
    "magic",
    "attributes",  # v2: the 16 bits as a signed number; v0 and v1: the one byte
    "crc",  # as stored, unsigned
    "leader_epoch",  # -1 for v0 and v1
    "max_timestamp",  # -1 for v0
    "producer_id",  # -1 for v0 and v1, as the next three
    "producer_epoch",
    "base_sequence",
    "record_count",  # -1 for v0 and v1, where it cannot be known without looking inside
    "control",  # see CONTROL_*; a v2 control batch of a producer gives type << 32 | coordinator epoch
)
"""Names of the columns in their order in memory. `storage/kernel/_scan.c` numbers them alike; a test compares."""

CONTROL_NONE: Final = -1
"""Not a control batch, or one without a producer id (KRaft's own)."""
CONTROL_EMPTY: Final = -2
"""A control batch of a producer with no record left in it."""
CONTROL_UNREADABLE: Final = -3
"""A control batch of a producer whose first record does not parse as a transaction marker of type 0 or 1."""

ABORT: Final = 0
COMMIT: Final = 1


def control_parts(control: int) -> tuple[int, int]:
    """Return type (0 abort, 1 commit) and coordinator epoch (int32) of a `control` value that is 0 or more."""
    epoch = control & 0xFFFFFFFF
    return control >> 32, epoch - (1 << 32) if epoch >= 1 << 31 else epoch


class Stop(IntEnum):
    """Why a scan ended. `BAD_*` names what is wrong with the batch at the end of what was consumed."""

    END = 0  # the window is used up at a batch border
    NEED_MORE = 1  # what is left does not hold a whole batch
    ROWS_FULL = 2
    BAD_SIZE = 3  # size field below 14, or below 49 for magic 2 and above
    BAD_MAGIC = 4  # not 0, 1 or 2, and the checksum of magic 2 does not hold: rubbish
    BAD_CRC = 5
    BAD_ORDER = 6  # offsets do not follow the batch before, or last offset below base offset
    UNKNOWN_MAGIC = 7  # magic above 2 whose CRC-32C holds as for magic 2: a newer broker's, not damage


class Scanned(NamedTuple):
    """`count` rows were filled from `size` bytes; then it stopped because of `stop`."""

    count: int  # type: ignore[assignment]  # a tuple's own method of that name is of no use here
    size: int
    stop: Stop


class Walked(NamedTuple):
    """What some records of one batch of magic 2 are: `count` sound ones that end at `place` of what was walked.

    `least` is the smallest timestamp other than -1, the largest int64 if there is none; `most` is the largest, -1 at
    least; ms. `is_dense`: each offset is one above that before. `lacks_key`: one of them has none.
    """

    count: int  # type: ignore[assignment]  # as above
    place: int
    least: int
    most: int
    is_dense: bool
    lacks_key: bool


Data = bytes | bytearray | memoryview
Led = tuple[bytearray, int, int, int, bool, int, int, int, int]
"""A copy with base offset and leader epoch set, number of records, their least timestamp (without -1; INT64_MAX: none)
and their largest, whether one of them lacks a key, attributes, producer id, producer epoch, base sequence."""


class ProducerEvent(NamedTuple):
    """What one batch with a producer id tells the producer state; the values of its row in `BatchRows`.

    `control` is CONTROL_NONE (-1) for a data batch, CONTROL_EMPTY, CONTROL_UNREADABLE, or type << 32 | coordinator
    epoch. `base_sequence` is -1 where the batch has none; `max_timestamp` is milliseconds, -1 for none.
    """

    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    control: int


Pair = tuple[int, int]
Triple = tuple[int, int, int]


class Facts(NamedTuple):
    """What a fold knows of its segment; `storage.kernel.fold.SegmentFold` describes each."""

    batch_count: int
    record_count: int
    first_offset: int | None
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    gaps: int
    magics: int
    codecs: int
    has_producers: bool
    digest: int
    index_overflow: bool
    epoch_fall: Triple | None
    first_gap: Triple | None
    range_fault: Pair | None


class Folded(NamedTuple):
    """`size` bytes of sound batches were scanned and folded; then it stopped because of `stop`.

    `next_offset` may come next. `last_position` is the place of the last batch, `before_last` what could have come
    instead of it; neither means anything where `size` is 0.
    """

    size: int
    stop: Stop
    next_offset: int
    last_position: int
    before_last: int


class BatchRows:
    """Columns for up to `capacity` batches; each attribute named in `COLUMNS` is a memoryview of int64.

    Reused from window to window. Rows at and above the count of the last scan are stale.
    """

    __slots__ = (*COLUMNS, "block", "capacity")

    position: memoryview[int]
    size: memoryview[int]
    base_offset: memoryview[int]
    last_offset: memoryview[int]
    magic: memoryview[int]
    attributes: memoryview[int]
    crc: memoryview[int]
    leader_epoch: memoryview[int]
    max_timestamp: memoryview[int]
    producer_id: memoryview[int]
    producer_epoch: memoryview[int]
    base_sequence: memoryview[int]
    record_count: memoryview[int]
    control: memoryview[int]

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity {capacity}: at least one row is needed")
        self.capacity = capacity
        self.block = memoryview(bytearray(8 * capacity * len(COLUMNS)))
        """All columns as bytes, column after column: what the kernel writes to."""
        numbers = self.block.cast("q")
        for number, name in enumerate(COLUMNS):
            setattr(self, name, numbers[number * capacity : (number + 1) * capacity])
