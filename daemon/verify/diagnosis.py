"""The second look at a bad segment: reads it again, past the page cache, and returns each fault with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from daemon.ledger.disk import DeviceFile, Disk
from daemon.verify.options import ScrubOptions
from daemon.verify.segment_scan import ClosedScan, Seen, are_same, check_txn_index, segment_files, tells
from recovery.plan.findings import Damage, Finding, Subject
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import ScanOptions
from recovery.segment.verify import damage_finding, find_damage, scan_segment
from storage.base.errors import FileVanished, ReadFault
from storage.disk.fs import ReadFile
from storage.reading.log_reader import LogReader, LogScan

ON_DISK, TRANSIENT, UNCONFIRMED = "on disk", "transient", "unconfirmed"
_MOST: Final = 16
"""Places of damage that are reported in one segment."""


@dataclass(slots=True)
class Diagnosis:
    """The result of a second look. With `moved` the files changed meanwhile: it is void and must be repeated."""

    findings: list[Finding] = field(default_factory=list)
    from_device: bool = True
    moved: bool = False
    digest: str = ""

    @property
    def certainty(self) -> str:
        """Whether the bad bytes are certainly on the disk."""
        if not self.findings:
            return TRANSIENT
        return ON_DISK if self.from_device else UNCONFIRMED


class _Again(Disk):
    """Opens files for a second look; `from_device` tells whether all bytes came from the device."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk
        self.entries, self.stat, self.free_bytes = disk.entries, disk.stat, disk.free_bytes
        self._opened: list[ReadFile] = []

    def open_read(self, path: PurePath) -> DeviceFile:
        file = self._disk.open_again(path)
        self._opened.append(file)
        return file

    @property
    def from_device(self) -> bool:
        return all(self._disk.is_from_device(file) for file in self._opened)


def diagnose_closed(disk: Disk, directory: PurePath, base: int, options: ScrubOptions, reader: LogReader) -> Diagnosis:
    """Read a closed segment and its indexes again. `FileVanished` if it is gone, or is the active one now."""
    if max(disk.bases(directory), default=base) == base:
        raise FileVanished("looking again", directory, OSError(2, "it is not a closed segment any more"))
    again, before = _Again(disk), segment_files(disk, directory, base)
    scan_options = ScanOptions(options.index_interval_bytes, options.segment_index_bytes, None)
    report = scan_segment(again, before, scan_options, reader, in_scope=False, active=False)
    findings = [finding for finding in report.findings if tells(finding)]
    is_gone = any(finding.kind is Damage.VANISHED for finding in report.findings)
    if report.damage is not None:  # indexes that point behind it follow from it, and are no findings of their own
        findings = [f for f in findings if f.kind.subject not in (Subject.INDEX, Subject.PADDING, Subject.LOG)]
        begin = Seen(report.damage.position, report.damage.next_offset)
        findings += find_damages(again, before, begin, None, reader)
    else:
        findings += _txn_findings(again, before)
    after = segment_files(disk, directory, base)
    moved = is_gone or not are_same(before, after)
    return Diagnosis(findings, again.from_device, moved, f"{report.digest:016x}")


def _txn_findings(disk: Disk, files: SegmentFiles) -> list[Finding]:
    try:
        return check_txn_index(disk, files)
    except FileVanished:
        return []
    except ReadFault as fault:
        return [Finding(Damage.READ_ERROR, fault.path, str(fault))]


def diagnose_flushed(
    disk: Disk, directory: PurePath, base: int, begin: Seen, point: int, reader: LogReader
) -> Diagnosis:
    """Read the flushed bytes of a segment again, from `begin` on. `FileVanished` if it is gone."""
    again, before = _Again(disk), segment_files(disk, directory, base)
    try:
        findings = find_damages(again, before, begin, point, reader)
    except FileVanished:
        return Diagnosis(moved=True)
    except ReadFault as fault:
        findings = [Finding(Damage.READ_ERROR, fault.path, str(fault), first_offset=begin.next_offset)]
    after = disk.stat(before.log)
    # It may have grown; after any other change the bytes that were read are void.
    moved = after.inode != before.log_stat.inode or after.size < before.log_stat.size
    return Diagnosis(findings, again.from_device, moved)


def find_damages(disk: Disk, files: SegmentFiles, begin: Seen, point: int | None, reader: LogReader) -> list[Finding]:
    """Return every place from `begin` on where the chain of batches is broken, below `point` if there is one.

    Raises `ReadFault` and `FileVanished`.
    """
    findings: list[Finding] = []
    size, position, next_offset = files.log_stat.size, begin.position, begin.next_offset
    with disk.open_read(files.log) as file:
        while len(findings) < _MOST:
            scan = reader.scan(file, files.log, size, next_offset, lambda *_: None, start=position)
            if scan.valid_size < position:  # blamed on a batch before: all that is known is that here it ends
                scan = LogScan(position, next_offset, scan.stop)
            damage = find_damage(file, files, scan)
            if damage is None or (point is not None and damage.next_offset >= point):
                break
            finding = damage_finding(files, damage)
            if damage.sound_at is None:
                findings.append(finding if point is None else finding._replace(last_offset=point - 1))
                break
            position, next_offset = damage.sound_at, _base_at(file, damage.sound_at)
            findings.append(
                finding._replace(
                    size=position - damage.position,
                    last_offset=next_offset - 1,
                    next_good_offset=next_offset,
                )
            )
    return findings


def _base_at(file: ReadFile, position: int) -> int:
    base = memoryview(bytearray(8))
    file.read_into(position, base)
    return int.from_bytes(base, "big", signed=True)


def digest_again(disk: Disk, directory: PurePath, base: int, reader: LogReader) -> Diagnosis:
    """Return the digest of a closed segment, read again from the device; `moved` if it is not sound."""
    again, files = _Again(disk), segment_files(disk, directory, base)
    scan = ClosedScan(again, files, reader)
    try:
        is_last = False
        while not is_last:
            _, is_last = scan.advance()
        sound = scan.is_sound()
    finally:
        scan.close()
    moved = not sound or not are_same(files, segment_files(disk, directory, base))
    return Diagnosis([], again.from_device, moved, scan.digest)


def lost_offsets(findings: Sequence[Finding]) -> bool:
    """Tell whether records are damaged, not only files that can be rebuilt from them."""
    return any(finding.kind.subject is Subject.LOG for finding in findings)
