"""Holds the sequences of producers against each other where batches of a replica meet those that were there before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recovery.heal.holes import Hole
from recovery.heal.judging import Fill
from recovery.segment.segment_files import SegmentFiles
from storage.base.rows import BatchRows
from storage.batch.batch import add_to_sequence
from storage.disk.fs import ReadFile
from storage.reading.log_reader import LogReader


class _Last(NamedTuple):
    epoch: int
    sequence: int
    is_offered: bool


class Sequences:
    """The last sequence of each producer. `broken`: where the first break across a seam is; empty without one.

    Among batches that were there before nothing is judged.
    """

    def __init__(self) -> None:
        self.broken = ""
        self._known: dict[int, _Last] = {}

    def add(self, producer_id: int, epoch: int, base: int, delta: int, *, is_offered: bool) -> None:
        """Take in the next batch: its producer, base sequence and last offset delta."""
        if producer_id < 0 or base < 0:
            return
        before = self._known.get(producer_id)
        if before is not None and (is_offered or before.is_offered) and before.epoch == epoch and not self.broken:
            expected = add_to_sequence(before.sequence, 1)
            if base != expected:
                self.broken = f"producer {producer_id}: sequence {base} where {expected} belongs"
        self._known[producer_id] = _Last(epoch, add_to_sequence(base, delta), is_offered)

    def see(self, rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        """Take in batches that were there before, as a walk hands them on."""
        for i in range(count):
            delta = rows.last_offset[i] - rows.base_offset[i]
            self.add(rows.producer_id[i], rows.producer_epoch[i], rows.base_sequence[i], delta, is_offered=False)


def refuse_seams(file: ReadFile, files: SegmentFiles, holes: Sequence[Hole], fill: Fill, reader: LogReader) -> str:
    """Return where a sequence breaks between a fill and what lies around it, up to the holes next to it.

    Empty for a fill with gaps: compaction makes some in sequences too. Raises `ReadFault` and `ReplicaUnusable`.
    """
    number = holes.index(fill.hole)
    start, next_offset = (0, int(files.base_offset)) if not number else _behind(holes[number - 1])
    sequences = Sequences()
    reader.walk(file, files.log, fill.hole.position, next_offset, sequences.see, start=start)
    for offer in fill.offers():
        header = offer.header
        if header.last_offset_delta + 1 != header.record_count:
            return ""
        sequences.add(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta, is_offered=True
        )
    start, next_offset = _behind(fill.hole)
    end = holes[number + 1].position if number + 1 < len(holes) else files.log_stat.size
    reader.walk(file, files.log, end, next_offset, sequences.see, start=start)
    return sequences.broken


def _behind(hole: Hole) -> tuple[int, int]:
    return hole.end, hole.first if hole.until is None else hole.until
