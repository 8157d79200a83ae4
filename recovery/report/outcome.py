"""What came of one log directory, and the command to try next."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from recovery.plan.findings import Damage, Finding, Severity
from recovery.plan.plan import Coverage, LogDirPlan, Verdict
from recovery.report.command_line import Flags, command
from storage.base.errors import ExitStatus, LogmendError

if TYPE_CHECKING:
    from recovery.heal.healing import HealNote
    from recovery.plan.results import HandedOver, KeptTails

HELD_LOGS: Final = ("f", "f?")
"""Rows of the decision table that hold a log: a replica or `--accept-loss` ends the hold."""


ACCEPTED_LOSSES: Final = ("f accepted", "f? accepted")
"""Rows that cut what was flushed."""


class Outcome(NamedTuple):
    """What came of one log directory, partition directory or file.

    `in_use`: another process held the lock while this one only read. `done` counts the actions that were carried out,
    None where the command carries none out. `after` is the plan of the second look. `findings` are those of a single
    file, which has no plan. `error` is what ended the work early. `handed`: what the hand-over did.
    """

    path: PurePath
    status: ExitStatus
    plan: LogDirPlan | None = None
    in_use: bool = False
    done: int | None = None
    bytes_quarantined: int = 0
    after: LogDirPlan | None = None
    findings: tuple[Finding, ...] | None = None
    error: LogmendError | None = None
    hint: str = ""
    handed: HandedOver | None = None
    healing: tuple[HealNote, ...] = ()
    tails: KeptTails | None = None
    plan_id: str = ""
    """Of the plan, where it is at hand: it takes as long to find as the plan is large."""
    partly: str = ""
    """What had been done when an error ended the work; empty where that was nothing."""
    flags: Flags = Flags()


def scanned_bytes(plan: LogDirPlan) -> int:
    """Return the bytes of logs that were read for a plan, without those that a guard had read."""
    return sum(max(partition.scanned_bytes - partition.coverage.marked, 0) for partition in plan.partitions)


def coverage_of(plan: LogDirPlan) -> Coverage:
    """Return how much of the logs of all partitions was read."""
    each = [partition.coverage for partition in plan.partitions]
    unflushed, flushed, unread, marked = (sum(one[field] or 0 for one in each) for field in range(4))
    ages = [one.marked_age_ms for one in each if one.marked]
    oldest = max((age for age in ages if age is not None), default=None)
    return Coverage(unflushed, flushed, unread, marked, None if None in ages else oldest)


def left_alone(plan: LogDirPlan) -> list[Verdict]:
    """Return the findings that matter and that the plan does nothing about: held, stopped at, or past repair."""
    return [
        verdict
        for verdict in plan.all_verdicts()
        if verdict.decision in ("hold", "stop", "nothing") and verdict.finding.kind.severity is not Severity.NOTE
    ]


def root_of(plan: LogDirPlan) -> PurePath:
    """Return the log directory of a plan, also where it was made for one partition's directory alone."""
    if any(partition.directory == plan.log_dir for partition in plan.partitions):
        return plan.log_dir.parent
    return plan.log_dir


def next_steps(outcome: Outcome, before: str = "plan") -> list[str]:
    """Return what to try next, the best first; `before` is the command that comes before recovering.

    A step is a command to the end of its line, maybe behind words that say what for: so a line can be pasted.
    """
    if outcome.hint:
        return [outcome.hint]
    plan = outcome.after or outcome.plan
    if plan is None or plan.status is ExitStatus.CLEAN:
        return []
    if plan.status is ExitStatus.UNSUPPORTED:
        return ["a newer logmend may know this format; nothing was or will be cut because of it"]
    if plan.status is ExitStatus.ENVIRONMENT:
        return ["see what the kernel says of this disk (dmesg); nothing was or will be cut because of it"]
    log_dir, flags = root_of(plan), outcome.flags
    if outcome.in_use:
        return [f"stop the broker, then {command('recover', *flags.of('recover'), log_dir)}"]
    if not plan.is_empty:
        return [command(before, *flags.of(before), log_dir)]
    held = [verdict for verdict in plan.all_verdicts() if verdict.decision == "hold"]
    if any(verdict.row in HELD_LOGS for verdict in held):
        return [*ways_out(log_dir, flags)]
    if any(verdict.finding.kind is Damage.EPOCHS_LOST for verdict in held):
        return [ways_out(log_dir, flags)[0]]  # a replica knows them; no loss that is accepted brings them back
    if held:
        return [f"see to what is blocking, then {command('verify', *flags.of('verify'), log_dir)}"]
    return []


def ways_out(log_dir: PurePath, flags: Flags) -> tuple[str, str]:
    """Return the two steps for damage that is held in a log: fill it from a replica, or accept the loss.

    The depth is always named: what was not read when the damage was found must not be cut unseen.
    """
    depth = () if "--depth" in flags.looking else ("--depth", "quick")
    words = ("recover", *depth, *flags.of("recover"))
    return (
        f"to fill it from a replica, a directory or HOST:PORT: {command(*words, '--heal-from', 'REPLICA', log_dir)}",
        f"to cut what is held in a log, keeping a copy: {command(*words, '--accept-loss', log_dir)}",
    )
