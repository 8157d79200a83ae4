"""Fills holes in a log with batches of a replica: finds them, judges what is offered, and plans the splice.

Nothing here changes a disk. A batch is taken only if it must be the one that was lost: its checksum holds, offsets fit
the hole exactly, its leader epoch is that of both neighbours' order, of our epoch file and of the replica's, sequences
of its producer join, and it is known to be committed. Two replicas that disagree are a finding, not a vote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, epoch_at, read_epochs
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata
from recovery.heal.neighbours import Neighbour, last_of, read_neighbour, refuse_neighbours
from recovery.heal.replica import Offer, ReplicaFacts, ReplicaSource, ReplicaUnusable
from recovery.logdir.log_dir import RECOVERY_POINTS, known_offsets
from recovery.partition.inventory import resolve, take_inventory
from recovery.partition.points import SMALL_FILE_LIMIT
from recovery.plan.findings import Damage, Subject
from recovery.plan.plan import LogDirPlan, Precondition, RecoveryPlan, SplicePiece, SpliceSegment, regular_partitions
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData, FileVanished, UnsupportedFormat
from storage.base.names import FileRole
from storage.base.units import INT32_MAX, INT64_MAX, Offset, TopicPartition
from storage.batch.batch import add_to_sequence
from storage.disk.fs import ReadFile, ReadFs, read_all
from storage.kernel.rows import BatchRows
from storage.reading.log_reader import LogReader, find_sound_batch

ROOM: Final = 64 << 20
"""Bytes of offered batches that are held until they are written."""


class Hole(NamedTuple):
    """Bytes of a `.log` that are no sound batches in order, and the offsets that are missing with them.

    Bytes from `position` to `end`; offsets from `first` up to, not including, `until`, which is None at the end of the
    log, where nobody knows how far it went.
    """

    log: PurePath
    position: int
    end: int
    first: int
    until: int | None
    epoch_before: int
    epoch_after: int | None
    beside: tuple[Neighbour | None, Neighbour | None] = (None, None)
    """The sound batches before it and behind it, in the same segment."""


@dataclass(frozen=True, slots=True)
class HealNote:
    """What came of one hole: the replica that filled it, or why none did."""

    partition: str
    log: PurePath
    position: int
    first_offset: int
    next_offset: int | None
    healed: bool
    source: str = ""
    batches: int = 0
    size: int = 0
    reason: str = ""


@dataclass(slots=True)
class Healing:
    """A plan of splices, their contents by path and number of the piece, and what came of each hole."""

    plan: LogDirPlan
    contents: dict[tuple[PurePath, int], Sequence[bytes]] = field(default_factory=dict)
    notes: list[HealNote] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ours:
    """What this side knows of a partition."""

    epochs: tuple[EpochStart, ...]
    high_watermark: int
    clean_point: int | None
    topic_id: bytes | None


# ---- holes


def find_holes(file: ReadFile, files: SegmentFiles, until: int | None, reader: LogReader) -> list[Hole]:
    """Return the holes of one segment, in order. `until`: the offset that what follows the segment begins with.

    Raises `ReadFault`, and `FileVanished` where the file has shrunk.
    """
    size, holes, start, next_offset = files.log_stat.size, [], 0, int(files.base_offset)
    last_epoch = [-1]
    before: list[Neighbour | None] = [None]
    beside: tuple[Neighbour | None, Neighbour | None]

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        last_epoch[0] = rows.leader_epoch[count - 1]
        before[0] = last_of(rows, count)

    while True:
        scan = reader.scan(file, files.log, size, next_offset, on_rows, start=start)
        at = scan.valid_size
        if at == size:
            if until is not None and scan.next_offset < until:
                holes.append(
                    Hole(files.log, size, size, scan.next_offset, until, last_epoch[0], None, (before[0], None))
                )
            return holes
        sound = find_sound_batch(file, size, at + 1, scan.next_offset)
        if sound is None:
            beside = (before[0], None)
            return [*holes, Hole(files.log, at, size, scan.next_offset, until, last_epoch[0], None, beside)]
        base, epoch = _base_and_epoch(file, sound)
        beside = (before[0], read_neighbour(file, sound))
        holes.append(Hole(files.log, at, sound, scan.next_offset, base, last_epoch[0], epoch, beside))
        start, next_offset = sound, base


def _base_and_epoch(file: ReadFile, position: int) -> tuple[int, int]:
    head = bytearray(17)
    file.read_into(position, memoryview(head))
    epoch = int.from_bytes(head[12:16], "big", signed=True) if head[16] == 2 else -1
    return int.from_bytes(head[:8], "big", signed=True), epoch


# ---- what is offered


def collect(source: ReplicaSource, partition: TopicPartition, hole: Hole, room: int) -> list[Offer]:
    """Return what a source has for a hole, unjudged; raises `ReplicaUnusable`, also where it is more than `room`."""
    offers: list[Offer] = []
    size, wanted = 0, hole.end - hole.position
    for offer in source.batches(partition, hole.first, INT64_MAX if hole.until is None else hole.until, wanted):
        if hole.until is None and size >= wanted:
            break  # as many as began in the bytes that are lost
        size += len(offer.data)
        if size > room:
            raise ReplicaUnusable(f"{source.name}: more than {room} bytes are missing; copy the segment instead")
        offers.append(offer)
    return offers


def committed_part(hole: Hole, offers: Sequence[Offer], theirs: ReplicaFacts, ours: Ours) -> list[Offer]:
    """Return the offers without those behind the high watermark, where a hole is the end of the log anyway."""
    if hole.until is not None or not offers:
        return list(offers)
    kept = [offer for offer in offers if offer.header.last_offset < _committed(theirs, ours)]
    return kept or list(offers[:1])  # the first is refused with its reason


def _committed(theirs: ReplicaFacts, ours: Ours) -> int:
    return max(theirs.high_watermark or 0, ours.high_watermark)


def refuse(hole: Hole, offers: Sequence[Offer], theirs: ReplicaFacts, ours: Ours) -> str:
    """Return why the offered batches are not those that were lost; empty where they must be."""
    if theirs.topic_id is not None and ours.topic_id is not None and theirs.topic_id != ours.topic_id:
        return "its topic id is another: a topic of the same name made at another time"
    if not offers:
        return "" if hole.until == hole.first else f"it has no batch from offset {hole.first} on"
    end = offers[-1].header.last_offset + 1
    committed = _committed(theirs, ours)
    if end > committed:
        return f"offset {end - 1} is not known to be committed: the high watermark is {committed}"
    compacted = _is_compacted(hole, ours, theirs)
    return (
        _refuse_compaction(hole, ours, theirs)
        or _refuse_offsets(hole, offers, compacted=compacted)
        or _refuse_epochs(hole, offers, theirs, ours)
    )


def _is_compacted(hole: Hole, ours: Ours, theirs: ReplicaFacts) -> bool:
    return any(point is not None and point > hole.first for point in (ours.clean_point, theirs.clean_point))


def _was_compacted(ours: Ours, theirs: ReplicaFacts) -> bool:
    """Tell whether batches may be others on one side, and still right."""
    return any(point is not None and point > 0 for point in (ours.clean_point, theirs.clean_point))


def _refuse_compaction(hole: Hole, ours: Ours, theirs: ReplicaFacts) -> str:
    """A replica that was compacted less far may still have a value whose deletion has been compacted away here."""
    if ours.clean_point is not None and ours.clean_point > hole.first and (theirs.clean_point or 0) < ours.clean_point:
        return f"it is compacted up to {theirs.clean_point or 0}, this log up to {ours.clean_point}"
    return ""


def _refuse_offsets(hole: Hole, offers: Sequence[Offer], *, compacted: bool) -> str:
    expected = hole.first
    for offer in offers:
        base, last = offer.header.base_offset, offer.header.last_offset
        if base < expected or last < base or (base > expected and not compacted):
            return f"its batch of offsets {base} to {last} does not follow offset {expected - 1}"
        expected = last + 1
    if hole.until is not None and (expected > hole.until or (expected < hole.until and not compacted)):
        return f"its batches end with offset {expected - 1}, the log goes on with {hole.until}"
    return ""


def _refuse_epochs(hole: Hole, offers: Sequence[Offer], theirs: ReplicaFacts, ours: Ours) -> str:
    newest = hole.epoch_before
    for offer in offers:
        header = offer.header
        if header.magic < 2:
            continue
        base, epoch = header.base_offset, header.leader_epoch
        if epoch < newest:
            return f"epoch {epoch} at offset {base} follows epoch {newest}"
        newest = epoch
        for whose, epochs in (("its", theirs.epochs), ("our", ours.epochs)):
            known = epoch_at(epochs, Offset(base))
            if known is not None and known != epoch:
                return f"offset {base} is of epoch {epoch}, {whose} epoch file says {known}"
        if not theirs.epochs or epoch_at(theirs.epochs, Offset(base)) is None:
            return f"its epoch file does not tell the epoch of offset {base}"
    if hole.epoch_after is not None and newest > hole.epoch_after >= 0:
        return f"epoch {newest} comes before epoch {hole.epoch_after}"
    return ""


class _Producer(NamedTuple):
    epoch: int
    last_sequence: int


def refuse_sequences(rows: Iterable[tuple[int, int, int, int, bool]], own: Callable[[int], bool]) -> str:
    """Return where the sequence of a producer breaks across a seam.

    `rows`: producer id, epoch, base sequence, last offset delta, and whether it was offered, of the spliced segment in
    order; `own` tells whether an id matters. Within what was there before nothing is judged.
    """
    known: dict[int, tuple[_Producer, bool]] = {}
    for producer_id, epoch, base, delta, offered in rows:
        if producer_id < 0 or base < 0 or not own(producer_id):
            continue
        before = known.get(producer_id)
        if before is not None and (offered or before[1]) and before[0].epoch == epoch:
            expected = add_to_sequence(before[0].last_sequence, 1)
            if base != expected:
                return f"producer {producer_id}: sequence {base} where {expected} belongs"
        known[producer_id] = (_Producer(epoch, add_to_sequence(base, delta)), offered)
    return ""


# ---- the plan


def plan_healing(
    fs: ReadFs, plan: LogDirPlan, sources: Sequence[ReplicaSource], points: Mapping[TopicPartition, int]
) -> Healing:
    """Return the splices that fill what can be filled of the holes that `plan` found, at most `ROOM` bytes of them.

    `points` are the recovery points: below them a log that ends too early has a hole too. Run again after it was
    carried out, it goes on with what there was no room for. Raises `ReadFault` for our own disk alone.
    """
    healing = Healing(plan._replace(verdicts=(), before=(), partitions=(), after=(), preconditions=()))
    if plan.stopped or not sources:
        return healing
    reader, room, partitions = LogReader(), ROOM, []
    for name, partition in regular_partitions(plan):
        wanted = _damaged_logs(partition)
        short = partition.loaded is not None and points.get(name, 0) > partition.loaded.log_end
        if not wanted and not short:
            continue
        work = _Partition(fs, plan.log_dir, name, partition, sources, reader, healing, room)
        spliced = work.run(wanted, points.get(name, 0) if short else None)
        room = work.room
        if spliced is not None:
            partitions.append(spliced)
    healing.plan = healing.plan._replace(partitions=tuple(partitions))
    return healing


def recovery_points(fs: ReadFs, log_dir: PurePath) -> dict[TopicPartition, int]:
    """Return what the checkpoint says; nothing where it cannot be used."""
    return {name: int(point) for name, point in known_offsets(fs, log_dir / RECOVERY_POINTS).items()}


def _damaged_logs(partition: RecoveryPlan) -> set[PurePath]:
    return {
        f.path for f in partition.findings if f.kind.subject is Subject.LOG or f.kind is Damage.LOG_MISSING
    }  # fmt: skip


@dataclass(slots=True)
class _Partition:
    """The holes of one partition."""

    fs: ReadFs
    log_dir: PurePath
    name: TopicPartition
    plan: RecoveryPlan
    sources: Sequence[ReplicaSource]
    reader: LogReader
    healing: Healing
    room: int

    def run(self, damaged: set[PurePath], point: int | None) -> RecoveryPlan | None:
        inventory = take_inventory(self.fs, self.plan.directory)
        segments = resolve(inventory, {}).segments
        ours = self._ours()
        actions, conditions = [], []
        for number, files in enumerate(segments):
            is_last = number + 1 == len(segments)
            if files.log not in damaged and not (is_last and point is not None):
                continue
            until = point if is_last else int(segments[number + 1].base_offset)
            with self.fs.open_read(files.log) as file:
                holes = find_holes(file, files, until, self.reader)
                filled = {hole: found for hole in holes if (found := self._fill(hole, ours)) is not None}
                if filled and (why := _refuse_extent(files, filled) or self._refuse_seams(file, files, filled)):
                    self._note_all(filled, why)
                    continue
            if filled:
                actions.append(self._splice(files, holes, filled))
                conditions.append(Precondition.of(files.log, files.log_stat))
        if not actions:
            return None
        return self.plan._replace(
            verdicts=(), held=False, preconditions=tuple(conditions), actions=tuple(actions), cuts=(),
            loaded=None,
        )  # fmt: skip

    def _ours(self) -> Ours:
        directory = self.plan.directory
        try:
            epochs = tuple(read_epochs(self.fs, directory / EPOCHS_NAME))
        except (FileVanished, CorruptData, UnsupportedFormat):
            epochs = ()
        try:
            data = read_all(self.fs, directory / PARTITION_METADATA, SMALL_FILE_LIMIT)
            topic_id = decode_partition_metadata(data).topic_id
        except (FileVanished, CorruptData, UnsupportedFormat):
            topic_id = None
        watermarks = known_offsets(self.fs, self.log_dir / FileRole.HIGH_WATERMARKS.value)
        cleaned = known_offsets(self.fs, self.log_dir / FileRole.CLEANER_OFFSETS.value)
        return Ours(epochs, int(watermarks.get(self.name, 0)), cleaned.get(self.name), topic_id)

    def _fill(self, hole: Hole, ours: Ours) -> tuple[str, list[Offer]] | None:
        """Return a source and its batches for a hole, None where nobody can fill it."""
        accepted: list[tuple[str, list[Offer]]] = []
        reasons = []
        for source in self.sources:
            try:
                facts = source.facts(self.name)
                offers = committed_part(hole, collect(source, self.name, hole, self.room), facts, ours)
                reason = refuse(hole, offers, facts, ours)
                if not reason and not _was_compacted(ours, facts):
                    reason = refuse_neighbours(source, self.name, facts, hole.beside)
            except ReplicaUnusable as error:
                reason, offers = str(error), []
            if reason:
                reasons.append(f"{source.name}: {reason}")
            else:
                accepted.append((source.name, offers))
        if not accepted:
            self._note(hole, "; ".join(reasons))
            return None
        first = accepted[0]
        others = [name for name, offers in accepted[1:] if _digest(offers) != _digest(first[1])]
        if others:
            self._note(hole, f"the replicas disagree: {first[0]} has other batches than {', '.join(others)}")
            return None
        self.room -= sum(len(offer.data) for offer in first[1])
        return first

    def _refuse_seams(self, file: ReadFile, files: SegmentFiles, filled: Mapping[Hole, tuple[str, list[Offer]]]) -> str:
        """Walk the segment as it would be, and hold the sequences of the offered producers against it."""
        wanted = {o.header.producer_id for _, offers in filled.values() for o in offers if o.header.producer_id >= 0}
        if not wanted or any(
            o.header.last_offset_delta + 1 != o.header.record_count for _, x in filled.values() for o in x
        ):
            return ""  # nobody's, or compacted: then sequences have gaps of their own
        return refuse_sequences(self._rows(file, files, filled, wanted), wanted.__contains__)

    def _rows(
        self, file: ReadFile, files: SegmentFiles, filled: Mapping[Hole, tuple[str, list[Offer]]], wanted: set[int]
    ) -> Iterator[tuple[int, int, int, int, bool]]:
        start, next_offset = 0, int(files.base_offset)
        for hole in sorted(filled, key=lambda each: each.position):
            yield from self._own_rows(file, files, start, hole.position, next_offset, wanted)
            for offer in filled[hole][1]:
                header = offer.header
                yield header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta, True
            start, next_offset = hole.end, hole.first if hole.until is None else hole.until
        yield from self._own_rows(file, files, start, files.log_stat.size, next_offset, wanted)

    def _own_rows(
        self, file: ReadFile, files: SegmentFiles, start: int, end: int, next_offset: int, wanted: set[int]
    ) -> list[tuple[int, int, int, int, bool]]:
        kept: list[tuple[int, int, int, int, bool]] = []

        def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
            ids = rows.producer_id
            kept.extend(
                (
                    ids[i],
                    rows.producer_epoch[i],
                    rows.base_sequence[i],
                    rows.last_offset[i] - rows.base_offset[i],
                    False,
                )
                for i in range(count)
                if ids[i] in wanted
            )

        self.reader.walk(file, files.log, end, next_offset, on_rows, start=start)
        return kept

    def _splice(
        self, files: SegmentFiles, holes: Sequence[Hole], filled: Mapping[Hole, tuple[str, list[Offer]]]
    ) -> SpliceSegment:
        pieces: list[SplicePiece] = []
        at = 0
        for hole in (hole for hole in holes if hole in filled):
            source, offers = filled[hole]
            if hole.position > at:
                pieces.append(SplicePiece(at, hole.position - at))
            data = [offer.data for offer in offers]
            size = sum(map(len, data))
            self.healing.contents[files.log, len(pieces)] = data
            digest = hashlib.sha256()
            for part in data:
                digest.update(part)
            last = offers[-1].header.last_offset if offers else hole.first - 1
            pieces.append(SplicePiece(None, size, source if offers else "", hole.first, last, digest.hexdigest()))
            self._note(hole, "", source if offers else "", offers)
            at = hole.end
        if at < files.log_stat.size:
            pieces.append(SplicePiece(at, files.log_stat.size - at))
        return SpliceSegment(
            files.log, tuple(pieces), sum(piece.size for piece in pieces), "holes filled from a replica"
        )

    def _note_all(self, filled: Mapping[Hole, tuple[str, list[Offer]]], why: str) -> None:
        for hole, (source, _) in filled.items():
            self._note(hole, f"{source}: {why}")

    def _note(self, hole: Hole, reason: str, source: str = "", offers: Sequence[Offer] = ()) -> None:
        size = sum(len(offer.data) for offer in offers)
        until = offers[-1].header.last_offset + 1 if hole.until is None and offers else hole.until
        self.healing.notes.append(
            HealNote(
                str(self.name),
                hole.log,
                hole.position,
                hole.first,
                until,
                not reason,
                source,
                len(offers),
                size,
                reason,
            )
        )


def _refuse_extent(files: SegmentFiles, filled: Mapping[Hole, tuple[str, list[Offer]]]) -> str:
    """Return why a segment cannot take in so much: positions and relative offsets in its indexes have 31 bits."""
    size, last = files.log_stat.size, 0
    for hole, (_, offers) in filled.items():
        size += sum(len(offer.data) for offer in offers) - (hole.end - hole.position)
        last = max([last, *(offer.header.last_offset for offer in offers)])
    if size > INT32_MAX or last - files.base_offset > INT32_MAX:
        return f"a segment cannot hold {size} bytes up to offset {last}; copy the segments that are missing"
    return ""


def _digest(offers: Sequence[Offer]) -> list[tuple[int, int, int]]:
    return [(offer.header.base_offset, offer.header.last_offset, offer.header.crc) for offer in offers]
