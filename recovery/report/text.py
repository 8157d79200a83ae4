"""What `verify`, `plan` and `recover` say of one log directory: text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from recovery.plan.findings import Finding, Severity
from recovery.plan.plan import (
    Action,
    LogDirPlan,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    TruncateTo,
    Verdict,
    rising_points,
)
from recovery.plan.words import count, full_size, grouped
from recovery.report.notes import handed_text, heal_row, tails_text
from recovery.report.outcome import Outcome, left_alone, next_command, root_of, scanned_bytes
from recovery.report.rows import Style, action_row, cut_row, findings_text, plain, rows_text, table
from storage.base.errors import ExitStatus, printable

_SEVERITY_WORDS: Final = {
    Severity.NOTE: ("note", "notes"),
    Severity.REPAIRABLE: ("repairable", "repairable"),
    Severity.DAMAGE: ("damaged log", "damaged logs"),
    Severity.BLOCKING: ("blocking", "blocking"),
}


def _severities(plan: LogDirPlan) -> str:
    counts = Counter(finding.kind.severity for finding in plan.findings)
    parts = [count(counts[kind], *words) for kind, words in reversed(_SEVERITY_WORDS.items()) if counts[kind]]
    return ", ".join(parts) or "nothing found"


def summary_line(plan: LogDirPlan, style: Style = plain) -> str:
    """Return the line that sums up what was found in a log directory."""
    affected = sum(1 for partition in plan.partitions if partition.verdicts)
    clean = plan.status is ExitStatus.CLEAN
    where = f" in {grouped(affected)} of {count(len(plan.partitions), 'partition')}" if affected else ""
    where = where or f", {count(len(plan.partitions), 'partition')}"
    verdict = style("clean", "good") if clean else style("not clean", "damage")
    return f"{printable(plan.log_dir)}: {verdict}: {_severities(plan)}{where}, {full_size(scanned_bytes(plan))} read"


def _tail(outcome: Outcome, before: str = "recover") -> list[str]:
    """Return the closing lines; an error is told on another stream, with its own advice."""
    lines = []
    if outcome.in_use:
        lines.append("  its .lock is held: a broker may change files while they are read, and a torn tail may be none")
    step = "" if outcome.error is not None else next_command(outcome, before)
    return [*lines, f"next: {step}"] if step else lines


def verify_text(outcome: Outcome, style: Style = plain) -> str:
    """Return what `verify` says of one log directory."""
    lines = []
    if outcome.plan is not None:
        plan = outcome.plan
        lines = [summary_line(plan, style), *findings_text(plan.all_verdicts(), root_of(plan), style)]
    if outcome.findings is not None:
        lines = _file_lines(outcome.path, outcome.findings, outcome.status, style)
    return "\n".join([*lines, *_tail(outcome, "plan")])


def _file_lines(path: PurePath, findings: Sequence[Finding], status: ExitStatus, style: Style) -> list[str]:
    verdict = style("clean", "good") if status is ExitStatus.CLEAN else style("not clean", "damage")
    verdicts = [Verdict(finding, "", "nothing") for finding in findings]
    number = count(len(findings), "finding") if findings else "nothing found"
    return [f"{printable(path)}: {verdict}: {number}", *findings_text(verdicts, path.parent.parent, style)]


def _partition_lines(partition: RecoveryPlan, style: Style) -> list[str]:
    title = printable(partition.directory.name)
    if partition.loaded is not None:
        title += f"  offsets {partition.loaded.log_start} to {partition.loaded.log_end}"
    if partition.held:
        title += style("  held: left as it is", "blocking")
    cut_paths = {(cut.path, cut.position) for cut in partition.cuts}
    rows = [cut_row(cut) for cut in partition.cuts]
    rows += [action_row(action) for action in partition.actions if not _told_by_cut(action, cut_paths)]
    return ["  " + style(title, "title"), *("  " + line for line in rows_text(rows))]


def _told_by_cut(action: Action, cuts: set[tuple[PurePath, int]]) -> bool:
    if isinstance(action, Quarantine):
        return (action.path, action.position) in cuts
    return isinstance(action, TruncateTo) and (action.path, action.size) in cuts


def _group(title: str, actions: Sequence[Action], style: Style) -> list[str]:
    lines = ["  " + line for line in rows_text(action_row(action) for action in actions)]
    return ["  " + style(title, "title"), *lines] if lines else []


def totals_text(plan: LogDirPlan) -> str:
    """Return the sums of a plan: what is cut, rewritten, set aside, held."""
    actions = [*plan.before, *plan.after, *(action for each in plan.partitions for action in each.actions)]
    cuts = [cut for partition in plan.partitions for cut in partition.cuts]
    kinds = Counter(type(action) for action in actions)
    held = sum(partition.held for partition in plan.partitions)
    told = (
        (len(cuts), f"{count(len(cuts), 'cut')} of {full_size(sum(cut.size for cut in cuts))}"),
        (kinds[ReplaceFile], f"{count(kinds[ReplaceFile], 'file')} rewritten"),
        (kinds[SetAside], f"{count(kinds[SetAside], 'file')} set aside"),
        (kinds[Rename], f"{count(kinds[Rename], 'file')} renamed"),
        (held, f"{count(held, 'partition')} held"),
    )
    return ", ".join(text for number, text in told if number) or "nothing to do"


def plan_text(outcome: Outcome, style: Style = plain) -> str:
    """Return what `plan` says of one log directory: what would be cut, rebuilt, set aside, and why."""
    plan = outcome.plan
    if plan is None:
        return "\n".join(_tail(outcome))
    lines = [f"{printable(plan.log_dir)}: plan {plan.plan_id}: {totals_text(plan)}"]
    lines += _healing_lines(outcome, style)
    lines += _group("first", plan.before, style)
    for partition in plan.partitions:
        if partition.actions or partition.held:
            lines += _partition_lines(partition, style)
    lines += _group("last", plan.after, style)
    if rising := rising_points(plan):
        lines += ["  " + style("then", "title"), f"    {count(len(rising), 'recovery point')} may rise to the log end"]
    lines += findings_text(left_alone(plan), root_of(plan), style)
    return "\n".join([*lines, *_tail(outcome)])


def recover_text(outcome: Outcome, style: Style = plain) -> str:
    """Return what `recover` and `apply` say when they are through with one log directory."""
    plan = outcome.plan
    if plan is None:
        return "\n".join(_tail(outcome))
    word = {ExitStatus.CLEAN: ("clean", "good"), ExitStatus.HELD: ("held", "blocking")}
    verdict = style(*word.get(outcome.status, (f"not recovered (exit status {outcome.status.value})", "damage")))
    lines = [f"{printable(plan.log_dir)}: {verdict}: {_done_text(outcome, plan)}"]
    lines += _healing_lines(outcome, style)
    if outcome.done is not None:
        for partition in plan.partitions:
            title = ["  " + style(printable(partition.directory.name), "title")] if partition.cuts else []
            lines += [*title, *("  " + line for line in rows_text(cut_row(cut) for cut in partition.cuts))]
    shown = outcome.after or plan
    lines += findings_text(left_alone(shown), root_of(shown), style)
    if outcome.handed is not None:
        lines.append("  " + handed_text(outcome.handed))
    if outcome.tails is not None:
        lines.append("  " + tails_text(outcome.tails))
    return "\n".join([*lines, *_tail(outcome)])


def _healing_lines(outcome: Outcome, style: Style) -> list[str]:
    if not outcome.healing:
        return []
    done, styles = outcome.done is not None, ["good" if note.healed else "damage" for note in outcome.healing]
    return list(table([heal_row(note, done=done) for note in outcome.healing], styles, style))


def _done_text(outcome: Outcome, plan: LogDirPlan) -> str:
    if outcome.done is None:
        return f"nothing done; {full_size(scanned_bytes(plan))} read"
    healed = sum(note.healed for note in outcome.healing)
    if plan.is_empty and healed:
        return f"{count(healed, 'hole')} healed from a replica"
    if plan.is_empty:
        return f"nothing to do; {count(len(plan.partitions), 'partition')}, {full_size(scanned_bytes(plan))} read"
    kept = f", {full_size(outcome.bytes_quarantined)} kept in quarantine" if outcome.bytes_quarantined else ""
    return f"{totals_text(plan)} by plan {outcome.plan_id or plan.plan_id}{kept}"
