"""Splits a segment whose offsets do not fit 32 bits above its base into several that do, as a broker does on loading.

Only old brokers wrote such segments. The pieces are planned here; they are carried out like a compaction that replaces
one segment by several: written as `.cleaned`, renamed to `.swap`, then put in place, so that a crash anywhere leaves
what a broker's loader, and ours, finishes or drops. Source: Apache Kafka 4.3.0, LocalLog.splitOverflowedSegment.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, Self

from recovery.partition.changes import SWAP, Changes, files_aside, joined, judged
from recovery.partition.cutting import Logs
from recovery.partition.partition import Survey
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import Piece, SplitLog
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import ScanOptions, SegmentReport
from recovery.segment.verify import scan_segment
from storage.base.names import FileRole, segment_file_name
from storage.base.rows import BatchRows
from storage.base.units import INT32_MAX, Offset
from storage.batch.batch import CODEC_MASK
from storage.disk.fs import FileStat, ReadFile, ReadFs
from storage.reading.log_reader import LogReader


def split_overflowing(survey: Survey, decided: Logs, reader: LogReader) -> Logs:
    """Return the logs with several segments instead of each whose offsets do not fit 32 bits above its base.

    Where a piece would get the place of a segment that follows, both hold the same offsets: the log is held.
    """
    logs = decided
    for files in decided.kept:
        report = decided.report_on(files)
        if report.overflow_at is None:
            continue
        if logs.held or not report.is_scanned or files.log.name.endswith(SWAP):
            break
        logs = _split(survey, logs, files, reader)
    return logs


def _split(survey: Survey, logs: Logs, files: SegmentFiles, reader: LogReader) -> Logs:
    report, number = logs.report_on(files), logs.kept.index(files)
    pieces = find_pieces(survey.fs, files, report.valid_size, reader)
    later = logs.kept[number + 1 :]
    if later and pieces[-1].base_offset >= later[0].base_offset:
        evidence = f"its offsets from {pieces[-1].base_offset} on belong to {later[0].log.name} by the names of both"
        verdict = judged(survey, Finding(Damage.BAD_NAME, files.log, evidence))
        return logs._replace(held=True, changes=joined(logs.changes, verdict))
    is_last = number == len(logs.kept) - 1
    reports = [
        scan_piece(survey.fs, files, piece, survey.scan_options, reader, active=is_last and piece is pieces[-1])
        for piece in pieces
    ]
    more, changes = len(pieces) - 1, logs.changes
    finding = Finding(Damage.OFFSET_OVERFLOW, files.log, f"offset {report.overflow_at} needs another segment")
    # What is to be cut off stays behind in the old file, which is kept whole.
    kept_whole = changes._replace(
        copies=tuple(copy for copy in changes.copies if copy.path != files.log),
        truncates=tuple(cut for cut in changes.truncates if cut.path != files.log),
    )
    split = Changes(
        splits=(SplitLog(files.log, tuple(pieces)),), asides=files_aside(files, f"split into {len(pieces)} segments")
    )
    return logs._replace(
        kept=(*logs.kept[:number], *(made.files for made in reports), *logs.kept[number + 1 :]),
        reports={**logs.reports, **{made.base_offset: made for made in reports}},
        scope=logs.scope + (more if logs.scope > number else 0),
        derive_from=logs.derive_from + (more if logs.derive_from > number else 0),
        changes=joined(kept_whole, judged(survey, finding), split),
    )


def segment_of(logs: Logs, base_offset: int) -> PurePath:
    """Return the log on the disk that holds a segment that stays, maybe as a piece of it."""
    pieces = {piece.base_offset: split.path for split in logs.changes.splits for piece in split.pieces}
    return pieces.get(base_offset) or next(f.log for f in logs.kept if f.base_offset == base_offset)


def find_pieces(fs: ReadFs, files: SegmentFiles, valid_size: int, reader: LogReader) -> list[Piece]:
    """Return the pieces of the sound part of a segment, in order: each as long as its offsets allow.

    A piece begins at the base offset of its first batch; where an old format does not tell that, at the lowest offset
    the batch can have.
    """
    pieces: list[Piece] = []
    base, start, next_offset = 0, 0, files.base_offset

    def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
        nonlocal base, start, next_offset
        for i in range(count):
            last = rows.last_offset[i]
            is_first = not pieces and start == 0 and rows.position[i] == 0
            if is_first or last - base > INT32_MAX:
                if not is_first:
                    pieces.append(Piece(base, start, rows.position[i] - start))
                start = rows.position[i]
                is_wrapper = rows.magic[i] < 2 and rows.attributes[i] & CODEC_MASK
                base = max(next_offset, last - INT32_MAX) if is_wrapper else rows.base_offset[i]
            next_offset = last + 1

    with fs.open_read(files.log) as file:
        reader.walk(file, files.log, valid_size, files.base_offset, on_rows)
    pieces.append(Piece(base, start, valid_size - start))
    return pieces


def scan_piece(
    fs: ReadFs, files: SegmentFiles, piece: Piece, options: ScanOptions, reader: LogReader, *, active: bool
) -> SegmentReport:
    """Return the report on a piece as if it were a segment already, with the indexes that it needs as its contents."""
    named = [files.log.parent / segment_file_name(Offset(piece.base_offset), role) for role in _ROLES]
    stat = files.log_stat._replace(size=piece.size)
    new = SegmentFiles(piece.base_offset, named[0], stat, named[1], None, named[2], None, named[3], None)
    report = scan_segment(_PieceFs(fs, files.log, piece), new, options, reader, in_scope=True, active=active)
    report.findings = []
    return report


_ROLES: Final = (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX)


class _PieceFs:
    """Shows one piece of a log as a file of its own."""

    def __init__(self, inner: ReadFs, log: PurePath, piece: Piece) -> None:
        self._inner, self._log, self._piece = inner, log, piece

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self._inner.entries(directory)

    def stat(self, path: PurePath) -> FileStat:
        return self._inner.stat(path)

    def open_read(self, path: PurePath) -> ReadFile:
        if path != self._log and path.suffix == FileRole.LOG.value:
            path = self._log
        return _PieceFile(self._inner.open_read(path), self._piece)

    def free_bytes(self, directory: PurePath) -> int:
        return self._inner.free_bytes(directory)


class _PieceFile:
    def __init__(self, inner: ReadFile, piece: Piece) -> None:
        self._inner, self._piece = inner, piece

    def read_into(self, position: int, target: memoryview) -> int:
        left = max(self._piece.size - position, 0)
        return self._inner.read_into(self._piece.position + position, target[:left])

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
