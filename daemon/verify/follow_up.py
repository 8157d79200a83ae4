"""What follows from a second look: findings open or close, a plan is stored, device and neighbours are suspected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from daemon.ledger.page import Page, PartitionRow
from daemon.verify.context import ScrubContext
from daemon.verify.diagnosis import TRANSIENT, Diagnosis, lost_offsets
from daemon.verify.stored_plans import StoredPlans
from recovery.plan.findings import Damage, Finding, Severity
from recovery.plan.plan import PlanOptions
from storage.base.errors import ReadFault


class FollowUp:
    """Turns diagnoses of one log directory into findings. One thread."""

    def __init__(self, context: ScrubContext, page: Page, plans: StoredPlans) -> None:
        self._context, self._page, self._plans = context, page, plans
        self._findings = context.findings

    def judge(
        self, row: PartitionRow, base: int, diagnosis: Diagnosis, position: int | None, error: ReadFault | None = None
    ) -> str:
        """Return the word for the ledger; findings and events follow from what the second look saw.

        The first look was bad at `position`, or failed with `error`.
        """
        path = self._context.log_of(row, base)
        if error is not None:
            self.count_error(path)
        if diagnosis.certainty == TRANSIENT:
            self._context.tell(
                "read_transient", topic=row.name.topic, partition=row.name.partition, path=path, position=position
            )
            return "sound"
        before = {finding.id for finding in self._findings.open()}
        new = self._findings.put(row.name, diagnosis.findings, diagnosis.certainty)
        if any(finding.id not in before for finding in new):
            self._store_plan(row, [base])
            self._suspect_neighbours(row, base)
        unreadable = any(finding.kind is Damage.READ_ERROR for finding in diagnosis.findings)
        if unreadable or lost_offsets(diagnosis.findings):
            self.count_error(path)
        if unreadable:
            return "unreadable"
        is_bad = any(f.kind.severity in (Severity.DAMAGE, Severity.BLOCKING) for f in diagnosis.findings)
        return "damaged" if is_bad else "repairable"

    def unreadable(self, row: PartitionRow, base: int, fault: ReadFault) -> None:
        """Report that the second look failed altogether."""
        finding = Finding(Damage.READ_ERROR, fault.path, str(fault))
        self.judge(row, base, Diagnosis([finding]), None, fault)

    def changed_in_place(self, row: PartitionRow, base: int, size: int, evidence: str, certainty: str) -> None:
        """Report that a sealed segment is sound but holds other batches than before."""
        path = self._context.log_of(row, base)
        self._findings.put_changed(row.name, path, size, evidence, certainty)
        self._suspect_neighbours(row, base)
        self.count_error(path)

    def count_error(self, path: PurePath) -> None:
        """Count a bad file against its device; many in a short time mean that the device is sick."""
        device, context = self._page.device, self._context
        if device is not None and context.health.note(device, str(path)):
            context.events.tell(
                "device_sick", device=device_name(device), errors=context.options.sick_errors,
                log_dirs=(context.log_dir,),
            )  # fmt: skip

    def settle(self, row: PartitionRow, base: int, *, below: int | None = None) -> None:
        """Close the findings of a segment that is sound, or whose first bytes are."""
        self._findings.close_segment(row.directory, base, "sound", below=below)
        if not any(f.path.parent.name == row.directory for f in self._findings.open()):
            self._plans.drop(row.directory)

    def found_again(self, row: PartitionRow, base: int, seen: Diagnosis) -> None:
        """Close the findings of a segment that the second look did not see again; called before `judge`."""
        ids = self._findings.ids(seen.findings)
        self._findings.keep_only(row.directory, base, ids, "not found again")

    def _store_plan(self, row: PartitionRow, bases: Sequence[int]) -> None:
        options = self._context.options
        wanted = PlanOptions(
            index_interval_bytes=options.index_interval_bytes, segment_index_bytes=options.segment_index_bytes
        )
        known = [finding for finding in self._findings.open() if finding.path.parent.name == row.directory]
        segments = {*bases, *(int(finding.path.name[:20]) for finding in known)}
        command = self._findings.command_for(row.name, known[0].kind if known else "")
        self._plans.store(self._context.disk, row.directory, segments, wanted, command)

    def _suspect_neighbours(self, row: PartitionRow, base: int) -> None:
        """Read the neighbours next: what was written at the same time lies close by on the device."""
        self._page.set_suspect(row.id, self._page.neighbours(row.id, base))


def device_name(device: int) -> str:
    """Return a device as `major:minor`, as the system lists it below /sys/dev/block."""
    major = (device >> 8) & 0xFFF | (device >> 32) & ~0xFFF
    return f"{major}:{device & 0xFF | (device >> 12) & ~0xFF}"
