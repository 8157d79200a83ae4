"""Reads segments and says what is wrong with them; changes nothing and decides nothing.

`scan_segment` reads a whole `.log` once and checks everything that can be derived from it against the files beside it.
`recovery.segment.quick_look` looks at a few places only, which is all that Kafka's flushed segments get by default.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.plan.digest import sha256_of
from recovery.plan.findings import Damage, Finding
from recovery.segment.epoch_runs import read_believed_rises
from recovery.segment.index_checks import (
    IndexChecks,
    check_against_batches,
    finish_against_batches,
    is_as_rebuilt,
    padding_finding,
    rebuilt_indexes,
)
from recovery.segment.marks import EVENT_LIMIT, Circumstances, Mark, known_indexes, prove
from recovery.segment.records import RecordsCheck
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import (
    Depth,
    LogDamage,
    Progress,
    Room,
    ScanOptions,
    SegmentReport,
    Wanted,
    kind_of,
)
from storage.base.errors import FileVanished, ReadFault
from storage.base.rows import BatchRows, Stop
from storage.disk.fs import FileStat, ReadFile, ReadFs
from storage.index.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetIndexCheck, TimeIndexCheck
from storage.kernel.fold import ProducerEvents, SegmentFold
from storage.reading.log_reader import LogReader, LogScan, find_sound_batch, is_zero

_FUTURE_MS: Final = 24 * 3600 * 1000
_KNOWN_CODECS: Final = 0b11111
_LEFT_BY_A_CRASH: Final = (Damage.TORN_TAIL, Damage.ZERO_TAIL)


def scan_segment(
    fs: ReadFs,
    files: SegmentFiles,
    options: ScanOptions,
    reader: LogReader,
    *,
    in_scope: bool,
    active: bool,
    progress: Progress = lambda _: None,
    refuse: int | None = None,
) -> SegmentReport:
    """Read the whole segment once and report on it.

    `in_scope`: a broker that starts now scans it. `active`: it is the last segment of its log, whose indexes a running
    broker keeps preallocated. `progress` is called with the bytes read since its last call. `refuse` is the base offset
    of a batch that is known to be impossible although its checksum holds; the log is taken to end before it. What the
    operating system refuses becomes a finding.
    """
    report, passed = SegmentReport(files, options.depth, 0, files.base_offset), 0

    def count(size: int) -> None:
        nonlocal passed
        passed += size
        progress(size)

    scan = _Scan(fs, files, options, reader, report, count)
    try:
        with fs.open_read(files.log) as file:
            fold, checks = scan.run(file, refuse, in_scope=in_scope, active=active)
            progress(max(files.log_stat.size - passed, 0))
            scan.judge_indexes(file, fold, checks, in_scope=in_scope, active=active)
    except FileVanished as fault:
        report.findings.append(Finding(Damage.VANISHED, fault.path, str(fault)))
    except ReadFault as fault:
        report.findings.append(Finding(Damage.READ_ERROR, fault.path, str(fault)))
    return report


def scan_from_marks(
    fs: ReadFs,
    files: SegmentFiles,
    options: ScanOptions,
    reader: LogReader,
    marks: Sequence[Mark],
    now: Circumstances,
    *,
    active: bool,
) -> SegmentReport | None:
    """Return what `scan_segment` would report of a segment in scope, having read what lies behind the first good mark.

    None where that is not certain: where none of them holds, where an index does not begin as it did, where more is
    wrong than a crash leaves at the end of a log, and where something cannot be read. Then all is to be read.
    """
    report = SegmentReport(files, options.depth, 0, files.base_offset)
    scan = _Scan(fs, files, options, reader, report, lambda _: None)
    try:
        with fs.open_read(files.log) as file:
            mark = next((mark for mark in marks if prove(mark, file, files, now) is None), None)
            indexes = None if mark is None else known_indexes(fs, files, mark)
            if mark is None or indexes is None or not scan.run_from(file, mark, indexes, active=active):
                return None
    except ReadFault:
        return None
    report.marked_bytes, report.marked_ms = mark.position, mark.made_ms
    return report


class _Scan(NamedTuple):
    """One reading of one segment; more than one pass over the file only where damage makes the first one void."""

    fs: ReadFs
    files: SegmentFiles
    options: ScanOptions
    reader: LogReader
    report: SegmentReport
    progress: Progress

    def run(
        self, file: ReadFile, refuse: int | None, *, in_scope: bool, active: bool
    ) -> tuple[SegmentFold, IndexChecks]:
        files, report = self.files, self.report
        # To fold without handing rows out is faster; an index that a rebuild would not give gets a pass of its own.
        checks = () if in_scope else check_against_batches(self.fs, files)
        size = files.log_stat.size
        records = self._records_check(file)
        fold, scan, refused = self._pass(file, size, checks, records, refuse)
        kind = None
        if refused is not None:
            scan, kind = LogScan(refused, 0, Stop.BAD_ORDER, blamed_earlier=True), Damage.BATCH_STATE
        if scan.blamed_earlier:
            fold, again, _ = self._pass(file, scan.valid_size, (), None, None)
            scan = LogScan(again.valid_size, again.next_offset, scan.stop)
        _take_over(report, fold, scan, self.options.room)
        if fold.epoch_fall is not None and not in_scope:  # of what it scans, a broker takes each rise for true
            rises = read_believed_rises(file, files.log, report.valid_size, files.base_offset, self.reader)
            report.epochs, report.epochs_fall = tuple(rises), True
        report.scanned_bytes = size
        report.damage = find_damage(file, files, scan, kind, self.progress)
        if self.options.running and active and report.damage is not None and report.damage.kind in _LEFT_BY_A_CRASH:
            report.damage = None
        if report.damage is not None:
            report.findings.append(damage_finding(files, report.damage))
        if records is not None:
            report.findings += records.findings
        report.findings += _notes(files, fold, self.options)
        _find_overflow(report, fold)
        return fold, checks

    def run_from(self, file: ReadFile, mark: Mark, indexes: tuple[bytes, bytes], *, active: bool) -> bool:
        """Fill the report from a mark on; False if the whole has to be read for it."""
        files, report, size = self.files, self.report, self.files.log_stat.size
        fold, start = SegmentFold.restore(mark.fold, indexes), mark.position
        scan = self.reader.fold(file, files.log, size, mark.next_offset, fold, lambda _: None, start=start)
        _take_over(report, fold, scan, self.options.room)
        report.scanned_bytes = size
        report.damage = find_damage(file, files, scan)
        if report.damage is not None:
            if report.damage.kind not in _LEFT_BY_A_CRASH:
                return False
            report.findings.append(damage_finding(files, report.damage))
        report.findings += _notes(files, fold, self.options)
        _find_overflow(report, fold)
        return self.judge_indexes(file, fold, (), in_scope=True, active=active, mark=mark)

    def _records_check(self, file: ReadFile) -> RecordsCheck | None:
        if self.options.depth is not Depth.RECORDS:
            return None
        return RecordsCheck(file, self.files.log)

    def _pass(
        self, file: ReadFile, size: int, checks: IndexChecks, records: RecordsCheck | None, refuse: int | None
    ) -> tuple[SegmentFold, LogScan, int | None]:
        options, position, refused = self.options, 0, None
        path, base_offset = self.files.log, self.files.base_offset
        fold = SegmentFold(
            base_offset,
            index_interval_bytes=options.index_interval_bytes,
            max_index_size=options.segment_index_bytes,
            event_limit=EVENT_LIMIT,
            block_offsets=options.block_offsets,
        )

        def on_rows(rows: BatchRows, count: int, window: memoryview, origin: int) -> None:
            nonlocal refused
            fold.add(rows, count)
            for check in checks:
                check.feed(rows, count)
            if records is not None:
                records.feed(rows, count, window, origin)
            if refuse is not None and refused is None:
                refused = next((rows.position[i] for i in range(count) if rows.base_offset[i] == refuse), None)
            on_folded(rows.position[count - 1] + rows.size[count - 1])

        def on_folded(end: int) -> None:
            nonlocal position
            self.progress(end - position)
            position = end

        if checks or records is not None or refuse is not None:
            scan = self.reader.scan(file, path, size, base_offset, on_rows)
        else:
            scan = self.reader.fold(file, path, size, base_offset, fold, on_folded)
        self.progress(max(scan.valid_size - position, 0))
        return fold, scan, refused

    def judge_indexes(
        self,
        file: ReadFile,
        fold: SegmentFold,
        checks: IndexChecks,
        *,
        in_scope: bool,
        active: bool,
        mark: Mark | None = None,
    ) -> bool:
        """Note what is wrong with the indexes, and what becomes of those that cannot stay as they are.

        False if what was read from a `mark` on does not tell that.
        """
        fs, files, report = self.fs, self.files, self.report
        rebuilt = rebuilt_indexes(files, fold)
        if in_scope:
            if self._is_overfull(fold):
                return True
            if report.damage is not None:
                self._want(rebuilt, rebuilt.keys(), {})
                return True
            if all(is_as_rebuilt(fs, path, self._stat_of(path), data) for path, data in rebuilt.items()):
                self._judge_padding(rebuilt, active=active)
                return True
            told = self._checked(file, mark)
            if told is None:
                return False
            checks = told
        ends = not active or self.options.ends_active
        judged = finish_against_batches(fs, checks, files, report.valid_size, fold, active=active, ends=ends)
        if self.options.running and active:  # a broker makes the index files of a new segment when it first appends
            judged = judged._replace(findings=[f for f in judged.findings if self._stat_of(f.path) is not None])
        report.findings += judged.findings
        bad = rebuilt.keys() if report.damage is not None else {finding.path for finding in judged.findings}
        if bad and (in_scope or not self._is_overfull(fold)):
            self._want(rebuilt, bad, judged.trims)
        return True

    def _judge_padding(self, rebuilt: Mapping[PurePath, bytes], *, active: bool) -> None:
        for path, data in rebuilt.items():
            stat, is_time = self._stat_of(path), path == self.files.time_index
            if stat is not None and stat.size > len(data):
                zeroes = stat.size - len(data)
                self.report.findings.append(padding_finding(path, len(data), zeroes, is_time=is_time, active=active))
                self.report.trims[path] = len(data)

    def _want(
        self, rebuilt: Mapping[PurePath, bytes], bad: AbstractSet[PurePath], trims: Mapping[PurePath, int]
    ) -> None:
        """Note of each index in `bad` what is written, or the length to which it is trimmed."""
        for path, data in ((path, data) for path, data in rebuilt.items() if path in bad):
            stat, size = self._stat_of(path), trims.get(path)
            if size is None and is_as_rebuilt(self.fs, path, stat, data):
                size = len(data)
            if size is None:
                self.report.wanted[path] = Wanted(len(data), sha256_of(data))
                if self.options.room.take(len(data)):
                    self.report.contents[path] = data
            elif stat is not None and size < stat.size:
                self.report.trims[path] = size

    def _stat_of(self, path: PurePath) -> FileStat | None:
        return self.files.index_stat if path == self.files.index else self.files.time_index_stat

    def _is_overfull(self, fold: SegmentFold) -> bool:
        if fold.index_overflow:
            limit = self.options.segment_index_bytes
            evidence = f"the log needs more entries than segment.index.bytes = {limit} allows"
            self.report.findings.append(Finding(Damage.INDEX_OVERFULL, self.files.index, evidence))
        return fold.index_overflow

    def _checked(self, file: ReadFile, mark: Mark | None) -> IndexChecks | None:
        """Return the checks of both indexes, fed with the headers of the sound part of the log.

        With a mark, of what lies behind it; None if the indexes speak of what lies below it otherwise than it does.
        """
        checks = check_against_batches(self.fs, self.files)
        start, following = (0, self.files.base_offset) if mark is None else (mark.position, mark.next_offset)
        if mark is not None and not all(_resume(check, mark) for check in checks):
            return None

        def on_rows(rows: BatchRows, count: int, *_: object) -> None:
            for check in checks:
                check.feed(rows, count)

        self.reader.walk(file, self.files.log, self.report.valid_size, following, on_rows, start=start)
        return checks


def _resume(check: OffsetIndexCheck | TimeIndexCheck, mark: Mark) -> bool:
    last = mark.next_offset - 1
    if isinstance(check, OffsetIndexCheck):
        return check.resume(mark.index_size // OFFSET_ENTRY.size, mark.position, last)
    return check.resume(mark.time_index_size // TIME_ENTRY.size, last, SegmentFold.restore(mark.fold).max_timestamp)


def _take_over(report: SegmentReport, fold: SegmentFold, scan: LogScan, room: Room) -> None:
    report.valid_size, report.next_offset = scan.valid_size, fold.next_offset
    report.batch_count, report.record_count = fold.batch_count, fold.record_count
    report.first_offset, report.max_timestamp = fold.first_offset, fold.max_timestamp
    report.epochs, report.magics, report.digest = tuple(fold.epochs), fold.magics, fold.digest
    report.blocks = fold.blocks()
    report.events = _packed(fold.producer_events, room)


def _packed(events: ProducerEvents, room: Room) -> array[int] | None:
    if events.overflowed:
        return None
    packed = events.packed()
    return packed if room.take(packed.itemsize * len(packed)) else None


def find_damage(
    file: ReadFile,
    files: SegmentFiles,
    scan: LogScan,
    known: Damage | None = None,
    progress: Progress = lambda _: None,
) -> LogDamage | None:
    """Return what is wrong where a scan ended before the file does; None if it did not. Raises `ReadFault`.

    `progress` is called with the zero bytes passed since its last call.
    """
    size = files.log_stat.size
    if scan.valid_size == size:
        return None
    position = scan.valid_size
    zeroes = is_zero(file, position, size, progress=progress)
    sound = None if zeroes else find_sound_batch(file, size, position + 1, scan.next_offset)
    kind = known or kind_of(scan.stop, zeroes=zeroes)
    if sound is None and kind in (Damage.BATCH_SIZE, Damage.BATCH_MAGIC):
        kind = Damage.GARBAGE_TAIL
    return LogDamage(kind, position, scan.next_offset, size - position, zeroes, sound)


_EVIDENCE: Final = {
    Damage.TORN_TAIL: "the last batch is incomplete",
    Damage.ZERO_TAIL: "nothing but zero bytes to the end of the file",
    Damage.GARBAGE_TAIL: "bytes that are no batch, and no sound batch behind them",
    Damage.BATCH_CRC: "the checksum does not hold",
    Damage.BATCH_SIZE: "the size field is below the least that a batch has",
    Damage.BATCH_MAGIC: "no batch begins here",
    Damage.BATCH_ORDER: "the checksum holds, but the offsets do not follow those before",
    Damage.BATCH_STATE: "the checksum holds, but no broker writes this batch after those before; it would not start",
    Damage.UNSUPPORTED: "magic above 2 with a checksum that holds: written by a newer broker",
}


def damage_finding(files: SegmentFiles, damage: LogDamage) -> Finding:
    """Return a damage as a finding."""
    evidence = _EVIDENCE[damage.kind]
    if damage.sound_at is not None:
        evidence += f"; the next sound batch is at {damage.sound_at}"
    return Finding(
        damage.kind,
        files.log,
        evidence,
        position=damage.position,
        size=damage.size,
        first_offset=damage.next_offset,
    )


def _notes(files: SegmentFiles, fold: SegmentFold, options: ScanOptions) -> list[Finding]:
    notes = []
    if fold.first_gap is not None:
        position, expected, base = fold.first_gap
        notes.append(
            Finding(
                Damage.OFFSET_GAP,
                files.log,
                f"{fold.gaps} gaps between batches; normal after compaction",
                position=position,
                first_offset=expected,
                last_offset=base - 1,
                next_good_offset=base,
            )
        )
    if fold.epoch_fall is not None:
        position, epoch, newest = fold.epoch_fall
        evidence = f"leader epoch {epoch} behind epoch {newest}"
        notes.append(Finding(Damage.EPOCH_FALL, files.log, evidence, position=position))
    if options.now_ms is not None and fold.max_timestamp > options.now_ms + _FUTURE_MS:
        evidence = f"largest timestamp {fold.max_timestamp} is in the future: retention by time keeps this segment"
        notes.append(Finding(Damage.FUTURE_TIMESTAMP, files.log, evidence))
    if fold.codecs & ~_KNOWN_CODECS:
        evidence = "a batch with a sound checksum names a codec that this release does not know"
        notes.append(Finding(Damage.UNSUPPORTED, files.log, evidence))
    return notes


def _find_overflow(report: SegmentReport, fold: SegmentFold) -> None:
    if fold.range_fault is not None:
        report.overflow_at = fold.range_fault[1]
        last = report.overflow_at
        evidence = f"offset {last} is more than 2147483647 above the segment's base: a broker would split it"
        report.findings.append(Finding(Damage.OFFSET_OVERFLOW, report.files.log, evidence))


def fold_index(fs: ReadFs, files: SegmentFiles, options: ScanOptions, reader: LogReader, *, is_time: bool) -> bytes:
    """Return the `.index`, or the `.timeindex`, that Kafka's recovery would write beside a log that is sound."""
    fold = SegmentFold(
        files.base_offset,
        index_interval_bytes=options.index_interval_bytes,
        max_index_size=options.segment_index_bytes,
        event_limit=1,
    )
    with fs.open_read(files.log) as file:
        reader.scan(
            file, files.log, files.log_stat.size, files.base_offset, lambda rows, count, *_: fold.add(rows, count)
        )
    return fold.time_index() if is_time else fold.offset_index()
