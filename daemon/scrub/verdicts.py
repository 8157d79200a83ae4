"""What follows from a second look: findings opened or closed, a plan stored, a device counted, neighbours suspected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from daemon.ledger.disk import Disk
from daemon.ledger.page import Page, PartitionRow
from daemon.scrub.census import Census
from daemon.scrub.device_health import DeviceHealth
from daemon.scrub.diagnosis import TRANSIENT, Diagnosis, lost_offsets
from daemon.scrub.open_findings import OpenFindings
from daemon.scrub.stored_plans import StoredPlans
from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import Events
from recovery.plan.findings import Damage, Finding, Severity
from recovery.plan.plan import PlanOptions
from storage.base.errors import ReadFault
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset


class Verdicts:
    """See the module. Used by one worker."""

    def __init__(
        self,
        disk: Disk,
        page: Page,
        census: Census,
        findings: OpenFindings,
        plans: StoredPlans,
        health: DeviceHealth,
        events: Events,
        options: Callable[[], ScrubOptions],
    ) -> None:
        self._disk, self._page, self._census, self._findings = disk, page, census, findings
        self._plans, self._health, self._events, self._options = plans, health, events, options

    def judge(
        self, row: PartitionRow, base: int, seen: Diagnosis, position: int | None, error: ReadFault | None = None
    ) -> str:
        """Take in what a second look saw where the first was bad at `position`, or failed with `error`.

        Returns the word for the ledger.
        """
        path = self._log_of(row, base)
        if error is not None:
            self.count_error(path)
        if seen.verdict == TRANSIENT:
            self._events.tell(
                "read_transient", log_dir=self._page.log_dir, topic=row.name.topic, partition=row.name.partition,
                path=path, position=position,
            )  # fmt: skip
            return "sound"
        before = {finding.id for finding in self._findings.open()}
        new = self._findings.put(row.name, seen.findings, seen.verdict)
        if any(finding.id not in before for finding in new):
            self._store_plan(row, [base])
            self._suspect_neighbours(row, base)
        unreadable = any(finding.kind is Damage.READ_ERROR for finding in seen.findings)
        if unreadable or lost_offsets(seen.findings):
            self.count_error(path)
        if unreadable:
            return "unreadable"
        is_bad = any(found.kind.severity in (Severity.DAMAGE, Severity.BLOCKING) for found in seen.findings)
        return "damaged" if is_bad else "repairable"

    def unreadable(self, row: PartitionRow, base: int, fault: ReadFault) -> None:
        """Take in that the second look failed altogether."""
        finding = Finding(Damage.READ_ERROR, fault.path, str(fault))
        self.judge(row, base, Diagnosis([finding]), None, fault)

    def changed_in_place(self, row: PartitionRow, base: int, size: int, evidence: str, verdict: str) -> None:
        """Take in that a sealed segment is sound but not what it was."""
        path = self._log_of(row, base)
        self._findings.put_changed(row.name, path, size, evidence, verdict)
        self._suspect_neighbours(row, base)
        self.count_error(path)

    def count_error(self, path: PurePath) -> None:
        """Count a bad file against its device; many in a short time mean that the device is sick."""
        device = self._page.device
        if device is not None and self._health.note(device, str(path)):
            self._events.tell(
                "device_sick", device=device_name(device), errors=self._options().sick_errors,
                log_dirs=(self._page.log_dir,),
            )  # fmt: skip

    def settle(self, row: PartitionRow, base: int, *, below: int | None = None) -> None:
        """Take in that a segment was found sound, or its first bytes were."""
        self._findings.close_segment(row.directory, base, "sound", below=below)
        if not any(f.path.parent.name == row.directory for f in self._findings.open()):
            self._plans.drop(row.directory)

    def found_again(self, row: PartitionRow, base: int, seen: Diagnosis) -> None:
        """Take out what was found in a segment earlier and is no more; called before `judge`."""
        ids = self._findings.ids(seen.findings)
        self._findings.keep_only(row.directory, base, ids, "not found again")

    def _store_plan(self, row: PartitionRow, bases: Sequence[int]) -> None:
        options = self._options()
        wanted = PlanOptions(
            index_interval_bytes=options.index_interval_bytes, segment_index_bytes=options.segment_index_bytes
        )
        known = [int(f.path.name[:20]) for f in self._findings.open() if f.path.parent.name == row.directory]
        command = self._findings.command_for(row.name, "")
        self._plans.store(self._disk, row.directory, {*bases, *known}, wanted, command)

    def _suspect_neighbours(self, row: PartitionRow, base: int) -> None:
        """What was written at the same time lies close by on the device."""
        self._page.set_suspect(row.id, self._page.neighbours(row.id, base))

    def _log_of(self, row: PartitionRow, base: int) -> PurePath:
        return self._page.log_dir / row.directory / segment_file_name(Offset(base), FileRole.LOG)


def device_name(device: int) -> str:
    """Return a device as `major:minor`, as the system lists it below /sys/dev/block."""
    major = (device >> 8) & 0xFFF | (device >> 32) & ~0xFFF
    return f"{major}:{device & 0xFF | (device >> 12) & ~0xFF}"
