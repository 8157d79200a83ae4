"""Looks at the shape of segments without reading them: what a flushed segment gets by default.

The first batches where there is no index to go by, the batches from the last index entry on, and the ends of both
indexes: a padded or rotten end shows whatever the size. A clean log directory has tens of thousands of segments, so
many are asked for at once; where anything is odd, that segment is opened and looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from recovery.plan.findings import Damage, Finding
from recovery.segment.index_checks import IndexTails, check_index_shapes, tail_size
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Depth, LogDamage, ScanOptions, SegmentReport, kind_of
from storage.base.errors import EnvironmentFault, FileVanished
from storage.base.rows import BatchRows, Stop
from storage.disk.fs import FileStat, Part, ReadFs, read_parts
from storage.index.indexes import OFFSET_ENTRY, TIME_ENTRY
from storage.reading.log_reader import LogReader

_SHALLOW_BYTES: Final = 1 << 20
_AT_ONCE_BYTES: Final = 64 << 10
"""Tails of logs up to this size are read many at a time; brokers write an index entry every 4 KiB, or every batch."""
_AT_ONCE: Final = 64


def check_segments(
    fs: ReadFs, segments: Sequence[SegmentFiles], next_base: int | None, options: ScanOptions, reader: LogReader
) -> list[SegmentReport]:
    """Return a report on each segment of one directory, of which at most 1 MiB is read, and of most of them 4 KiB.

    `next_base` is the base offset of what follows them all, None where the last of them is the last of its log. What
    the operating system refuses becomes a finding. `next_offset` and `valid_size` of the reports are what the segments
    claim.
    """
    bases = [*(files.base_offset for files in segments[1:]), next_base]
    reports: list[SegmentReport] = []
    for first in range(0, len(segments), _AT_ONCE):
        some = segments[first : first + _AT_ONCE]
        reports += _Look(fs, some, bases[first : first + _AT_ONCE], options, reader).run()
    return reports


def check_segment(
    fs: ReadFs, files: SegmentFiles, next_base: int | None, options: ScanOptions, reader: LogReader
) -> SegmentReport:
    """Return a report on one segment as `check_segments` gives it."""
    return check_segments(fs, [files], next_base, options, reader)[0]


class _Look:
    """At a few segments together: the ends of all indexes, then the ends of all logs."""

    def __init__(
        self,
        fs: ReadFs,
        segments: Sequence[SegmentFiles],
        next_bases: Sequence[int | None],
        options: ScanOptions,
        reader: LogReader,
    ) -> None:
        self._fs, self._options, self._reader = fs, options, reader
        self._bases = next_bases
        self._reports = [
            SegmentReport(files, Depth.QUICK, files.log_stat.size, files.base_offset if base is None else base)
            for files, base in zip(segments, next_bases, strict=True)
        ]

    def run(self) -> list[SegmentReport]:
        starts = self._index_ends()
        logs = []
        for report, start in zip(self._reports, starts, strict=True):
            size = report.files.log_stat.size
            if start is None or size == 0:
                continue
            if size - start <= _AT_ONCE_BYTES:
                logs.append((report, (report.files.names[0], start, size - start)))
            else:
                self._check_log(report, start)
        for report, (_, start, size), data in self._read(logs):
            ends = self._reader.ends_of(data, start, report.files.base_offset) if len(data) == size else None
            if ends is None:
                self._check_log(report, start)
            else:
                report.next_offset, report.magics = ends[0] + 1, 1 << ends[1]
        return self._reports

    def _read(self, wanted: Sequence[tuple[SegmentReport, Part]]) -> list[tuple[SegmentReport, Part, bytes]]:
        """Return what could be read; the others have their fault among the findings."""
        if not wanted:
            return []
        parts = read_parts(self._fs, wanted[0][0].files.directory, [part for _, part in wanted])
        read = []
        for (report, part), data in zip(wanted, parts, strict=True):
            if isinstance(data, EnvironmentFault):
                report.findings.append(_refused(data))
            else:
                read.append((report, part, data))
        return read

    def _index_ends(self) -> list[int | None]:
        """Look at the ends of the indexes; return where to begin with each log, None where not at all."""
        wanted = []
        for report in self._reports:
            files = report.files
            if size := tail_size(files.index_stat, OFFSET_ENTRY.size):
                wanted.append((report, _end(files.names[1], files.index_stat, size)))
            if size := tail_size(files.time_index_stat, TIME_ENTRY.size):
                wanted.append((report, _end(files.names[2], files.time_index_stat, size)))
        tails = {}
        for report, (name, _, size), data in self._read(wanted):
            tails[name] = data
            if len(data) < size:
                shrunk = FileVanished("reading", report.files.directory / name, OSError("it has shrunk"))
                report.findings.append(_refused(shrunk))
        starts: list[int | None] = []
        for report, base in zip(self._reports, self._bases, strict=True):
            if report.findings:
                starts.append(None)
                continue
            files = report.files
            both = IndexTails(tails.get(files.names[1], b""), tails.get(files.names[2], b""))
            report.findings, start = check_index_shapes(files, both, self._options, active=base is None)
            starts.append(start)
        return starts

    def _check_log(self, report: SegmentReport, start: int) -> None:
        try:
            self._check_opened(report, start)
        except EnvironmentFault as fault:
            report.findings.append(_refused(fault))

    def _check_opened(self, report: SegmentReport, start: int) -> None:
        files, reader = report.files, self._reader
        last: list[int] = []

        def on_rows(rows: BatchRows, count: int, _: memoryview, __: int) -> None:
            last[:] = [rows.last_offset[count - 1], rows.magic[count - 1]]

        size = files.log_stat.size
        with self._fs.open_read(files.log) as file:
            if size - start > _SHALLOW_BYTES:
                # Too much to read for a quick look; the first batches alone must do.
                size = min(size, _SHALLOW_BYTES)
                scan = reader.scan(file, files.log, size, files.base_offset, on_rows)
                whole = scan.stop in (Stop.END, Stop.NEED_MORE)
            else:
                scan = reader.scan(file, files.log, size, files.base_offset, on_rows, start=start)
                whole = scan.valid_size == size
                if last:
                    report.next_offset, report.magics = last[0] + 1, 1 << last[1]
        if not whole:
            # Something is wrong; where exactly, and what lies behind it, a full scan will say.
            kind, left = kind_of(scan.stop, zeroes=False), size - scan.valid_size
            report.damage = LogDamage(kind, scan.valid_size, scan.next_offset, left, zeroes=False, sound_at=None)


def _end(name: str, stat: FileStat | None, size: int) -> Part:
    assert stat is not None
    return name, stat.size - size, size


def _refused(fault: EnvironmentFault) -> Finding:
    kind = Damage.VANISHED if isinstance(fault, FileVanished) else Damage.READ_ERROR
    return Finding(kind, fault.path, str(fault))
