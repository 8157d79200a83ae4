"""Puts whole batches of a log back in order where their right place is proven.

A batch that is there twice, byte for byte, is left out the second time. Two neighbours that have changed places change
back. Kafka checks neither when it loads a log, and keeps all of it. The log is spliced from its own bytes, the old file
is kept whole; what cannot be proven is left to the decision table, which holds it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple, Self

from recovery.partition.changes import SWAP, Changes, joined
from recovery.partition.cutting import Logs
from recovery.partition.partition import Survey
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import SetAside, SplicePiece, SpliceSegment
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import ROOM, Room, SegmentReport
from recovery.segment.verify import damage_finding, scan_segment
from storage.base.errors import BatchCorrupt
from storage.base.rows import Stop
from storage.base.units import Offset
from storage.batch.batch import BatchHeader, add_to_sequence, parse_header
from storage.disk.fs import FileStat, ReadFile, ReadFs
from storage.reading.log_reader import LogReader
from storage.reading.segment_walk import first_batch_reaching

_MOST: Final = 1000
"""Batches of one segment that may be out of order: with more the log is held. It was written once, and has few."""
_HEADER: Final = 61
_COMPARED: Final = 1 << 20
_APPEND_TIME: Final = 0b1000


class Part(NamedTuple):
    """`size` bytes of the file from `position` on."""

    position: int
    size: int


class Ordered(NamedTuple):
    """A log in order: the parts of its file that it consists of, and what was wrong with it."""

    files: SegmentFiles
    """As the file would be listed if it were in order."""
    parts: tuple[Part, ...]
    findings: tuple[Finding, ...]

    def on_disk(self, position: int) -> int:
        """Return where the byte at a position of the log in order lies in the file."""
        for part in self.parts:
            if position < part.size:
                return part.position + position
            position -= part.size
        return self.parts[-1].position + self.parts[-1].size + position

    def translated(self, report: SegmentReport) -> SegmentReport | None:
        """Return a report on the log in order with damage where it lies in the file.

        None where that is before the last part: what is cut there would not be one range of the file.
        """
        damage = report.damage
        if damage is None:
            return report
        last = self.parts[-1]
        if damage.kind is Damage.BATCH_ORDER or self.on_disk(damage.position) < last.position:
            return None
        shift = self.on_disk(damage.position) - damage.position
        sound_at = None if damage.sound_at is None else damage.sound_at + shift
        moved = damage._replace(position=damage.position + shift, sound_at=sound_at)
        there, here = damage_finding(self.files, damage), damage_finding(self.files, moved)
        findings = [
            here._replace(evidence=here.evidence + finding.evidence.removeprefix(there.evidence))
            if finding.kind is damage.kind
            else finding
            for finding in report.findings
        ]
        return report.altered(damage=moved, findings=findings)

    def splice(self, size: int) -> SpliceSegment:
        """Return the action that writes the first `size` bytes of the log in order in its place."""
        parts = _first_bytes(self.parts, size)
        reason = " and ".join(sorted({_REASONS[finding.kind] for finding in self.findings}))
        return SpliceSegment(self.files.log, tuple(SplicePiece(p.position, p.size) for p in parts), size, reason)


_REASONS: Final = {
    Damage.BATCH_DOUBLED: "batches that are there twice are left out once",
    Damage.BATCHES_SWAPPED: "batches that have changed places change back",
}


class InOrder(NamedTuple):
    """A partition whose logs are in order as far as that is proven."""

    survey: Survey
    """Shows these logs in order."""
    reports: Mapping[int, SegmentReport]
    """On all segments, by base offset; positions of damage are those in the files."""
    logs: Mapping[PurePath, Ordered]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was out of order."""
        return tuple(finding for ordered in self.logs.values() for finding in ordered.findings)

    def translated(self, report: SegmentReport) -> SegmentReport | None:
        """Return a report that was made by the `survey`, as `Ordered.translated` does."""
        ordered = self.logs.get(report.files.log)
        return report if ordered is None else ordered.translated(report)


def put_in_order(
    survey: Survey, reports: Mapping[int, SegmentReport], reader: LogReader, but: frozenset[PurePath] = frozenset()
) -> InOrder:
    """Return the partition with all logs in order of which the order is proven, `but` for those that are named."""
    logs: dict[PurePath, Ordered] = {}
    for files in survey.resolved.segments:
        report = reports[files.base_offset]
        damage = report.damage
        if damage is None or damage.kind is not Damage.BATCH_ORDER or not report.is_scanned:
            continue
        if files.log in but or files.log.name.endswith(SWAP):
            continue
        with survey.fs.open_read(files.log) as file:
            ordered = _Search(file, files, reader).run(damage.position, damage.next_offset)
        if ordered is not None:
            logs[files.log] = ordered
    return _scanned(survey, reports, logs, reader) if logs else InOrder(survey, reports, {})


def _scanned(
    survey: Survey, reports: Mapping[int, SegmentReport], logs: dict[PurePath, Ordered], reader: LogReader
) -> InOrder:
    """Scan the logs in order; one that would still be out of order, or has to be split, stays as it was found."""
    scans, segments, options = dict(reports), list(survey.resolved.segments), survey.scan_options
    options.room = Room(ROOM)  # the file is not yet in this order: nothing could derive its indexes again
    shown = copy.copy(survey)
    shown.fs, shown.resolved = _OrderedFs(survey.fs, logs), copy.copy(survey.resolved)
    for number, files in enumerate(segments):
        if (ordered := logs.get(files.log)) is None:
            continue
        in_scope, is_last = number >= survey.scope, number == len(segments) - 1
        scanned = scan_segment(
            shown.fs, ordered.files, options, reader, in_scope=in_scope, active=is_last
        )  # fmt: skip
        report = None if scanned.overflow_at is not None else ordered.translated(scanned)
        if report is None:
            del logs[files.log]
        else:
            scans[files.base_offset], segments[number] = report, ordered.files
    shown.resolved.segments = segments
    return InOrder(shown, scans, logs)


def splice_ordered(survey: Survey, logs: Logs, in_order: InOrder) -> Logs:
    """Return the logs with the actions that write them in order.

    What is cut off such a log is not written again; the old file has it. An index that has to be rewritten steps aside
    first: every loader rebuilds one that is missing, and may believe one that speaks of other positions.
    """
    steps, changes = [Changes()], logs.changes
    for files in logs.kept:
        if (ordered := in_order.logs.get(files.log)) is None:
            continue
        report = logs.report_on(files)
        reason = "has the positions of batches before they were put in order"
        old = tuple(SetAside(path, reason) for path in report.wanted if survey.inventory.stat_of(path.name) is not None)
        steps.append(Changes(asides=old, splices=(ordered.splice(report.valid_size),)))
        changes = changes._replace(truncates=tuple(cut for cut in changes.truncates if cut.path != files.log))
    return logs._replace(changes=joined(changes, *steps))


# ---- finding the order


class _Search:
    """Looks for the proven order of one log, from one place that is out of order to the next."""

    def __init__(self, file: ReadFile, files: SegmentFiles, reader: LogReader) -> None:
        self._file, self._files, self._reader = file, files, reader
        self._parts: tuple[Part, ...] = (Part(0, files.log_stat.size),)
        self._findings: list[Finding] = []
        self._known = 0
        """Where the original of the last batch that was there twice ends: copies come in runs."""

    def run(self, position: int, expected: int) -> Ordered | None:
        """Return the log in order; None where the place of a batch is not proven.

        `position` is the first place out of order, `expected` the offset that belongs there.
        """
        while len(self._findings) < _MOST:
            view = _OrderedFile(self._file, self._parts)
            if not (self._leave_out(view, position, expected) or self._change_back(view, position, expected)):
                return None
            view = _OrderedFile(self._file, self._parts)
            scan = self._reader.scan(view, self._files.log, view.size, expected, lambda *_: None, start=position)
            if scan.stop is not Stop.BAD_ORDER:
                return self._ordered(view.size)
            position, expected = scan.valid_size, scan.next_offset
        return None

    def _ordered(self, size: int) -> Ordered:
        files, side = self._files, (self._files.index_stat, self._files.time_index_stat, self._files.txn_index_stat)
        listed = SegmentFiles.listed(
            files.base_offset, files.directory, files.names, files.log_stat._replace(size=size), side
        )
        return Ordered(listed, self._parts, tuple(self._findings))

    def _leave_out(self, view: _OrderedFile, position: int, expected: int) -> bool:
        """Leave out the batch at a position, or the next one, if it stands before that, byte for byte."""
        batch = _header_at(view, position)
        if batch is not None and batch.base_offset >= expected:  # a gap before it has drawn the blame
            position += batch.size
            batch = _header_at(view, position)
        if batch is None:
            return False
        near = _header_at(view, self._known) if 0 < self._known < position else None
        start = self._known if near is not None and near.base_offset == batch.base_offset else 0
        place = first_batch_reaching(view, start, position, Offset(batch.base_offset))
        if place is None or place.size != batch.size or not _are_equal(view, place.position, position, batch.size):
            return False
        evidence = f"the batch at {view.on_disk(place.position)} stands here again, byte for byte"
        self._note(Damage.BATCH_DOUBLED, view, position, batch, evidence)
        self._parts = _without(self._parts, position, batch.size)
        self._known = place.position + place.size
        return True

    def _change_back(self, view: _OrderedFile, position: int, expected: int) -> bool:
        """Exchange the batch at a position with the next one if that is proven to come first."""
        second = _header_at(view, position)
        behind = position + second.size if second is not None else view.size
        first = _header_at(view, behind)
        if second is None or first is None or not _is_proven(first, second, expected):
            return False
        evidence = f"offset {first.base_offset} stands behind offset {second.base_offset}"
        self._note(Damage.BATCHES_SWAPPED, view, position, second, evidence)
        self._parts = _exchanged(self._parts, position, second.size, first.size)
        return True

    def _note(self, kind: Damage, view: _OrderedFile, position: int, batch: BatchHeader, evidence: str) -> None:
        place = view.on_disk(position)
        first, last = batch.base_offset, batch.last_offset
        self._findings.append(Finding(kind, self._files.log, evidence, place, batch.size, first, last))


def _is_proven(first: BatchHeader, second: BatchHeader, expected: int) -> bool:
    """Tell whether two batches that stand the other way round belong in this order.

    Their offsets join without a gap, before and between. No checksum covers a base offset, so two batches of the same
    length could also have got each other's: then something that is covered must tell which one was written first.
    """
    if min(first.magic, second.magic) < 2 or first.leader_epoch > second.leader_epoch:
        return False
    if first.base_offset != expected or first.last_offset + 1 != second.base_offset:
        return False
    count, other_count = (batch.last_offset - batch.base_offset + 1 for batch in (first, second))
    is_one_producer = first.producer_id == second.producer_id and first.producer_epoch == second.producer_epoch
    if is_one_producer and min(first.base_sequence, second.base_sequence) >= 0:
        return second.base_sequence == add_to_sequence(first.base_sequence, count)
    is_by_append_time = bool(first.attributes & second.attributes & _APPEND_TIME)
    return count != other_count or (is_by_append_time and first.max_timestamp < second.max_timestamp)


def _header_at(file: _OrderedFile, position: int) -> BatchHeader | None:
    """Return the header at a position; None where no whole batch begins."""
    head = bytearray(_HEADER)
    count = file.read_into(position, memoryview(head))
    try:
        header = parse_header(bytes(head[:count]))
    except BatchCorrupt:
        return None
    return header if position + header.size <= file.size else None


def _are_equal(file: _OrderedFile, one: int, other: int, size: int) -> bool:
    for at in range(0, size, _COMPARED):
        parts = [bytearray(min(_COMPARED, size - at)) for _ in range(2)]
        for part, position in zip(parts, (one, other), strict=True):
            if file.read_into(position + at, memoryview(part)) < len(part):
                return False
        if parts[0] != parts[1]:
            return False
    return True


# ---- parts of a file as a file


def _first_bytes(parts: tuple[Part, ...], size: int) -> tuple[Part, ...]:
    return tuple(_between(parts, 0, size))


def _between(parts: tuple[Part, ...], start: int, end: int) -> Iterator[Part]:
    at = 0
    for part in parts:
        first, last = max(start - at, 0), min(end - at, part.size)
        if first < last:
            yield Part(part.position + first, last - first)
        at += part.size


def _joined(parts: Iterator[Part]) -> tuple[Part, ...]:
    made: list[Part] = []
    for part in parts:
        if made and made[-1].position + made[-1].size == part.position:
            made[-1] = Part(made[-1].position, made[-1].size + part.size)
        else:
            made.append(part)
    return tuple(made)


def _without(parts: tuple[Part, ...], position: int, size: int) -> tuple[Part, ...]:
    return _rearranged(parts, (0, position), (position + size, None))


def _exchanged(parts: tuple[Part, ...], position: int, size: int, next_size: int) -> tuple[Part, ...]:
    behind = position + size
    return _rearranged(
        parts, (0, position), (behind, behind + next_size), (position, behind), (behind + next_size, None)
    )


def _rearranged(parts: tuple[Part, ...], *ranges: tuple[int, int | None]) -> tuple[Part, ...]:
    whole = sum(part.size for part in parts)
    return _joined(part for start, end in ranges for part in _between(parts, start, whole if end is None else end))


class _OrderedFs:
    """Shows logs in order."""

    def __init__(self, inner: ReadFs, logs: Mapping[PurePath, Ordered]) -> None:
        self._inner, self._logs = inner, logs

    def entries(self, directory: PurePath) -> dict[str, FileStat]:
        return self._inner.entries(directory)

    def stat(self, path: PurePath) -> FileStat:
        ordered = self._logs.get(path)
        return self._inner.stat(path) if ordered is None else ordered.files.log_stat

    def open_read(self, path: PurePath) -> ReadFile:
        ordered = self._logs.get(path)
        file = self._inner.open_read(path)
        return file if ordered is None else _OrderedFile(file, ordered.parts)

    def free_bytes(self, directory: PurePath) -> int:
        return self._inner.free_bytes(directory)


class _OrderedFile:
    """Parts of a file, in their order, as one file."""

    def __init__(self, inner: ReadFile, parts: tuple[Part, ...]) -> None:
        self._inner, self._parts = inner, parts
        self.size = sum(part.size for part in parts)

    def on_disk(self, position: int) -> int:
        """Return where a byte lies in the file itself."""
        return next(_between(self._parts, position, position + 1)).position

    def read_into(self, position: int, target: memoryview) -> int:
        done = 0
        for part in _between(self._parts, position, position + len(target)):
            count = self._inner.read_into(part.position, target[done : done + part.size])
            done += count
            if count < part.size:
                break
        return done

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
