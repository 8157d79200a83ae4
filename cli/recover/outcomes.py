"""Pure steps from one outcome of a log directory to the next: carried out, stopped in the middle, looked at again."""

from __future__ import annotations

from cli.advice import next_step
from cli.recover.flags import Keeping
from cli.recover.work import Made
from recovery.apply.execute import Executed
from recovery.logdir.survey import Planned
from recovery.plan.plan import LogDirPlan, ReplaceFile
from recovery.plan.words import count
from recovery.report.command_line import command
from recovery.report.outcome import Outcome
from storage.base.errors import ExitStatus, LogmendError, printable


def settled(plan: LogDirPlan) -> ExitStatus:
    """Return the status of a log directory for which nothing is left that could be done."""
    return ExitStatus.HELD if plan.is_held else ExitStatus.CLEAN


def touches_logs(outcome: Outcome) -> bool:
    """Tell whether some logs are no longer what was read, so that they will be read again."""
    plan = outcome.plan
    actions = [] if plan is None else [action for each in plan.partitions for action in each.actions]
    return not all(isinstance(action, ReplaceFile) for action in actions)


def stopped(outcome: Outcome, done: Executed, keeping: Keeping) -> Outcome:
    """Return the outcome of a plan that an error ended, with what had been done by then."""
    if done.changing:
        return outcome._replace(partly="ended in the middle, as a crash would; recover again finishes it")
    if done.freed:
        where = "removed" if keeping.directory is None else f"moved to {printable(keeping.directory)}"
        return outcome._replace(partly=f"{count(done.freed, 'leftover file')} {where}, nothing else done")
    return outcome


def added(first: Outcome, second: Outcome) -> Outcome:
    """Return the outcome of a plan and of the one that follows from it; the first is the one to be told."""
    done = (first.done or 0) + (second.done or 0)
    kept = first.bytes_quarantined + second.bytes_quarantined
    return second._replace(plan=first.plan, plan_id=first.plan_id, done=done, bytes_quarantined=kept)


def looked_again(outcome: Outcome, again: Made) -> Outcome:
    """Return the outcome with what a second look found; there must be nothing left to do."""
    if outcome.error is not None:
        return outcome
    if not isinstance(again, Planned):
        return outcome._replace(status=again.status, error=again, hint=next_step(again))
    after = again.plan
    if after.is_empty:
        return outcome._replace(status=after.status if after.stopped else settled(after), after=after)
    error = LogmendError(
        f"{printable(outcome.path)}: its plan was carried out, and a second look still finds work: plan "
        f"{after.plan_id}. Nothing that was cut is lost; do not start the broker"
    )
    hint = f"please report it, with what this shows: {command('plan', outcome.path)}"
    return outcome._replace(status=error.status, after=after, error=error, hint=hint)
