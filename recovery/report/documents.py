"""Findings, plans and results as documents for programs.

A document carries `schema_version`; fields are only ever added under the same number. Names are those on
the disk, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final

from recovery.plan.digest import sha256_of
from recovery.plan.plan import SCHEMA_VERSION, LogDirPlan, Verdict, to_plain
from recovery.report.outcome import Outcome, coverage_of, next_steps, root_of, scanned_bytes
from recovery.report.rows import partition_and_file
from storage.base.errors import EnvironmentFault, ExitStatus, LogmendError

_AFTER: Final = (("healing", "healing"), ("hand_over", "handed"), ("tails", "tails"))


def document(name: str, version: str, status: ExitStatus, **parts: object) -> dict[str, Any]:
    """Return the frame that every JSON document has: schema version, what it is, who wrote it, exit status."""
    head = {"schema_version": SCHEMA_VERSION, "document": name, "logmend": version, "status": status.value}
    return {**head, **{key: to_plain(part) for key, part in parts.items()}}


def finding_document(verdict: Verdict, log_dir: PurePath) -> dict[str, Any]:
    """Return one finding with its severity, its partition directory and what is decided about it."""
    partition, _ = partition_and_file(verdict.finding.path, log_dir)
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
    fields: dict[str, Any] = {"type": type(error).__name__, "text": str(error)}
    if isinstance(error, EnvironmentFault):
        fields |= {"path": str(error.path), "operation": error.operation, "errno": error.errno}
    return fields


def outcome_document(outcome: Outcome, *, with_plan: bool = False) -> dict[str, Any]:
    """Return what came of one log directory; `with_plan` adds the whole plan."""
    plan, shown, steps = outcome.plan, outcome.after or outcome.plan, next_steps(outcome)
    fields: dict[str, Any] = {
        "path": str(outcome.path),
        "status": outcome.status.value,
        "in_use": outcome.in_use,
        "error": error_document(outcome.error),
        "next": steps[0] if steps else None,
        "next_steps": steps,
    }
    if plan is not None and shown is not None:
        fields |= {
            "plan_id": outcome.plan_id or plan.plan_id,
            "is_empty": plan.is_empty,
            "partitions": len(plan.partitions),
            "scanned_bytes": scanned_bytes(plan),
            "marked_bytes": coverage_of(plan).marked,
            "read": to_plain(coverage_of(shown)),
            "findings": [finding_document(verdict, root_of(plan)) for verdict in plan.all_verdicts()],
            "held": sorted(each.directory.name for each in shown.partitions if each.held),
        }
        if with_plan:
            fields["plan"] = to_plain(plan)
    if outcome.findings is not None:
        verdicts = [Verdict(finding, "", "nothing") for finding in outcome.findings]
        fields["findings"] = [finding_document(verdict, outcome.path.parent.parent) for verdict in verdicts]
    if outcome.done is not None:
        fields |= {"actions_done": outcome.done, "bytes_quarantined": outcome.bytes_quarantined}
    if outcome.partly:
        fields["partly_done"] = outcome.partly
    fields |= {name: to_plain(getattr(outcome, part)) for name, part in _AFTER}
    return fields


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
