"""What a scrubber shows: values kept ready for any thread, renewed where something has changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from daemon.ledger.page import CellRow, Page, PartitionRow, Totals
from daemon.scrub.generation import Generation
from daemon.scrub.pace import Hold
from daemon.status.model import (
    CellVerdict,
    Clock,
    LogDirStatus,
    OpenFinding,
    PartitionCell,
    QuarantineStatus,
    ScrubState,
    ScrubStatus,
)
from daemon.verify.context import ScrubContext
from recovery.plan.findings import Severity

_TOTALS_SECONDS: Final = 60.0
_CELLS_SECONDS: Final = 2.0
_RATE_SECONDS: Final = 30.0
_FEW: Final = 200
_BAD: Final = (Severity.DAMAGE.value, Severity.BLOCKING.value)


class Board:
    """Renewed by the worker's thread. Any thread may read `status`, `cells`, `quarantine`: they are replaced whole."""

    def __init__(self, context: ScrubContext) -> None:
        self._context = context
        self.throughput = Throughput(context.clock)
        self._cells = _Cells()
        self._cells_at = context.clock.monotonic()
        self._totals, self._totals_at = Totals(0, 0, 0, 0, None), context.clock.monotonic() - _TOTALS_SECONDS
        self._is_stale = True
        self.status = self._make_status(None, 0.0)

    @property
    def cells(self) -> tuple[PartitionCell, ...]:
        """The partitions, by topic and number."""
        return self._cells.shown

    @property
    def quarantine(self) -> QuarantineStatus:
        """The sum of what is kept in quarantine."""
        return self._cells.quarantine

    def complete(self, status: LogDirStatus) -> LogDirStatus:
        """Return the status of the log directory with what the scrubber knows of it; from any thread."""
        return replace(
            status, scrub=self.status, quarantine=self.quarantine, findings=self._context.findings.open(),
            partitions=self.cells, size_bytes=self.status.bytes_total,
        )  # fmt: skip

    def renew(self, generation: Generation, hold: Hold | None, behind_seconds: float) -> None:
        """Show what has changed since the last call."""
        now = self._context.clock.monotonic()
        cells = self._cells
        cells.note(generation, self._context.findings.open())
        if cells.are_stale and now >= self._cells_at:
            cells.renew(generation)
            self._cells_at = now + (_CELLS_SECONDS if cells.are_many else 0.0)
            self._is_stale = True
        if self._is_stale and now - self._totals_at >= (_TOTALS_SECONDS if cells.are_many else 0.0):
            since = self._context.clock.now_ms() - int(self._context.options.cycle_seconds * 1000)
            self._totals, self._totals_at, self._is_stale = generation.page.totals(since), now, False
        self.throughput.renew()
        self.status = self._make_status(hold, behind_seconds)

    def _make_status(self, hold: Hold | None, behind_seconds: float) -> ScrubStatus:
        totals = self._totals
        return ScrubStatus(
            hold.state if hold else ScrubState.RUNNING,
            hold.reason if hold else "",
            self._context.options.cycle_seconds,
            totals.segments,
            totals.bytes,
            totals.bytes_due,
            self.throughput.bytes_read,
            self.throughput.rate,
            None if totals.never else totals.oldest_ms,
            behind_seconds,
        )


class Throughput:
    """Bytes read since the start, and bytes a second over the last half minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.bytes_read = 0
        self.rate = 0.0
        self._since, self._bytes_before = clock.monotonic(), 0

    def renew(self) -> None:
        """Work out the rate, if it is time."""
        now = self._clock.monotonic()
        if now - self._since >= _RATE_SECONDS:
            self.rate = (self.bytes_read - self._bytes_before) / (now - self._since)
            self._since, self._bytes_before = now, self.bytes_read


class _Cells:
    """One cell a partition, made again for the partitions that have changed."""

    def __init__(self) -> None:
        self.shown: tuple[PartitionCell, ...] = ()
        self.quarantine = QuarantineStatus(0, 0, None)
        self._by_id: dict[int, PartitionCell] = {}
        self._kept: dict[int, PartitionRow] = {}
        self._findings: tuple[OpenFinding, ...] = ()
        self._changed: set[int] = set()
        self._generation: Generation | None = None

    @property
    def are_stale(self) -> bool:
        return bool(self._changed)

    @property
    def are_many(self) -> bool:
        return len(self._by_id) > _FEW

    def note(self, generation: Generation, findings: tuple[OpenFinding, ...]) -> None:
        """Note which partitions have changed since the last call."""
        census = generation.census
        if generation is not self._generation:  # a ledger that starts over has other ids
            self._generation = generation
            self._changed |= self._by_id.keys()
        if findings != self._findings:
            names = {(f.topic, f.partition) for f in {*findings} ^ {*self._findings}}
            self._changed |= {row.id for row in census.partitions.values() if row.name in names}
            self._findings = findings
        self._changed |= census.take_changed()

    def renew(self, generation: Generation) -> None:
        """Make the cells of the partitions that have changed, and drop those of partitions that are gone."""
        changed, self._changed = self._changed, set()
        by_id = generation.census.partitions.by_id
        rows = {number: row for number in changed if (row := by_id.get(number)) is not None}
        gone = [number for number in changed if number not in rows and self._by_id.pop(number, None) is not None]
        sums = _sums(generation.page, rows)
        suspects = generation.readings.suspects
        has_new = False
        for number, row in rows.items():
            has_new |= number not in self._by_id
            self._by_id[number] = self._cell(row, sums[number], is_suspect=number in suspects)
        if has_new:
            self._by_id = dict(sorted(self._by_id.items(), key=lambda item: (item[1].topic, item[1].partition)))
        self.shown = tuple(self._by_id.values())
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

    def _cell(self, row: PartitionRow, sums: CellRow, *, is_suspect: bool) -> PartitionCell:
        own = [f for f in self._findings if (f.topic, f.partition) == row.name]
        if sums.damaged or any(f.severity in _BAD and f.kind != "read_error" for f in own):
            verdict = CellVerdict.DAMAGED
        elif sums.unreadable or any(f.kind == "read_error" for f in own):
            verdict = CellVerdict.UNREADABLE
        elif sums.suspect or is_suspect:
            verdict = CellVerdict.SUSPECT
        elif any(f.severity == Severity.REPAIRABLE.value for f in own):
            verdict = CellVerdict.REPAIRABLE
        else:
            verdict = CellVerdict.UNVERIFIED if sums.verified_ms is None else CellVerdict.SOUND
        return PartitionCell(*row.name, sums.segments, sums.size, sums.verified_ms, verdict, len(own))


def _sums(page: Page, rows: Iterable[int]) -> dict[int, CellRow]:
    """Return the sums of these partitions; of many partitions one query is faster than one each."""
    wanted = list(rows)
    sums = {row.partition_id: row for row in page.cells(wanted if len(wanted) <= _FEW else None)}
    return {number: sums.get(number) or CellRow(number, 0, 0, None, 0, 0, 0) for number in wanted}
