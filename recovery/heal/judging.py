"""Judges what one replica has for a hole: whether its batches must be those that were lost. They are read as a stream.

Two things make it certain. Log matching: a replica that has the very batch behind the hole has all before it as this
log had it, committed or not. Or the high watermark, below which all replicas agree. docs/operate/healing.md says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from checkpoint.leader_epoch import epoch_at
from recovery.heal.holes import Hole, Neighbour
from recovery.heal.replica import Offer, ReplicaFacts, ReplicaSource
from storage.base.errors import LogmendError
from storage.base.units import INT64_MAX, Offset, TopicPartition
from storage.batch.batch import BatchHeader


class Refused(LogmendError):
    """The batches of a replica may be others than those that were lost; prints as the reason."""


class Fill(NamedTuple):
    """Batches of a replica that fill a hole: their number, bytes and digest, not their content."""

    source: ReplicaSource
    partition: TopicPartition
    hole: Hole
    batches: int
    size: int
    sha256: str
    next_offset: int
    is_proven: bool
    """Log matching, or for a compacted log its neighbours and its size, show that they are the lost ones."""
    more: str = ""
    """Why no more was taken, where the replica has more for the end of the log."""

    def offers(self) -> Iterator[Offer]:
        """Read the batches again, one after the other. Raises `ReplicaUnusable`."""
        if self.batches:
            stream = _asked(self.source, self.partition, self.hole)
            for _, offer in zip(range(self.batches), stream, strict=False):
                yield offer


class _Stream:
    """The batches that a replica offers, as far as they were read."""

    def __init__(self, hole: Hole, theirs: ReplicaFacts, ours: ReplicaFacts) -> None:
        self.hole, self.theirs, self.ours = hole, theirs, ours
        self.is_compacted = any(point is not None and point > hole.first for point in _clean_points(theirs, ours))
        self.batches = self.size = 0
        self.expected, self.epoch = hole.first, -1 if hole.before is None else hole.before.epoch
        self.has_epochs, self.is_thinned = True, False
        self.digest = hashlib.sha256()

    def take(self, offer: Offer) -> None:
        """Take in the next batch; `Refused` if its offsets or its epoch are not in order."""
        header = offer.header
        base, last = header.base_offset, header.last_offset
        if base < self.expected or last < base or (base > self.expected and not self.is_compacted):
            raise Refused(f"its batch of offsets {base} to {last} does not follow offset {self.expected - 1}")
        if header.magic >= 2:
            self._take_epoch(header)
        self.has_epochs &= header.magic >= 2 and header.leader_epoch >= 0
        self.is_thinned |= header.last_offset_delta + 1 != header.record_count
        self.expected = last + 1
        self.batches, self.size = self.batches + 1, self.size + len(offer.data)
        self.digest.update(offer.data)

    def _take_epoch(self, header: BatchHeader) -> None:
        base, epoch = header.base_offset, header.leader_epoch
        if epoch < self.epoch:
            raise Refused(f"epoch {epoch} at offset {base} follows epoch {self.epoch}")
        self.epoch = epoch
        for whose, epochs in (("its", self.theirs.epochs), ("our", self.ours.epochs)):
            known = epoch_at(epochs, Offset(base))
            if known is not None and known != epoch:
                raise Refused(f"offset {base} is of epoch {epoch}, {whose} epoch file says {known}")
        if epoch_at(self.theirs.epochs, Offset(base)) is None:
            raise Refused(f"its epoch file does not tell the epoch of offset {base}")

    def end(self) -> None:
        """Raise `Refused` if the batches do not reach to where our log goes on, or do so in another epoch."""
        until, behind = self.hole.until, self.hole.behind
        if not self.batches:
            if until != self.hole.first:
                raise Refused(f"it has no batch from offset {self.hole.first} on")
            return
        if until is not None and (self.expected > until or (self.expected < until and not self.is_compacted)):
            raise Refused(f"its batches end with offset {self.expected - 1}, the log goes on with {until}")
        if behind is not None and self.epoch > behind.epoch >= 0:
            raise Refused(f"epoch {self.epoch} comes before epoch {behind.epoch}")


def judge(source: ReplicaSource, partition: TopicPartition, hole: Hole, ours: ReplicaFacts, agreed: int | None) -> Fill:
    """Return what a replica fills a hole with. Raises `Refused`, and `ReplicaUnusable`.

    `agreed`: the offset up to which all replicas have the same batches, where those are wanted that are not known to
    be committed; None where they are not.
    """
    theirs = source.facts(partition)
    if theirs.topic_id is not None and ours.topic_id is not None and theirs.topic_id != ours.topic_id:
        raise Refused("its topic id is another: a topic of the same name made at another time")
    committed = max(theirs.high_watermark or 0, ours.high_watermark or 0)
    stream, more = _Stream(hole, theirs, ours), ""
    for offer in _asked(source, partition, hole):
        if hole.until is None and stream.size >= hole.size:
            break  # as many as began in the bytes that are lost
        if hole.until is None and (why := _refuse_uncommitted(offer.header.last_offset, committed, agreed)):
            if not stream.batches:
                raise Refused(why)
            more = why
            break
        stream.take(offer)
    stream.end()
    is_proven = _is_proven(stream, _neighbours(source, partition, hole, theirs, ours))
    if stream.batches and not is_proven:
        _refuse_compaction(hole, ours, theirs)
        if why := _refuse_uncommitted(stream.expected - 1, committed, agreed):
            raise Refused(why)
    sha256 = stream.digest.hexdigest()
    return Fill(source, partition, hole, stream.batches, stream.size, sha256, stream.expected, is_proven, more)


def agreed_end(sources: list[ReplicaSource], partition: TopicPartition, hole: Hole) -> int:
    """Return the offset up to which all of these replicas have the same batches from the hole on.

    Raises `ReplicaUnusable` where one of them cannot be read.
    """
    end, size = hole.first, 0
    for offers in zip(*(_asked(source, partition, hole) for source in sources), strict=False):
        if len({neighbour_of(offer.header) for offer in offers}) > 1:
            break
        end, size = offers[0].header.last_offset + 1, size + len(offers[0].data)
        if hole.until is None and size >= hole.size:
            break
    return end


def agree(one: Fill, other: Fill) -> bool:
    """Tell whether two fills have the same batches, at the end of a log as far as both go."""
    if one.hole.until is not None or one.size == other.size:
        return one.sha256 == other.sha256
    pairs = zip(one.offers(), other.offers(), strict=False)
    return all(ours.data == theirs.data for ours, theirs in pairs)


def neighbour_of(header: BatchHeader) -> Neighbour:
    """Return by what a batch is known."""
    return Neighbour(header.base_offset, header.last_offset, header.leader_epoch, header.size, header.crc)


def _asked(source: ReplicaSource, partition: TopicPartition, hole: Hole) -> Iterator[Offer]:
    return source.batches(partition, hole.first, INT64_MAX if hole.until is None else hole.until, hole.size)


def _clean_points(*facts: ReplicaFacts) -> list[int | None]:
    return [one.clean_point for one in facts]


def _refuse_uncommitted(last: int, committed: int, agreed: int | None) -> str:
    """Return why a batch that ends with this offset may be another one than all replicas will have."""
    if last < max(committed, agreed or 0):
        return ""
    what = f"offset {last} is not known to be committed: the high watermark is {committed}"
    if agreed is None:
        return f"{what}; --heal-uncommitted takes what all replicas that are named agree on"
    return f"{what}, and the replicas that are named do not all have it"


def _refuse_compaction(hole: Hole, ours: ReplicaFacts, theirs: ReplicaFacts) -> None:
    """Raise `Refused` where the replica may still have a value whose deletion has been compacted away here."""
    if ours.clean_point is not None and ours.clean_point > hole.first and (theirs.clean_point or 0) < ours.clean_point:
        known = "does not tell how far it is" if theirs.clean_point is None else f"is {theirs.clean_point}"
        raise Refused(
            f"this log is compacted up to {ours.clean_point}, the replica {known}, and neighbours and size do not "
            "prove its batches"
        )


def _neighbours(
    source: ReplicaSource, partition: TopicPartition, hole: Hole, theirs: ReplicaFacts, ours: ReplicaFacts
) -> tuple[bool | None, bool | None]:
    """Return whether the replica has the batch before and the one behind the hole, None where that cannot be told.

    No checksum covers base offsets: a replica of which all offsets are higher by one batch has batches that fit a hole,
    and are others. Raises `Refused` for another neighbour where nothing was compacted, for replicas then have the same
    batches.
    """
    same = tuple(_has(source, partition, theirs, wanted) for wanted in (hole.before, hole.behind))
    if False in same and not any(point for point in _clean_points(theirs, ours)):
        wanted = hole.before if same[0] is False else hole.behind
        at = hole.first if wanted is None else wanted.base_offset
        raise Refused(f"beside the hole, at offset {at}, it has another batch than this log")
    return same[0], same[1]


def _has(
    source: ReplicaSource, partition: TopicPartition, theirs: ReplicaFacts, wanted: Neighbour | None
) -> bool | None:
    """Return whether a replica has this batch; None for one that lies below its log start or beyond its end."""
    if wanted is None or wanted.last_offset < theirs.log_start:
        return None
    first = max(wanted.base_offset, theirs.log_start)
    # Its batch that holds this offset, or the next one.
    offer = next(iter(source.batches(partition, first, wanted.last_offset + 1, 0)), None)
    return None if offer is None else neighbour_of(offer.header) == wanted


def _is_proven(stream: _Stream, same: tuple[bool | None, bool | None]) -> bool:
    """Tell whether the batches must be those that were lost, whatever is known to be committed."""
    fits = stream.size == stream.hole.size
    if not stream.has_epochs or not stream.batches:
        return False
    if stream.is_thinned or any(_clean_points(stream.theirs, stream.ours)):
        return fits and same == (True, True)
    return same[1] is True and (fits or not stream.hole.is_bounded)
