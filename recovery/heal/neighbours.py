"""Holds a replica against the batches on both sides of a hole, which are sound here: they must be the same ones there.

No checksum covers the base offset of a batch. A replica of which all offsets are higher or lower than they should be
has batches that fit a hole, and are others. Where nothing was compacted, replicas have the same batches.
"""

from __future__ import annotations

from typing import NamedTuple

from recovery.heal.replica import ReplicaFacts, ReplicaSource
from storage.base.units import TopicPartition
from storage.disk.fs import ReadFile
from storage.kernel.rows import BatchRows

_HEAD = 27
"""Bytes of a batch up to its last offset delta."""


class Neighbour(NamedTuple):
    """A batch beside a hole: its offsets, and its checksum as it is stored."""

    base_offset: int
    last_offset: int
    crc: int


def last_of(rows: BatchRows, count: int) -> Neighbour | None:
    """Return the last of so many rows; None for an old format."""
    at = count - 1
    return Neighbour(rows.base_offset[at], rows.last_offset[at], rows.crc[at]) if rows.magic[at] == 2 else None


def read_neighbour(file: ReadFile, position: int) -> Neighbour | None:
    """Return the sound batch at `position`; None for an old format. Raises `ReadFault`."""
    head = bytearray(_HEAD)
    file.read_into(position, memoryview(head))
    if head[16] != 2:
        return None
    base = int.from_bytes(head[:8], "big", signed=True)
    return Neighbour(base, base + int.from_bytes(head[23:27], "big", signed=True), int.from_bytes(head[17:21], "big"))


def refuse_neighbours(
    source: ReplicaSource,
    partition: TopicPartition,
    theirs: ReplicaFacts,
    beside: tuple[Neighbour | None, Neighbour | None],
) -> str:
    """Return why the replica is not one of this log: it has another batch beside the hole; empty where it has the same.

    What lies below its log start it cannot have; an end that it has not reached is no difference either. Raises
    `ReplicaUnusable`.
    """
    for wanted in beside:
        if wanted is None or wanted.last_offset < theirs.log_start:
            continue
        first = max(wanted.base_offset, theirs.log_start)
        # Its batch that holds this offset, or the next one.
        offer = next(iter(source.batches(partition, first, wanted.last_offset + 1, 0)), None)
        if offer is None:
            continue
        header = offer.header
        if (header.base_offset, header.last_offset, header.crc) != wanted:
            return f"beside the hole, at offset {wanted.base_offset}, it has another batch than this log"
    return ""
