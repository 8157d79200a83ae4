"""What scans and a guard have seen: a segment that is as it was left need not be read again."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.plan.digest import sha256_of
from recovery.segment.marks import Marks
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import Room, SegmentReport, Wanted
from storage.disk.fs import FileStat, ReadFs, read_all

_SWAP: Final = ".swap"
_LIMIT: Final = 1 << 30
_EVENT_BYTES: Final = 16 << 20


class Job(NamedTuple):
    """One segment to be scanned in full, and how its indexes are to be judged."""

    files: SegmentFiles
    in_scope: bool
    active: bool


class Guarded(NamedTuple):
    """What a guard has left of a log directory, and which start of the system this is: empty where that is unknown.

    `now_ms`: the time, to tell how old the marks are.
    """

    marks: Marks
    boot_id: str
    now_ms: int | None = None


class Memory:
    """Reports by the name of their log. Filled by one plan, asked by the next; not while scans run."""

    def __init__(self, guarded: Guarded | None = None) -> None:
        self.guarded = guarded
        self._seen: dict[PurePath, tuple[Job, SegmentReport]] = {}
        self._room = Room(_EVENT_BYTES)

    def keep(self, job: Job, report: SegmentReport) -> None:
        """Keep a report, if there is room, without the contents of what is to be written."""
        if report.events is not None and not self._room.take(report.events.itemsize * len(report.events)):
            return
        self._seen[_plain(job.files.log)] = (job, report.altered(contents={}))

    def recall(self, fs: ReadFs, job: Job) -> SegmentReport | None:
        """Return the report on a segment whose log is untouched since, and whose indexes are, or are as was planned."""
        entry = self._seen.get(job.files.log)
        if entry is None:
            return None
        before, report = entry
        same_way = (before.in_scope, before.active) == (job.in_scope, job.active)
        if not same_way or _mark(before.files.log_stat) != _mark(job.files.log_stat):
            return None
        repaired = set()
        for path, old, new in (
            (before.files.index, before.files.index_stat, job.files.index_stat),
            (before.files.time_index, before.files.time_index_stat, job.files.time_index_stat),
        ):
            if _mark(old) == _mark(new):
                continue
            if new is None or not _is_repaired(fs, report, path, new):
                return None
            repaired.add(path)
        return report.altered(
            files=job.files,
            findings=[finding for finding in report.findings if finding.path not in repaired],
            wanted={path: wanted for path, wanted in report.wanted.items() if path not in repaired},
            trims={path: size for path, size in report.trims.items() if path not in repaired},
        )


def _plain(path: PurePath) -> PurePath:
    return path.with_name(path.name.removesuffix(_SWAP))


def _mark(stat: FileStat | None) -> tuple[int, int, int] | None:
    return None if stat is None else (stat.size, stat.mtime_ns, stat.inode)


def _is_repaired(fs: ReadFs, report: SegmentReport, path: PurePath, stat: FileStat) -> bool:
    if path in report.trims:
        return stat.size == report.trims[path]
    wanted = report.wanted.get(path)
    if wanted is None or stat.size != wanted.size:
        return False
    data = read_all(fs, _plain(path), _LIMIT)
    return Wanted(len(data), sha256_of(data)) == wanted
