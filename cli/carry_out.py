"""Plans log directories under their locks and carries the plans out: what `recover` and `apply` have in common."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from cli.console import Console
from cli.settings import Settings
from cli.targets import Target, absolute, ensure_log_dir
from cli.work import Work, failure, mark_duplicates, reporting
from recovery.execute import Orders, execute
from recovery.plan import LogDirPlan, PlanOptions
from recovery.report import Outcome
from recovery.survey import Planned
from storage.errors import ConfigInvalid, ExitStatus, FileVanished, LogmendError, printable
from storage.fs import FileKind, Fs, OsFs, lock_log_dir


@dataclass(frozen=True, slots=True)
class Keeping:
    """What becomes of the bytes that are cut: kept beside the log, kept in `directory`, or, with `discard`, lost."""

    directory: PurePath | None = None
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """One log directory to bring into order; `agrees` raises `PlanStale` if the plan is not what was asked for."""

    target: Target
    options: PlanOptions
    agrees: Callable[[LogDirPlan], None] = lambda _: None


def add_keeping(parser: argparse.ArgumentParser) -> None:
    """Add where the copies of what is cut go."""
    parser.add_argument("--quarantine", metavar="DIR", help="keep copies of what is cut in DIR, on another volume")
    parser.add_argument("--discard", action="store_true", help="keep no copy of what is cut: it is lost for good")


def keeping_of(arguments: argparse.Namespace, settings: Settings, log_dirs: Iterable[PurePath]) -> Keeping:
    """Return where copies go; `ConfigInvalid` for both flags at once, and for a place inside a log directory."""
    if arguments.discard:
        if arguments.quarantine:
            raise ConfigInvalid("--discard keeps no copy, so --quarantine has nothing to keep: give one of them")
        return Keeping(discard=True)
    if settings.quarantine is None:
        return Keeping()
    place = absolute(settings.quarantine)
    if not place_exists(place):
        # Making it would write to the wrong volume where the right one is not mounted.
        raise ConfigInvalid(f"--quarantine {printable(place)}: no such directory; make it, or mount its volume")
    for log_dir in log_dirs:
        if place.is_relative_to(log_dir):
            # A broker takes every directory there for a partition, and does not start if its name is none.
            raise ConfigInvalid(f"--quarantine {printable(place)} lies in the log directory {printable(log_dir)}")
    return Keeping(place)


def place_exists(place: PurePath) -> bool:
    """Tell whether there is a directory of this name."""
    try:
        return OsFs().stat(place).kind is FileKind.DIRECTORY
    except FileVanished:
        return False


def carry_out_all(console: Console, settings: Settings, orders: Sequence[Order], keeping: Keeping) -> list[Outcome]:
    """Lock, plan and carry out. Locks are held until the last effect; one failure does not stop the others."""
    fs = OsFs()
    outcomes: dict[Target, Outcome] = {}
    with contextlib.ExitStack() as locks, reporting(console, settings) as reporter:
        work = Work(fs, reporter, settings.jobs)
        planned: dict[Target, Planned] = {}
        for order in orders:
            with _failing(order.target, outcomes):
                ensure_log_dir(fs, order.target.path)
                locks.enter_context(lock_log_dir(order.target.path))
                planned[order.target] = work.plan(order.target, order.options)
        mark_duplicates(list(planned.values()))
        for order in orders:
            if order.target in planned:
                with _failing(order.target, outcomes, planned[order.target].plan):
                    order.agrees(planned[order.target].plan)
                    outcomes[order.target] = _carry_out(fs, work, order, planned[order.target], keeping)
    return [outcomes[order.target] for order in orders]


@contextlib.contextmanager
def _failing(target: Target, outcomes: dict[Target, Outcome], plan: LogDirPlan | None = None) -> Iterator[None]:
    """Make the outcome of a target out of a fault, so that the next one has its turn."""
    try:
        yield
    except LogmendError as error:
        outcomes[target] = failure(target.path, error, plan)


def _carry_out(fs: Fs, work: Work, order: Order, planned: Planned, keeping: Keeping) -> Outcome:
    plan, path = planned.plan, order.target.path
    if plan.stopped:
        return Outcome(path, plan.status, plan)
    if plan.is_empty:
        return Outcome(path, _settled(plan), plan, done=0)
    orders = Orders(plan.plan_id, time.time_ns() // 1_000_000, _version(), keeping.directory, keeping.discard)
    done = execute(fs, plan, planned.contents_of, orders, work.reporter)
    after = work.plan(order.target, order.options).plan
    if after.stopped:
        return Outcome(path, after.status, plan, done=done.actions, bytes_quarantined=done.kept_bytes, after=after)
    if not after.is_empty:
        raise LogmendError(
            f"{printable(path)}: plan {plan.plan_id} was carried out, and a second look still finds work: plan "
            f"{after.plan_id}. Nothing that was cut is lost; do not start the broker"
        )
    return Outcome(path, _settled(after), plan, done=done.actions, bytes_quarantined=done.kept_bytes, after=after)


def _settled(plan: LogDirPlan) -> ExitStatus:
    """Return the status of a log directory for which nothing is left that could be done."""
    return ExitStatus.HELD if plan.is_held else ExitStatus.CLEAN


def _version() -> str:
    from cli.version import version  # noqa: PLC0415 (20 ms, which nothing to do must not cost)

    return version()
