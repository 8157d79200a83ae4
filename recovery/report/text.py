"""What `verify`, `plan` and `recover` say of one log directory: text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from recovery.plan.findings import Finding, Severity
from recovery.plan.plan import (
    Action,
    Coverage,
    LogDirPlan,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    TruncateTo,
    Verdict,
    rising_points,
    rolling_segments,
)
from recovery.plan.words import count, full_size, grouped, short_size
from recovery.report.notes import handed_text, heal_row, rolls_text, tails_text
from recovery.report.outcome import Outcome, coverage_of, left_alone, next_steps, root_of, scanned_bytes
from recovery.report.rows import Style, action_row, cut_row, findings_text, loss_lines, plain, rows_text, table
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
    if not plan.partitions:
        return f"{printable(plan.log_dir)}: {nothing_read(plan)}; {_severities(plan)}"
    where = f" in {grouped(affected)} of {count(len(plan.partitions), 'partition')}" if affected else ""
    where = where or f", {count(len(plan.partitions), 'partition')}"
    head = f"{printable(plan.log_dir)}: "
    coverage = coverage_of(plan)
    if plan.status is ExitStatus.CLEAN and (coverage.unread or coverage.marked):
        return f"{head}{clean_text(plan, style)}{_severities(plan)}{where}"
    verdict = clean_text(plan, style) if plan.status is ExitStatus.CLEAN else style("not clean", "damage") + ": "
    marked = f"; {marked_text(coverage)}" if coverage.marked else ""
    return f"{head}{verdict}{_severities(plan)}{where}, {full_size(scanned_bytes(plan))} read{marked}"


def clean_text(plan: LogDirPlan, style: Style = plain) -> str:
    """Return `clean: ` if every log was read whole, else `clean as far as read: `, how far that is, and `; `.

    What a guard has verified is told apart from what was read.
    """
    coverage = coverage_of(plan)
    if not coverage.unread and not coverage.marked:
        return style("clean", "good") + ": "
    parts = ((coverage.unflushed - coverage.marked, "unflushed"), (coverage.flushed, "flushed"))
    read = " and ".join(f"{short_size(size)} {which}" for size, which in parts if size) or "the ends of logs"
    others = "".join(f"{text}; " for text in (marked_text(coverage), unread_text(coverage)) if text)
    return f"{style('clean as far as read', 'good')}: {read}; {others}"


def marked_text(coverage: Coverage) -> str:
    """Return how much a guard has verified instead, and how long ago at most; empty if nothing."""
    if not coverage.marked:
        return ""
    age = "" if coverage.marked_age_ms is None else f"up to {_duration(coverage.marked_age_ms)} "
    return f"{short_size(coverage.marked)} were verified by the guard {age}before (--no-marks reads them)"


def _duration(milliseconds: int) -> str:
    seconds = -(-milliseconds // 1000)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{-(-seconds // size)} {unit}"
    return f"{seconds} s"


def unread_text(coverage: Coverage) -> str:
    """Return how much was not read, and how it would be; empty if all was."""
    if not coverage.unread:
        return ""
    return f"{short_size(coverage.unread)} flushed not read (--depth full reads them)"


def nothing_read(plan: LogDirPlan) -> str:
    """Return why a log directory without partitions is not called clean."""
    which = " of these topics" if plan.options.topics else ""
    return f"nothing read: there is no partition{which}"


def _tail(outcome: Outcome, before: str = "recover") -> list[str]:
    """Return the closing lines; an error is told on another stream, with its own advice."""
    lines = []
    if outcome.in_use:
        lines.append("  its .lock is held: a broker may change files while they are read, and a torn tail may be none")
    steps = [] if outcome.error is not None else next_steps(outcome, before)
    return [*lines, *(f"{word}: {step}" for word, step in zip(("next", "  or"), steps, strict=False))]


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
    losses = ("    " + style(line, "damage") for line in loss_lines(partition))
    return ["  " + style(title, "title"), *losses, *("  " + line for line in rows_text(rows))]


def _told_by_cut(action: Action, cuts: set[tuple[PurePath, int]]) -> bool:
    if isinstance(action, Quarantine):
        return (action.path, action.position) in cuts
    return isinstance(action, TruncateTo) and (action.path, action.size) in cuts


def _group(title: str, actions: Sequence[Action], style: Style) -> list[str]:
    lines = ["  " + line for line in rows_text(action_row(action) for action in actions)]
    return ["  " + style(title, "title"), *lines] if lines else []


def totals_text(plan: LogDirPlan) -> str:
    """Return the sums of a plan: what is cut out of logs, set aside with whole segments, rewritten, held."""
    actions = [*plan.before, *plan.after, *(action for each in plan.partitions for action in each.actions)]
    cuts = [cut for partition in plan.partitions for cut in partition.cuts]
    kinds = Counter(type(action) for action in actions)
    held = sum(partition.held for partition in plan.partitions)
    asides = {action.path for action in actions if isinstance(action, SetAside)}
    behind = [cut for cut in cuts if cut.path in asides]
    cuts = [cut for cut in cuts if cut.path not in asides]
    segments = {cut.path.with_suffix("") for cut in behind}
    others = sum(path.with_suffix("") not in segments for path in asides)
    counts = (
        (len(cuts), f"{count(len(cuts), 'cut')} of {full_size(sum(cut.size for cut in cuts))}"),
        (len(behind), f"{count(len(behind), 'segment')} of {full_size(sum(c.size for c in behind))} set aside whole"),
        (kinds[ReplaceFile], f"{count(kinds[ReplaceFile], 'file')} rewritten"),
        (others, f"{count(others, 'file')} set aside"),
        (kinds[Rename], f"{count(kinds[Rename], 'file')} renamed"),
        (held, f"{count(held, 'partition')} held"),
    )
    return ", ".join(text for number, text in counts if number) or "nothing to do"


def plan_text(outcome: Outcome, style: Style = plain) -> str:
    """Return what `plan` says of one log directory: what would be cut, rebuilt, set aside, and why."""
    plan = outcome.plan
    if plan is None:
        return "\n".join(_tail(outcome))
    coverage = coverage_of(plan)
    unread = f"; {unread_text(coverage)}" if coverage.unread and plan.is_empty else ""
    unread = (f"; {marked_text(coverage)}" if coverage.marked else "") + unread
    lines = [f"{printable(plan.log_dir)}: plan {plan.plan_id}: {totals_text(plan)}{unread}"]
    lines += _healing_lines(outcome, style)
    lines += _group("first", plan.before, style)
    for partition in plan.partitions:
        if partition.actions or partition.held:
            lines += _partition_lines(partition, style)
    lines += _group("last", plan.after, style)
    lines += _then_lines(plan, style)
    lines += findings_text(left_alone(plan), root_of(plan), style)
    return "\n".join([*lines, *_tail(outcome)])


def _then_lines(plan: LogDirPlan, style: Style) -> list[str]:
    """Return what the hand-over will do; beside a marker it rolls no segment."""
    rising, rolls = (
        rising_points(plan),
        [each.roll for each in rolling_segments(plan).values() if each.roll is not None],
    )
    lines = []
    if rolls and not plan.options.clean_marker:
        lines.append(f"    {rolls_text(len(rolls), sum(roll.size for roll in rolls))}: a broker need not scan them")
    if rising:
        lines.append(f"    {count(len(rising), 'recovery point')} may rise to the log end")
    return ["  " + style("then", "title"), *lines] if lines else []


def recover_text(outcome: Outcome, style: Style = plain) -> str:
    """Return what `recover` and `apply` say when they are through with one log directory."""
    plan = outcome.plan
    if plan is None:
        return "\n".join(_tail(outcome))
    lines = [f"{printable(plan.log_dir)}: {_verdict(outcome, plan, style)}{_done_text(outcome, plan)}"]
    lines += _healing_lines(outcome, style)
    if outcome.done is not None:
        for partition in plan.partitions:
            title = ["  " + style(printable(partition.directory.name), "title")] if partition.cuts else []
            losses = ("    " + style(line, "damage") for line in loss_lines(partition))
            lines += [*title, *losses, *("  " + line for line in rows_text(cut_row(cut) for cut in partition.cuts))]
    shown = outcome.after or plan
    lines += findings_text(left_alone(shown), root_of(shown), style)
    if outcome.handed is not None:
        lines.append("  " + handed_text(outcome.handed))
    if outcome.tails is not None:
        lines.append("  " + tails_text(outcome.tails))
    return "\n".join([*lines, *_tail(outcome)])


def _verdict(outcome: Outcome, plan: LogDirPlan, style: Style) -> str:
    if outcome.status is ExitStatus.HELD:
        return style("held", "blocking") + ": "
    if outcome.status is not ExitStatus.CLEAN:
        return style(f"not recovered (exit status {outcome.status.value})", "damage") + ": "
    return clean_text(outcome.after or plan, style) if plan.partitions else nothing_read(plan) + "; "


def _healing_lines(outcome: Outcome, style: Style) -> list[str]:
    if not outcome.healing:
        return []
    is_done, styles = outcome.done is not None, ["good" if note.healed else "damage" for note in outcome.healing]
    return list(table([heal_row(note, is_done=is_done) for note in outcome.healing], styles, style))


def _read_text(outcome: Outcome, plan: LogDirPlan) -> str:
    """Return how much was read; of what the guard has verified `clean_text` tells where all is clean."""
    marked = "" if outcome.status is ExitStatus.CLEAN else marked_text(coverage_of(plan))
    return f"{full_size(scanned_bytes(plan))} read" + (f"; {marked}" if marked else "")


def _done_text(outcome: Outcome, plan: LogDirPlan) -> str:
    if outcome.done is None:
        return f"{outcome.partly or 'nothing done'}; {_read_text(outcome, plan)}"
    healed = sum(note.healed for note in outcome.healing)
    if plan.is_empty and healed:
        return f"{count(healed, 'hole')} healed from a replica"
    if plan.is_empty:
        return f"nothing to do; {count(len(plan.partitions), 'partition')}, {_read_text(outcome, plan)}"
    kept = f", {full_size(outcome.bytes_quarantined)} kept in quarantine" if outcome.bytes_quarantined else ""
    return f"{totals_text(plan)} by plan {outcome.plan_id or plan.plan_id}{kept}"
