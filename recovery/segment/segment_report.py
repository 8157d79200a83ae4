"""What is known of one segment: how much of it was read, what was found, and what its indexes should hold."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from recovery.plan.findings import Damage, Finding
from recovery.segment.segment_files import SegmentFiles
from storage.base.rows import Stop

ROOM: Final = 64 << 20
"""Bytes kept of scans, all together, until a plan is carried out."""


class Depth(Enum):
    """How much of a segment is read."""

    QUICK = "quick"  # names, sizes, index shape, first and last batch
    FULL = "full"  # every batch, every index entry
    RECORDS = "records"  # and every record, decompressed


class LogDamage(NamedTuple):
    """Where the sound chain of a segment ends before its file does, and what lies behind that place."""

    kind: Damage
    position: int
    next_offset: int
    size: int
    zeroes: bool
    sound_at: int | None
    """Position of the next sound batch in the same file, if one was found."""


class Wanted(NamedTuple):
    """Size in bytes and SHA-256 of what a file should hold."""

    size: int
    sha256: str


class SegmentReport:
    """What was seen of one segment. Offsets and positions are those of the sound chain, `valid_size` its bytes."""

    __slots__ = (
        "batch_count", "blocks", "contents", "damage", "depth", "digest", "epochs", "epochs_fall", "events", "files",
        "findings", "first_offset", "magics", "marked_bytes", "marked_ms", "max_timestamp", "next_offset",
        "overflow_at", "record_count", "scanned_bytes", "trims", "valid_size", "wanted",
    )  # fmt: skip

    def __init__(self, files: SegmentFiles, depth: Depth, valid_size: int, next_offset: int) -> None:
        self.files, self.depth, self.valid_size, self.next_offset = files, depth, valid_size, next_offset
        self.findings: list[Finding] = []
        self.damage: LogDamage | None = None
        self.batch_count = self.record_count = 0
        self.first_offset: int | None = None
        self.max_timestamp = -1
        self.epochs: tuple[tuple[int, int], ...] = ()
        self.epochs_fall = False
        """They do not only rise, and `epochs` are those that are believed."""
        self.magics = self.digest = 0
        self.blocks = b""
        """What lies in each block of offsets, as `SegmentFold.blocks` packs it, where the options ask for it."""
        self.events: array[int] | None = None
        """The batches of producers, as `storage.kernel.fold.ProducerEvents` extracts them, eight numbers each; None if
        that were too many to be kept: then the headers have to be walked again."""
        self.wanted: dict[PurePath, Wanted] = {}
        """Index files that are to be rewritten."""
        self.contents: dict[PurePath, bytes] = {}
        """Content of those of them for which there was room."""
        self.trims: dict[PurePath, int] = {}
        """Length of index files that only have zero bytes behind it."""
        self.scanned_bytes = 0
        self.marked_bytes = 0
        """Bytes of these that a guard has read and this scan has not; it had done so by `marked_ms`."""
        self.marked_ms: int | None = None
        self.overflow_at: int | None = None
        """Offset of the first batch that does not fit the 32-bit relative range of the segment."""

    def altered(self, **changes: Any) -> SegmentReport:
        """Return a report that says the same but for the attributes that are named."""
        made = SegmentReport.__new__(SegmentReport)
        for name in SegmentReport.__slots__:
            setattr(made, name, changes[name] if name in changes else getattr(self, name))
        return made

    @property
    def base_offset(self) -> int:
        """First offset that the segment may hold."""
        return self.files.base_offset

    @property
    def is_scanned(self) -> bool:
        """The whole segment was read, not only looked at."""
        return self.depth is not Depth.QUICK


class Room:
    """What may be kept of the scans until a plan is carried out, in bytes; shared by all threads."""

    def __init__(self, size: int) -> None:
        self._left, self._turn = size, threading.Lock()

    def take(self, size: int) -> bool:
        """Take `size` bytes; False, and nothing is taken, where they are not left."""
        with self._turn:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._turn:
            self._left += size


class ScanOptions:
    """What a scan needs to know besides the bytes. `block_offsets`: of a block of which reports are wanted; 0: none.

    `ends_active`: the time index of the active segment, too, has to end with the largest timestamp, for a clean
    shutdown marker will vouch for it, or a roll makes the segment a closed one. `running`: a broker appends to that
    segment, so that its last batch may be incomplete, and preallocated zero bytes may follow.
    """

    __slots__ = (
        "block_offsets", "depth", "ends_active", "index_interval_bytes", "now_ms", "room", "running",
        "segment_index_bytes",
    )  # fmt: skip

    def __init__(
        self,
        index_interval_bytes: int,
        segment_index_bytes: int,
        now_ms: int | None,
        depth: Depth = Depth.FULL,
        room: Room | None = None,
        block_offsets: int = 0,
        *,
        ends_active: bool = False,
        running: bool = False,
    ) -> None:
        self.index_interval_bytes, self.segment_index_bytes = index_interval_bytes, segment_index_bytes
        self.now_ms, self.depth, self.room, self.block_offsets = now_ms, depth, room or Room(ROOM), block_offsets
        self.ends_active, self.running = ends_active, running


Progress = Callable[[int], None]


def kind_of(stop: Stop, *, zeroes: bool) -> Damage:
    """Return the damage that a scan has met where it stopped; `zeroes`: nothing but zero bytes follow."""
    if zeroes:
        return Damage.ZERO_TAIL
    return {
        Stop.NEED_MORE: Damage.TORN_TAIL,
        Stop.BAD_SIZE: Damage.BATCH_SIZE,
        Stop.BAD_MAGIC: Damage.BATCH_MAGIC,
        Stop.BAD_CRC: Damage.BATCH_CRC,
        Stop.BAD_ORDER: Damage.BATCH_ORDER,
        Stop.UNKNOWN_MAGIC: Damage.UNSUPPORTED,
    }[stop]
