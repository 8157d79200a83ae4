"""Plans log directories under their locks and carries the plans out: what `recover` and `apply` have in common."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cli.advice import next_step
from cli.console import Console
from cli.heal.heal import heal_round
from cli.progress import Show
from cli.recover.flags import Keeping
from cli.recover.guard_marks import FindMarks, no_marks
from cli.recover.work import Made, OwnFault, Work, failure, jobs_each, reporting
from cli.settings.settings import Settings
from cli.settings.targets import Target, ensure_logs
from cli.version import version
from daemon.service.systemd import Systemd
from recovery.apply.execute import Executed, execute
from recovery.apply.hand_over import hand_over
from recovery.apply.tails import keep_tails
from recovery.heal.healing import HealNote
from recovery.heal.replica import NO_REPLICAS, Replicas
from recovery.logdir.survey import LIST_ALL, Planned
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan, PlanOptions, ReplaceFile
from recovery.plan.words import count
from recovery.report.outcome import Outcome, command
from storage.base.errors import (
    DiskFull,
    ExitStatus,
    LogmendError,
    NoRoom,
    PlanStale,
    printable,
)
from storage.codec.compression import load_codecs
from storage.disk.fs import Fs, OsFs, lock_log_dir

_EXTENSION_SECONDS: Final = 600.0
"""So long a recovery may stand still under systemd, once its own time-out is over."""
_ENDS: Final = {ExitStatus.CLEAN: "done", ExitStatus.HELD: "held", ExitStatus.IN_USE: "in use"}
_APPLY_THREADS: Final = 8
"""Partitions that are worked on at a time; they mostly wait for syncs, so that is no matter of processors."""


class Order(NamedTuple):
    """One log directory to bring into order; `agrees` raises `PlanStale` if the plan is not what was asked for.

    With `keep_points` the recovery points stay where they are. `keep_tail`: how many bytes of log ends
    are copied, for `keep_days`.
    """

    target: Target
    options: PlanOptions
    agrees: Callable[[LogDirPlan], None] = lambda _: None
    keep_points: bool = False
    replicas: Replicas = NO_REPLICAS
    keep_tail: int = 0
    keep_days: int = 0


def carry_out_all(
    console: Console,
    settings: Settings,
    orders: Sequence[Order],
    keeping: Keeping,
    find_marks: FindMarks = no_marks,
) -> list[Outcome]:
    """Lock, plan, carry out and look again. Locks are held to the end; one that fails does not stop the others."""
    load_codecs()
    fs = OsFs()
    outcomes: dict[Target, Outcome] = {}
    with contextlib.ExitStack() as locks, reporting(console, settings, show := supervisor()) as reporter:
        work = Work(fs, reporter, jobs_each(settings, len(orders)), list_ahead=LIST_ALL, find_marks=find_marks)
        locked = [order for order in orders if _is_locked(fs, locks, order.target, outcomes)]
        made = work.plan_all([(order.target, order.options) for order in locked])
        notes = {order.target: _healed(fs, work, order, made, keeping) for order in locked if order.replicas.sources}
        done = {}
        for order in locked:
            outcomes[order.target] = _carry_out(fs, work, order, made[order.target], keeping)
            if outcomes[order.target].done:
                done[order.target] = order.options
        second = work if any(map(_touches_logs, outcomes.values())) else work.in_one_thread()
        for target, again in second.plan_all(list(done.items())).items():
            first = outcomes[target].plan
            if first is not None and first.is_first_of_two and isinstance(again, Planned):
                order = Order(target, done[target])
                outcomes[target] = _added(outcomes[target], _carry_out(fs, work, order, again, keeping, 1))
                again = work.plan_all([(target, order.options)])[target]  # noqa: PLW2901 (a third look)
            outcomes[target] = _looked_again(outcomes[target], again)
        for order in locked:
            outcome = outcomes[order.target]._replace(healing=notes.get(order.target, ()))
            outcomes[order.target] = _handed_over(fs, work, order, outcome, keeping)
    if show is not None:
        show("; ".join(f"{printable(each.path)}: {_ENDS.get(each.status, 'failed')}" for each in outcomes.values()))
    return [outcomes[order.target] for order in orders]


def _touches_logs(outcome: Outcome) -> bool:
    """Tell whether some logs are no longer what was read, so that they will be read again."""
    plan = outcome.plan
    actions = [] if plan is None else [action for each in plan.partitions for action in each.actions]
    return not all(isinstance(action, ReplaceFile) for action in actions)


def supervisor() -> Show | None:
    """Return what reports progress to systemd and extends its time-out; None if systemd did not ask."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    systemd = Systemd.of(os.environ)

    def show(line: str) -> None:
        systemd.status(line)
        systemd.extend(_EXTENSION_SECONDS)

    return show


def _is_locked(fs: Fs, locks: contextlib.ExitStack, target: Target, outcomes: dict[Target, Outcome]) -> bool:
    try:
        ensure_logs(fs, target.path)
        locks.enter_context(lock_log_dir(target.path))
    except LogmendError as error:
        outcomes[target] = failure(target.path, error)
        return False
    return True


def _healed(fs: Fs, work: Work, order: Order, made: dict[Target, Made], keeping: Keeping) -> tuple[HealNote, ...]:
    """Fill holes round by round, until nothing is left that can be filled; `made` gets the plan of what remains."""
    filled: list[HealNote] = []
    orders = Orders("", 0, version(), keeping.directory, keeping.discard)
    while isinstance(planned := made[order.target], Planned):
        try:
            done, notes = heal_round(fs, planned.plan, order.replicas, orders, work.reporter)
        except LogmendError as error:
            made[order.target] = error
            break
        filled += [note for note in notes if note.healed] if done else []
        if not done:
            return (*filled, *notes)
        made |= work.plan_all([(order.target, order.options)])
    return tuple(filled)


def _carry_out(fs: Fs, work: Work, order: Order, made: Made, keeping: Keeping, later_ms: int = 0) -> Outcome:
    """Carry out one plan; `later_ms` makes sure that what follows from a plan is told to be later than that."""
    path = order.target.path
    if not isinstance(made, Planned):
        return failure(path, made)
    plan = made.plan
    done = Executed(plan.plan_id)
    try:
        order.agrees(plan)
        if plan.stopped:
            return Outcome(path, plan.status, plan)
        if plan.is_empty:
            return Outcome(path, _settled(plan), plan, done=0)
        now_ms = time.time_ns() // 1_000_000 + later_ms
        orders = Orders(plan.plan_id, now_ms, version(), keeping.directory, keeping.discard)
        contents, reporter = made.content_of, work.reporter
        execute(fs, plan, contents, orders, reporter, threads=_APPLY_THREADS, together=True, done=done)
        work.synced.setdefault(order.target, set()).update(done.synced)
    except PlanStale as error:
        # A file that could not be read is no sign that it has changed: the finding says why, with status 5.
        return Outcome(path, plan.status, plan) if plan.status is ExitStatus.ENVIRONMENT else failure(path, error, plan)
    except LogmendError as error:
        return _stopped(failure(path, error, plan), done, keeping)
    except Exception as error:  # noqa: BLE001 (what is wrong with us in one place must not stop the others)
        return _stopped(failure(path, OwnFault(path, error), plan), done, keeping)
    return Outcome(
        path, ExitStatus.CLEAN, plan, done=done.actions, bytes_quarantined=done.kept_bytes, plan_id=done.plan_id
    )


def _stopped(outcome: Outcome, done: Executed, keeping: Keeping) -> Outcome:
    """Return the outcome of a plan that an error ended, with what had been done by then."""
    if done.changing:
        return outcome._replace(partly="ended in the middle, as a crash would; recover again finishes it")
    if done.freed:
        where = "removed" if keeping.directory is None else f"moved to {printable(keeping.directory)}"
        return outcome._replace(partly=f"{count(done.freed, 'leftover file')} {where}, nothing else done")
    return outcome


def _added(first: Outcome, second: Outcome) -> Outcome:
    """Return the outcome of a plan and of the one that follows from it; the first is the one to be told."""
    done = (first.done or 0) + (second.done or 0)
    kept = first.bytes_quarantined + second.bytes_quarantined
    return second._replace(plan=first.plan, plan_id=first.plan_id, done=done, bytes_quarantined=kept)


def _looked_again(outcome: Outcome, again: Made) -> Outcome:
    """Return the outcome with what a second look found; there must be nothing left to do."""
    if outcome.error is not None:
        return outcome
    if not isinstance(again, Planned):
        return outcome._replace(status=again.status, error=again, hint=next_step(again))
    after = _with_held(again.plan, outcome.plan)
    if after.is_empty:
        return outcome._replace(status=after.status if after.stopped else _settled(after), after=after)
    error = LogmendError(
        f"{printable(outcome.path)}: its plan was carried out, and a second look still finds work: plan "
        f"{after.plan_id}. Nothing that was cut is lost; do not start the broker"
    )
    hint = f"please report it, with what this shows: {command('plan', outcome.path)}"
    return outcome._replace(status=error.status, after=after, error=error, hint=hint)


def _with_held(after: LogDirPlan, before: LogDirPlan | None) -> LogDirPlan:
    """Return the plan of the second look with every partition that the first one held.

    Beside a marker that stays, the second look reads less than the first, which had to read for its own repairs.
    """
    held = {} if before is None else {each.partition: each for each in before.partitions if each.held}
    partitions = (each if each.held else held.get(each.partition, each) for each in after.partitions)
    return after._replace(partitions=tuple(partitions))


def _handed_over(fs: Fs, work: Work, order: Order, outcome: Outcome, keeping: Keeping) -> Outcome:
    """Raise the recovery points of a log directory that is in order; without room for that it stays as recovered."""
    plan = outcome.after or outcome.plan
    if order.keep_points or outcome.done is None or outcome.error is not None or plan is None:
        return outcome
    if plan.stopped or not plan.is_empty:
        return outcome
    later_ms = 2  # than what one plan, or two, have done just now
    now_ms = time.time_ns() // 1_000_000 + later_ms
    orders = Orders(
        "", now_ms, version(), keeping.directory, keeping.discard
    )  # what is done there has plans of its own
    try:
        marker = order.options.clean_marker
        synced = work.synced.get(order.target, set())
        handed = hand_over(fs, plan, orders, work.reporter, marker=marker, threads=_APPLY_THREADS, synced=synced)
    except (NoRoom, DiskFull) as error:
        return outcome._replace(hint=f"make room: the recovery points stay as they were, and all else is done: {error}")
    except LogmendError as error:
        return outcome._replace(status=error.status, error=error, hint=next_step(error))
    return _tails_kept(fs, work, order, outcome._replace(handed=handed), orders._replace(created_ms=now_ms + 1))


def _tails_kept(fs: Fs, work: Work, order: Order, outcome: Outcome, orders: Orders) -> Outcome:
    plan = outcome.after or outcome.plan
    if not order.keep_tail or plan is None:
        return outcome
    try:
        kept = keep_tails(fs, plan, orders, work.reporter, most_bytes=order.keep_tail, days=order.keep_days)
    except LogmendError as error:
        return outcome._replace(hint=f"the tails were not kept: {error}")
    return outcome._replace(tails=kept)


def _settled(plan: LogDirPlan) -> ExitStatus:
    """Return the status of a log directory for which nothing is left that could be done."""
    return ExitStatus.HELD if plan.is_held else ExitStatus.CLEAN
