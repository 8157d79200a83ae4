"""Verifies a single file: a segment's against its whole segment, any other by reading it as a dump does."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from cli.inspect.dump_files import Wish, dump_file, meaning
from cli.recover.work import failure
from recovery.plan.findings import Damage, Finding, Severity
from recovery.plan.plan import PlanOptions
from recovery.report.outcome import Outcome
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Depth, ScanOptions
from recovery.segment.verify import scan_segment
from storage.base.errors import ExitStatus, FileVanished, LogmendError
from storage.base.names import FileName, FileRole, FileState, parse_file_name, segment_file_name
from storage.base.units import Offset
from storage.disk.fs import FileStat, ReadFs
from storage.reading.log_reader import LogReader

_SCANNED: Final = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX)
_KINDS: Final = {
    FileRole.LOG: Damage.GARBAGE_TAIL,
    FileRole.INDEX: Damage.INDEX_MISORDERED,
    FileRole.TIME_INDEX: Damage.TIME_INDEX_MISORDERED,
    FileRole.TXN_INDEX: Damage.TXN_INDEX_CORRUPT,
    FileRole.SNAPSHOT: Damage.SNAPSHOT_CORRUPT,
    FileRole.LEADER_EPOCHS: Damage.EPOCHS_CORRUPT,
    FileRole.METADATA_SNAPSHOT: Damage.METADATA_SNAPSHOT_CORRUPT,
    FileRole.BOOTSTRAP_METADATA: Damage.METADATA_SNAPSHOT_CORRUPT,
    FileRole.PARTITION_METADATA: Damage.METADATA_CORRUPT,
    FileRole.META_PROPERTIES: Damage.METADATA_CORRUPT,
    FileRole.QUORUM_STATE: Damage.METADATA_CORRUPT,
}


def verify_file(fs: ReadFs, path: PurePath, options: PlanOptions) -> Outcome:
    """Return what is wrong with one file; its segment's other files count only where they say so about this one."""
    try:
        name = parse_file_name(path.name)
        findings = None if name is None else _by_segment(fs, path, name, options)
        if findings is None:
            findings = _by_dump(fs, path)
    except LogmendError as error:
        return failure(path, error)
    return Outcome(path, _status(findings), findings=tuple(findings))


def _status(findings: list[Finding]) -> ExitStatus:
    kinds = {finding.kind for finding in findings}
    if Damage.READ_ERROR in kinds:
        return ExitStatus.ENVIRONMENT
    if Damage.UNSUPPORTED in kinds:
        return ExitStatus.UNSUPPORTED
    matter = any(kind.severity is not Severity.NOTE for kind in kinds)
    return ExitStatus.FINDINGS if matter else ExitStatus.CLEAN


def _by_dump(fs: ReadFs, path: PurePath) -> list[Finding]:
    name = meaning(path.name)
    kind = Damage.CHECKPOINT_CORRUPT if name is None else _KINDS.get(name.role, Damage.CHECKPOINT_CORRUPT)
    findings = []
    for item in dump_file(fs, path, Wish(records=True)):
        if item.status is ExitStatus.CLEAN:
            continue
        found = Damage.UNSUPPORTED if item.status is ExitStatus.UNSUPPORTED else kind
        reason = item.fields.get("reason", "the checksum does not hold")
        findings.append(Finding(found, path, reason, item.fields.get("position"), item.fields.get("size")))
    return findings


def _by_segment(fs: ReadFs, path: PurePath, name: FileName, options: PlanOptions) -> list[Finding] | None:
    """Return the findings on the file that a scan of its segment makes; None if its log is not there to be scanned."""
    is_of_segment = name.role in _SCANNED and name.is_canonical and name.base_offset is not None
    if not is_of_segment or name.state is FileState.TEMPORARY:
        return None
    files = _segment_of(fs, path, name, name.base_offset or Offset(0))
    if files is None:
        return None
    depth = Depth.RECORDS if options.depth == Depth.RECORDS.value else Depth.FULL
    wanted = ScanOptions(options.index_interval_bytes, options.segment_index_bytes, options.now_ms, depth)
    is_active = not _has_later(fs, path, name.base_offset or Offset(0))
    report = scan_segment(fs, files, wanted, LogReader(), in_scope=False, active=is_active)
    return [finding for finding in report.findings if finding.path == path]


def _segment_of(fs: ReadFs, path: PurePath, name: FileName, base: Offset) -> SegmentFiles | None:
    paths = [
        path.with_name(segment_file_name(base, role, name.state))
        for role in (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)
    ]
    log, index, time_index, txn_index = paths
    stats = [_stat(fs, each) for each in paths]
    if stats[0] is None:
        return None
    return SegmentFiles(base, log, stats[0], index, stats[1], time_index, stats[2], txn_index, stats[3])


def _stat(fs: ReadFs, path: PurePath) -> FileStat | None:
    try:
        return fs.stat(path)
    except FileVanished:
        return None


def _has_later(fs: ReadFs, path: PurePath, base: Offset) -> bool:
    names = (parse_file_name(name) for name in fs.entries(path.parent))
    return any(
        name.role is FileRole.LOG and name.state is FileState.LIVE and (name.base_offset or 0) > base
        for name in names
        if name is not None
    )
