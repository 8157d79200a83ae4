"""Findings and actions as rows of text, and tables of rows with aligned columns.

Names come from the disk, so every one of them is made printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, assert_never

from recovery.plan.findings import Damage, Finding, Severity
from recovery.plan.plan import (
    Action,
    Cut,
    KeepCopy,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
    Verdict,
)
from recovery.plan.words import count, full_size, short_size
from recovery.report.outcome import ACCEPTED_LOSSES
from storage.base.errors import printable

Style = Callable[[str, str], str]
"""Takes a text and its role (a severity, `good` or `title`) and returns it as it is shown."""
_WILL: Final = {
    "stop": "nothing here is touched",
    "cut": "cut, a copy kept",
    "hold": "held for a replica or a person",
    "rebuild": "rebuilt from the log",
    "trim": "zeroes trimmed",
    "rewrite": "rewritten last",
    "tidy": "finished or set aside",
    "nothing": "",
}


_WIDEST: Final = 40
"""Columns of a cell with which its column is aligned."""
_MANY: Final = 5
"""Findings alike that share a line."""


def plain(text: str, role: str) -> str:  # noqa: ARG001 (it is a `Style`)
    """Return `text` as it is: the style without colours."""
    return text


def table(rows: Sequence[Sequence[str]], styles: Sequence[str], style: Style) -> Iterator[str]:
    """Return the rows with aligned columns; the last column is as wide as it is; `styles` has the role of column 0.

    A cell that is much longer than most moves its own row, not all of them.
    """
    widths = [_width([len(row[column]) for row in rows]) for column in range(len(rows[0]) - 1)] if rows else []
    for row, role in zip(rows, styles, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        cells[0] = style(cells[0], role)
        yield "  " + "  ".join([*cells, row[-1]]).rstrip()


def _width(lengths: Sequence[int]) -> int:
    return max((length for length in lengths if length <= _WIDEST), default=0)


def rows_text(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Return the rows aligned, without colours."""
    listed = list(rows)
    return table(listed, [""] * len(listed), plain)


def partition_and_file(path: PurePath, log_dir: PurePath) -> tuple[str, str]:
    """Return partition directory and file name of a path; `-` for what lies at the top."""
    if path == log_dir:
        return "-", "."
    if path.parent == log_dir:
        return "-", printable(path.name)
    if path.parent.parent == log_dir:
        return printable(path.parent.name), printable(path.name)
    return "-", printable(path)


def offsets_text(finding: Finding) -> str:
    """Return the record offsets that a finding concerns, both ends included; empty if none."""
    if finding.first_offset is None:
        return ""
    if finding.last_offset is None:
        return f"offsets from {finding.first_offset}"
    if finding.last_offset <= finding.first_offset:
        return f"offset {finding.first_offset}"
    return f"offsets {finding.first_offset} to {finding.last_offset}"


def _finding_row(verdict: Verdict, log_dir: PurePath) -> tuple[str, ...]:
    finding = verdict.finding
    partition, name = partition_and_file(finding.path, log_dir)
    if finding.position is not None:
        name += f" at {finding.position}"
    details = [finding.evidence, offsets_text(finding)]
    if finding.size:
        details.append(short_size(finding.size))
    if finding.next_good_offset is not None:
        details.append(f"next good offset {finding.next_good_offset}")
    said = printable(", ".join(part for part in details if part))
    will = _WILL.get(verdict.decision, verdict.decision)
    kind = finding.kind
    return kind.severity.value, partition, name, kind.value, said + (f" -> {will}" if will else "")


def findings_text(verdicts: Iterable[Verdict], log_dir: PurePath, style: Style = plain) -> list[str]:
    """Return one line a finding: severity, partition, file and position, kind, what it means and what would be done.

    Many notes or repairable findings that are alike share a line, which counts them.
    """
    alike: dict[tuple[str, ...], list[Verdict]] = {}
    for number, verdict in enumerate(verdicts):
        kind = verdict.finding.kind
        lone = str(number) if kind.severity in (Severity.DAMAGE, Severity.BLOCKING) else ""
        alike.setdefault((kind.value, verdict.decision, lone), []).append(verdict)
    rows = [row for group in alike.values() for row in _rows_of(group, log_dir)]
    return list(table(rows, [row[0] for row in rows], style))


def _rows_of(alike: Sequence[Verdict], log_dir: PurePath) -> Iterator[tuple[str, ...]]:
    if len(alike) < _MANY:
        yield from (_finding_row(verdict, log_dir) for verdict in alike)
        return
    kind, will = alike[0].finding.kind, _WILL.get(alike[0].decision, alike[0].decision)
    places = {partition_and_file(verdict.finding.path, log_dir)[0] for verdict in alike}
    where = next(iter(places)) if len(places) == 1 else f"{len(places)} partitions"
    said = f"{_finding_row(alike[0], log_dir)[2]} and others (--json lists all)" + (f" -> {will}" if will else "")
    yield kind.severity.value, where, f"{len(alike)} ×", kind.value, said


def cut_row(cut: Cut) -> tuple[str, str, str]:
    """Return verb, file and position, and what one cut takes out of the log."""
    last = f" to {cut.last_offset}" if cut.last_offset is not None else " on"
    records = "" if cut.records is None else f", {count(cut.records, 'record')}"
    where = f"{printable(cut.path.name)} at {cut.position}"
    return (
        "cut",
        where,
        f"{full_size(cut.size)}, offsets from {cut.first_offset}{last}{records}: {printable(cut.reason)}",
    )


def loss_lines(partition: RecoveryPlan) -> list[str]:
    """Return one line that counts the records of all cuts of a partition, none where no record is lost.

    Bytes that are all zero hold none, whatever may have been there once. What a crash tears off the unflushed end of a
    log was never written whole: without a sound batch behind it, that is no loss.
    """
    cuts = [cut for cut in partition.cuts if cut.records != 0 and cut.reason != Damage.ZERO_TAIL.value]
    if not cuts:
        return []
    first, ends = min(cut.first_offset for cut in cuts), [cut.last_offset for cut in cuts]
    last = None if None in ends else max(end for end in ends if end is not None)
    counted = sum(cut.records or 0 for cut in cuts)
    if not counted and not any(verdict.row in ACCEPTED_LOSSES for verdict in partition.verdicts):
        return []
    records = count(counted, "record") if counted else "records that cannot be counted"
    if counted and any(cut.records is None for cut in cuts):
        records = f"{records} and more that cannot be counted"
    where = f"offsets {first} to {last}" if last is not None else f"offsets from {first} on,"
    return [f"loses {records}, {where} of {printable(partition.partition)}"]


def action_row(action: Action) -> tuple[str, str, str]:
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
            if not filled:
                return "splice", name, f"{printable(action.reason)}, {full_size(action.size)} in all"
            return "splice", name, f"{count(filled, 'hole')} filled from a replica, {full_size(action.size)} in all"
        case SplitLog():
            return "split", name, f"into {count(len(action.pieces), 'segment')}"
        case _:
            assert_never(action)
