"""What came of one log directory, the exit status of several, and the command to try next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from recovery.plan.findings import Finding, Severity
from recovery.plan.plan import LogDirPlan, Verdict
from storage.base.errors import ExitStatus, LogmendError, printable

if TYPE_CHECKING:
    from recovery.heal.healing import HealNote
    from recovery.plan.results import HandedOver, KeptTails

_WORST_FIRST: Final = (
    ExitStatus.INTERRUPTED,
    ExitStatus.TERMINATED,
    ExitStatus.BUG,
    ExitStatus.USAGE,
    ExitStatus.ENVIRONMENT,
    ExitStatus.UNSUPPORTED,
    ExitStatus.STALE,
    ExitStatus.IN_USE,
    ExitStatus.HELD,
    ExitStatus.FINDINGS,
    ExitStatus.CLEAN,
)


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


def worst(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """Return the status that several together end with; none at all is clean."""
    return min(statuses, key=_WORST_FIRST.index, default=ExitStatus.CLEAN)


def scanned_bytes(plan: LogDirPlan) -> int:
    """Return the bytes of logs that were read for a plan."""
    return sum(partition.scanned_bytes for partition in plan.partitions)


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


def command(*words: object) -> str:
    """Return a command line that a shell would read as these words."""
    return " ".join(shlex.quote(printable(word)) for word in ("logmend", *words))


def next_command(outcome: Outcome, before: str = "plan") -> str:
    """Return what to try next, empty if nothing needs to be; `before` is the command that comes before recovering."""
    if outcome.hint:
        return outcome.hint
    plan = outcome.after or outcome.plan
    if plan is None or plan.status is ExitStatus.CLEAN:
        return ""
    if plan.status is ExitStatus.UNSUPPORTED:
        return "a newer logmend may know this format; nothing was or will be cut because of it"
    if plan.status is ExitStatus.ENVIRONMENT:
        return "see what the kernel says of this disk (dmesg); nothing was or will be cut because of it"
    log_dir = root_of(plan)
    if outcome.in_use:
        return f"stop the broker, then {command('recover', log_dir)}"
    if not plan.is_empty:
        return command(before, log_dir)
    if any(partition.held for partition in plan.partitions):
        return command("recover", "--accept-loss", log_dir) + " cuts what is held in a log, keeping a copy"
    return ""
