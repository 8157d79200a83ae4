"""Holds `.index` and `.timeindex` against the batches of their log.

Three ways, by what is known: the shape alone (constant time), validity against batches as they stream by, and byte
equality with what Kafka's own recovery would write. Source: Apache Kafka 4.3.0, OffsetIndex, TimeIndex, LogSegment.
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


class Kinds(NamedTuple):
    """The findings of one of the two kinds of index."""

    missing: Damage
    short: Damage
    misordered: Damage
    off_batch: Damage
    past_end: Damage
    padded: Damage
    differs: Damage
    preallocated: Damage


OFFSET_KINDS: Final = Kinds(
    Damage.INDEX_MISSING,
    Damage.INDEX_SHORT,
    Damage.INDEX_MISORDERED,
    Damage.INDEX_OFF_BATCH,
    Damage.INDEX_PAST_END,
    Damage.INDEX_PADDED,
    Damage.INDEX_DIFFERS,
    Damage.INDEX_PREALLOCATED,
)
TIME_KINDS: Final = Kinds(
    Damage.TIME_INDEX_MISSING,
    Damage.TIME_INDEX_SHORT,
    Damage.TIME_INDEX_MISORDERED,
    Damage.TIME_INDEX_OFF_BATCH,
    Damage.TIME_INDEX_PAST_END,
    Damage.TIME_INDEX_PADDED,
    Damage.TIME_INDEX_DIFFERS,
    Damage.TIME_INDEX_PREALLOCATED,
)


class IndexFiles(NamedTuple):
    """Content of the two indexes of a segment; None where the file is not there."""

    offset: bytes | None
    time: bytes | None

    @classmethod
    def load(cls, fs: ReadFs, files: SegmentFiles) -> IndexFiles:
        """Read both, at most 64 MiB each: more than any index of a 2 GiB segment has in practice."""
        return cls(
            _load(fs, files.index, files.index_stat),
            _load(fs, files.time_index, files.time_index_stat),
        )


def _load(fs: ReadFs, path: PurePath, stat: FileStat | None) -> bytes | None:
    return None if stat is None else _read(fs, path, 0, min(stat.size, _LOAD_LIMIT))


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


def _offset_shape(files: SegmentFiles, tail: bytes, options: ScanOptions, found: list[Finding], *, active: bool) -> int:
    stat, width = files.index_stat, OFFSET_ENTRY.size
    if stat is None:
        found.append(Finding(OFFSET_KINDS.missing, files.index, "the file is not there"))
        return 0
    if stat.size % width:
        evidence = f"{stat.size} bytes are no multiple of {width}"
        found.append(Finding(OFFSET_KINDS.misordered, files.index, evidence))
        return 0
    if stat.size == 0:
        if files.log_stat.size > _SHORT_BYTES + options.index_interval_bytes:
            evidence = f"empty beside {files.log_stat.size} bytes of log"
            found.append(Finding(OFFSET_KINDS.short, files.index, evidence))
        return 0
    last = stat.size - width
    relative, position = OFFSET_ENTRY.unpack_from(tail, len(tail) - width)
    if (relative, position) == (0, 0):
        kind = OFFSET_KINDS.preallocated if active else OFFSET_KINDS.padded
        found.append(Finding(kind, files.index, "zero bytes behind the last entry", position=last))
        return 0
    if relative < 0 or position <= 0 or not _rises(OFFSET_ENTRY, tail, relative, position):
        found.append(Finding(OFFSET_KINDS.misordered, files.index, "the last entry does not rise", position=last))
        return 0
    if position >= files.log_stat.size:
        evidence = f"the last entry points to {position}, the log has {files.log_stat.size} bytes"
        found.append(Finding(OFFSET_KINDS.past_end, files.index, evidence, position=last))
        return 0
    if files.log_stat.size - position > _SHORT_BYTES + options.index_interval_bytes:
        evidence = f"the last entry points to {position}, the log has {files.log_stat.size} bytes"
        found.append(Finding(OFFSET_KINDS.short, files.index, evidence))
    return int(position)


def _rises(entry: Layout, tail: bytes, first: int, second: int) -> bool:
    """Tell whether the last entry, which is `first` and `second`, lies above the one before it, if there is one."""
    if len(tail) == entry.size:
        return True
    before_first, before_second = entry.unpack_from(tail)
    return bool(before_first < first and before_second < second)


def _time_shape(files: SegmentFiles, tail: bytes, found: list[Finding], *, active: bool) -> None:
    stat, width = files.time_index_stat, TIME_ENTRY.size
    if stat is None:
        found.append(Finding(TIME_KINDS.missing, files.time_index, "the file is not there"))
        return
    if stat.size % width:
        evidence = f"{stat.size} bytes are no multiple of {width}"
        found.append(Finding(TIME_KINDS.misordered, files.time_index, evidence))
        return
    if stat.size == 0:
        return
    last = stat.size - width
    timestamp, relative = TIME_ENTRY.unpack_from(tail, len(tail) - width)
    if (timestamp, relative) == (0, 0):
        kind = TIME_KINDS.preallocated if active else TIME_KINDS.padded
        evidence = "zero bytes behind the last entry: a broker takes the largest timestamp for 0, and retention deletes"
        found.append(Finding(kind, files.time_index, evidence, position=last))
    elif timestamp < 0 or relative < 0 or not _rises(TIME_ENTRY, tail, timestamp, relative):
        found.append(Finding(TIME_KINDS.misordered, files.time_index, "the last entry does not rise", position=last))


# ---- against batches as they stream by


IndexChecks: TypeAlias = tuple[OffsetIndexCheck | TimeIndexCheck, ...]


def check_against_batches(indexes: IndexFiles, base_offset: int) -> IndexChecks:
    """Return the checks to be fed with the rows of a scan."""
    checks: list[OffsetIndexCheck | TimeIndexCheck] = []
    if indexes.offset is not None:
        checks.append(OffsetIndexCheck(indexes.offset, Offset(base_offset)))
    if indexes.time is not None:
        checks.append(TimeIndexCheck(indexes.time, Offset(base_offset)))
    return tuple(checks)


def finish_against_batches(
    checks: IndexChecks, files: SegmentFiles, valid_size: int, fold: SegmentFold, *, active: bool
) -> list[Finding]:
    """Return what the checks found once every row of the segment has been fed to them."""
    found = []
    if files.index_stat is None:
        found.append(Finding(OFFSET_KINDS.missing, files.index, "the file is not there"))
    if files.time_index_stat is None:
        found.append(Finding(TIME_KINDS.missing, files.time_index, "the file is not there"))
    for check in checks:
        is_offset = isinstance(check, OffsetIndexCheck)
        kinds, path = (OFFSET_KINDS, files.index) if is_offset else (TIME_KINDS, files.time_index)
        fault = check.finish(valid_size)
        if fault is not None:
            is_preallocated = active and fault.kind is IndexFaultKind.PADDED
            kind = kinds.preallocated if is_preallocated else getattr(kinds, fault.kind.value)
            found.append(Finding(kind, path, fault.reason, position=fault.position))
        elif isinstance(check, TimeIndexCheck) and not (active or check.has_closing_entry()):
            found.append(Finding(kinds.short, path, f"the largest timestamp, {fold.max_timestamp}, is not in it"))
    return found


# ---- against what Kafka's recovery writes


class Comparison(NamedTuple):
    """Findings on both indexes, the content of those to be written anew, and the length of those only to be trimmed."""

    findings: list[Finding]
    contents: dict[PurePath, bytes]
    trims: dict[PurePath, int]


def compare_with_canonical(
    fs: ReadFs, files: SegmentFiles, fold: SegmentFold, options: ScanOptions, *, active: bool, cut: bool
) -> Comparison:
    """Compare both index files with what Kafka's recovery of the sound part of the log would write.

    With `cut` the log is about to be shortened or the file is known to be bad: then a difference follows from that and
    is no finding of its own. `active`: the last segment, where a preallocated tail is how a running broker left it.
    """
    result = Comparison([], {}, {})
    if fold.index_overflow:
        evidence = f"the log needs more entries than segment.index.bytes = {options.segment_index_bytes} allows"
        result.findings.append(Finding(Damage.INDEX_OVERFULL, files.index, evidence))
        return result
    both = (
        (files.index, files.index_stat, fold.offset_index(), OFFSET_KINDS, OFFSET_ENTRY.size),
        (files.time_index, files.time_index_stat, fold.time_index(), TIME_KINDS, TIME_ENTRY.size),
    )
    for path, stat, wanted, kinds, width in both:
        finding = _compare(fs, path, stat, wanted, kinds, width, active=active)
        if finding is None:
            continue
        if finding.kind in (kinds.preallocated, kinds.padded):
            result.trims[path] = len(wanted)
        else:
            result.contents[path] = wanted
        if not cut or finding.kind is kinds.preallocated:
            result.findings.append(finding)
    return result


def _compare(
    fs: ReadFs, path: PurePath, stat: FileStat | None, wanted: bytes, kinds: Kinds, width: int, *, active: bool
) -> Finding | None:
    if stat is None:
        return Finding(kinds.missing, path, "the file is not there")
    head = _read(fs, path, 0, len(wanted) + width)
    if head == wanted and stat.size == len(wanted):
        return None
    if head[: len(wanted)] != wanted:
        return _difference(path, head, wanted, stat, kinds, width)
    with fs.open_read(path) as file:
        if not is_zero(file, len(wanted), stat.size, skip_holes=True):  # a preallocated index is nearly all hole
            return Finding(kinds.past_end, path, "entries behind the end of the log", position=len(wanted))
    kind = kinds.preallocated if active and stat.size % width == 0 else kinds.padded
    evidence = f"{stat.size - len(wanted)} zero bytes behind the last entry"
    if kinds is TIME_KINDS and kind is kinds.padded:
        evidence += ": a broker takes the largest timestamp for 0, and retention deletes"
    return Finding(kind, path, evidence, position=len(wanted))


def _difference(path: PurePath, head: bytes, wanted: bytes, stat: FileStat, kinds: Kinds, width: int) -> Finding:
    if stat.size < len(wanted) and wanted.startswith(head):
        return Finding(kinds.short, path, f"{stat.size} of {len(wanted)} bytes", position=stat.size)
    if stat.size % width:
        return Finding(kinds.misordered, path, f"{stat.size} bytes are no multiple of {width}")
    at = next(i for i in range(0, len(wanted), width) if head[i : i + width] != wanted[i : i + width])
    return Finding(kinds.differs, path, "not what the log gives", position=at)


def load_checked(fs: ReadFs, path: PurePath, size: int) -> bytes:
    """Return exactly `size` bytes of a file that was listed with that size; `FileVanished` if it has shrunk since."""
    data = _read(fs, path, 0, size)
    if len(data) < size:
        raise FileVanished("reading", path, OSError("it has shrunk"))
    return data
