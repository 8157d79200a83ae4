"""Turns what was seen of one partition into a plan: decide on the logs, derive their side files, assemble the actions.

Each step is a function of values and hands a new one on. A batch that the producers refuse is found in the second step;
its log is then decided upon again, from the reports on the files as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath

from recovery.partition.assemble import assemble, scanned_bytes, without_actions
from recovery.partition.changes import Changes, circumstances, joined, judged, replacing
from recovery.partition.cutting import Logs, decide_logs, ends_below_its_start, leave_none
from recovery.partition.derive import SideFiles
from recovery.partition.ordering import InOrder, put_in_order, splice_ordered
from recovery.partition.partition import Survey
from recovery.partition.side_files import Derived, derive, repair_epochs, repair_partition_metadata, repair_side_files
from recovery.partition.splitting import segment_of, split_overflowing
from recovery.partition.tiering import held_instead, lost_local_log, lost_log_start
from recovery.plan.decide import judge
from recovery.plan.findings import Damage, Finding, Severity, Subject
from recovery.plan.plan import PlannedPartition, Quarantine, TruncateTo
from recovery.segment.losses import lost_ends
from recovery.segment.segment_report import SegmentReport
from recovery.segment.verify import scan_segment
from storage.base.errors import ReadFault, UnsupportedFormat
from storage.base.names import FileRole, FileState
from storage.reading.log_reader import LogReader

_STOPPING = (Subject.READ, Subject.FORMAT, Subject.VANISHED)
Reports = Mapping[int, SegmentReport]
"""On the segments that were listed, by base offset."""


def plan_partition(survey: Survey, reports: Reports, reader: LogReader) -> PlannedPartition:
    """Return the plan of a partition from its survey and the reports of the scans, by base offset.

    Reads only small files, and a segment again where its batches contradict one another.
    """
    seen = {**survey.shallow, **reports}
    try:
        return _plan(survey, seen, reader)
    except UnsupportedFormat as error:
        finding = Finding(Damage.UNSUPPORTED, error.path or survey.directory, error.reason)
    except ReadFault as fault:
        finding = Finding(Damage.READ_ERROR, fault.path, str(fault))
    return without_actions(survey, judged(survey, finding), sum(report.scanned_bytes for report in seen.values()))


def no_plan(survey: Survey) -> PlannedPartition:
    """Return the plan of a partition that could not even be listed: its findings, and nothing to do."""
    return without_actions(survey, judged(survey, *survey.findings), 0)


def _plan(survey: Survey, reports: Reports, reader: LogReader) -> PlannedPartition:
    in_order = put_in_order(survey, reports, reader)
    findings = [*survey.findings, *in_order.findings]
    findings += (finding for report in in_order.reports.values() for finding in report.findings)
    if any(finding.kind.subject in _STOPPING for finding in findings):
        notes = (f for f in findings if f.kind.subject in (*_STOPPING, Subject.NONE))
        return without_actions(survey, judged(survey, *notes), sum(r.scanned_bytes for r in reports.values()))
    decided, logs, derived = _decide(survey, reports, in_order, reader)
    lost = lost_local_log(survey, logs)
    if lost is not None:
        logs = held_instead(logs)
        findings.append(lost)
    where, gone = circumstances(survey, held=logs.held), logs.changes.paths_aside()
    verdicts = tuple(
        judge(finding, where)
        for finding in (*findings, *lost_ends(survey.fs, logs.kept, logs.reports))
        if finding.kind.subject is not Subject.LOG and finding.path not in gone  # what steps aside has no verdict
    )
    if logs.held:
        verdicts += tuple(judge(fault, where) for fault in (survey.epoch_file.fault,) if fault is not None)
        return without_actions(survey, joined(logs.changes, Changes(verdicts)), scanned_bytes(logs), held=True)
    resolved = Changes(verdicts, asides=tuple(survey.resolved.asides), renames=tuple(survey.resolved.renames))
    step = Changes()
    if ends_below_its_start(survey, logs):
        logs, step = leave_none(survey, decided, logs)
    before = joined(logs.changes, resolved, step)
    after = (
        _repair_indexes(survey, logs, before),
        repair_side_files(survey, logs, derived, before),
        repair_epochs(survey, logs, before),
        _judge_log_start(survey, logs),
        repair_partition_metadata(survey, before),
    )
    return assemble(survey, logs, _without_swaps_of_a_clean_stop(survey, joined(before, *after)))


def _without_swaps_of_a_clean_stop(survey: Survey, changes: Changes) -> Changes:
    """Return no action, and notes, where nothing but the swap of a compaction is left that a clean stop interrupted.

    A broker finishes or drops it at its next start, marker or not, by the rules that these actions follow. What comes
    into service was read whole and is sound. An engine of ours does not open such a log, and a marker that is to be
    left vouches for files in place: then, and where anything else changes, the swap is finished.
    """
    logs = {files.log.name for files in survey.resolved.segments}
    kinds = {verdict.finding.kind for verdict in changes.verdicts}
    others = changes._replace(verdicts=(), asides=(), renames=())
    if (
        Damage.LEFTOVER_SWAP not in kinds
        or not survey.points.clean
        or survey.options.clean_marker
        or any(others)
        or any(kind.severity is not Severity.NOTE for kind in kinds - {Damage.LEFTOVER_SWAP})
        or any(_is_missed(aside.path.name, logs) for aside in changes.asides)
    ):
        return changes
    findings = (verdict.finding for verdict in changes.verdicts)
    return judged(
        survey,
        *(
            finding._replace(kind=Damage.LEFTOVER_COMPACTION) if finding.kind is Damage.LEFTOVER_SWAP else finding
            for finding in findings
        ),
    )


def _is_missed(name: str, logs: AbstractSet[str]) -> bool:
    """Tell whether a file that steps aside is more than the leftover of a swap: its room, or its records, are missed.

    A compaction that was never committed has its sources in place, the first of them with its own base offset.
    """
    swapped = name.removesuffix(FileState.SWAP.value)
    is_lone_log = swapped != name and swapped.endswith(FileRole.LOG.value) and swapped not in logs
    return is_lone_log or name.endswith(FileState.DELETED.value)


def _judge_log_start(survey: Survey, logs: Logs) -> Changes:
    lost = lost_log_start(survey, logs)
    return Changes() if lost is None else judged(survey, lost)


def _decide(survey: Survey, reports: Reports, in_order: InOrder, reader: LogReader) -> tuple[Logs, Logs, Derived]:
    """Return the logs as decided, the same with overlong segments split, and what follows for their side files.

    Where a batch can not follow those before it, the log ends there, and all is decided again with that known.
    """
    unproven: frozenset[PurePath] = frozenset()
    while True:
        decided = decide_logs(survey, in_order.reports)
        logs = split_overflowing(in_order.survey, decided, reader)
        derived = derive(in_order.survey, logs, reader)
        if derived.side.refused is None:
            return decided, splice_ordered(survey, logs, in_order), derived
        report = _with_refusal(in_order.survey, logs, derived.side, reader)
        seen = in_order.translated(report)
        if seen is not None:
            in_order = in_order._replace(reports={**in_order.reports, report.base_offset: seen})
        else:  # the order in which batches stand is not proven where the producers refuse it
            unproven |= {report.files.log}
            in_order = put_in_order(survey, reports, reader, but=unproven)


def _with_refusal(survey: Survey, logs: Logs, side: SideFiles, reader: LogReader) -> SegmentReport:
    """Return a new report on the segment that holds the refused batch: its log ends before that."""
    assert side.refused is not None
    base, offset, reason = side.refused
    log, segments = segment_of(logs, base), survey.resolved.segments
    number = next(n for n, files in enumerate(segments) if files.log == log)
    report = scan_segment(
        survey.fs,
        segments[number],
        survey.scan_options,
        reader,
        in_scope=number >= survey.scope,
        active=number == len(segments) - 1,
        refuse=offset,
    )
    report.findings = [
        Finding(f.kind, f.path, f"{f.evidence} ({reason})", f.position, f.size, f.first_offset)
        if f.kind is Damage.BATCH_STATE
        else f
        for f in report.findings
    ]
    return report


def _repair_indexes(survey: Survey, logs: Logs, before: Changes) -> Changes:
    steps = [Changes()]
    for files in logs.kept:
        report = logs.report_on(files)
        reasons = {f.path: f.kind.value for f in report.findings}
        for path, wanted in report.wanted.items():
            step = replacing(survey, before, path, wanted, reasons.get(path, "follows the log"))
            if path in report.contents:
                step = step._replace(contents=((step.replaces[0].path, report.contents[path]),))
            steps.append(step)
        trim_wanted = survey.trims_padding or report.damage is not None
        for path, size in report.trims.items():
            prealloc = any(f.path == path and f.kind.subject is Subject.PADDING for f in report.findings)
            if not prealloc or trim_wanted:
                old = survey.inventory.stat_of(path.name)
                assert old is not None
                reason = reasons.get(path, "zero bytes behind the last entry")
                copy = Quarantine(path, size, old.size - size, zeroes=True, reason=reason)
                steps.append(Changes(copies=(copy,), truncates=(TruncateTo(path, size, old.size),)))
    return joined(*steps)
