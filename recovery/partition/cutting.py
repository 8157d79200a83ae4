"""Decides on the damage in each log of a partition: where the log is cut, what is set aside behind it, what is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from recovery.partition.changes import Changes, circumstances, files_aside, joined, judged
from recovery.partition.partition import Survey
from recovery.plan.decide import Decision, Flushed, judge
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import Cut, Quarantine, TruncateTo, Verdict
from recovery.segment.losses import BEHIND_A_CUT, BELOW_THE_START
from recovery.segment.lost_records import lost_records
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import LogDamage, SegmentReport
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset

_HOLD: Final = Decision.HOLD.value
_CUT: Final = Decision.CUT.value


class Logs(NamedTuple):
    """The segments that stay, in order, and what is done for that. A second decision makes a new value."""

    kept: tuple[SegmentFiles, ...]
    reports: Mapping[int, SegmentReport]
    """By base offset: of the segments that were listed, and of those that a split makes of them."""
    scope: int
    """Index in `kept` of the first segment that a broker would scan."""
    derive_from: int
    """Index in `kept` of the first segment whose scan feeds the producer state."""
    held: bool
    changes: Changes

    def report_on(self, files: SegmentFiles) -> SegmentReport:
        """Return the report on one of the segments."""
        return self.reports[files.base_offset]

    def start(self, checkpointed: int) -> int:
        """Return the log start offset, of which the checkpoint says `checkpointed`."""
        return max(checkpointed, self.kept[0].base_offset if self.kept else 0)

    def end(self, checkpointed: int) -> int:
        """Return the log end offset; of a log without segments that is its checkpointed start."""
        return self.report_on(self.kept[-1]).next_offset if self.kept else checkpointed


def decide_logs(survey: Survey, reports: Mapping[int, SegmentReport]) -> Logs:
    """Return what becomes of the segments by the reports on them. A cut that leaves a gap ends the log there."""
    segments = survey.resolved.segments
    steps, scope, held = [Changes()], survey.scope, False
    for number, files in enumerate(segments):
        damage = reports[files.base_offset].damage
        if damage is None:
            continue
        segment = _Damaged(survey, reports, number, damage)
        verdict = segment.verdict()
        steps.append(Changes((verdict,)))
        held = held or verdict.decision == _HOLD
        if verdict.decision != _CUT:
            continue
        steps.append(segment.cut(verdict.finding))
        if not segment.is_followed:
            scope = min(scope, number)  # a broker will scan what is the last segment now
            steps.append(segment.set_later_aside())
            segments = segments[: number + 1]
            break
    return Logs(tuple(segments), reports, scope, survey.derive_from, held, joined(*steps))


class _Damaged(NamedTuple):
    """A segment whose chain of batches ends before its file does, among the others of its log."""

    survey: Survey
    reports: Mapping[int, SegmentReport]
    number: int
    damage: LogDamage

    @property
    def files(self) -> SegmentFiles:
        return self.survey.resolved.segments[self.number]

    @property
    def later(self) -> Sequence[SegmentFiles]:
        return self.survey.resolved.segments[self.number + 1 :]

    @property
    def is_followed(self) -> bool:
        """The next segment begins where this one will end, so no record is missing between them."""
        return bool(self.later) and self.later[0].base_offset == self.damage.next_offset

    def verdict(self) -> Verdict:
        is_whole = self.damage.kind is Damage.BATCH_ORDER  # the batch itself, which is only at the wrong place
        alive = any(self.reports[f.base_offset].valid_size > 0 for f in self.later) and not self.is_followed
        valid_after = is_whole or self.damage.sound_at is not None or alive
        where = circumstances(self.survey, self.flushed(), valid_after=valid_after)
        verdict = judge(self.finding(), where)
        if verdict.decision != _HOLD or self.number < self.survey.scope:
            return verdict
        warning = "; a broker that starts now cuts the log here, keeps no copy, and removes what follows"
        finding = verdict.finding
        return verdict._replace(finding=finding._replace(evidence=finding.evidence + warning))

    def flushed(self) -> Flushed:
        points = self.survey.points
        if points.flushed:
            return Flushed.YES
        if points.recovery_point is None:
            return Flushed.UNKNOWN
        if self.number < self.survey.scope or self.damage.next_offset < points.recovery_point:
            return Flushed.YES
        if self.jumps_over(points.recovery_point):
            return Flushed.YES
        # Of offsets that contradict one another none tells which batches lie below the recovery point.
        return Flushed.UNKNOWN if self.damage.kind is Damage.BATCH_ORDER else Flushed.NO

    def jumps_over(self, offset: int) -> bool:
        """Tell whether the offsets of the segment pass over `offset` without a batch that begins there.

        The first batch behind the recovery point begins at it. One that does not may have a rotten base offset, that no
        checksum covers, and what follows it may then have been flushed although its offsets look too high for that.
        """
        gaps = (f for f in self.reports[self.files.base_offset].findings if f.kind is Damage.OFFSET_GAP)
        return any((gap.first_offset or 0) < offset < (gap.next_good_offset or 0) for gap in gaps)

    def finding(self) -> Finding:
        """Return the finding on the damage, with the records that it costs as far as that is known."""
        report = self.reports[self.files.base_offset]
        finding = next(f for f in report.findings if f.kind is self.damage.kind)
        next_good, evidence = None, finding.evidence
        if self.damage.sound_at is not None:
            next_good = self.base_offset_at(self.damage.sound_at)
        elif self.later:
            next_good = self.later[0].base_offset
        if self.is_followed:
            evidence += "; the next segment follows without a gap, so no record is missing"
        last = None if next_good is None else max(next_good - 1, self.damage.next_offset)
        return finding._replace(evidence=evidence, last_offset=last, next_good_offset=next_good)

    def base_offset_at(self, position: int) -> int:
        buffer = bytearray(8)
        with self.survey.fs.open_read(self.files.log) as file:
            file.read_into(position, memoryview(buffer))
        return int.from_bytes(buffer, "big", signed=True)

    def cut(self, finding: Finding) -> Changes:
        damage, path, size = self.damage, self.files.log, self.files.log_stat.size
        next_base = self.later[0].base_offset if self.later else None
        last, records = lost_records(self.survey.fs, self.files, damage, next_base)
        cut = Cut(path, damage.position, damage.size, damage.next_offset, last, records, finding.kind.value)
        copy = Quarantine(path, damage.position, damage.size, damage.zeroes, finding.kind.value)
        return Changes(cuts=(cut,), copies=(copy,), truncates=(TruncateTo(path, damage.position, size),))

    def set_later_aside(self) -> Changes:
        reason = f"{BEHIND_A_CUT}{self.files.log.name}"
        return joined(Changes(), *(self._aside(files, reason) for files in self.later))

    def _aside(self, files: SegmentFiles, reason: str) -> Changes:
        report = self.reports[files.base_offset]
        last = report.next_offset - 1 if report.next_offset > files.base_offset else None
        records = report.record_count if report.is_scanned else None
        cut = Cut(files.log, 0, files.log_stat.size, files.base_offset, last, records, reason)
        return Changes(cuts=(cut,), asides=files_aside(files, reason))


def ends_below_its_start(survey: Survey, logs: Logs) -> bool:
    """Tell whether a cut has taken the log end below the log start offset, so that no record of it may be read."""
    start = survey.points.log_start
    return bool(logs.changes.cuts and logs.kept) and logs.end(start) < start


def leave_none(survey: Survey, decided: Logs, logs: Logs) -> tuple[Logs, Changes]:
    """Return a log that `ends_below_its_start` without segments, and the step that sets these aside, to be taken last.

    A broker deletes all segments then and begins with an empty one at the log start offset, so that it gives no offset
    out twice. The damaged segment is set aside last, so that a crash in between leaves what asks for the same; the
    beginning is left to the broker, which does so wherever there is no segment. `decided` are the logs before a split:
    the files on the disk. No part of them is split or cut, for they are kept whole.
    """
    start = survey.points.log_start
    path = survey.directory / segment_file_name(Offset(start), FileRole.LOG)
    evidence = f"the cut leaves a log that ends at {logs.end(start)}, below the log start offset {start}"
    reason = f"{BELOW_THE_START}{start}, and the log ends there too"
    asides = (Changes(asides=files_aside(files, reason)) for files in decided.kept)
    step = joined(judged(survey, Finding(Damage.LOG_START_ABOVE_END, path, evidence)), *asides)
    changes = decided.changes._replace(verdicts=logs.changes.verdicts, copies=(), truncates=())
    return logs._replace(kept=(), changes=changes), step
