"""Surveys one partition directory and plans its recovery. Reads only; the caller runs the scans and the plan.

`Survey.prepare` lists the directory and says which segments have to be scanned; `Survey.plan` folds what the scans saw
into a plan. Between the two the scans may run on any thread, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from checkpoint.leader_epoch import FILE_NAME as EPOCHS_NAME
from checkpoint.leader_epoch import EpochStart, decode_epochs, decode_leading
from checkpoint.markers import PARTITION_METADATA, decode_partition_metadata
from recovery.kraft.metadata_snapshots import check_metadata_snapshot
from recovery.partition.inventory import Inventory, Resolved, resolve, swap_logs, take_inventory
from recovery.partition.points import SMALL_FILE_LIMIT, Points, is_tiered
from recovery.plan.findings import Damage, Finding, Subject
from recovery.plan.plan import DEFAULT_INDEX_BYTES, DEFAULT_INDEX_INTERVAL, Coverage, PlanOptions
from recovery.segment.index_checks import load_checked
from recovery.segment.marks import Circumstances
from recovery.segment.memory import Job, Memory
from recovery.segment.quick_look import check_segments
from recovery.segment.segment_report import ROOM, Depth, Progress, Room, ScanOptions, SegmentReport
from recovery.segment.verify import scan_from_marks, scan_segment
from storage.base.errors import CorruptData, FileVanished, ReadFault, UnsupportedFormat
from storage.base.names import FileRole, FileState, parse_directory_name
from storage.base.units import Offset
from storage.disk.fs import ReadFs, read_all
from storage.index.txn_index import LoadSanity, check_as_on_load
from storage.producers.producer_state import ProducerState, decode_snapshot
from storage.reading.log_reader import LogReader

_UNKNOWN: Final = ""
"""A topic id that is there and cannot be read."""


class EpochFile(NamedTuple):
    """What the leader epoch file of a partition says."""

    entries: Sequence[EpochStart] | None = None
    """As a broker reads them; None where the file is missing or a broker refuses it."""
    leading: Sequence[EpochStart] = ()
    """Those of the leading lines that are whole and rise."""
    is_whole: bool = False
    """These are all."""
    fault: Finding | None = None
    """Why a broker refuses the file."""


class Survey:
    """One partition on its way from a listing to a plan."""

    __slots__ = (
        "derive_from", "directory", "epoch_file", "findings", "fs", "inventory", "jobs", "memory", "options",
        "partition", "points", "resolved", "room", "scope", "shallow", "state", "whole_from", "whole_state",
    )  # fmt: skip

    def __init__(
        self,
        fs: ReadFs,
        directory: PurePath,
        partition: str,
        points: Points,
        options: PlanOptions,
        room: Room | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`memory` is what an earlier look has seen."""
        self.fs, self.directory, self.partition = fs, directory, partition
        self.points, self.options, self.room, self.memory = points, options, room or Room(ROOM), memory
        self.findings: list[Finding] = []
        self.jobs: list[Job] = []
        self.scope = 0
        """Index of the first segment that a broker would scan; the number of segments if none."""
        self.derive_from = 0
        """Index of the first segment whose scan feeds the producer state; the number of segments if none."""
        self.state: ProducerState | None = None
        self.whole_from = 0
        self.whole_state: ProducerState | None = None
        """With everything read: from which segment on, and from which state, the side files can be held against it."""
        self.epoch_file = EpochFile()
        self.forget()

    def forget(self) -> None:
        """Drop the listing and the reports made without a scan; a plan needs neither once it is made."""
        self.inventory, self.resolved = Inventory(self.directory), Resolved()
        self.shallow: dict[int, SegmentReport] = {}

    # ---- what is to be read

    def prepare(self, reader: LogReader) -> None:
        """List the directory, look at what needs only a look, and fill `jobs`. Faults of the disk become findings."""
        try:
            self._prepare(reader)
        except FileVanished as fault:
            self.findings.append(Finding(Damage.VANISHED, fault.path, str(fault)))
        except ReadFault as fault:
            self.findings.append(Finding(Damage.READ_ERROR, fault.path, str(fault)))

    def _prepare(self, reader: LogReader) -> None:
        self.inventory = take_inventory(self.fs, self.directory, self.options.user, running=self.points.running)
        self.findings += self.inventory.findings
        swaps = self._swap_ends(reader)
        self.resolved = resolve(self.inventory, swaps, frees_deleted=self.options.frees_deleted)
        self.findings += self.resolved.findings
        segments = self.resolved.segments
        self.scope = self._first_in_scope()
        self.epoch_file = self._read_epochs()
        scan_options = self.scan_options
        next_base = segments[self.scope].base_offset if self.scope < len(segments) else None
        reports = check_segments(self.fs, segments[: self.scope], next_base, scan_options, reader)
        if reports and self._is_above_its_point(reports[-1].next_offset):
            self.points = self.points._replace(clean=False)
            self.scope = self._first_in_scope()
            reports = reports[: self.scope]
        wanted = set(range(self.scope, len(segments)))
        for number, report in enumerate(reports):
            self.shallow[report.base_offset] = report
            # Also where the whole of it is read next, maybe without an error: a disk that failed once is not believed.
            self.findings += [f for f in report.findings if f.kind in (Damage.READ_ERROR, Damage.VANISHED)]
            # The marker does not vouch for what is put in place of a log that it spoke of.
            if self._needs_scan(report) or segments[number].names[0].endswith(FileState.SWAP.value):
                wanted.add(number)
        if self.options.depth != Depth.QUICK.value or self._epochs_are_lost():
            wanted |= set(range(len(segments)))
        self._choose_producer_start(wanted)
        if self.points.metadata and self.options.depth != Depth.QUICK.value:
            self._check_metadata_snapshots()
        last = len(segments) - 1
        self.jobs = [Job(segments[n], in_scope=n >= self.scope, active=n == last) for n in sorted(wanted)]

    def _check_metadata_snapshots(self) -> None:
        for name, entry in self.inventory.entries.items():
            if entry.file.role is FileRole.METADATA_SNAPSHOT and entry.file.state is FileState.LIVE:
                self.findings += check_metadata_snapshot(self.fs, self.directory / name, entry.stat.size)

    @property
    def coverage(self) -> Coverage:
        """How much of the logs is read whole, by us or a guard; before `forget`."""
        sizes = {True: 0, False: 0}
        for job in self.jobs:
            sizes[job.in_scope] += job.files.log_stat.size
        total = sum(files.log_stat.size for files in self.resolved.segments)
        return Coverage(sizes[True], sizes[False], total - sum(sizes.values()))

    @property
    def scan_options(self) -> ScanOptions:
        """What a scan of this partition's segments needs to know."""
        options = self.options
        depth = Depth.RECORDS if options.depth == Depth.RECORDS.value else Depth.FULL
        interval, index_bytes = options.index_interval_bytes, options.segment_index_bytes
        if self.points.metadata:  # whatever the broker's settings: it has its own, and these are not among them
            interval, index_bytes = DEFAULT_INDEX_INTERVAL, DEFAULT_INDEX_BYTES
        return ScanOptions(
            interval,
            index_bytes,
            options.now_ms,
            depth,
            self.room,
            ends_active=options.clean_marker or self.may_roll,
            running=self.points.running,
        )

    @property
    def may_roll(self) -> bool:
        """A hand-over may end the active segment, which then needs the closing entry of its time index."""
        least, segments, points = self.options.roll_from, self.resolved.segments, self.points
        if least is None or not segments or points.clean or points.metadata or not _is_regular(self.partition):
            return False
        # A local tier of one empty segment is not yet tried with a broker.
        return segments[-1].log_stat.size >= least and not is_tiered(points, segments[0].base_offset)

    @property
    def trims_padding(self) -> bool:
        """Zero bytes behind the entries of the active segment's indexes have to go.

        A marker vouches for these files as they are. A broker before 0.11, which keeps no leader epochs, takes the zero
        bytes for corruption whenever it loads them.
        """
        if self.points.running:
            return False
        return self.points.marker or self.options.clean_marker or EPOCHS_NAME not in self.inventory.entries

    def run(self, job: Job, reader: LogReader, progress: Progress) -> SegmentReport:
        """Scan one segment; may be called on any thread, with a reader of that thread."""
        known = None if self.memory is None else self.memory.recall(self.fs, job)
        known = known or self._run_from_mark(job, reader)
        if known is not None:
            progress(job.files.log_stat.size)
            return known
        return scan_segment(
            self.fs, job.files, self.scan_options, reader, in_scope=job.in_scope, active=job.active, progress=progress
        )

    def _run_from_mark(self, job: Job, reader: LogReader) -> SegmentReport | None:
        """Return the report on a segment that was read from a guard's mark on; None if all of it is to be read."""
        guarded = None if self.memory is None else self.memory.guarded
        marks = () if guarded is None else guarded.marks.get((self.partition, job.files.base_offset), ())
        if not marks or guarded is None or not (job.in_scope and self._takes_marks()):
            return None
        options = self.scan_options
        topic_id = self._topic_id()
        if topic_id == _UNKNOWN:
            return None
        now = Circumstances(
            self.partition, topic_id, options.index_interval_bytes, options.segment_index_bytes, guarded.boot_id
        )
        return scan_from_marks(self.fs, job.files, options, reader, marks, now, active=job.active)

    def _takes_marks(self) -> bool:
        """Tell whether marks may spare a scan: that of what is not flushed, and nothing that was asked for."""
        options, points = self.options, self.points
        is_asked_for = options.depth != Depth.QUICK.value or options.accept_loss or options.clean_marker
        return not (is_asked_for or points.running or points.metadata) and _is_regular(self.partition)

    def _topic_id(self) -> str | None:
        """Return the topic id of the directory, None where a broker has written none."""
        if self.inventory.stat_of(PARTITION_METADATA) is None:
            return None
        try:
            data = read_all(self.fs, self.directory / PARTITION_METADATA, SMALL_FILE_LIMIT)
            return decode_partition_metadata(data).topic_id.hex()
        except (CorruptData, ReadFault):
            return _UNKNOWN

    def _swap_ends(self, reader: LogReader) -> dict[int, int]:
        ends = {}
        for base, path in swap_logs(self.inventory).items():
            size = self.fs.stat(path).size
            with self.fs.open_read(path) as file:
                scan = reader.walk(file, path, size, base, lambda *_: None)
            ends[base] = scan.next_offset
        return ends

    def _first_in_scope(self) -> int:
        segments = self.resolved.segments
        if self.points.clean:
            return len(segments)
        point = self.points.recovery_point or 0
        below = [n for n, files in enumerate(segments) if files.base_offset <= point]
        return below[-1] if below else 0

    def _is_above_its_point(self, log_end: int) -> bool:
        """Tell whether the marker does not vouch for this log, which is then read as after a crash.

        A broker that stops cleanly leaves the recovery points at the log ends, and so does a recovery, but for a log
        that it held.
        """
        point = self.points.recovery_point
        return self.points.clean and point is not None and point < log_end

    def _needs_scan(self, report: SegmentReport) -> bool:
        if report.damage is not None:
            return True
        return any(finding.kind.subject in (Subject.INDEX, Subject.PADDING) for finding in report.findings)

    def _read_epochs(self) -> EpochFile:
        path = self.directory / EPOCHS_NAME
        if self.inventory.stat_of(EPOCHS_NAME) is None:
            return EpochFile()
        data = read_all(self.fs, path, SMALL_FILE_LIMIT)
        leading, is_whole = decode_leading(data)
        try:
            return EpochFile(decode_epochs(data), leading, is_whole)
        except UnsupportedFormat as error:
            self.findings.append(Finding(Damage.UNSUPPORTED, path, error.reason))
        except CorruptData as error:
            return EpochFile(None, leading, is_whole, Finding(Damage.EPOCHS_CORRUPT, path, error.reason))
        return EpochFile()

    def _epochs_are_lost(self) -> bool:
        """A broker would start with an empty history, or with a torn one; reading every header gives the true one."""
        file = self.epoch_file
        is_torn = bool(file.leading) and not file.is_whole
        return (file.entries is None or is_torn) and not any(f.kind is Damage.UNSUPPORTED for f in self.findings)

    def _choose_producer_start(self, wanted: set[int]) -> None:
        """Find the newest sound snapshot at or below the first segment that must be replayed; add what lies between."""
        segments = self.resolved.segments
        if self.options.depth != Depth.QUICK.value:
            self._choose_whole_start()
        self.derive_from = min([self.scope, *self._with_bad_txn_index()], default=self.scope)
        if self.options.accept_loss:  # then the log may be cut in any segment that is read, and end with its producers
            self.derive_from = min([self.derive_from, *wanted])
        if self.points.clean and self.derive_from == len(segments) and segments:
            self.derive_from = self._replay_after_clean_stop()
        if self.derive_from >= len(segments):
            return
        base = segments[self.derive_from].base_offset
        self.state = ProducerState(map_end_offset=Offset(segments[0].base_offset))
        start = 0
        for offset in sorted((o for o in self.resolved.snapshots if self.points.log_start < o <= base), reverse=True):
            state = self._read_snapshot(offset)
            if state is not None:
                self.state = state
                start = max(n for n, files in enumerate(segments) if files.base_offset <= offset or n == 0)
                break
        self.derive_from = min(start, self.derive_from)
        wanted |= set(range(self.derive_from, len(segments)))

    def _choose_whole_start(self) -> None:
        """Find the first segment at whose base the producers are known: the log's beginning, or a sound snapshot."""
        for number, files in enumerate(self.resolved.segments):
            base = files.base_offset
            state = ProducerState() if base == self.points.log_start == 0 else None
            if base > self.points.log_start and base in self.resolved.snapshots:
                state = self._read_snapshot(base)
            if state is not None:
                self.whole_from, self.whole_state = number, state
                return

    def _with_bad_txn_index(self) -> list[int]:
        bad = []
        for number, files in enumerate(self.resolved.segments[: self.scope]):
            if files.txn_index_stat is None or files.txn_index_stat.size == 0:
                continue
            data = load_checked(self.fs, files.txn_index, min(files.txn_index_stat.size, SMALL_FILE_LIMIT))
            if len(data) % 34 or check_as_on_load(data, Offset(files.base_offset)) is not LoadSanity.SOUND:
                self.findings.append(Finding(Damage.TXN_INDEX_CORRUPT, files.txn_index, "not a list of sound entries"))
                bad.append(number)
        return bad

    def _replay_after_clean_stop(self) -> int:
        """After a clean stop the newest snapshot stands at the log end; without any, a broker forgets all producers."""
        segments = self.resolved.segments
        newest = max(self.resolved.snapshots, default=None)
        last = self.shallow[segments[-1].base_offset]
        if newest is not None and newest >= segments[-1].base_offset and self._read_snapshot(newest) is not None:
            return len(segments)
        if last.next_offset <= max(self.points.log_start, segments[0].base_offset) or last.magics & 0b100 == 0:
            return len(segments)
        return len(segments) - 1

    def _read_snapshot(self, offset: int) -> ProducerState | None:
        path = self.directory / self.resolved.snapshots[offset]
        try:
            return decode_snapshot(read_all(self.fs, path, SMALL_FILE_LIMIT), Offset(offset))
        except UnsupportedFormat as error:
            self.findings.append(Finding(Damage.UNSUPPORTED, path, error.reason))
        except CorruptData as error:
            if not any(f.path == path for f in self.findings):
                self.findings.append(Finding(Damage.SNAPSHOT_CORRUPT, path, error.reason))
        return None


def _is_regular(name: str) -> bool:
    try:
        return parse_directory_name(name).state is None
    except CorruptData:
        return False
