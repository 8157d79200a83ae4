"""Plans how holes in logs are filled with batches of replicas. Nothing here changes a disk.

Two replicas that have different batches for a hole are a finding, not a vote. No batch is held in memory: a plan has
the digest of what was judged, and carrying it out reads the replica again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, read_epochs
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata
from recovery.heal.holes import Hole, find_holes
from recovery.heal.judging import Fill, Refused, agree, agreed_end, judge
from recovery.heal.replica import NoReplica, ReplicaFacts, Replicas, ReplicaSource, ReplicaUnusable
from recovery.heal.sequences import refuse_seams
from recovery.logdir.log_dir import RECOVERY_POINTS, known_offsets
from recovery.partition.inventory import resolve, take_inventory
from recovery.partition.points import SMALL_FILE_LIMIT
from recovery.plan.findings import Damage, Subject
from recovery.plan.plan import LogDirPlan, Precondition, RecoveryPlan, SplicePiece, SpliceSegment
from recovery.segment.segment_files import SegmentFiles
from storage.base.errors import CorruptData, FileVanished, UnsupportedFormat
from storage.base.names import FileRole, parse_directory_name
from storage.base.units import INT32_MAX, TopicPartition
from storage.disk.fs import ReadFs, read_all
from storage.reading.log_reader import LogReader


@dataclass(frozen=True, slots=True)
class HealNote:
    """What came of one hole: the replica that filled it, and why none did or why not all of it is filled."""

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
    """A plan of splices, what fills their pieces by path and number, and what came of each hole."""

    plan: LogDirPlan
    fills: dict[tuple[PurePath, int], Fill] = field(default_factory=dict)
    notes: list[HealNote] = field(default_factory=list)

    def contents(self, path: PurePath, number: int) -> Iterator[bytes]:
        """Read what fills a piece of a splice. Raises `ReplicaUnusable`."""
        return (offer.data for offer in self.fills[path, number].offers())


def plan_healing(fs: ReadFs, plan: LogDirPlan, replicas: Replicas, points: Mapping[TopicPartition, int]) -> Healing:
    """Return the splices that fill what can be filled of the holes that `plan` found.

    `points` are the recovery points: below them a log that ends too early has a hole too. Raises `ReadFault` for our
    own disk alone.
    """
    healing = Healing(plan._replace(verdicts=(), before=(), partitions=(), after=(), preconditions=()))
    if plan.stopped or not replicas.sources:
        return healing
    reader, partitions = LogReader(), []
    for name, partition in _healable(plan):
        damaged = _damaged_logs(partition)
        short = partition.loaded is not None and points.get(name, 0) > partition.loaded.log_end
        if damaged or short or _suspected_logs(partition):
            work = _Partition(fs, name, partition, replicas, reader, healing)
            spliced = work.run(plan.log_dir, damaged, points.get(name, 0) if short else None)
            partitions += [] if spliced is None else [spliced]
    healing.plan = healing.plan._replace(partitions=tuple(partitions))
    return healing


def recovery_points(fs: ReadFs, log_dir: PurePath) -> dict[TopicPartition, int]:
    """Return what the checkpoint says; nothing where it cannot be used."""
    return {name: int(point) for name, point in known_offsets(fs, log_dir / RECOVERY_POINTS).items()}


def _healable(plan: LogDirPlan) -> Iterator[tuple[TopicPartition, RecoveryPlan]]:
    """Yield every partition and the metadata log; no copy under way, none on its way out."""
    for partition in plan.partitions:
        directory = parse_directory_name(partition.partition)
        if directory.state is None:
            yield directory.partition, partition


def _damaged_logs(partition: RecoveryPlan) -> set[PurePath]:
    return {f.path for f in partition.findings if f.kind.subject is Subject.LOG or f.kind is Damage.LOG_MISSING}


def _suspected_logs(partition: RecoveryPlan) -> set[PurePath]:
    """Return the logs with gaps in their offsets: where nothing was compacted, a base offset may be wrong."""
    return {f.path for f in partition.findings if f.kind is Damage.OFFSET_GAP}


def _own_facts(fs: ReadFs, log_dir: PurePath, name: TopicPartition) -> ReplicaFacts:
    """Return what this side knows of a partition; what cannot be read is not known."""
    directory = log_dir / str(name)
    epochs: tuple[EpochStart, ...] = ()
    topic_id = None
    with contextlib.suppress(FileVanished, CorruptData, UnsupportedFormat):
        epochs = tuple(read_epochs(fs, directory / EPOCHS_NAME))
    with contextlib.suppress(FileVanished, CorruptData, UnsupportedFormat):
        topic_id = decode_partition_metadata(read_all(fs, directory / PARTITION_METADATA, SMALL_FILE_LIMIT)).topic_id
    watermarks = known_offsets(fs, log_dir / FileRole.HIGH_WATERMARKS.value)
    cleaned = known_offsets(fs, log_dir / FileRole.CLEANER_OFFSETS.value)
    return ReplicaFacts(0, watermarks.get(name), cleaned.get(name), epochs, topic_id)


@dataclass(slots=True)
class _Partition:
    """The holes of one partition."""

    fs: ReadFs
    name: TopicPartition
    plan: RecoveryPlan
    replicas: Replicas
    reader: LogReader
    healing: Healing

    def run(self, log_dir: PurePath, damaged: set[PurePath], point: int | None) -> RecoveryPlan | None:
        """Return the splices of this partition, None without any; the healing gets their fills and all notes."""
        segments = resolve(take_inventory(self.fs, self.plan.directory), {}).segments
        ours = _own_facts(self.fs, log_dir, self.name)
        has_gaps = bool(ours.clean_point)
        looked_at = damaged if has_gaps else damaged | _suspected_logs(self.plan)
        holes = find_holes(self.fs, segments, looked_at, point, self.reader, has_gaps=has_gaps)
        actions, conditions = [], []
        for files in segments:
            is_certain = files.log in damaged or (point is not None and files is segments[-1])
            fills = self._fill_segment(files, holes.get(files.log, []), ours, is_certain=is_certain)
            if fills:
                actions.append(self._splice(files, fills))
                conditions.append(Precondition.of(files.log, files.log_stat))
        if not actions:
            return None
        return self.plan._replace(
            verdicts=(), held=False, preconditions=tuple(conditions), actions=tuple(actions), cuts=(),
            loaded=None,
        )  # fmt: skip

    def _fill_segment(
        self, files: SegmentFiles, holes: Sequence[Hole], ours: ReplicaFacts, *, is_certain: bool
    ) -> list[Fill]:
        """Return what fills the holes of a segment, in order; the notes say why one that is certain is not filled."""
        fills: list[Fill] = []
        for hole in holes:
            reasons: list[str] = []
            fill = self._fill(files, holes, hole, ours, reasons)
            if fill is None and (not is_certain or _is_gap(hole, ours)):
                continue
            if fill is None:
                self._note(hole, "; ".join(reasons))
            elif why := _refuse_extent(files, [*fills, fill]):
                self._note(hole, f"{fill.source.name}: {why}")
            else:
                fills.append(fill)
        return fills

    def _fill(
        self, files: SegmentFiles, holes: Sequence[Hole], hole: Hole, ours: ReplicaFacts, reasons: list[str]
    ) -> Fill | None:
        """Return what fills one hole; None, with the reasons, where no replica can."""
        agreed = self._agreed(hole) if self.replicas.uncommitted else None
        accepted: list[Fill] = []
        for source in self.replicas.sources:
            try:
                fill = judge(source, self.name, hole, ours, agreed)
                if fill.batches and not fill.is_proven:
                    self._check_seams(files, holes, fill)
                accepted.append(fill)
            except ReplicaUnusable as error:
                reasons.append(f"{source.name}: {error}")
            except Refused as error:
                reasons.append(f"{source.name}: {error}")
        if not accepted:
            return None
        longest = max(accepted, key=lambda fill: fill.next_offset)
        return longest if self._all_agree(longest, accepted, reasons) else None

    def _check_seams(self, files: SegmentFiles, holes: Sequence[Hole], fill: Fill) -> None:
        """Raise `Refused` where the sequence of a producer breaks beside what fills a hole."""
        with self.fs.open_read(files.log) as file:
            if why := refuse_seams(file, files, holes, fill, self.reader):
                raise Refused(why)

    def _all_agree(self, fill: Fill, accepted: Sequence[Fill], reasons: list[str]) -> bool:
        try:
            others = [other.source.name for other in accepted if other is not fill and not agree(fill, other)]
        except ReplicaUnusable as error:
            reasons[:] = [str(error)]
            return False
        if others:
            what = f"{fill.source.name} has other batches than {', '.join(others)}"
            reasons[:] = [f"the replicas disagree: {what}"]
        return not others

    def _agreed(self, hole: Hole) -> int:
        """Return the offset up to which all replicas that have the partition have the same batches."""
        holders: list[ReplicaSource] = []
        try:
            for source in self.replicas.sources:
                try:
                    source.facts(self.name)
                except NoReplica:  # one of several log directories of a broker
                    continue
                holders.append(source)
            return agreed_end(holders, self.name, hole) if holders else hole.first
        except ReplicaUnusable:
            return hole.first

    def _splice(self, files: SegmentFiles, fills: Sequence[Fill]) -> SpliceSegment:
        pieces: list[SplicePiece] = []
        at = 0
        for fill in fills:
            hole, source = fill.hole, fill.source.name if fill.batches else ""
            if hole.position > at:
                pieces.append(SplicePiece(at, hole.position - at))
            self.healing.fills[files.log, len(pieces)] = fill
            pieces.append(SplicePiece(None, fill.size, source, hole.first, fill.next_offset - 1, fill.sha256))
            self._note(hole, fill.more, fill)
            at = hole.end
        if at < files.log_stat.size:
            pieces.append(SplicePiece(at, files.log_stat.size - at))
        return SpliceSegment(
            files.log, tuple(pieces), sum(piece.size for piece in pieces), "holes filled from a replica"
        )

    def _note(self, hole: Hole, reason: str, fill: Fill | None = None) -> None:
        note = HealNote(
            str(self.name), hole.log, hole.position, hole.first, hole.until, fill is not None, reason=reason
        )
        if fill is not None and fill.batches:
            until = fill.next_offset if hole.until is None else hole.until
            source = fill.source.name
            note = replace(note, next_offset=until, source=source, batches=fill.batches, size=fill.size)
        self.healing.notes.append(note)


def _is_gap(hole: Hole, ours: ReplicaFacts) -> bool:
    """Tell whether offsets alone are missing, at the end of a segment that was compacted: as a rule nothing is lost."""
    return not hole.size and ours.clean_point is not None and ours.clean_point > hole.first


def _refuse_extent(files: SegmentFiles, fills: Sequence[Fill]) -> str:
    """Return why a segment cannot take in so much: positions and relative offsets in its indexes have 31 bits."""
    size = files.log_stat.size + sum(fill.size - fill.hole.size for fill in fills)
    last = max(fill.next_offset - 1 for fill in fills)
    if size > INT32_MAX or last - files.base_offset > INT32_MAX:
        return f"a segment cannot hold {size} bytes up to offset {last}; copy the segments that are missing"
    return ""
