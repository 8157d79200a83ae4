"""Verifies segments: a segment in, rows out. No Spark in it.

What the world does never raises: a file that vanished is searched again, and what cannot be read becomes a row. Rows
are a function of the bytes alone but for the time of reading, so that a retry gives the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Final

from audit.scan.finding_rows import audit_row, finding_row, unreadable
from audit.scan.listing import LOOKS, ListedSegment, look
from audit.scan.pieces import PieceRow, SegmentTask, read_piece
from audit.tables.kinds import AuditKind
from audit.tables.options import AuditOptions
from audit.tables.reading import open_place
from audit.tables.schema import BLOCK_OFFSETS, BlockRow, FindingRow, SegmentRow
from audit.tables.wire import PackedBlocks, digest_of
from recovery.plan.findings import Damage, Finding, Severity, Subject
from recovery.segment.quick_look import check_segment
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Depth, Room, ScanOptions, SegmentReport
from recovery.segment.verify import scan_segment
from storage.base.errors import EnvironmentFault, FileVanished
from storage.base.units import TopicPartition
from storage.disk.fs import FileStat, ReadFs
from storage.kernel.fold import SegmentFold
from storage.reading.log_reader import LogReader, find_sound_batch

_FAULTS: Final = 64
"""So many places in one segment are read on behind; then the rest of it counts as lost."""


Row = SegmentRow | PackedBlocks | FindingRow | PieceRow
Progress = Callable[[int], None]


class Verifier:
    """Verifies one segment after another with the same buffers; `now` is the time that its rows bear."""

    def __init__(self, options: AuditOptions, now: datetime) -> None:
        self._options, self._now = options, now
        self._reader = LogReader()
        self._depth = Depth(options.depth)
        self._scan_options = ScanOptions(
            options.index_interval_bytes,
            options.segment_index_bytes,
            options.now_ms or None,
            Depth.FULL if self._depth is Depth.QUICK else self._depth,
            Room(0),  # nothing will be repaired: what the repair would write need not be kept
            block_offsets=BLOCK_OFFSETS,
        )

    def verify(self, task: SegmentTask) -> Iterator[Row]:
        """Yield the rows of one task."""
        segment = task.segment
        try:
            fs, log_dir = open_place(segment.log_dir)
            if task.end is None:
                yield from self._verify(fs, log_dir, segment)
            else:
                yield read_piece(self._reader, fs, log_dir, task)
        except EnvironmentFault as fault:
            yield unreadable(segment.source, fault, _partition(segment))

    # ---- whole segments

    def _verify(self, fs: ReadFs, log_dir: PurePath, segment: ListedSegment) -> Iterator[Row]:
        directory = log_dir / segment.directory
        files = _files(fs, directory, segment)
        for _ in range(LOOKS):
            if files is None:
                files = self._found_again(fs, directory, segment)
                if files is None:  # retention, compaction or a deletion of the topic took it: that is a broker's right
                    yield _vanished(segment)
                    return
            report = self._scan(fs, files, segment)
            if not any(finding.kind is Damage.VANISHED for finding in report.findings):
                yield from self._rows(fs, log_dir, segment, report)
                return
            files = None
        evidence = f"changed at each of {LOOKS} looks: another process writes to this directory"
        yield audit_row(AuditKind.UNREADABLE, segment.source, _partition(segment), evidence)

    def _found_again(self, fs: ReadFs, directory: PurePath, segment: ListedSegment) -> SegmentFiles | None:
        try:
            resolved, _ = look(fs, directory, self._reader)
        except FileVanished:
            return None
        return next((files for files in resolved.segments if files.base_offset == segment.base_offset), None)

    def _scan(self, fs: ReadFs, files: SegmentFiles, segment: ListedSegment) -> SegmentReport:
        active = segment.is_active
        if self._depth is Depth.QUICK:
            next_base = None if active else segment.base_offset
            report = check_segment(fs, files, next_base, self._scan_options, self._reader)
            if report.damage is None:
                return report
        return scan_segment(fs, files, self._scan_options, self._reader, in_scope=False, active=active)

    def _rows(self, fs: ReadFs, log_dir: PurePath, segment: ListedSegment, report: SegmentReport) -> Iterator[Row]:
        blocks, last_offset = report.blocks, report.next_offset - 1
        rest: list[Finding] = []
        good: int | None = None
        if report.damage is not None and report.damage.sound_at is not None and report.is_scanned:
            more, last_offset, rest, good = self._behind(fs, report)
            blocks += more
        yield self._segment_row(segment, report, blocks, last_offset)
        if blocks and segment.directory == f"{segment.topic}-{segment.partition}":  # else it is no replica
            key = (segment.cluster, segment.topic, segment.partition, segment.broker, segment.log_dir)
            yield PackedBlocks(key, segment.base_offset, blocks)
        for finding in [*report.findings, *rest]:
            if report.damage is not None and finding.kind.subject is Subject.INDEX:
                continue  # it was held against the sound part alone, and has to be derived again in any case
            severity = self._severity(fs, segment, report, finding)
            row = finding_row(segment.source, _partition(segment), finding, log_dir, severity)
            if row is None:
                continue
            if good is not None and report.damage is not None and finding.position == report.damage.position:
                row = replace(row, last_offset=good - 1, next_good_offset=good)
            yield replace(row, topic=segment.topic)

    def _severity(self, fs: ReadFs, segment: ListedSegment, report: SegmentReport, finding: Finding) -> Severity | None:
        """Return how much a finding matters; None as much as its kind does.

        The end of the last segment is where a running broker writes: what is incomplete there, above the high
        watermark, and indexes that are ahead of the bytes that were read, are no damage.
        """
        if not segment.is_active:
            return None
        if finding.kind.subject is Subject.LOG and report.damage is not None and report.damage.sound_at is None:
            mark = segment.high_watermark
            return Severity.NOTE if mark is None or report.next_offset >= mark else None
        if finding.kind.subject is Subject.INDEX and _has_grown(fs, report.files):
            return Severity.NOTE
        return None

    def _behind(self, fs: ReadFs, report: SegmentReport) -> tuple[bytes, int, list[Finding], int | None]:
        """Read on behind damage: what is sound there this replica does not lack.

        Return the blocks, the last offset, further damage, and the offset at which sound data goes on.
        """
        damage = report.damage
        assert damage is not None
        files, path = report.files, report.files.log
        blocks, findings, last = b"", [], report.next_offset - 1
        start: int | None = damage.sound_at
        good: int | None = None
        with fs.open_read(path) as file:
            for _ in range(_FAULTS):
                if start is None:
                    break
                fold = SegmentFold(files.base_offset, event_limit=1, block_offsets=BLOCK_OFFSETS)
                scan = self._reader.scan(
                    file, path, files.log_stat.size, last + 1, lambda rows, n, *_, f=fold: f.add(rows, n), start=start
                )
                blocks, last = blocks + fold.blocks(), max(last, scan.next_offset - 1)
                good = fold.first_offset if good is None else good
                if scan.valid_size == files.log_stat.size:
                    break
                evidence = f"more damage behind the first: {scan.stop.name.lower()}"
                findings.append(
                    Finding(Damage.BATCH_CRC, path, evidence, scan.valid_size, first_offset=scan.next_offset)
                )
                start = find_sound_batch(file, files.log_stat.size, scan.valid_size + 1, scan.next_offset)
        return blocks, last, findings, good

    def _segment_row(
        self, segment: ListedSegment, report: SegmentReport, blocks: bytes, last_offset: int
    ) -> SegmentRow:
        scanned = report.is_scanned
        return SegmentRow(
            segment.cluster,
            segment.broker,
            segment.log_dir,
            segment.topic,
            segment.partition,
            segment.directory,
            segment.base_offset,
            report.files.log_stat.size,
            report.valid_size,
            report.files.log_stat.mtime_ns // 1_000_000,
            segment.is_active,
            report.batch_count,
            report.record_count if scanned and report.magics in (0, 4) else None,
            report.first_offset if scanned else None,
            last_offset if last_offset >= segment.base_offset and (blocks or not scanned) else None,
            report.max_timestamp if report.max_timestamp >= 0 else None,
            [epoch for epoch, _ in report.epochs],
            digest_of(blocks),
            self._now,
            report.depth.value,
            from_previous=False,
        )


def _files(fs: ReadFs, directory: PurePath, segment: ListedSegment) -> SegmentFiles | None:
    """Return the files as they are now; None if the log is not there any more, or shorter than it was."""
    paths = [directory / name for name in segment.files]
    stats: list[FileStat | None] = []
    for path in paths:
        try:
            stats.append(fs.stat(path))
        except FileVanished:
            stats.append(None)
    log = stats[0]
    if log is None or log.size < segment.size_bytes:
        return None
    return SegmentFiles(
        segment.base_offset, paths[0], log, paths[1], stats[1], paths[2], stats[2], paths[3], stats[3]
    )  # fmt: skip


def _has_grown(fs: ReadFs, files: SegmentFiles) -> bool:
    try:
        return fs.stat(files.log).size != files.log_stat.size
    except EnvironmentFault:
        return True


def _vanished(segment: ListedSegment) -> FindingRow:
    evidence = f"segment {segment.base_offset} went away while the audit ran: retention, compaction or a deleted topic"
    row = audit_row(AuditKind.UNREADABLE, segment.source, _partition(segment), evidence, severity=Severity.NOTE)
    return replace(row, kind=Damage.VANISHED.value)


def _partition(segment: ListedSegment) -> TopicPartition:
    return TopicPartition(segment.topic, segment.partition)


def utc_now(now_ms: int) -> datetime:
    """Return a time in ms as the timestamp that rows bear."""
    return datetime.fromtimestamp(now_ms / 1000, UTC)


VERIFIED: Final[dict[str, type]] = {
    "segment": SegmentRow,
    "block": BlockRow,
    "finding": FindingRow,
    "piece": PieceRow,
}
"""What a verifying task yields."""
