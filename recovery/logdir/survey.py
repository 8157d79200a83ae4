"""Surveys a log directory and plans its recovery: every partition, then what lies at the top.

Segments are scanned by a pool of threads (the kernel releases the interpreter), and the
plan does not depend on their number or order. Reads only.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from functools import partial
from pathlib import PurePath
from typing import Final, Protocol

from recovery.logdir.log_dir import LogDirState, plan_log_dir_files, read_log_dir
from recovery.logdir.nearness import is_near
from recovery.partition.inventory import resolve, take_inventory
from recovery.partition.partition import Survey
from recovery.partition.partition_plan import no_plan, plan_partition
from recovery.partition.points import Points
from recovery.plan.findings import Damage, Finding, Severity, Subject
from recovery.plan.plan import Action, Coverage, LogDirPlan, PlannedPartition, PlanOptions, RecoveryPlan
from recovery.segment.memory import Job, Memory
from recovery.segment.segment_report import ROOM, Depth, Room, SegmentReport
from recovery.segment.verify import fold_index
from storage.disk.fs import ReadFs
from storage.disk.pool import Pool, Task
from storage.reading.log_reader import LogReader

_AHEAD: Final = 64
"""Partitions whose scans may be waited for at a time."""
_LISTED_EACH: Final = 2
"""Listings that are under way or waited for, for each thread."""
_LOOKS: Final = 3
LIST_ALL: Final = 1 << 62
"""For `list_ahead`: all partitions are listed as soon as may be."""


class Reporter(Protocol):
    """A caller that follows the work. Calls may come from several threads; they must be quick."""

    def begin(self, what: str, total_bytes: int, partitions: int) -> None:
        """Tell that `partitions` directories are worked on; `listed` says of each of them how much more there is."""

    def listed(self, partition: str, total_bytes: int, segments: int) -> None:
        """Tell how much of a partition is to be read, before any of it is; again if its files went away meanwhile."""

    def scanned(self, partition: str, size: int) -> None:
        """Tell that `size` more bytes of a partition have been read and checked."""

    def segment_done(self, partition: str) -> None: ...

    def partition_done(self, partition: str, findings: int) -> None: ...

    def applying(self, action: Action) -> None: ...

    def end(self) -> None: ...


class SilentReporter:
    """Follows nothing."""

    def begin(self, what: str, total_bytes: int, partitions: int) -> None: ...

    def listed(self, partition: str, total_bytes: int, segments: int) -> None: ...

    def scanned(self, partition: str, size: int) -> None: ...

    def segment_done(self, partition: str) -> None: ...

    def partition_done(self, partition: str, findings: int) -> None: ...

    def applying(self, action: Action) -> None: ...

    def end(self) -> None: ...


class Planned:
    """A plan, and what is needed to carry it out: derived contents, or how to derive them again."""

    __slots__ = ("contents", "fs", "memory", "plan", "points")

    def __init__(self, plan: LogDirPlan, fs: ReadFs, memory: Memory) -> None:
        self.plan, self.fs = plan, fs
        self.contents: dict[PurePath, bytes] = {}
        self.points: dict[PurePath, Points] = {}
        self.memory = memory
        """What the scans have seen, for a look at what carrying out the plan has left."""

    def content_of(self, path: PurePath) -> bytes:
        """Return what is to be written to `path`, once.

        Only indexes are not kept, when they are too many; they are derived again from their log as it is by then.
        """
        kept = self.contents.pop(path, None)
        return kept if kept is not None else self._derive_index(path)

    def _derive_index(self, path: PurePath) -> bytes:
        directory = path.parent
        options = Survey(self.fs, directory, directory.name, self.points[directory], self.plan.options).scan_options
        inventory = take_inventory(self.fs, directory)
        files = next(f for f in resolve(inventory, {}).segments if path in (f.index, f.time_index))
        return fold_index(self.fs, files, options, LogReader(), is_time=path == files.time_index)


class _Readers(threading.local):
    """One set of buffers a thread."""

    def __init__(self) -> None:
        self.reader = LogReader()


def plan_log_dir(
    fs: ReadFs,
    log_dir: PurePath,
    options: PlanOptions,
    reporter: Reporter | None = None,
    jobs: int = 1,
    memory: Memory | None = None,
    list_ahead: int = 1,
    *,
    running: bool = False,
) -> Planned:
    """Survey the log directory and return the plan of its recovery. `jobs`: threads that scan, 1 or more.

    `running`: a broker holds its lock. What it is in the middle of is no finding then, and one look proves nothing.
    With the `memory` of an earlier plan, or of a guard, segments are not read again as far as they are as it left them.
    `list_ahead`: so many partitions may be listed before they are scanned, which makes it known early how much there
    is. More than 1 only where nobody changes the directory: a listing must not be older than it has to be beside a
    broker.

    Raises `ReadFault` only if the directory itself cannot be listed; any other fault becomes a finding.
    """
    reporter = reporter or SilentReporter()
    state = read_log_dir(fs, log_dir, options.user, metadata_dir=_path(options.metadata_dir), running=running)
    scans = _Scans(reporter, jobs, list_ahead)
    planned = _plan_partitions(fs, state, options, scans, memory)
    while state.takes_in(planned.plan):
        planned = _plan_partitions(fs, state, options, scans, memory)
    reporter.end()
    return planned


def _path(text: str | None) -> PurePath | None:
    return None if text is None else PurePath(text)


def _plan_partitions(
    fs: ReadFs, state: LogDirState, options: PlanOptions, scans: _Scans, memory: Memory | None
) -> Planned:
    log_dir, reporter = state.log_dir, scans.reporter
    chosen = [d for d in state.partitions if not options.topics or _is_wanted(d.partition.topic, options.topics)]
    reporter.begin(str(log_dir), 0, len(chosen))
    room = Room(ROOM)
    surveys = [Survey(fs, log_dir / d.name, d.name, state.points_of(d), options, room, memory) for d in chosen]
    planned = Planned(_empty_plan(log_dir, options), fs, Memory(None if memory is None else memory.guarded))
    plans = []
    for first_look, seen in zip(surveys, scans.run(surveys), strict=True):
        survey, done, reports = _settled(first_look, *seen, reporter)
        plans.append(done.plan._replace(coverage=_with_marked(survey.coverage, reports, memory)))
        for job in survey.jobs:
            planned.memory.keep(job, reports[job.files.base_offset])
        planned.points[survey.directory] = survey.points
        planned.contents |= done.contents
        reporter.partition_done(survey.partition, len(done.plan.verdicts))
        first_look.forget()
    return _frame(planned, state, plans)


def _with_marked(coverage: Coverage, reports: Reports, memory: Memory | None) -> Coverage:
    now_ms = None if memory is None or memory.guarded is None else memory.guarded.now_ms
    times = [report.marked_ms for report in reports.values() if report.marked_ms is not None]
    if not times:
        return coverage
    marked = sum(report.marked_bytes for report in reports.values())
    is_known = now_ms is not None and max(times) <= now_ms
    return coverage._replace(marked=marked, marked_age_ms=now_ms - min(times) if is_known and now_ms else None)


def plan_partition_dir(
    fs: ReadFs,
    directory: PurePath,
    options: PlanOptions,
    reporter: Reporter | None = None,
    jobs: int = 1,
    *,
    running: bool = False,
) -> Planned:
    """Survey one partition directory, with the checkpoints of the log directory around it where there are any.

    The plan is for reading only: nothing at the top of the log directory is part of it.
    """
    reporter = reporter or SilentReporter()
    state = read_log_dir(fs, directory.parent, options.user, only=directory.name, running=running)
    points = next((state.points_of(d) for d in state.partitions), Points(None, 0))
    reporter.begin(str(directory), 0, 1)
    survey = Survey(fs, directory, directory.name, points, options)
    ((done, reports),) = _Scans(reporter, jobs, 1).run([survey])
    _, done, _ = _settled(survey, done, reports, reporter)
    reporter.partition_done(directory.name, len(done.plan.verdicts))
    reporter.end()
    plan = _empty_plan(directory, options)._replace(partitions=(done.plan._replace(coverage=survey.coverage),))
    planned = Planned(plan, fs, Memory())
    planned.contents, planned.points = done.contents, {directory: points}
    return planned


def _is_wanted(topic: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def _empty_plan(log_dir: PurePath, options: PlanOptions) -> LogDirPlan:
    return LogDirPlan(
        log_dir, options, verdicts=(), stopped=False, before=(), partitions=(), after=(), preconditions=()
    )  # fmt: skip


Reports = Mapping[int, SegmentReport]
"""By base offset."""


_Submitted = tuple[Survey, dict[int, Task[SegmentReport]]]


class _Scans:
    """How surveys are listed and scanned: by how many threads, and how many of them may be listed ahead."""

    def __init__(self, reporter: Reporter, jobs: int, list_ahead: int) -> None:
        self.reporter = reporter
        self._jobs, self._list_ahead = jobs, list_ahead
        self._readers = _Readers()

    def run(self, surveys: Sequence[Survey]) -> Iterator[tuple[PlannedPartition, Reports]]:
        """Yield the plan of each survey, in order; the scans of the next ones go on meanwhile."""
        if self._jobs <= 1 or not surveys or _are_near(surveys):
            return self._one_by_one(surveys)
        return self._side_by_side(surveys)

    def _list(self, survey: Survey) -> None:
        survey.prepare(self._readers.reader)
        self.reporter.listed(survey.partition, sum(job.files.log_stat.size for job in survey.jobs), len(survey.jobs))

    def _scan(self, survey: Survey, job: Job) -> SegmentReport:
        report = survey.run(job, self._readers.reader, lambda size: self.reporter.scanned(survey.partition, size))
        self.reporter.segment_done(survey.partition)
        return report

    def _one_by_one(self, surveys: Sequence[Survey]) -> Iterator[tuple[PlannedPartition, Reports]]:
        waiting: deque[Survey] = deque()
        for number, survey in enumerate(surveys, 1):
            self._list(survey)
            waiting.append(survey)
            while waiting and (len(waiting) >= self._list_ahead or number == len(surveys)):
                first = waiting.popleft()
                reports = {job.files.base_offset: self._scan(first, job) for job in first.jobs}
                yield _plan(first, reports, self._readers.reader), reports

    def _side_by_side(self, surveys: Sequence[Survey]) -> Iterator[tuple[PlannedPartition, Reports]]:
        waiting: deque[Survey] = deque()
        scanned: deque[_Submitted] = deque()
        with Pool(self._jobs, "scan") as pool:
            for number, survey in enumerate(self._listed(pool, surveys), 1):
                waiting.append(survey)
                is_last = number == len(surveys)
                while waiting:
                    if len(scanned) >= _AHEAD:
                        if not (is_last or len(waiting) >= self._list_ahead or _is_scanned(scanned[0])):
                            break
                        yield self._collect(*scanned.popleft())
                    scanned.append((waiting[0], self._submit(pool, waiting.popleft())))
            while scanned:
                yield self._collect(*scanned.popleft())

    def _listed(self, pool: Pool, surveys: Sequence[Survey]) -> Iterator[Survey]:
        """Yield the surveys in order once they are listed; a few are listed at a time, and none waits for a scan."""
        listing: deque[tuple[Survey, Task[None]]] = deque()
        for survey in surveys:
            listing.append((survey, pool.submit(partial(self._list, survey), first=True)))
            if len(listing) > _LISTED_EACH * self._jobs:
                yield _made(*listing.popleft())
        while listing:
            yield _made(*listing.popleft())

    def _submit(self, pool: Pool, survey: Survey) -> dict[int, Task[SegmentReport]]:
        # Largest first: a large one that begins last would be waited for alone.
        ordered = sorted(survey.jobs, key=_bytes_to_read, reverse=True)
        return {job.files.base_offset: pool.submit(partial(self._scan, survey, job)) for job in ordered}

    def _collect(self, survey: Survey, tasks: Mapping[int, Task[SegmentReport]]) -> tuple[PlannedPartition, Reports]:
        reports = {base: task.result() for base, task in sorted(tasks.items())}
        return _plan(survey, reports, self._readers.reader), reports


def _are_near(surveys: Sequence[Survey]) -> bool:
    """Tell whether one thread reads these faster than several."""
    whole = surveys[0].options.depth != Depth.QUICK.value
    if any(survey.points.clean for survey in surveys) and not whole:
        return False  # next to nothing is read, in a single call
    return is_near(surveys[0].fs, [survey.directory for survey in surveys], whole=whole)


def _made(survey: Survey, listing: Task[None]) -> Survey:
    listing.run()  # here and now, where the other threads have not come to it
    listing.result()
    return survey


def _bytes_to_read(job: Job) -> int:
    """Return the sizes of log and indexes, of which those of the last segment may be preallocated."""
    files = job.files
    return sum(stat.size for stat in (files.log_stat, files.index_stat, files.time_index_stat) if stat is not None)


def _is_scanned(one: _Submitted) -> bool:
    return all(task.is_done for task in one[1].values())


def _plan(survey: Survey, reports: Reports, reader: LogReader) -> PlannedPartition:
    if any(finding.kind in (Damage.READ_ERROR, Damage.VANISHED) for finding in survey.findings):
        return no_plan(survey)
    done = plan_partition(survey, reports, reader)
    survey.room.give(sum(r.events.itemsize * len(r.events) for r in reports.values() if r.events is not None))
    return done


_Look = tuple[Survey, PlannedPartition, Reports]


def _settled(survey: Survey, done: PlannedPartition, reports: Reports, reporter: Reporter) -> _Look:
    """Look again where one look does not prove what was found, and return the last look.

    Beside a running broker a finding counts if every look makes it: a roll, a truncation or the end of a compaction
    that the first one met is over by the next.
    """
    look = _steady(survey, done, reports, reporter)
    if not survey.points.running:
        return look
    confirmed = _that_matter(look)
    for _ in range(_LOOKS - 1):
        if not confirmed:
            break
        look = _steady(*_look_again(survey, reporter), reporter)
        confirmed &= _that_matter(look)
    return look[0], _with_findings(look[1], confirmed), look[2]


def _look_again(survey: Survey, reporter: Reporter) -> _Look:
    again = Survey(
        survey.fs, survey.directory, survey.partition, survey.points, survey.options, survey.room, survey.memory
    )
    ((done, reports),) = _Scans(reporter, 1, 1).run([again])
    return again, done, reports


_Mark = tuple[Damage, PurePath, int | None]


def _that_matter(look: _Look) -> set[_Mark]:
    return {_mark(finding) for finding in look[1].plan.findings if finding.kind.severity is not Severity.NOTE}


def _mark(finding: Finding) -> _Mark:
    return finding.kind, finding.path, finding.position


def _with_findings(done: PlannedPartition, confirmed: AbstractSet[_Mark]) -> PlannedPartition:
    """Return the plan with notes and the findings in `confirmed`; it does nothing once a finding is left out."""
    plan = done.plan
    kept = tuple(v for v in plan.verdicts if v.finding.kind.severity is Severity.NOTE or _mark(v.finding) in confirmed)
    if kept == plan.verdicts:
        return done
    held = any(v.decision == "hold" and v.finding.kind.subject is Subject.LOG for v in kept)
    return PlannedPartition(plan._replace(verdicts=kept, actions=(), cuts=(), preconditions=(), held=held), {})


def _steady(survey: Survey, planned: PlannedPartition, reports: Reports, reporter: Reporter) -> _Look:
    """Look again at a partition of which files went away while it was read, and return what was seen at last.

    Retention, compaction and rolls of a running broker remove files now and then. A partition that loses files at every
    look is unverified, and reported as unreadable. A directory that is gone altogether is no partition any more.
    """
    for _ in range(_LOOKS - 1):
        if _moved(survey, planned) is None:
            return survey, planned, reports
        survey, planned, reports = _look_again(survey, reporter)
    moved = _moved(survey, planned)
    if moved is not None:
        evidence = f"{moved.evidence}; so it went at each of {_LOOKS} looks: another process changes this directory"
        survey.findings.append(Finding(Damage.READ_ERROR, moved.path, evidence))
        planned = no_plan(survey)
    return survey, planned, reports


def _moved(survey: Survey, done: PlannedPartition) -> Finding | None:
    vanished = (finding for finding in done.plan.findings if finding.kind is Damage.VANISHED)
    return next((finding for finding in vanished if finding.path != survey.directory), None)


def _frame(planned: Planned, state: LogDirState, plans: Sequence[RecoveryPlan]) -> Planned:
    """Put the partitions between what happens before and after all; stop everything if anything must stop."""
    framed, contents = plan_log_dir_files(planned.fs, state, plans, planned.plan.options)
    stopped = any(verdict.decision == "stop" for verdict in framed.all_verdicts())
    if stopped:
        partitions = tuple(p._replace(actions=(), preconditions=(), cuts=()) for p in framed.partitions)
        framed = framed._replace(stopped=True, before=(), after=(), partitions=partitions, preconditions=())
        planned.contents.clear()
    planned.plan = framed
    if not stopped:
        planned.contents |= contents
    return planned


def find_duplicates(plans: Sequence[LogDirPlan]) -> dict[str, list[PurePath]]:
    """Return the partitions that lie in more than one of the log directories: a broker refuses to start with them."""
    places: dict[str, list[PurePath]] = {}
    for plan in plans:
        for partition in plan.partitions:
            places.setdefault(partition.partition, []).append(partition.directory)
    return {name: found for name, found in places.items() if len(found) > 1 and "." not in name.rpartition("-")[2]}
