"""Counts the records that a cut takes out of a log: of sound batches what they say, of the others their offsets."""

from __future__ import annotations

from typing import Final, NamedTuple

from recovery.plan.findings import Damage
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import LogDamage
from storage.base.rows import BatchRows
from storage.disk.fs import ReadFs
from storage.reading.log_reader import LogReader, find_sound_batch

_CONTROL: Final = 0x20
_MODERN: Final = 2
_SOUND_ITSELF: Final = (Damage.BATCH_STATE, Damage.BATCH_ORDER)


class LostRecords(NamedTuple):
    """How far a cut goes, and how many records it takes; None where nothing behind the damage tells."""

    last_offset: int | None
    records: int | None


def lost_records(fs: ReadFs, files: SegmentFiles, damage: LogDamage, next_base: int | None) -> LostRecords:
    """Return what goes with the bytes from the damage to the end of its file. Raises `ReadFault`.

    `next_base` is that of the segment behind, None for the last: up to there all offsets were taken once.
    """
    count = _Count(damage.next_offset)
    start = damage.position if damage.kind in _SOUND_ITSELF else damage.sound_at
    reader, size = LogReader(), files.log_stat.size
    with fs.open_read(files.log) as file:
        while start is not None:
            scan = reader.scan(file, files.log, size, 0, count.add, start=start)
            behind = max(scan.valid_size, start) + 1
            start = find_sound_batch(file, size, behind, count.next_offset) if behind < size else None
    if next_base is not None:
        count.pass_to(next_base)
    if count.next_offset == damage.next_offset and next_base is None:
        return LostRecords(None, None)
    return LostRecords(max(count.next_offset - 1, damage.next_offset), count.records)


class _Count:
    def __init__(self, next_offset: int) -> None:
        self.next_offset, self.records = next_offset, 0

    def pass_to(self, offset: int) -> None:
        """Count the offsets up to `offset` as records: their batches are bad."""
        self.records += max(offset - self.next_offset, 0)
        self.next_offset = max(offset, self.next_offset)

    def add(self, rows: BatchRows, count: int, _data: memoryview, _origin: int) -> None:
        for number in range(count):
            last = rows.last_offset[number]
            if rows.magic[number] < _MODERN:
                self.pass_to(last + 1)
                continue
            self.pass_to(rows.base_offset[number])
            if not rows.attributes[number] & _CONTROL:
                self.records += rows.record_count[number]
            self.next_offset = max(self.next_offset, last + 1)
