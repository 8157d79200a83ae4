"""Surveys a log directory and plans its recovery: every partition, then what lies at the top.

Segments are scanned by a pool of threads (the kernel releases the interpreter), and the
plan does not depend on their number or order. Reads only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Protocol

from recovery.findings import Damage, Finding
from recovery.inventory import resolve, take_inventory
from recovery.log_dir import LogDirState, plan_log_dir_files, read_log_dir
from recovery.memory import Memory
from recovery.partition import Points, Survey
from recovery.partition_plan import PlannedPartition, no_plan, plan_partition
from recovery.plan import Action, LogDirPlan, PlanOptions, RecoveryPlan
from recovery.verify import ROOM, Room, SegmentReport, fold_index
from storage.fs import ReadFs
from storage.log_reader import LogReader

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_AHEAD: Final = 64
_LOOKS: Final = 3


class Reporter(Protocol):
    """Whoever wants to follow the work. Calls may come from several threads; they must be quick."""

    def begin(self, what: str, total_bytes: int, partitions: int) -> None:
        """Tell that `partitions` directories are worked on; more bytes to do may be added by further calls."""

    def scanned(self, partition: str, size: int) -> None:
        """Tell that `size` more bytes of a partition have been read and checked."""

    def partition_done(self, partition: str, findings: int) -> None: ...

    def applying(self, action: Action) -> None: ...

    def end(self) -> None: ...


class SilentReporter:
    """Follows nothing."""

    def begin(self, what: str, total_bytes: int, partitions: int) -> None: ...

    def scanned(self, partition: str, size: int) -> None: ...

    def partition_done(self, partition: str, findings: int) -> None: ...

    def applying(self, action: Action) -> None: ...

    def end(self) -> None: ...


@dataclass(slots=True)
class Planned:
    """A plan, and what is needed to carry it out: derived contents, or how to derive them again."""

    plan: LogDirPlan
    fs: ReadFs
    contents: dict[PurePath, bytes] = field(default_factory=dict)
    points: dict[PurePath, Points] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
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
) -> Planned:
    """Survey the log directory and return the plan of its recovery. `jobs`: threads that scan, 1 or more.

    With the `memory` of an earlier plan, segments that are as it left them are not read again.

    Raises `ReadFault` only if the directory itself cannot be listed; any other fault becomes a finding.
    """
    reporter = reporter or SilentReporter()
    state = read_log_dir(fs, log_dir, options.user, metadata_dir=_path(options.metadata_dir))
    planned = _plan_partitions(fs, state, options, reporter, jobs, memory)
    while state.takes_in(planned.plan):
        planned = _plan_partitions(fs, state, options, reporter, jobs, memory)
    reporter.end()
    return planned


def _path(text: str | None) -> PurePath | None:
    return None if text is None else PurePath(text)


def _plan_partitions(
    fs: ReadFs, state: LogDirState, options: PlanOptions, reporter: Reporter, jobs: int, memory: Memory | None
) -> Planned:
    log_dir = state.log_dir
    chosen = [d for d in state.partitions if not options.topics or _is_wanted(d.partition.topic, options.topics)]
    reporter.begin(str(log_dir), 0, len(chosen))
    room = Room(ROOM)
    surveys = [Survey(fs, log_dir / d.name, d.name, state.points_of(d), options, room, memory) for d in chosen]
    planned = Planned(_empty_plan(log_dir, options), fs)
    plans = []
    for first_look, seen in zip(surveys, _run(surveys, reporter, jobs), strict=True):
        survey, done, reports = _settled(first_look, *seen, reporter)
        plans.append(done.plan)
        for job in survey.jobs:
            planned.memory.keep(job, reports[job.files.base_offset])
        planned.points[survey.directory] = survey.points
        planned.contents |= done.contents
        reporter.partition_done(survey.partition, len(done.plan.verdicts))
    return _frame(planned, state, plans)


def plan_partition_dir(
    fs: ReadFs, directory: PurePath, options: PlanOptions, reporter: Reporter | None = None, jobs: int = 1
) -> Planned:
    """Survey one partition directory, with the checkpoints of the log directory around it where there are any.

    The plan is for reading only: nothing at the top of the log directory is part of it.
    """
    reporter = reporter or SilentReporter()
    state = read_log_dir(fs, directory.parent, options.user, only=directory.name)
    points = next((state.points_of(d) for d in state.partitions), Points(None, 0))
    reporter.begin(str(directory), 0, 1)
    survey = Survey(fs, directory, directory.name, points, options)
    ((done, reports),) = _run([survey], reporter, jobs)
    _, done, _ = _settled(survey, done, reports, reporter)
    reporter.partition_done(directory.name, len(done.plan.verdicts))
    reporter.end()
    plan = replace(_empty_plan(directory, options), partitions=(done.plan,))
    return Planned(plan, fs, done.contents, {directory: points})


def _is_wanted(topic: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def _empty_plan(log_dir: PurePath, options: PlanOptions) -> LogDirPlan:
    return LogDirPlan(
        log_dir, options, verdicts=(), stopped=False, before=(), partitions=(), after=(), preconditions=()
    )  # fmt: skip


Reports = Mapping[int, SegmentReport]
"""By base offset."""


def _run(surveys: Sequence[Survey], reporter: Reporter, jobs: int) -> Iterator[tuple[PlannedPartition, Reports]]:
    """Yield the plan of each survey, in order; the scans of the next ones go on meanwhile."""
    readers = _Readers()
    if jobs <= 1 or not surveys:
        for survey in surveys:
            survey.prepare(readers.reader)
            _announce(survey, reporter)
            reports = {
                j.files.base_offset: survey.run(j, readers.reader, _progress(survey, reporter)) for j in survey.jobs
            }
            yield _plan(survey, reports, readers.reader), reports
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (brings logging: 5 ms for whoever has no log)

    with ThreadPoolExecutor(jobs, thread_name_prefix="scan") as pool:
        ahead: list[tuple[Survey, dict[int, Future[SegmentReport]]]] = []
        for survey in surveys:
            survey.prepare(readers.reader)
            _announce(survey, reporter)
            ahead.append((survey, _submit(pool, survey, reporter, readers)))
            if len(ahead) >= _AHEAD:
                yield _collect(*ahead.pop(0), readers.reader)
        for one in ahead:
            yield _collect(*one, readers.reader)


def _announce(survey: Survey, reporter: Reporter) -> None:
    if size := sum(job.files.log_stat.size for job in survey.jobs):
        reporter.begin("", size, 0)


def _progress(survey: Survey, reporter: Reporter) -> Callable[[int], None]:
    return lambda size: reporter.scanned(survey.partition, size)


def _submit(
    pool: ThreadPoolExecutor, survey: Survey, reporter: Reporter, readers: _Readers
) -> dict[int, Future[SegmentReport]]:
    progress = _progress(survey, reporter)
    # Largest first: a large one that begins last would be waited for alone.
    ordered = sorted(survey.jobs, key=lambda job: -job.files.log_stat.size)
    return {
        job.files.base_offset: pool.submit(lambda job=job: survey.run(job, readers.reader, progress))  # type: ignore[misc]
        for job in ordered
    }


def _collect(
    survey: Survey, futures: Mapping[int, Future[SegmentReport]], reader: LogReader
) -> tuple[PlannedPartition, Reports]:
    reports = {base: future.result() for base, future in sorted(futures.items())}
    return _plan(survey, reports, reader), reports


def _plan(survey: Survey, reports: Reports, reader: LogReader) -> PlannedPartition:
    if any(finding.kind in (Damage.READ_ERROR, Damage.VANISHED) for finding in survey.findings):
        return no_plan(survey)
    done = plan_partition(survey, reports, reader)
    survey.room.give(sum(r.events.itemsize * len(r.events) for r in reports.values() if r.events is not None))
    return done


def _settled(
    survey: Survey, done: PlannedPartition, reports: Reports, reporter: Reporter
) -> tuple[Survey, PlannedPartition, Reports]:
    """Look again at a partition of which files went away while it was read, and return what was seen at last.

    Retention, compaction and rolls of a running broker do that now and then. What does so at every look is not known to
    be in order, and is said to be unreadable. A directory that is gone altogether is no partition any more.
    """
    for _ in range(_LOOKS - 1):
        if _moved(survey, done) is None:
            return survey, done, reports
        survey = Survey(
            survey.fs, survey.directory, survey.partition, survey.points, survey.options, survey.room, survey.memory
        )
        ((done, reports),) = _run([survey], reporter, 1)
    moved = _moved(survey, done)
    if moved is not None:
        evidence = f"{moved.evidence}; so it went at each of {_LOOKS} looks: somebody changes this directory"
        survey.findings.append(Finding(Damage.READ_ERROR, moved.path, evidence))
        done = no_plan(survey)
    return survey, done, reports


def _moved(survey: Survey, done: PlannedPartition) -> Finding | None:
    vanished = (finding for finding in done.plan.findings if finding.kind is Damage.VANISHED)
    return next((finding for finding in vanished if finding.path != survey.directory), None)


def _frame(planned: Planned, state: LogDirState, plans: Sequence[RecoveryPlan]) -> Planned:
    """Put the partitions between what happens before and after all; stop everything if anything must stop."""
    framed, contents = plan_log_dir_files(planned.fs, state, plans, planned.plan.options)
    stopped = any(verdict.decision == "stop" for verdict in framed.all_verdicts())
    if stopped:
        partitions = tuple(replace(p, actions=(), preconditions=(), cuts=()) for p in framed.partitions)
        framed = replace(framed, stopped=True, before=(), after=(), partitions=partitions, preconditions=())
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
