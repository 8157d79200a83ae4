"""Plans log directories under their locks and carries the plans out: what `recover` and `apply` have in common."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cli.advice import next_step
from cli.console import Console
from cli.heal.heal import heal_round
from cli.progress import Show
from cli.recover.flags import Keeping
from cli.recover.guard_marks import FindMarks, no_marks
from cli.recover.outcomes import added, looked_again, settled, stopped, touches_logs
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
from recovery.plan.plan import LogDirPlan, PlanOptions
from recovery.report.outcome import Outcome
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
    with contextlib.ExitStack() as locks, reporting(console, settings, show := supervisor()) as reporter:
        work = Work(fs, reporter, jobs_each(settings, len(orders)), list_ahead=LIST_ALL, find_marks=find_marks)
        refused = {order.target: refusal for order in orders if (refusal := _lock(fs, locks, order.target)) is not None}
        locked = [order for order in orders if order.target not in refused]
        outcomes = refused | _Recovery(fs, work, keeping).run(locked)
    if show is not None:
        ends = (f"{printable(end.path)}: {_ENDS.get(end.status, 'failed')}" for end in outcomes.values())
        show("; ".join(ends))
    return [outcomes[order.target] for order in orders]


def supervisor() -> Show | None:
    """Return what reports progress to systemd and extends its time-out; None if systemd did not ask."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    systemd = Systemd.of(os.environ)

    def show(line: str) -> None:
        systemd.status(line)
        systemd.extend(_EXTENSION_SECONDS)

    return show


def _lock(fs: Fs, locks: contextlib.ExitStack, target: Target) -> Outcome | None:
    """Lock a log directory until `locks` ends; return the outcome of one that cannot be locked or has no logs."""
    try:
        ensure_logs(fs, target.path)
        locks.enter_context(lock_log_dir(target.path))
    except LogmendError as error:
        return failure(target.path, error)
    return None


class _Recovery:
    """The steps of a recovery, each for one locked log directory: heal, carry out, hand over."""

    def __init__(self, fs: Fs, work: Work, keeping: Keeping) -> None:
        self._fs, self._work, self._keeping = fs, work, keeping

    def run(self, orders: Sequence[Order]) -> dict[Target, Outcome]:
        """Take all log directories through one step before any goes on to the next: they are planned side by side."""
        made = self._work.plan_all([(order.target, order.options) for order in orders])
        notes: dict[Target, tuple[HealNote, ...]] = {}
        for order in orders:
            if order.replicas.sources:
                made[order.target], notes[order.target] = self._heal(order, made[order.target])
        first = {order.target: self._carry_out(order, made[order.target]) for order in orders}
        last = first | self._look_again([order for order in orders if first[order.target].done], first)
        return {
            order.target: self._hand_over(order, last[order.target]._replace(healing=notes.get(order.target, ())))
            for order in orders
        }

    def _look_again(self, orders: Sequence[Order], first: Mapping[Target, Outcome]) -> dict[Target, Outcome]:
        """Plan again where something was done, and carry out the second of two plans; nothing may be left then."""
        work = self._work if any(map(touches_logs, first.values())) else self._work.in_one_thread()
        plans = work.plan_all([(order.target, order.options) for order in orders])
        outcomes = {}
        for order in orders:
            outcome, again = first[order.target], plans[order.target]
            if outcome.plan is not None and outcome.plan.is_first_of_two and isinstance(again, Planned):
                # `agrees` judged the first plan; this one follows from it.
                outcome = added(outcome, self._carry_out(Order(order.target, order.options), again, later_ms=1))
                again = self._work.plan_all([(order.target, order.options)])[order.target]  # a third look
            outcomes[order.target] = looked_again(outcome, again)
        return outcomes

    def _heal(self, order: Order, made: Made) -> tuple[Made, tuple[HealNote, ...]]:
        """Fill holes round by round, until nothing is left that can be filled; return the plan of what remains."""
        filled: list[HealNote] = []
        orders = Orders("", 0, version(), self._keeping.directory, self._keeping.discard)
        while isinstance(made, Planned):
            try:
                is_healed, notes = heal_round(self._fs, made.plan, order.replicas, orders, self._work.reporter)
            except LogmendError as error:
                return error, tuple(filled)
            if not is_healed:
                return made, (*filled, *notes)
            filled += [note for note in notes if note.healed]
            made = self._work.plan_all([(order.target, order.options)])[order.target]
        return made, tuple(filled)

    def _carry_out(self, order: Order, made: Made, later_ms: int = 0) -> Outcome:
        """Carry out one plan; `later_ms` makes sure that what follows from a plan is told to be later than that."""
        path, keeping = order.target.path, self._keeping
        if not isinstance(made, Planned):
            return failure(path, made)
        plan = made.plan
        effects = Executed(plan.plan_id)
        try:
            order.agrees(plan)
            if plan.stopped:
                return Outcome(path, plan.status, plan)
            if plan.is_empty:
                return Outcome(path, settled(plan), plan, done=0)
            now_ms = time.time_ns() // 1_000_000 + later_ms
            orders = Orders(plan.plan_id, now_ms, version(), keeping.directory, keeping.discard)
            contents, reporter = made.content_of, self._work.reporter
            execute(self._fs, plan, contents, orders, reporter, threads=_APPLY_THREADS, together=True, effects=effects)
            self._work.synced.setdefault(order.target, set()).update(effects.synced)
        except PlanStale as error:
            # A file that could not be read is no sign that it has changed: the finding says why, with status 5.
            if plan.status is ExitStatus.ENVIRONMENT:
                return Outcome(path, plan.status, plan)
            return failure(path, error, plan)
        except LogmendError as error:
            return stopped(failure(path, error, plan), effects, keeping)
        except Exception as error:  # noqa: BLE001 (what is wrong with us in one place must not stop the others)
            return stopped(failure(path, OwnFault(path, error), plan), effects, keeping)
        done, size = effects.actions, effects.kept_bytes
        return Outcome(path, ExitStatus.CLEAN, plan, done=done, bytes_quarantined=size, plan_id=effects.plan_id)

    def _hand_over(self, order: Order, outcome: Outcome) -> Outcome:
        """Raise the recovery points of a log directory that is in order; without room for that it stays as it is."""
        plan = outcome.after or outcome.plan
        if order.keep_points or outcome.done is None or outcome.error is not None or plan is None:
            return outcome
        if plan.stopped or not plan.is_empty:
            return outcome
        later_ms = 2  # than what one plan, or two, have done just now
        now_ms = time.time_ns() // 1_000_000 + later_ms
        # What is done there has plans of its own.
        orders = Orders("", now_ms, version(), self._keeping.directory, self._keeping.discard)
        reporter, marker = self._work.reporter, order.options.clean_marker
        synced = self._work.synced.get(order.target, set())
        try:
            handed = hand_over(self._fs, plan, orders, reporter, marker=marker, threads=_APPLY_THREADS, synced=synced)
        except (NoRoom, DiskFull) as error:
            hint = f"make room: the recovery points stay as they were, and all else is done: {error}"
            return outcome._replace(hint=hint)
        except LogmendError as error:
            return outcome._replace(status=error.status, error=error, hint=next_step(error))
        outcome = outcome._replace(handed=handed)
        return self._keep_tails(order, outcome, plan, orders._replace(created_ms=now_ms + 1))

    def _keep_tails(self, order: Order, outcome: Outcome, plan: LogDirPlan, orders: Orders) -> Outcome:
        if not order.keep_tail:
            return outcome
        limit, days, reporter = order.keep_tail, order.keep_days, self._work.reporter
        try:
            tails = keep_tails(self._fs, plan, orders, reporter, most_bytes=limit, days=days)
        except LogmendError as error:
            return outcome._replace(hint=f"the tails were not kept: {error}")
        return outcome._replace(tails=tails)
