"""What the commands say about findings, plans and results: text for people, and documents for programs.

Pure functions that return strings or plain values. A document carries `schema_version`; fields are only ever added
under the same number. Names come from the disk, so every one of them is made printable in text; a document holds them
as they are.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from recovery.plan.digest import sha256_of
from recovery.plan.findings import Finding, Severity
from recovery.plan.plan import (
    SCHEMA_VERSION,
    Action,
    Cut,
    KeepCopy,
    LogDirPlan,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
    Verdict,
    rising_points,
    to_plain,
)
from storage.base.errors import EnvironmentFault, ExitStatus, LogmendError, printable

if TYPE_CHECKING:
    from recovery.apply.hand_over import HandedOver
    from recovery.apply.tails import KeptTails
    from recovery.heal.healing import HealNote

Style = Callable[[str, str], str]
"""Takes a text and its role (a severity, `good` or `title`) and returns it as it is shown."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_WILL: Final = {
    "stop": "nothing here is touched",
    "cut": "cut, a copy kept",
    "heal": "taken from a replica",
    "hold": "held for a replica or a person",
    "rebuild": "rebuilt from the log",
    "trim": "zeroes trimmed",
    "rewrite": "rewritten last",
    "tidy": "finished or set aside",
    "nothing": "",
}
_SEVERITY_WORDS: Final = {
    Severity.NOTE: ("note", "notes"),
    Severity.REPAIRABLE: ("repairable", "repairable"),
    Severity.DAMAGE: ("damaged log", "damaged logs"),
    Severity.BLOCKING: ("blocking", "blocking"),
}
_AFTER: Final = (("healing", "healing"), ("hand_over", "handed"), ("tails", "tails"))
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
    """What came of one of the things that a command was to work on.

    `in_use`: somebody held the lock while we only read. `done` and `bytes_quarantined` count what was carried out, None
    where nothing was meant to be. `after` is the plan of the second look. `findings` are those of a single file, which
    has no plan. `error` is what ended it early. `handed` tells what a broker is spared.
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


def plain(text: str, role: str) -> str:  # noqa: ARG001 (it is a `Style`)
    """Return `text` as it is: the style without colours."""
    return text


def worst(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """Return the status that several together end with; none at all is clean."""
    return min(statuses, key=_WORST_FIRST.index, default=ExitStatus.CLEAN)


def short_size(size: int) -> str:
    """Return bytes in the unit that fits: `812 B`, `12.3 MiB`."""
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in _UNITS:  # noqa: B007 (the unit that it ends with is what counts)
        value /= 1024
        if value < 999.95:
            break
    return f"{value:.1f} {unit}"


def grouped(number: int) -> str:
    """Return a number with its digits in groups of three."""
    return f"{number:,}".replace(",", " ")


def full_size(size: int) -> str:
    """Return bytes in the unit that fits and exactly: `12.3 MiB (12 903 411 B)`."""
    return short_size(size) if size < 1024 else f"{short_size(size)} ({grouped(size)} B)"


def count(number: int, thing: str, things: str = "") -> str:
    """Return `1 file`, `2 files`."""
    return f"{grouped(number)} {thing if number == 1 else things or thing + 's'}"


def offsets_text(finding: Finding) -> str:
    """Return the record offsets that a finding concerns, both ends included; empty if none."""
    if finding.first_offset is None:
        return ""
    if finding.last_offset is None:
        return f"offsets from {finding.first_offset}"
    if finding.last_offset <= finding.first_offset:
        return f"offset {finding.first_offset}"
    return f"offsets {finding.first_offset} to {finding.last_offset}"


def _table(rows: Sequence[Sequence[str]], styles: Sequence[str], style: Style) -> Iterator[str]:
    """Return the rows with aligned columns; the last column is as wide as it is; `styles` has the role of column 0."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(len(rows[0]) - 1)] if rows else []
    for row, role in zip(rows, styles, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        cells[0] = style(cells[0], role)
        yield "  " + "  ".join([*cells, row[-1]]).rstrip()


def _place(path: PurePath, log_dir: PurePath) -> tuple[str, str]:
    """Return partition directory and file name of a path; `-` for what lies at the top."""
    if path == log_dir:
        return "-", "."
    if path.parent == log_dir:
        return "-", printable(path.name)
    if path.parent.parent == log_dir:
        return printable(path.parent.name), printable(path.name)
    return "-", printable(path)


def _finding_row(verdict: Verdict, log_dir: PurePath) -> tuple[str, ...]:
    finding = verdict.finding
    partition, name = _place(finding.path, log_dir)
    if finding.position is not None:
        name += f" at {finding.position}"
    told = [finding.evidence, offsets_text(finding)]
    if finding.size:
        told.append(short_size(finding.size))
    if finding.next_good_offset is not None:
        told.append(f"next good offset {finding.next_good_offset}")
    said = printable(", ".join(part for part in told if part))
    will = _WILL.get(verdict.decision, verdict.decision)
    kind = finding.kind
    return kind.severity.value, partition, name, kind.value, said + (f" -> {will}" if will else "")


def findings_text(verdicts: Iterable[Verdict], log_dir: PurePath, style: Style = plain) -> list[str]:
    """Return one line a finding: severity, partition, file and position, kind, what it means and what would be done."""
    rows = [_finding_row(verdict, log_dir) for verdict in verdicts]
    return list(_table(rows, [row[0] for row in rows], style))


def scanned_bytes(plan: LogDirPlan) -> int:
    """Return the bytes of logs that were read for a plan."""
    return sum(partition.scanned_bytes for partition in plan.partitions)


def _severities(plan: LogDirPlan) -> str:
    found = Counter(finding.kind.severity for finding in plan.findings)
    told = [count(found[severity], *words) for severity, words in reversed(_SEVERITY_WORDS.items()) if found[severity]]
    return ", ".join(told) or "nothing found"


def left_alone(plan: LogDirPlan) -> list[Verdict]:
    """Return the findings that matter and that the plan does nothing about: held, stopped at, or past mending."""
    return [
        verdict
        for verdict in plan.all_verdicts()
        if verdict.decision in ("hold", "stop", "nothing") and verdict.finding.kind.severity is not Severity.NOTE
    ]


def summary_line(plan: LogDirPlan, style: Style = plain) -> str:
    """Return the line that sums up what was found in a log directory."""
    affected = sum(1 for partition in plan.partitions if partition.verdicts)
    clean = plan.status is ExitStatus.CLEAN
    where = f" in {grouped(affected)} of {count(len(plan.partitions), 'partition')}" if affected else ""
    where = where or f", {count(len(plan.partitions), 'partition')}"
    verdict = style("clean", "good") if clean else style("not clean", "damage")
    return f"{printable(plan.log_dir)}: {verdict}: {_severities(plan)}{where}, {full_size(scanned_bytes(plan))} read"


def command(*words: object) -> str:
    """Return a command line that a shell would read as these words."""
    return " ".join(shlex.quote(printable(word)) for word in ("logmend", *words))


def root_of(plan: LogDirPlan) -> PurePath:
    """Return the log directory of a plan, also where it was made for one partition's directory alone."""
    if any(partition.directory == plan.log_dir for partition in plan.partitions):
        return plan.log_dir.parent
    return plan.log_dir


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
    told = count(len(findings), "finding") if findings else "nothing found"
    return [f"{printable(path)}: {verdict}: {told}", *findings_text(verdicts, path.parent.parent, style)]


def _cut_line(cut: Cut) -> tuple[str, str, str]:
    last = f" to {cut.last_offset}" if cut.last_offset is not None else " on"
    records = "" if cut.records is None else f", {count(cut.records, 'record')}"
    where = f"{printable(cut.path.name)} at {cut.position}"
    return (
        "cut",
        where,
        f"{full_size(cut.size)}, offsets from {cut.first_offset}{last}{records}: {printable(cut.reason)}",
    )


def _action_row(action: Action) -> tuple[str, str, str]:
    """Return verb, file and detail of one action."""
    name = printable(action.path.name)
    match action:
        case Quarantine():
            kept = "zeroes, only counted" if action.zeroes else f"from {action.position}: {printable(action.reason)}"
            return "keep", name, f"{full_size(action.size)} {kept}"
        case TruncateTo():
            return "truncate", name, f"to {action.size} B (now {action.old_size} B)"
        case SetAside():
            return "set aside", name, printable(action.reason)
        case Rename():
            return "rename", name, f"to {printable(action.target.name)}"
        case ReplaceFile():
            verb = "rebuild" if action.replaces else "write"
            return verb, name, f"{full_size(action.size)}: {printable(action.reason)}"
        case KeepCopy():
            return "copy", name, f"{full_size(action.size)} from {action.position}: {printable(action.reason)}"
        case SpliceSegment():
            filled = sum(piece.position is None for piece in action.pieces)
            return "splice", name, f"{count(filled, 'hole')} filled from a replica, {full_size(action.size)} in all"
        case SplitLog():
            return "split", name, f"into {count(len(action.pieces), 'segment')}"
        case _:
            assert_never(action)


def _partition_lines(partition: RecoveryPlan, style: Style) -> list[str]:
    title = printable(partition.directory.name)
    if partition.loaded is not None:
        title += f"  offsets {partition.loaded.log_start} to {partition.loaded.log_end}"
    if partition.held:
        title += style("  held: left as it is", "blocking")
    cut_paths = {(cut.path, cut.position) for cut in partition.cuts}
    rows = [_cut_line(cut) for cut in partition.cuts]
    rows += [_action_row(action) for action in partition.actions if not _told_by_cut(action, cut_paths)]
    return ["  " + style(title, "title"), *("  " + line for line in rows_text(rows))]


def rows_text(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Return the rows aligned, without colours."""
    listed = list(rows)
    return _table(listed, [""] * len(listed), plain)


def _told_by_cut(action: Action, cuts: set[tuple[PurePath, int]]) -> bool:
    if isinstance(action, Quarantine):
        return (action.path, action.position) in cuts
    return isinstance(action, TruncateTo) and (action.path, action.size) in cuts


def _group(title: str, actions: Sequence[Action], style: Style) -> list[str]:
    lines = ["  " + line for line in rows_text(_action_row(action) for action in actions)]
    return ["  " + style(title, "title"), *lines] if lines else []


def totals_text(plan: LogDirPlan) -> str:
    """Return the sums of a plan: what is cut, written anew, set aside, held."""
    actions = [*plan.before, *plan.after, *(action for each in plan.partitions for action in each.actions)]
    cuts = [cut for partition in plan.partitions for cut in partition.cuts]
    kinds = Counter(type(action) for action in actions)
    held = sum(partition.held for partition in plan.partitions)
    told = (
        (len(cuts), f"{count(len(cuts), 'cut')} of {full_size(sum(cut.size for cut in cuts))}"),
        (kinds[ReplaceFile], f"{count(kinds[ReplaceFile], 'file')} written anew"),
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
        for each in plan.partitions:
            title = ["  " + style(printable(each.directory.name), "title")] if each.cuts else []
            lines += [*title, *("  " + line for line in rows_text(_cut_line(cut) for cut in each.cuts))]
    shown = outcome.after or plan
    lines += findings_text(left_alone(shown), root_of(shown), style)
    if outcome.handed is not None:
        lines.append("  " + str(outcome.handed))
    if outcome.tails is not None:
        lines.append("  " + str(outcome.tails))
    return "\n".join([*lines, *_tail(outcome)])


def _healing_lines(outcome: Outcome, style: Style) -> list[str]:
    if not outcome.healing:
        return []
    from recovery.heal.healing import note_row  # noqa: PLC0415

    done, styles = outcome.done is not None, ["good" if note.healed else "damage" for note in outcome.healing]
    return list(_table([note_row(note, done=done) for note in outcome.healing], styles, style))


def _done_text(outcome: Outcome, plan: LogDirPlan) -> str:
    if outcome.done is None:
        return f"nothing done; {full_size(scanned_bytes(plan))} read"
    if plan.is_empty:
        return f"nothing to do; {count(len(plan.partitions), 'partition')}, {full_size(scanned_bytes(plan))} read"
    kept = f", {full_size(outcome.bytes_quarantined)} kept in quarantine" if outcome.bytes_quarantined else ""
    return f"{totals_text(plan)} by plan {outcome.plan_id or plan.plan_id}{kept}"


def document(name: str, version: str, status: ExitStatus, **parts: object) -> dict[str, Any]:
    """Return the frame that every JSON document has: schema version, what it is, who wrote it, exit status."""
    head = {"schema_version": SCHEMA_VERSION, "document": name, "logmend": version, "status": status.value}
    return {**head, **{key: to_plain(part) for key, part in parts.items()}}


def finding_document(verdict: Verdict, log_dir: PurePath) -> dict[str, Any]:
    """Return one finding with its severity, its partition directory and what is decided about it."""
    partition, _ = _place(verdict.finding.path, log_dir)
    return {
        "partition": None if partition == "-" else verdict.finding.path.parent.name,
        **to_plain(verdict.finding),
        "severity": verdict.finding.kind.severity.value,
        "decision": verdict.decision,
        "row": verdict.row,
    }


def error_document(error: LogmendError | None) -> dict[str, Any] | None:
    """Return type, text and, for a fault of the environment, path, operation and error number."""
    if error is None:
        return None
    told: dict[str, Any] = {"type": type(error).__name__, "text": str(error)}
    if isinstance(error, EnvironmentFault):
        told |= {"path": str(error.path), "operation": error.operation, "errno": error.errno}
    return told


def outcome_document(outcome: Outcome, *, with_plan: bool = False) -> dict[str, Any]:
    """Return what came of one log directory; `with_plan` adds the whole plan."""
    plan, shown = outcome.plan, outcome.after or outcome.plan
    told: dict[str, Any] = {
        "path": str(outcome.path),
        "status": outcome.status.value,
        "in_use": outcome.in_use,
        "error": error_document(outcome.error),
        "next": next_command(outcome) or None,
    }
    if plan is not None and shown is not None:
        told |= {
            "plan_id": outcome.plan_id or plan.plan_id,
            "is_empty": plan.is_empty,
            "partitions": len(plan.partitions),
            "scanned_bytes": scanned_bytes(plan),
            "findings": [finding_document(verdict, root_of(plan)) for verdict in plan.all_verdicts()],
            "held": sorted(each.directory.name for each in shown.partitions if each.held),
        }
        if with_plan:
            told["plan"] = to_plain(plan)
    if outcome.findings is not None:
        verdicts = [Verdict(finding, "", "nothing") for finding in outcome.findings]
        told["findings"] = [finding_document(verdict, outcome.path.parent.parent) for verdict in verdicts]
    if outcome.done is not None:
        told |= {"actions_done": outcome.done, "bytes_quarantined": outcome.bytes_quarantined}
    told |= {name: to_plain(getattr(outcome, part)) for name, part in _AFTER}
    return told


def combined_id(ids: Sequence[str]) -> str:
    """Return the id of several plans together: that of the only one, else a digest of all."""
    return ids[0] if len(ids) == 1 else sha256_of("+".join(ids).encode())[:12]


def plan_document(plans: Sequence[LogDirPlan], version: str) -> dict[str, Any]:
    """Return what `plan --out` writes and `apply` reads.

    It says nothing of the time or the machine, so the same bytes and options give the same document.
    """
    ids = [plan.plan_id for plan in plans]
    entries = [{"plan_id": plan_id, **to_plain(plan)} for plan_id, plan in zip(ids, plans, strict=True)]
    head = {"schema_version": SCHEMA_VERSION, "document": "plan", "logmend": version, "id": combined_id(ids)}
    return {**head, "plans": entries}
