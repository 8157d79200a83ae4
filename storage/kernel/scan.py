"""The scanner: one pass over a window of a `.log`, a row for each sound batch, and why it stopped.

Two kernels fill the very same rows: `storage.kernel.native`, which is C and optional, and
`storage.kernel.python.scan_python`, the reference. This module takes the first that imports, once; a test that wants a
certain one imports that module, both have the functions below. Nothing here reads a file, keeps state or allocates for
a batch; windows of several files may be scanned at once from several threads, which the C kernel does without the
interpreter's lock.

Sources: Apache Kafka 4.3.0, DefaultRecordBatch, AbstractLegacyRecordBatch, FileLogInputStream, LogSegment.recover.
"""

from __future__ import annotations

from typing import Protocol

from storage.kernel.rows import BatchRows, Data, Led, Scanned, Walked


class Kernel(Protocol):
    """What both kernels offer."""

    def crc_name(self) -> str: ...

    def crc32c(self, data: memoryview, value: int = 0) -> int: ...

    def scan_batches(
        self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0
    ) -> Scanned: ...

    def walk_headers(
        self, window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0
    ) -> Scanned: ...

    def find_batch(self, window: memoryview, start: int, *, lowest: int, highest: int) -> int: ...

    def check_records(self, payload: memoryview, count: int) -> int: ...

    def walk_records(
        self, payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0
    ) -> Walked: ...

    def find_record(
        self, payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
    ) -> tuple[int, int] | None: ...

    def count_up_to(self, data: Data, width: int, target: int, /) -> int: ...

    def lead_batch(self, data: Data, next_offset: int, leader_epoch: int, /) -> Led | None: ...


def _choose() -> tuple[str, Kernel]:
    try:
        from storage.kernel import native  # noqa: PLC0415 (may not have been built, nor loads from a zip)
    except ImportError:
        from storage.kernel.python import scan_python  # noqa: PLC0415 (only then: it takes time, too)

        return "python", scan_python
    return "c", native


_name, _kernel = _choose()


def kernel_name() -> str:
    """Return which kernel is in use: `c` or `python`."""
    return _name


def crc_name() -> str:
    """Return which CRC-32C is in use: `sse4.2`, `arm` or `table` of the C kernel, or `crc32c package`."""
    return _kernel.crc_name()


def crc32c(data: memoryview, value: int = 0) -> int:
    """Return the CRC-32C of `data`; `value` is that of the bytes before it."""
    return _kernel.crc32c(data, value)


def scan_batches(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Fill a row for each sound batch from the beginning of `window` on, with every checksum verified.

    `position` is the place of the window in its file and is added to the column of that name. `next_offset` is the
    lowest offset that the next batch may have (magic 2: base offset; magic 0 and 1: the entry's own); each batch raises
    it to its last offset + 1, which must fit an int64. Of several faults of one batch the first in this order is told:

    - fewer than 17 bytes left: NEED_MORE, none left: END, and with bytes but no row left: ROWS_FULL;
    - size field below 14: BAD_SIZE;
    - magic above 2: UNKNOWN_MAGIC if it is whole and its CRC-32C holds, NEED_MORE if it is not whole, else BAD_MAGIC;
      below 0: BAD_MAGIC;
    - magic 2 of fewer than 61 bytes: BAD_SIZE;
    - reaches beyond the window: NEED_MORE;
    - checksum: BAD_CRC;
    - offsets below `next_offset`, or last below base: BAD_ORDER.

    A batch that is larger than the window is NEED_MORE with nothing consumed; the size of what a caller reads next must
    be bounded by the file, not by the size field.
    """
    return _kernel.scan_batches(window, rows, position=position, next_offset=next_offset)


def walk_headers(window: memoryview, rows: BatchRows, *, position: int = 0, next_offset: int = 0) -> Scanned:
    """Do as `scan_batches` without the checksums: for bytes that are verified elsewhere, and for shallow checks.

    A magic above 2 is still judged by its checksum, since that decides between rubbish and a newer broker's data.
    """
    return _kernel.walk_headers(window, rows, position=position, next_offset=next_offset)


def find_batch(window: memoryview, start: int, *, lowest: int, highest: int) -> int:
    """Return the place of the first whole, sound batch at or behind `start`, -1 if there is none.

    Its magic is 0 to 2, its base offset (magic 0 and 1: the entry's own) from `lowest` to `highest` and never negative,
    its size sound, its checksum holds; `scan_batches` accepts it with `next_offset=lowest`. At most twice as many bytes
    as the window has are summed for candidates; beyond that the answer is -2, undecided, so that crafted or unlucky
    bytes cost no more than linear time.
    """
    return _kernel.find_batch(window, start, lowest=lowest, highest=highest)


def check_records(payload: memoryview, count: int) -> int:
    """Return -1 if `payload` is exactly `count` sound records of magic 2, else the place of the first that is not.

    `payload` is what follows the 61 bytes of the header, decompressed. Where all records are sound but bytes are left
    over, that is the place of the first of these. A negative count is a fault at 0. With a count of 0 the payload
    is not looked at, as by a broker. The text of header keys, and whether offset deltas rise, are not checked either.
    """
    return _kernel.check_records(payload, count)


def walk_records(payload: bytes | memoryview, count: int, *, first: int = 0, base_timestamp: int = 0) -> Walked:
    """Return what the records in `payload` are, at most `count` of them, up to the first that is not sound and whole.

    `first` is the offset delta that the first of them should have, `base_timestamp` (ms) that of their batch; sums wrap
    as Java's do. Bytes behind the last record are no fault here.
    """
    return _kernel.walk_records(payload, count, first=first, base_timestamp=base_timestamp)


def find_record(
    payload: memoryview, count: int, base_timestamp: int, timestamp: int, offset_delta: int
) -> tuple[int, int] | None:
    """Return offset delta and timestamp (ms) of the first of `count` records from `timestamp` and `offset_delta` on.

    None if there is none, or none before a record that is not sound.
    """
    return _kernel.find_record(payload, count, base_timestamp, timestamp, offset_delta)


count_up_to = _kernel.count_up_to
"""`count_up_to(data, width, target)` returns how many entries of an index begin with a number up to `target`.

Numbers rise. Entries of 8 bytes begin with an int32, entries of 12 bytes with an int64; there are no others.
"""

lead_batch = _kernel.lead_batch
"""`lead_batch(data, next_offset, leader_epoch)` returns the one batch in `data` as a leader writes it, as `Led` says.

None, which says nothing of the batch, unless it is a whole batch of magic 2 without codec, as clients send them, with a
sound checksum, sound records as many as its header says, and the largest timestamp that its header says; and always
where the kernel is the one in Python. Offsets, times of records and sequence numbers are for the caller to judge.
"""
