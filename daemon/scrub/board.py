"""What a scrubber shows: kept ready, so that asking costs nothing, and renewed where something has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daemon.ledger.page import CellRow, Page, PartitionRow, Totals
from daemon.scrub.census import Census
from daemon.scrub.open_findings import OpenFindings
from daemon.scrub.verify_options import ScrubOptions
from daemon.status.model import (
    CellVerdict,
    Clock,
    OpenFinding,
    PartitionCell,
    QuarantineStatus,
    ScrubState,
    ScrubStatus,
)
from recovery.plan.findings import Severity

_TOTALS_SECONDS: Final = 60.0
_CELLS_SECONDS: Final = 2.0
_RATE_SECONDS: Final = 30.0
_FEW: Final = 200
_BAD: Final = (Severity.DAMAGE.value, Severity.BLOCKING.value)
_NOTHING: Final = Totals(0, 0, 0, 0, None)

Held = tuple[ScrubState, str, float]


class Board:
    """`renew` on the worker's thread; `status`, `cells` and `quarantine` are replaced whole and read by any."""

    def __init__(self, clock: Clock, findings: OpenFindings, options: ScrubOptions) -> None:
        self._clock, self._findings, self.options = clock, findings, options
        self.bytes_read = 0
        self.suspects: set[int] = set()
        self.cells: tuple[PartitionCell, ...] = ()
        self.quarantine = QuarantineStatus(0, 0, None)
        self.status = self._status(None, 0.0, 0.0)
        self._by_id: dict[int, PartitionCell] = {}
        self._kept: dict[int, PartitionRow] = {}
        self._seen_findings: tuple[OpenFinding, ...] = ()
        self._is_stale = True
        self._changed: set[int] = set()
        self._cells_at = clock.monotonic()
        self._totals, self._totals_at = _NOTHING, clock.monotonic() - _TOTALS_SECONDS
        self._rate, self._rate_at, self._rate_bytes = 0.0, clock.monotonic(), 0

    def renew(self, page: Page, census: Census, changed: set[int], held: Held | None, behind: float) -> None:
        """Take in what has changed. `changed`: ids of partitions."""
        now = self._clock.monotonic()
        findings = self._findings.open()
        if findings != self._seen_findings:
            places = {(f.topic, f.partition) for f in {*findings} ^ {*self._seen_findings}}
            self._changed |= {row.id for row in census.partitions.values() if row.name in places}
            self._seen_findings = findings
        self._changed |= changed
        if self._changed and now >= self._cells_at:
            changed, self._changed = self._changed, set()
            self._renew_cells(page, census, changed)
            self._cells_at = now + (_CELLS_SECONDS if len(self._by_id) > _FEW else 0.0)
            self._is_stale = True
        if self._is_stale and now - self._totals_at >= (_TOTALS_SECONDS if len(self._by_id) > _FEW else 0.0):
            since = self._clock.now_ms() - int(self.options.cycle_seconds * 1000)
            self._totals, self._totals_at, self._is_stale = page.totals(since), now, False
        if now - self._rate_at >= _RATE_SECONDS:
            self._rate = (self.bytes_read - self._rate_bytes) / (now - self._rate_at)
            self._rate_at, self._rate_bytes = now, self.bytes_read
        self.status = self._status(held, behind, self._rate)

    def _status(self, held: Held | None, behind: float, rate: float) -> ScrubStatus:
        totals = getattr(self, "_totals", _NOTHING)
        return ScrubStatus(
            held[0] if held else ScrubState.RUNNING,
            held[1] if held else "",
            self.options.cycle_seconds,
            totals.segments,
            totals.bytes,
            totals.bytes_due,
            self.bytes_read,
            rate,
            None if totals.never else totals.oldest_ms,
            behind,
        )

    def _renew_cells(self, page: Page, census: Census, changed: set[int]) -> None:
        rows = {number: row for number in changed if (row := census.by_id.get(number)) is not None}
        gone = [number for number in changed if number not in rows and self._by_id.pop(number, None) is not None]
        sums = page.cells(rows.keys() if len(rows) <= _FEW else None)
        found = {each.partition_id: each for each in sums}
        is_new = False
        for number, row in rows.items():
            is_new |= number not in self._by_id
            self._by_id[number] = self._cell(row, found.get(number) or CellRow(number, 0, 0, None, 0, 0, 0))
        if is_new:
            self._by_id = dict(sorted(self._by_id.items(), key=lambda each: (each[1].topic, each[1].partition)))
        self.cells = tuple(self._by_id.values())
        self._count_kept(rows.values(), gone)

    def _count_kept(self, rows: Iterable[PartitionRow], gone: Iterable[int]) -> None:
        for number in gone:
            self._kept.pop(number, None)
        for row in rows:
            if row.kept_items:
                self._kept[row.id] = row
            else:
                self._kept.pop(row.id, None)
        kept = self._kept.values()
        self.quarantine = QuarantineStatus(
            sum(row.kept_items for row in kept),
            sum(row.kept_bytes for row in kept),
            min((row.kept_oldest_ms for row in kept if row.kept_oldest_ms is not None), default=None),
        )

    def _cell(self, row: PartitionRow, sums: CellRow) -> PartitionCell:
        own = [f for f in self._seen_findings if (f.topic, f.partition) == row.name]
        if sums.damaged or any(f.severity in _BAD and f.kind != "read_error" for f in own):
            verdict = CellVerdict.DAMAGED
        elif sums.unreadable or any(f.kind == "read_error" for f in own):
            verdict = CellVerdict.UNREADABLE
        elif sums.suspect or row.id in self.suspects:
            verdict = CellVerdict.SUSPECT
        elif any(f.severity == Severity.REPAIRABLE.value for f in own):
            verdict = CellVerdict.REPAIRABLE
        else:
            verdict = CellVerdict.UNVERIFIED if sums.verified_ms is None else CellVerdict.SOUND
        return PartitionCell(*row.name, sums.segments, sums.size, sums.verified_ms, verdict, len(own))
