"""Turns what was seen of one partition into a plan: decides on each finding and orders the actions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import encode_epochs
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata, encode_partition_metadata
from recovery.partition.derive import SideFiles, derive_epochs, derive_side_files
from recovery.partition.draft import Draft
from recovery.partition.losses import BEHIND_A_CUT, BELOW_THE_START, lost_ends
from recovery.partition.partition import SMALL_FILE_LIMIT, Survey
from recovery.partition.snapshots import find_difference, refuse_unknown_version
from recovery.partition.split import find_pieces, scan_piece
from recovery.plan.decide import Decision, Flushed, decide
from recovery.plan.findings import Damage, Finding, Subject
from recovery.plan.plan import (
    Action,
    Cut,
    LoadedOffsets,
    Quarantine,
    RecoveryPlan,
    SetAside,
    SplitLog,
    TruncateTo,
)
from recovery.segment.index_checks import load_checked
from recovery.segment.verify import SegmentFiles, SegmentReport, scan_segment
from storage.base.errors import CorruptData, ReadFault, UnsupportedFormat
from storage.base.names import FileRole, segment_file_name, snapshot_file_name
from storage.base.units import INT64_MAX, Offset
from storage.disk.fs import read_all
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.reading.log_reader import LogReader

_SWAP: Final = ".swap"
_TXN_INDEX_LOOK: Final = 34 << 15


class PlannedPartition(NamedTuple):
    """A plan and the derived contents that it writes, by path."""

    plan: RecoveryPlan
    contents: dict[PurePath, bytes]


def plan_partition(survey: Survey, reports: Mapping[int, SegmentReport], reader: LogReader) -> PlannedPartition:
    """Return the plan of a partition from its survey and the reports of the scans, by base offset.

    Reads only small files, and a segment again where its batches contradict one another.
    """
    planner = _Planner(survey, reader, {**survey.shallow, **reports})
    try:
        return planner.run()
    except UnsupportedFormat as error:
        planner.verdicts = []
        planner.judge(Finding(Damage.UNSUPPORTED, error.path or survey.directory, error.reason))
        return planner.without_actions()
    except ReadFault as fault:
        planner.verdicts = []
        planner.judge(Finding(Damage.READ_ERROR, fault.path, str(fault)))
        return planner.without_actions()


def no_plan(survey: Survey) -> PlannedPartition:
    """Return the plan of a partition that could not even be listed: its findings, and nothing to do."""
    planner = _Planner(survey, LogReader(), {})
    for finding in survey.findings:
        planner.judge(finding)
    return planner.without_actions()


class _Planner(Draft):
    __slots__ = ("derive_from", "differing", "kept", "reader", "reports", "scope")

    def __init__(self, survey: Survey, reader: LogReader, reports: dict[int, SegmentReport]) -> None:
        super().__init__(survey)
        self.reader, self.reports = reader, reports
        self.differing: dict[int, Finding] = {}
        """Snapshots that are not as the log gives them, by offset."""
        self.kept: list[SegmentFiles] = []
        """The segments that stay, in order."""
        self.scope = 0
        """Index in `kept` of the first segment that a broker would scan."""
        self.derive_from = 0
        """Index in `kept` of the first segment whose scan feeds the producer state."""

    # ---- deciding

    def run(self) -> PlannedPartition:
        survey = self.survey
        everything = [*survey.findings, *(f for report in self.reports.values() for f in report.findings)]
        stopping = [f for f in everything if f.kind.subject in (Subject.READ, Subject.FORMAT, Subject.VANISHED)]
        if stopping:
            for finding in everything:
                if finding.kind.subject in (Subject.READ, Subject.FORMAT, Subject.VANISHED, Subject.NONE):
                    self.judge(finding)
            return self.without_actions()
        self.decide_logs()
        self.split_overflowing()
        side = self.derive()
        for finding in (*everything, *lost_ends(survey.fs, self.kept, self.reports)):
            if finding.kind.subject is not Subject.LOG and self.still_counts(finding):
                self.judge(finding)
        if self.held:
            return self.without_actions()
        self.asides += survey.resolved.asides
        self.renames += survey.resolved.renames
        self.begin_anew_at_log_start()
        self.repair_indexes()
        self.repair_side_files(side)
        self.repair_epochs()
        self.repair_partition_metadata()
        return self.finish()

    def still_counts(self, finding: Finding) -> bool:
        """Leave out what is said of files that the plan sets aside with their segment."""
        names = {aside.path for aside in self.asides}
        return finding.path not in names

    def without_actions(self) -> PlannedPartition:
        return PlannedPartition(self.plan((), None, self.scanned_bytes()), {})

    # ---- the log

    def decide_logs(self) -> None:
        segments = self.survey.resolved.segments
        self.scope, self.derive_from = self.survey.scope, self.survey.derive_from
        for number, files in enumerate(segments):
            report = self.reports[files.base_offset]
            self.kept.append(files)
            if report.damage is None:
                continue
            flushed = self.flushed(number, report.damage.next_offset)
            later = segments[number + 1 :]
            contiguous = bool(later) and later[0].base_offset == report.damage.next_offset
            alive = any(self.reports[f.base_offset].valid_size > 0 for f in later) and not contiguous
            where = self.where(flushed, valid_after=report.damage.sound_at is not None or alive)
            finding = next(f for f in report.findings if f.kind is report.damage.kind)
            finding = self.with_consequence(finding, report, later, contiguous=contiguous)
            if decide(Subject.LOG, where).decision is Decision.HOLD and number >= self.survey.scope:
                warning = "; a broker that starts now cuts the log here, keeps no copy, and removes what follows"
                finding = finding._replace(evidence=finding.evidence + warning)
            decision = self.judge(finding, where)
            if decision is Decision.HOLD:
                self.held = True
            elif decision is Decision.CUT:
                self.cut(report, finding)
                if not contiguous:
                    self.scope = min(self.scope, number)  # a broker will scan what is the last segment now
                    self.set_later_aside(later, files)
                    return

    def flushed(self, number: int, next_offset: int) -> Flushed:
        points = self.survey.points
        if points.flushed:
            return Flushed.YES
        if points.recovery_point is None:
            return Flushed.UNKNOWN
        if number < self.survey.scope or next_offset < points.recovery_point:
            return Flushed.YES
        if self.jumps_over(points.recovery_point, number):
            return Flushed.YES
        return Flushed.NO

    def jumps_over(self, offset: int, number: int) -> bool:
        """Tell whether the offsets of a segment pass over `offset` without a batch that begins there.

        The first batch behind the recovery point begins at it. One that does not may have a rotten base offset, that no
        checksum covers, and what follows it may then have been flushed although its offsets look too high for that.
        """
        files = self.survey.resolved.segments[number]
        gaps = (f for f in self.reports[files.base_offset].findings if f.kind is Damage.OFFSET_GAP)
        return any((g.first_offset or 0) < offset < (g.next_good_offset or 0) for g in gaps)

    def with_consequence(
        self, finding: Finding, report: SegmentReport, later: Sequence[SegmentFiles], *, contiguous: bool
    ) -> Finding:
        assert report.damage is not None
        next_good, evidence = None, finding.evidence
        if report.damage.sound_at is not None:
            next_good = self.base_offset_at(report.files, report.damage.sound_at)
        elif later:
            next_good = later[0].base_offset
        if contiguous:
            evidence += "; the next segment follows without a gap, so no record is missing"
        last = None if next_good is None else max(next_good - 1, report.damage.next_offset)
        return finding._replace(evidence=evidence, last_offset=last, next_good_offset=next_good)

    def base_offset_at(self, files: SegmentFiles, position: int) -> int:
        buffer = bytearray(8)
        with self.survey.fs.open_read(files.log) as file:
            file.read_into(position, memoryview(buffer))
        return int.from_bytes(buffer, "big", signed=True)

    def cut(self, report: SegmentReport, finding: Finding) -> None:
        damage = report.damage
        assert damage is not None
        path, size = report.files.log, report.files.log_stat.size
        self.copies.append(Quarantine(path, damage.position, damage.size, damage.zeroes, finding.kind.value))
        self.truncates.append(TruncateTo(path, damage.position, size))
        self.cuts.append(
            Cut(path, damage.position, damage.size, damage.next_offset, finding.last_offset, None, finding.kind.value)
        )

    def set_later_aside(self, later: Sequence[SegmentFiles], cut: SegmentFiles) -> None:
        reason = f"{BEHIND_A_CUT}{cut.log.name}"
        for files in later:
            report = self.reports[files.base_offset]
            self.cuts.append(
                Cut(
                    files.log,
                    0,
                    files.log_stat.size,
                    files.base_offset,
                    report.next_offset - 1 if report.next_offset > files.base_offset else None,
                    report.record_count if report.is_scanned else None,
                    reason,
                )
            )
            self.set_files_aside(files, reason)

    def set_files_aside(self, files: SegmentFiles, reason: str) -> None:
        parts = (
            (files.log, files.log_stat),
            (files.index, files.index_stat),
            (files.time_index, files.time_index_stat),
            (files.txn_index, files.txn_index_stat),
        )
        self.asides += [SetAside(path, reason) for path, stat in parts if stat is not None]

    def split_overflowing(self) -> None:
        """Put several segments in the place of one whose offsets do not fit 32 bits above its base."""
        survey = self.survey
        for files in [f for f in self.kept if self.reports[f.base_offset].overflow_at is not None]:
            report, number = self.reports[files.base_offset], self.kept.index(files)
            if self.held or not report.is_scanned or files.log.name.endswith(_SWAP):
                return
            pieces = find_pieces(survey.fs, files, report.valid_size, self.reader)
            new = []
            for piece in pieces:
                is_last = files is self.kept[-1] and piece is pieces[-1]
                made = scan_piece(survey.fs, files, piece, survey.scan_options, self.reader, active=is_last)
                self.reports[piece.base_offset] = made
                new.append(made.files)
            self.kept[number : number + 1] = new
            self.scope += len(new) - 1 if self.scope > number else 0
            self.derive_from += len(new) - 1 if self.derive_from > number else 0
            # What was to be cut off stays behind in the old file, which is kept whole.
            self.copies = [copy for copy in self.copies if copy.path != files.log]
            self.truncates = [cut for cut in self.truncates if cut.path != files.log]
            self.splits.append(SplitLog(files.log, tuple(pieces)))
            self.judge(Finding(Damage.OFFSET_OVERFLOW, files.log, f"offset {report.overflow_at} needs another segment"))
            self.set_files_aside(files, f"split into {len(pieces)} segments")

    def begin_anew_at_log_start(self) -> None:
        """Where a cut has taken the log end below the log start offset, nothing is left that anybody may read.

        A broker deletes all segments then and begins with an empty one at the log start offset, so that no offset is
        given out twice. The segments are set aside here, the damaged one last, so that a crash in between leaves what
        asks for the same; beginning is left to the broker, which does so wherever there is no segment.
        """
        start = self.survey.points.log_start
        if not self.cuts or not self.kept or self.log_end() >= start:
            return
        path = self.survey.directory / segment_file_name(Offset(start), FileRole.LOG)
        evidence = f"the cut leaves a log that ends at {self.log_end()}, below the log start offset {start}"
        self.judge(Finding(Damage.LOG_START_ABOVE_END, path, evidence))
        for files in self.kept:
            self.set_files_aside(files, f"{BELOW_THE_START}{start}, and the log ends there too")
        self.kept.clear()
        self.copies.clear()
        self.truncates.clear()

    # ---- what is derived from it

    def derive(self) -> SideFiles:
        """Fold producers; where a batch cannot follow those before it, the log ends there and is decided upon again."""
        survey = self.survey
        while True:
            state = self.choose_state()
            if state is None or self.held:
                return SideFiles()
            chain = [self.reports[files.base_offset] for files in self.kept[self.derive_from :]]
            self.differing.clear()
            side = derive_side_files(
                survey.fs, self.reader, state.copy(), chain, self.log_start(), self.snapshot_differs
            )
            if side.refused is None:
                return side
            base, offset, reason = side.refused
            self.refuse(base, offset, reason)

    def choose_state(self) -> ProducerState | None:
        """Return the producer state at the base of segment `derive_from`, which comes first where all was read.

        Not so for a log with gaps: compaction has taken records away that the side files of old segments still know.
        """
        survey = self.survey
        below = [self.reports[files.base_offset] for files in self.kept[: self.scope]]
        has_gap = any(f.kind is Damage.OFFSET_GAP for report in below for f in report.findings)
        joins = all(a.next_offset == b.base_offset for a, b in itertools.pairwise(below))
        if survey.whole_state is None or has_gap or not joins or survey.whole_from >= self.derive_from:
            return survey.state
        if not all(report.is_scanned for report in below):
            return survey.state
        self.derive_from = survey.whole_from
        return survey.whole_state

    def refuse(self, base: int, offset: int, reason: str) -> None:
        number = next(n for n, files in enumerate(self.survey.resolved.segments) if files.base_offset == base)
        survey = self.survey
        files = survey.resolved.segments[number]
        report = scan_segment(
            survey.fs,
            files,
            survey.scan_options,
            self.reader,
            canonical=number >= survey.scope,
            active=number == len(survey.resolved.segments) - 1,
            refuse=offset,
        )
        report.findings = [
            Finding(f.kind, f.path, f"{f.evidence} ({reason})", f.position, f.size, f.first_offset)
            if f.kind is Damage.BATCH_STATE
            else f
            for f in report.findings
        ]
        self.reports[base] = report
        self.verdicts.clear()
        for done in (self.asides, self.copies, self.truncates, self.cuts, self.kept):
            done.clear()
        self.decide_logs()

    def repair_indexes(self) -> None:
        for files in self.kept:
            report = self.reports[files.base_offset]
            reasons = {f.path: f.kind.value for f in report.findings}
            for path, wanted in report.wanted.items():
                target = self.replace(path, wanted, reasons.get(path, "follows the log"))
                if path in report.contents:
                    self.contents[target] = report.contents[path]
            trim_wanted = self.survey.points.marker or self.survey.options.clean_marker or report.damage is not None
            for path, size in report.trims.items():
                prealloc = any(f.path == path and f.kind.subject is Subject.PADDING for f in report.findings)
                if not prealloc or trim_wanted:
                    self.trim(path, size, reasons.get(path, "zero bytes behind the last entry"))

    def repair_side_files(self, side: SideFiles) -> None:
        for files in self.kept[self.derive_from :]:
            wanted = side.txn_indexes.get(files.base_offset)
            if wanted is not None:
                self.repair_txn_index(files, wanted)
        for offset, data in side.snapshots.items():
            finding = self.differing[offset]
            if finding.kind is not Damage.SNAPSHOT_CORRUPT or not self.is_judged(finding.path):
                self.judge(finding)
            self.write(finding.path, data, finding.kind.value)
        self.set_stale_snapshots_aside(side)

    def repair_txn_index(self, files: SegmentFiles, wanted: bytes) -> None:
        stat = files.txn_index_stat
        size = 0 if stat is None else stat.size
        # What is longer than it should be differs, however long it says it is.
        looked_at = min(size, max(len(wanted) + 1, _TXN_INDEX_LOOK))
        found = load_checked(self.survey.fs, files.txn_index, looked_at) if stat is not None else b""
        if found == wanted:
            return
        refuse_unknown_version(found, files.txn_index)
        if not self.is_judged(files.txn_index):
            evidence = f"{size} bytes there, {len(wanted)} from the markers in the log"
            self.judge(Finding(Damage.TXN_INDEX_DIFFERS, files.txn_index, evidence))
        self.write(files.txn_index, wanted, Damage.TXN_INDEX_DIFFERS.value)

    def snapshot_differs(self, offset: int, state: ProducerState) -> bool:
        """Compare the snapshot on the disk with the state that the log gives; note what is wrong with it."""
        survey = self.survey
        name = survey.resolved.snapshots.get(offset)
        if name is None or survey.directory / name in {aside.path for aside in survey.resolved.asides}:
            path = survey.directory / snapshot_file_name(Offset(offset))
            in_scope = bool(self.kept[self.scope :]) and offset >= self.kept[self.scope].base_offset
            if in_scope:
                evidence = "the producer state at this offset is not there"
                self.differing[offset] = Finding(Damage.SNAPSHOT_MISSING, path, evidence)
            return in_scope
        finding = find_difference(survey.fs, survey.directory / name, offset, state, self.log_start())
        if finding is not None:
            self.differing[offset] = finding
        return finding is not None

    def set_stale_snapshots_aside(self, side: SideFiles) -> None:
        """Set aside what a broker's recovery deletes: snapshots that belong to no segment, or lie outside the log."""
        survey = self.survey
        if survey.points.clean and not self.cuts:
            return
        bases = {files.base_offset for files in self.kept}
        first = self.kept[self.scope].base_offset if self.kept[self.scope :] else INT64_MAX
        for offset, name in survey.resolved.snapshots.items():
            path = survey.directory / name
            if offset in side.offsets or path in {aside.path for aside in self.asides}:
                continue
            if (
                offset > first
                or (offset <= self.log_start() and not self.feeds_scan(offset, path))
                or offset not in bases
            ):
                reason = "no segment begins or ends at this offset"
                self.judge(Finding(Damage.SNAPSHOT_STRAY, path, reason))
                self.asides.append(SetAside(path, reason))

    def feeds_scan(self, offset: int, path: PurePath) -> bool:
        """Tell whether a broker's recovery begins with this snapshot, though it removes it in the end.

        It stands at the first segment's base, and knows producers whose records are gone.
        """
        survey = self.survey
        if self.scope > 0 or offset <= survey.points.log_start or offset != self.kept[0].base_offset:
            return False
        try:
            return bool(decode_snapshot(read_all(survey.fs, path, SMALL_FILE_LIMIT), Offset(offset)).entries)
        except CorruptData:
            return False

    def repair_epochs(self) -> None:
        survey = self.survey
        scanned = [r for files in self.kept if (r := self.reports[files.base_offset]).is_scanned]
        flushed = sum(self.reports[files.base_offset].is_scanned for files in self.kept[: self.scope])
        log_end = self.log_end()
        stop, start = (INT64_MAX, 0) if survey.points.clean and not self.cuts else (log_end, survey.points.log_start)
        known = survey.epochs or []
        # With every segment set aside there is no history left either.
        wanted = derive_epochs(known, scanned, stop, start, flushed) if self.kept or not self.cuts else []
        if survey.epochs is not None and wanted == known:
            return
        path = survey.directory / EPOCHS_NAME
        stat = survey.inventory.stat_of(EPOCHS_NAME)
        if stat is None:
            if not wanted:
                return  # what an old broker leaves, or a new log
            self.judge(Finding(Damage.EPOCHS_MISSING, path, f"the batches show {len(wanted)} leader epochs"))
        elif survey.epochs is not None:
            evidence = f"{len(known)} epochs there, {len(wanted)} after holding them against log and log end {log_end}"
            self.judge(Finding(Damage.EPOCHS_DIFFER, path, evidence))
        self.write(path, encode_epochs(wanted), Damage.EPOCHS_DIFFER.value)

    def repair_partition_metadata(self) -> None:
        survey, points = self.survey, self.survey.points
        path = survey.directory / PARTITION_METADATA
        stat = survey.inventory.stat_of(PARTITION_METADATA)
        if stat is None:
            if points.topic_ids is None:
                return  # written by brokers since 2.8, and needed with KRaft only
            kind, evidence = Damage.METADATA_MISSING, "without its topic id a broker sets the partition apart as stray"
        else:
            try:
                decode_partition_metadata(read_all(survey.fs, path, SMALL_FILE_LIMIT))
                return
            except CorruptData as error:
                kind, evidence = Damage.METADATA_CORRUPT, f"{error.reason}: a broker refuses to start"
        topic_id = None if points.topic_ids is None else points.topic_ids.get(points.topic)
        if topic_id is None:
            evidence += "; the metadata log does not tell the topic id either"
            self.judge(Finding(Damage.METADATA_LOST, path, evidence))
            return
        self.judge(Finding(kind, path, evidence))
        self.write(path, encode_partition_metadata(topic_id), kind.value)

    # ---- the plan

    def log_start(self) -> int:
        first = self.kept[0].base_offset if self.kept else 0
        return max(self.survey.points.log_start, first)

    def log_end(self) -> int:
        if not self.kept:
            return self.survey.points.log_start
        return self.reports[self.kept[-1].base_offset].next_offset

    def finish(self) -> PlannedPartition:
        survey = self.survey
        log_end = self.log_end()
        point = log_end if survey.points.clean else min(survey.points.recovery_point or 0, log_end)
        loaded = LoadedOffsets(self.log_start(), log_end, point)
        gone = {aside.path for aside in self.asides}
        actions: list[Action] = [
            *self.copies,
            *self.splits,
            *self.asides,
            *self.truncates,
            *(rename for rename in self.renames if rename.path not in gone),
            *sorted(self.replaces, key=lambda r: (r.path.suffix not in (".index", ".timeindex"), str(r.path))),
        ]
        return PlannedPartition(self.plan(tuple(actions), loaded, self.scanned_bytes()), self.contents)

    def scanned_bytes(self) -> int:
        return sum(report.scanned_bytes for report in self.reports.values())
