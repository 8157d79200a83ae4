"""The scanner, and the one place where a kernel is chosen.

Two kernels do the same: `storage.kernel.native`, which is C and optional, and `storage.kernel.python.reference`. This
module takes the first that imports, once; a test that wants a certain one asks `kernel_of` for it. Nothing in a kernel
reads a file of its own accord, keeps state or allocates for a batch; windows of several files may be scanned at once
from several threads, which the C kernel does without the interpreter's lock.

Sources: Apache Kafka 4.3.0, DefaultRecordBatch, AbstractLegacyRecordBatch, FileLogInputStream, LogSegment.recover.
"""

# ruff: noqa: FBT001 (arguments by position, as C takes them)
from __future__ import annotations

from array import array
from typing import Final, Protocol

from storage.base.rows import BatchRows, Data, Facts, Folded, Led, Pair, Scanned, Walked


class Fold(Protocol):
    """One segment's fold; `storage.kernel.fold.SegmentFold` says what each call does."""

    def add(self, rows: BatchRows, count: int) -> None: ...

    def scan(self, window: memoryview, rows: BatchRows, position: int, next_offset: int) -> Folded: ...

    def scan_file(
        self, descriptor: int, rows: BatchRows, position: int, end: int, next_offset: int
    ) -> Folded | None: ...

    def facts(self) -> Facts: ...

    def epochs(self) -> list[Pair]: ...

    def offset_index(self) -> bytes: ...

    def time_index(self) -> bytes: ...

    def blocks(self) -> bytes: ...

    def events(self) -> array[int]: ...

    def events_overflowed(self) -> bool: ...

    def take_indexes(self) -> tuple[bytes, bytes]: ...

    def put_back(self, offsets: bytes, times: bytes) -> None: ...

    def numbers(self) -> array[int]: ...

    def load(self, numbers: array[int]) -> None: ...


class Kernel(Protocol):
    """What both kernels offer: loops over bytes, with the same results.

    `storage.kernel.python.dedupe_python` describes `put_keys`, `mark_kept` and `move_records`.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 (a constant of a module)
        """`c` or `python`."""

    def crc_name(self) -> str:
        """Return which CRC-32C is in use: `sse4.2`, `arm` or `table` of the C kernel, or `crc32c package`."""

    def crc32c(self, data: memoryview, value: int = 0, /) -> int:
        """Return the CRC-32C of `data`; `value` is that of the bytes before it."""

    def scan_batches(self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
        """Fill a row for each sound batch from the beginning of `window` on, with every checksum verified.

        `position` is the place of the window in its file and is added to the column of that name. `next_offset` is the
        lowest offset that the next batch may have (magic 2: base offset; magic 0 and 1: the entry's own); each batch
        raises it to its last offset + 1, which must fit an int64. The answer is the first of these faults:

        - fewer than 17 bytes left: NEED_MORE, none left: END, and with bytes but no row left: ROWS_FULL;
        - size field below 14: BAD_SIZE;
        - magic above 2: UNKNOWN_MAGIC if it is whole and its CRC-32C holds, NEED_MORE if it is not whole, else
          BAD_MAGIC; below 0: BAD_MAGIC;
        - magic 2 of fewer than 61 bytes: BAD_SIZE;
        - reaches beyond the window: NEED_MORE;
        - checksum: BAD_CRC;
        - offsets below `next_offset`, or last below base: BAD_ORDER.

        A batch that is larger than the window is NEED_MORE with nothing consumed; the size of what a caller reads next
        must be bounded by the file, not by the size field.
        """

    def walk_headers(self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
        """Do as `scan_batches` without the checksums: for bytes that are verified elsewhere, and for shallow checks.

        A magic above 2 is still judged by its checksum, since that decides between rubbish and a newer broker's data.
        """

    def find_batch(self, window: memoryview, start: int, *, lowest: int, highest: int) -> int:
        """Return the place of the first whole, sound batch at or behind `start`, -1 if there is none.

        Its magic is 0 to 2, its base offset (magic 0 and 1: the entry's own) from `lowest` to `highest` and never
        negative, its size sound, its checksum holds; `scan_batches` accepts it with `next_offset=lowest`. At most twice
        as many bytes as the window has are summed for candidates; beyond that the answer is -2, undecided, so that
        crafted or unlucky bytes cost no more than linear time.
        """

    def check_records(self, payload: memoryview, count: int) -> int:
        """Return -1 if `payload` is exactly `count` sound records of magic 2, else the place of the first that is not.

        `payload` is what follows the 61 bytes of the header, decompressed. Where all records are sound but bytes are
        left over, that is the place of the first of these. A negative count is a fault at 0. With a count of 0 the
        payload may be anything, as for a broker. The text of header keys, and whether offset deltas rise, are not
        checked either.
        """

    def walk_records(
        self, payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0
    ) -> Walked:
        """Return what the records in `payload` are, at most `count` of them, up to the first that is unsound.

        `first` is the offset delta that the first of them should have, `base_timestamp` (ms) that of their batch; sums
        wrap as Java's do. Bytes behind the last record are no fault here.
        """

    def find_record(
        self, payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
    ) -> tuple[int, int] | None:
        """Return offset delta and timestamp (ms) of the first record from `timestamp` and `offset_delta` on.

        None if there is none, or none before a record that is not sound.
        """

    def count_up_to(self, data: Data, width: int, target: int, /) -> int:
        """Return how many entries of an index begin with a number up to `target`.

        Numbers rise. Entries of 8 bytes begin with an int32, entries of 12 bytes with an int64; there are no others.
        """

    def lead_batch(self, data: Data, next_offset: int, leader_epoch: int, /) -> Led | None:
        """Return the one batch in `data` as a leader writes it, as `Led` describes it.

        None, which says nothing of the batch, unless it is a whole batch of magic 2 without codec, as clients send
        them, with a sound checksum, sound records as many as its header says, and the largest timestamp that its
        header says; and always where the kernel is the one in Python. Offsets, times of records and sequence numbers
        are for the caller to judge.
        """

    def put_keys(
        self, block: bytearray, table: int, payload: bytes, count: int, base_offset: int, start: int, size: int,
        limit: int, /,
    ) -> tuple[int, int, bool]: ...  # fmt: skip

    def mark_kept(
        self, block: bytearray, table: int, payload: bytes, count: int, base_offset: int, latest: int,
        tombstones_stay: bool, flags: bytearray, /,
    ) -> tuple[int, int, int]: ...  # fmt: skip

    def move_records(
        self, payload: bytes, flags: bytes | bytearray, count: int, old_base: int, is_fixed: bool, time: int,
        has_base: bool, base: int, /,
    ) -> tuple[bytes, int, int]: ...  # fmt: skip

    def new_fold(
        self, base_offset: int, interval: int, max_index_size: int, event_limit: int, block_offsets: int, /
    ) -> Fold:
        """Return the fold of a segment without batches yet."""


def _choose() -> Kernel:
    try:
        from storage.kernel import native  # noqa: PLC0415 (may not have been built, nor loads from a zip)
    except ImportError:
        return kernel_of("python")
    return native


def kernel_of(name: str) -> Kernel:
    """Return the kernel `c` or `python`; `ImportError` where it was not built."""
    if name == "c":
        from storage.kernel import native  # noqa: PLC0415

        return native
    from storage.kernel.python import reference  # noqa: PLC0415 (only then: it takes time, too)

    return reference


KERNEL: Final = _choose()
"""The kernel in use. Its functions are here by their names, as they are: most are called for every batch."""

crc_name = KERNEL.crc_name
crc32c = KERNEL.crc32c
scan_batches = KERNEL.scan_batches
walk_headers = KERNEL.walk_headers
find_batch = KERNEL.find_batch
check_records = KERNEL.check_records
walk_records = KERNEL.walk_records
find_record = KERNEL.find_record
count_up_to = KERNEL.count_up_to
lead_batch = KERNEL.lead_batch
put_keys = KERNEL.put_keys
mark_kept = KERNEL.mark_kept
move_records = KERNEL.move_records


def kernel_name() -> str:
    """Return which kernel is in use: `c` or `python`."""
    return KERNEL.NAME
