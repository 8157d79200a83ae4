"""Plans the log directories that a command was given, side by side, and tells what came of each.

One of them failing does not stop the others: a fault becomes its outcome, and the worst status wins at the end.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import PurePath
from typing import Final

from cli.advice import next_step
from cli.console import Console
from cli.progress import ProgressReporter, Show, choose_mode
from cli.recover.guard_marks import FindMarks, no_marks
from cli.settings.settings import Settings
from cli.settings.targets import Target, TargetKind, distinct, ensure_topics, find_target
from cli.signals import handled
from recovery.logdir.survey import Planned, find_duplicates, plan_log_dir, plan_partition_dir
from recovery.plan.decide import Flushed, Where, decide
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import LogDirPlan, PlanOptions, Verdict
from recovery.report.command_line import Flags
from recovery.report.documents import finding_document, outcome_document
from recovery.report.outcome import Outcome, root_of
from recovery.segment.memory import Memory
from recovery.segment.segment_report import Depth
from storage.base.errors import (
    ConfigInvalid,
    EnvironmentFault,
    ExitStatus,
    FileVanished,
    LogDirInUse,
    LogmendError,
    NoRoom,
    printable,
    worst,
)
from storage.codec.compression import load_codecs
from storage.disk.fs import ReadFs, lock_state

_WAIT_SECONDS: Final = 0.1
_MOVE_SECONDS: Final = 2.0
_TWICE: Final = 2
Request = tuple[Target, PlanOptions]
Made = Planned | LogmendError
"""A plan, or why there is none."""


class OwnFault(LogmendError):
    """A fault of this program that ended the work on one log directory; what it was is its cause."""

    def __init__(self, path: PurePath, cause: Exception) -> None:
        super().__init__(path, cause)
        self.path, self.__cause__ = path, cause

    def __str__(self) -> str:
        what = f"{type(self.__cause__).__name__}: {printable(self.__cause__)}"
        return f"{printable(self.path)}: a fault of logmend itself: {what}; --debug shows the traceback"


class Work:
    """What planning needs, whichever directory it is for. `jobs`: threads that read one log directory.

    `list_ahead`: see `plan_log_dir`; more than 1 only under the lock.
    """

    def __init__(
        self,
        fs: ReadFs,
        reporter: ProgressReporter,
        jobs: int,
        *,
        list_ahead: int = 1,
        find_marks: FindMarks = no_marks,
    ) -> None:
        self.fs, self.reporter, self.jobs, self.list_ahead = fs, reporter, jobs, list_ahead
        self.find_marks = find_marks
        self.memories: dict[Target, Memory] = {}
        """What the first look at a log directory has seen, for the second."""
        self.synced: dict[Target, set[PurePath]] = {}
        """Files that carrying out a plan has made durable."""

    def in_one_thread(self) -> Work:
        """Return the same for a look that reads next to nothing: threads would mostly wait for one another."""
        made = Work(self.fs, self.reporter, 1, list_ahead=self.list_ahead, find_marks=self.find_marks)
        made.memories, made.synced = self.memories, self.synced
        return made

    def plan(self, target: Target, options: PlanOptions) -> Planned:
        """Plan a log directory, or one partition's directory alone."""
        if options.metadata_dir == str(target.path):
            options = options._replace(metadata_dir=None)  # it looks into itself first; so a plan needs not say so
        running = is_in_use(target.log_dir)
        if target.kind is TargetKind.PARTITION:
            return plan_partition_dir(self.fs, target.path, options, self.reporter, self.jobs, running=running)
        memory = self.memories.get(target) or Memory(self.find_marks(target.path))
        planned = plan_log_dir(
            self.fs, target.path, options, self.reporter, self.jobs, memory, self.list_ahead, running=running
        )
        self.memories[target] = planned.memory
        return planned

    def plan_all(self, requests: Sequence[Request]) -> dict[Target, Made]:
        """Plan several at once, for they mostly lie on disks of their own; findings that take all of them included."""
        if any(options.depth == Depth.RECORDS.value for _, options in requests):
            load_codecs()  # before the threads: each would wait for the one that imports them
        made = dict(zip((target for target, _ in requests), self._side_by_side(requests), strict=True))
        mark_duplicates(self.fs, [each for each in made.values() if isinstance(each, Planned)])
        return made

    def _side_by_side(self, requests: Sequence[Request]) -> Sequence[Made]:
        if not requests or (len(requests) == 1 and self.jobs == 1):
            return [self._made(request) for request in requests]
        pool = ThreadPoolExecutor(len(requests), "log-dir")
        try:
            futures = [pool.submit(self._made, request) for request in requests]
            # Python handles signals in this thread, between two steps of it; a wait without an end would hold them up.
            while wait(futures, _WAIT_SECONDS).not_done:
                pass
            return [future.result() for future in futures]
        finally:
            # After a signal the threads, which only read, are not waited for: one may have a terabyte of zeros to read.
            pool.shutdown(wait=False, cancel_futures=True)

    def _made(self, request: Request) -> Made:
        try:
            return self.plan(*request)
        except LogmendError as error:
            return error
        except Exception as error:  # noqa: BLE001 (what is wrong with us in one place must not stop the others)
            return OwnFault(request[0].path, error)


def jobs_each(settings: Settings, log_dirs: int) -> int:
    """Return the threads for each log directory: what was asked for, else a share of the processors."""
    if settings.origins.get("jobs") != "default":
        return settings.jobs
    return max(settings.jobs // max(log_dirs, 1), 1)


@contextlib.contextmanager
def reporting(console: Console, settings: Settings, show: Show | None = None) -> Iterator[ProgressReporter]:
    """Give the reporter of this run; SIGUSR1 makes it print a line for as long as the context lasts."""
    is_terminal = console.err.isatty()
    reporter = ProgressReporter(console, choose_mode(settings.progress, is_terminal=is_terminal), show=show)
    with handled(stop=reporter.stop, tell=reporter.print_line):
        try:
            yield reporter
        finally:
            reporter.clear()


def failure(path: PurePath, error: LogmendError, plan: LogDirPlan | None = None) -> Outcome:
    """Return the outcome of work that a fault ended."""
    return Outcome(path, error.status, plan, error=error, hint=next_step(error))


def find_targets(fs: ReadFs, names: Iterable[str], topics: Iterable[str] = ()) -> tuple[list[Target], list[Outcome]]:
    """Return what there is to work on, and the outcome of every name that leads nowhere.

    A partition of a log directory that is named as well is part of that. Raises `ConfigInvalid` for `topics` that no
    partition matches.
    """
    targets: list[Target] = []
    failed: list[Outcome] = []
    for name in names:
        try:
            targets.append(find_target(fs, name))
        except (EnvironmentFault, ConfigInvalid) as error:
            failed.append(failure(PurePath(name), error))
    ensure_topics(fs, targets, topics)
    whole = {target.path for target in targets if target.kind is TargetKind.LOG_DIR}
    return distinct(t for t in targets if t.kind is TargetKind.LOG_DIR or t.path.parent not in whole), failed


def look_at_all(work: Work, targets: Sequence[Target], options: PlanOptions) -> list[Outcome]:
    """Return what a command that only reads finds out about each target."""
    made = work.plan_all([(target, options) for target in targets])
    return [
        Outcome(target.path, each.plan.status, each.plan, in_use=is_in_use(target.log_dir))
        if isinstance(each, Planned)
        else failure(target.path, each)
        for target, each in made.items()
    ]


def mark_duplicates(fs: ReadFs, planned: Sequence[Planned]) -> None:
    """Add to the plans of several log directories the findings about partitions that lie in more than one of them."""
    for name, places in find_duplicates([log_dir.plan for log_dir in planned]).items():
        if is_moving(fs, places):
            continue
        for log_dir in planned:
            here = [place for place in places if place.parent == log_dir.plan.log_dir]
            others = ", ".join(printable(place) for place in places if place not in here)
            found = [Finding(Damage.DUPLICATE_PARTITION, place, f"{name} lies in {others} as well") for place in here]
            where = Where(Flushed.YES, valid_after=False, accept_loss=False, log_open=True, trims_padding=False)
            row = decide(Damage.DUPLICATE_PARTITION.subject, where)
            verdicts = tuple(Verdict(finding, row.letter, row.decision.value) for finding in found)
            log_dir.plan = log_dir.plan._replace(verdicts=log_dir.plan.verdicts + verdicts)


def is_moving(fs: ReadFs, places: Sequence[PurePath]) -> bool:
    """Tell whether a running broker has just moved a partition: within two seconds all but one of its places are gone.

    One log directory is listed before the move and another one after it, and the broker itself renames the copy first.
    """
    end = time.monotonic() + _MOVE_SECONDS
    while any(is_in_use(place.parent) for place in places):
        if sum(is_there(fs, place) for place in places) < _TWICE:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_WAIT_SECONDS)
    return False


def is_there(fs: ReadFs, path: PurePath) -> bool:
    """Tell whether there is something of that name."""
    with contextlib.suppress(FileVanished):
        fs.stat(path)
        return True
    return False


def is_in_use(log_dir: PurePath) -> bool:
    """Tell whether another process holds the lock; False also where the system cannot tell."""
    try:
        return lock_state(log_dir) not in (None, os.getpid())
    except EnvironmentFault:
        return False


def events_of(outcome: Outcome) -> Iterator[dict[str, object]]:
    """Return the events that end the work on one directory, as they go out with --jsonl."""
    plans = [outcome.plan] if outcome.plan is not None else []
    if outcome.after is not None and outcome.after.stopped:
        plans.append(outcome.after)
    for plan in plans:
        for verdict in plan.all_verdicts():
            yield {"event": "finding", "log_dir": str(plan.log_dir), **finding_document(verdict, root_of(plan))}
    document = outcome_document(outcome)
    document.pop("findings", None)
    yield {"event": "log_dir_finished", **document}


def with_flags(outcome: Outcome, flags: Flags) -> Outcome:
    """Return an outcome with the flags that the commands which it proposes need as well."""
    if isinstance(outcome.error, LogDirInUse | NoRoom):
        return outcome._replace(flags=flags, hint=next_step(outcome.error, flags))
    return outcome._replace(flags=flags)


def tell(console: Console, outcomes: Sequence[Outcome], text: Callable[[Outcome], str]) -> ExitStatus:
    """Write outcomes for people or as events, and return the worst status."""
    for outcome in outcomes:
        if outcome.error is not None:
            complain(console, outcome.error, outcome.hint)
        if console.jsonl:
            for event in events_of(outcome):
                console.event(event)
        elif console.is_text:
            console.say(text(outcome))
    return worst(outcome.status for outcome in outcomes)


def complain(console: Console, error: LogmendError, hint: str) -> None:
    """Write what ended the work on one log directory, and what to try next."""
    if console.debug and isinstance(error, OwnFault):
        console.show("".join(traceback.format_exception(error.__cause__)))
    console.complain(str(error))
    if hint:
        console.complain(f"next: {hint}")
