"""Holds `.index` and `.timeindex` against the batches of their log.

Three ways, by what is known: the shape alone (constant time), byte equality with what Kafka's own recovery would
write, and, where that does not hold, validity against batches as they stream by.
Source: Apache Kafka 4.3.0, OffsetIndex, TimeIndex, LogSegment.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from recovery.plan.findings import Damage, Finding
from recovery.segment.segment_files import SegmentFiles
from recovery.segment.segment_report import ScanOptions
from storage.base.errors import FileVanished
from storage.base.layout import Layout
from storage.base.units import Offset
from storage.disk.fs import FileStat, ReadFs
from storage.index.indexes import OFFSET_ENTRY, TIME_ENTRY, IndexFaultKind, OffsetIndexCheck, TimeIndexCheck
from storage.reading.log_reader import is_zero

if TYPE_CHECKING:
    from storage.kernel.fold import SegmentFold

_SHORT_BYTES: Final = 16 << 20
"""A log may go on this far behind its last index entry: followers add one entry for a whole fetch, never more."""
_LOAD_LIMIT: Final = 64 << 20
_FIRST_LOOK: Final = 60 << 10  # a multiple of both widths


class Kinds(NamedTuple):
    """The findings of one of the two kinds of index."""

    missing: Damage
    short: Damage
    misordered: Damage
    off_batch: Damage
    past_end: Damage
    padded: Damage
    preallocated: Damage


OFFSET_KINDS: Final = Kinds(
    Damage.INDEX_MISSING,
    Damage.INDEX_SHORT,
    Damage.INDEX_MISORDERED,
    Damage.INDEX_OFF_BATCH,
    Damage.INDEX_PAST_END,
    Damage.INDEX_PADDED,
    Damage.INDEX_PREALLOCATED,
)
TIME_KINDS: Final = Kinds(
    Damage.TIME_INDEX_MISSING,
    Damage.TIME_INDEX_SHORT,
    Damage.TIME_INDEX_MISORDERED,
    Damage.TIME_INDEX_OFF_BATCH,
    Damage.TIME_INDEX_PAST_END,
    Damage.TIME_INDEX_PADDED,
    Damage.TIME_INDEX_PREALLOCATED,
)


def _load(fs: ReadFs, path: PurePath, stat: FileStat) -> bytes:
    """Return an index up to where only zero bytes follow, 64 MiB at most: no segment of 2 GiB has more in practice.

    Nearly all of a preallocated index is a hole, which is not read.
    """
    limit = min(stat.size, _LOAD_LIMIT)
    size = min(limit, _FIRST_LOOK)
    with fs.open_read(path) as file:
        while size < limit and not is_zero(file, size, limit, skip_holes=True):
            size = min(2 * size, limit)
        target = bytearray(size)
        with memoryview(target) as view:
            return bytes(view[: file.read_into(0, view)])


def _read(fs: ReadFs, path: PurePath, position: int, size: int) -> bytes:
    target = bytearray(size)
    with fs.open_read(path) as file, memoryview(target) as view:
        return bytes(view[: file.read_into(position, view)])


# ---- shape


class IndexTails(NamedTuple):
    """The last two entries of each index, or fewer; empty where there is none or its size says enough."""

    offset: bytes = b""
    time: bytes = b""


def tail_size(stat: FileStat | None, width: int) -> int:
    """Return how many bytes at the end of an index its shape is told by; 0 where the size alone tells."""
    return 0 if stat is None or stat.size % width else min(stat.size, 2 * width)


def check_index_shapes(
    files: SegmentFiles, tails: IndexTails, options: ScanOptions, *, active: bool
) -> tuple[list[Finding], int]:
    """Look at the ends of both indexes; return findings, and a position from which to walk the log.

    That is the one of the last index entry where it can be believed, else 0.
    """
    found: list[Finding] = []
    start = _offset_shape(files, tails.offset, options, found, active=active)
    _time_shape(files, tails.time, found, active=active)
    return found, start


def _offset_shape(
    files: SegmentFiles, tail: bytes, options: ScanOptions, findings: list[Finding], *, active: bool
) -> int:
    stat, width = files.index_stat, OFFSET_ENTRY.size
    if stat is None:
        findings.append(Finding(OFFSET_KINDS.missing, files.index, "the file is not there"))
        return 0
    if stat.size % width:
        evidence = f"{stat.size} bytes are no multiple of {width}"
        findings.append(Finding(OFFSET_KINDS.misordered, files.index, evidence))
        return 0
    if stat.size == 0:
        if files.log_stat.size > _SHORT_BYTES + options.index_interval_bytes:
            evidence = f"empty beside {files.log_stat.size} bytes of log"
            findings.append(Finding(OFFSET_KINDS.short, files.index, evidence))
        return 0
    last = stat.size - width
    relative, position = OFFSET_ENTRY.unpack_from(tail, len(tail) - width)
    if (relative, position) == (0, 0):
        kind = OFFSET_KINDS.preallocated if active else OFFSET_KINDS.padded
        findings.append(Finding(kind, files.index, "zero bytes behind the last entry", position=last))
        return 0
    if relative < 0 or position <= 0 or not _rises(OFFSET_ENTRY, tail, relative, position):
        findings.append(Finding(OFFSET_KINDS.misordered, files.index, "the last entry does not rise", position=last))
        return 0
    if position >= files.log_stat.size:
        evidence = f"the last entry points to {position}, the log has {files.log_stat.size} bytes"
        findings.append(Finding(OFFSET_KINDS.past_end, files.index, evidence, position=last))
        return 0
    if files.log_stat.size - position > _SHORT_BYTES + options.index_interval_bytes:
        evidence = f"the last entry points to {position}, the log has {files.log_stat.size} bytes"
        findings.append(Finding(OFFSET_KINDS.short, files.index, evidence))
    return int(position)


def _rises(entry: Layout, tail: bytes, first: int, second: int) -> bool:
    """Tell whether the last entry, which is `first` and `second`, lies above the one before it, if there is one."""
    if len(tail) == entry.size:
        return True
    before_first, before_second = entry.unpack_from(tail)
    return bool(before_first < first and before_second < second)


def _time_shape(files: SegmentFiles, tail: bytes, findings: list[Finding], *, active: bool) -> None:
    stat, width = files.time_index_stat, TIME_ENTRY.size
    if stat is None:
        findings.append(Finding(TIME_KINDS.missing, files.time_index, "the file is not there"))
        return
    if stat.size % width:
        evidence = f"{stat.size} bytes are no multiple of {width}"
        findings.append(Finding(TIME_KINDS.misordered, files.time_index, evidence))
        return
    if stat.size == 0:
        return
    last = stat.size - width
    timestamp, relative = TIME_ENTRY.unpack_from(tail, len(tail) - width)
    if (timestamp, relative) == (0, 0):
        kind = TIME_KINDS.preallocated if active else TIME_KINDS.padded
        evidence = "zero bytes behind the last entry: a broker takes the largest timestamp for 0, and retention deletes"
        findings.append(Finding(kind, files.time_index, evidence, position=last))
    elif timestamp < 0 or relative < 0 or not _rises(TIME_ENTRY, tail, timestamp, relative):
        findings.append(Finding(TIME_KINDS.misordered, files.time_index, "the last entry does not rise", position=last))


# ---- against batches as they stream by


IndexChecks: TypeAlias = tuple[OffsetIndexCheck | TimeIndexCheck, ...]


class Judgement(NamedTuple):
    """Findings on both indexes; of those that hold nothing false but zero bytes at their end, the length without."""

    findings: list[Finding]
    trims: dict[PurePath, int]


def check_against_batches(fs: ReadFs, files: SegmentFiles) -> IndexChecks:
    """Read both indexes; return the checks to be fed with the rows of a scan."""
    checks: list[OffsetIndexCheck | TimeIndexCheck] = []
    base = Offset(files.base_offset)
    if (stat := files.index_stat) is not None:
        checks.append(OffsetIndexCheck(_load(fs, files.index, stat), base, size=stat.size))
    if (stat := files.time_index_stat) is not None:
        checks.append(TimeIndexCheck(_load(fs, files.time_index, stat), base, size=stat.size))
    return tuple(checks)


def finish_against_batches(
    fs: ReadFs,
    checks: IndexChecks,
    files: SegmentFiles,
    valid_size: int,
    fold: SegmentFold,
    *,
    active: bool,
    ends: bool,
) -> Judgement:
    """Return what the checks have found once every row of the segment has been fed to them.

    An index is right if every entry is, whatever interval it was written with. `active`: a running broker keeps zero
    bytes behind the entries. `ends`: the last entry of the time index has to be the largest timestamp.
    """
    judged = Judgement([], {})
    if files.index_stat is None:
        judged.findings.append(Finding(OFFSET_KINDS.missing, files.index, "the file is not there"))
    if files.time_index_stat is None:
        judged.findings.append(Finding(TIME_KINDS.missing, files.time_index, "the file is not there"))
    for check in checks:
        is_offset = isinstance(check, OffsetIndexCheck)
        kinds, path = (OFFSET_KINDS, files.index) if is_offset else (TIME_KINDS, files.time_index)
        fault = check.finish(valid_size)
        if fault is not None and fault.kind is IndexFaultKind.PAST_END and _has_grown(fs, files):
            continue  # a broker has appended since the log was listed
        is_short = ends and isinstance(check, TimeIndexCheck) and not check.has_closing_entry()
        if fault is not None:
            if fault.kind is not IndexFaultKind.PADDED:
                kind = getattr(kinds, fault.kind.value)
                judged.findings.append(Finding(kind, path, fault.reason, position=fault.position))
                continue
            zeroes = check.size - fault.position
            is_time = not is_offset
            judged.findings.append(padding_finding(path, fault.position, zeroes, is_time=is_time, active=active))
            if not is_short:
                judged.trims[path] = fault.position
        elif is_short:
            evidence = f"the largest timestamp, {fold.max_timestamp}, is not in it"
            judged.findings.append(Finding(kinds.short, path, evidence))
    return judged


def _has_grown(fs: ReadFs, files: SegmentFiles) -> bool:
    return fs.stat(files.log).size > files.log_stat.size


# ---- against what Kafka's recovery writes


def rebuilt_indexes(files: SegmentFiles, fold: SegmentFold) -> dict[PurePath, bytes]:
    """Return the content of both indexes that Kafka's recovery would write beside the sound part of the log."""
    return {files.index: fold.offset_index(), files.time_index: fold.time_index()}


def is_as_rebuilt(fs: ReadFs, path: PurePath, stat: FileStat | None, wanted: bytes) -> bool:
    """Tell whether an index holds, byte for byte, what a recovery would write, and at most zero bytes behind it."""
    if stat is None or stat.size < len(wanted) or _read(fs, path, 0, len(wanted)) != wanted:
        return False
    if stat.size == len(wanted):
        return True
    with fs.open_read(path) as file:
        return is_zero(file, len(wanted), stat.size, skip_holes=True)  # a preallocated index is nearly all hole


def padding_finding(path: PurePath, size: int, zeroes: int, *, is_time: bool, active: bool) -> Finding:
    """Return the finding on the zero bytes behind the `size` bytes of entries of an index."""
    kinds, width = (TIME_KINDS, TIME_ENTRY.size) if is_time else (OFFSET_KINDS, OFFSET_ENTRY.size)
    kind = kinds.preallocated if active and zeroes % width == 0 else kinds.padded
    evidence = f"{zeroes} zero bytes behind the last entry"
    if kind is TIME_KINDS.padded:
        evidence += ": a broker takes the largest timestamp for 0, and retention deletes"
    return Finding(kind, path, evidence, position=size)


def load_checked(fs: ReadFs, path: PurePath, size: int) -> bytes:
    """Return exactly `size` bytes of a file that was listed with that size; `FileVanished` if it has shrunk since."""
    data = _read(fs, path, 0, size)
    if len(data) < size:
        raise FileVanished("reading", path, OSError("it has shrunk"))
    return data
