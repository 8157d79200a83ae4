"""One listing of a partition directory, sorted into segments, side files, leftovers and strangers; no content is read.

`resolve` then says which files a broker would go on with: it finishes or abandons interrupted swaps by Kafka's rules,
but sets aside what a broker would delete. Source: Apache Kafka 4.3.0, LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import Rename, SetAside
from recovery.segment.segment_files import SegmentFiles
from storage.base.names import (
    NUMBERED_ROLES,
    SEGMENT_ROLES,
    FileName,
    FileRole,
    FileState,
    offset_digits,
    parse_file_name,
)
from storage.base.units import Offset
from storage.disk.fs import FileKind, FileStat, ReadFs

# Looking up a member of an enumeration is slow, and these are asked for at every file.
_LIVE: Final = FileState.LIVE
_FILE: Final = FileKind.FILE
_LOG: Final = FileRole.LOG
_SNAPSHOT: Final = FileRole.SNAPSHOT
_METADATA_SNAPSHOT: Final = FileRole.METADATA_SNAPSHOT
_LOG_SUFFIX: Final = _LOG.value
_WRITTEN_IN_PLACE: Final = NUMBERED_ROLES | {FileRole.LOCK, FileRole.OTHER}
_SUFFIXES: Final = tuple(role.value for role in (FileRole.LOG, FileRole.INDEX, FileRole.TIME_INDEX, FileRole.TXN_INDEX))


class Entry(NamedTuple):
    """A file that means something, and its stat."""

    file: FileName
    stat: FileStat


class Inventory:
    """A partition directory as it was listed."""

    __slots__ = ("directory", "entries", "findings", "is_plain")

    def __init__(self, directory: PurePath) -> None:
        self.directory = directory
        self.entries: dict[str, Entry] = {}
        self.findings: list[Finding] = []
        self.is_plain = True
        """Nothing but live files with the names that brokers give."""

    def stat_of(self, name: str) -> FileStat | None:
        """Return the stat of a file that is there and means something."""
        entry = self.entries.get(name)
        return None if entry is None else entry.stat


def take_inventory(fs: ReadFs, directory: PurePath, user: int | None = None, *, running: bool = False) -> Inventory:
    """List a partition directory. `user`: the numeric user that a broker runs as, by default the directory's owner.

    `running`: a broker is at work there. Then the files of work under way are left out: it reads the others.
    """
    inventory = Inventory(directory)
    listing = fs.entries(directory)
    owner = fs.stat(directory).uid if user is None else user
    for name, stat in listing.items():
        file = parse_file_name(name)
        if file is None or file.role is FileRole.OURS or stat.kind is FileKind.DIRECTORY:
            continue
        if file.is_canonical and file.state is _LIVE and stat.kind is _FILE and _is_owners(stat, owner, file):
            inventory.entries[name] = Entry(file, stat)  # nearly all are like this
            continue
        if file.state is FileState.TEMPORARY or (running and file.state is not _LIVE):
            continue
        path, inventory.is_plain = directory / name, False
        if stat.kind is not FileKind.FILE:
            kind = Damage.SYMBOLIC_LINK if stat.kind is FileKind.SYMLINK else Damage.SPECIAL_FILE
            inventory.findings.append(Finding(kind, path, f"a {stat.kind.value} where a plain file belongs"))
            continue
        inventory.findings += _name_findings(file, path)
        inventory.findings += owner_findings(path, stat, owner, file)
        if not file.stops_load:
            inventory.entries[name] = Entry(file, stat)
    return inventory


def _name_findings(file: FileName, path: PurePath) -> list[Finding]:
    if file.stops_load:
        return [Finding(Damage.BAD_NAME, path, "no offset before the dot: a broker would refuse to start")]
    if not file.is_canonical and file.state is FileState.LIVE:
        return [Finding(Damage.ODD_NAME, path, "not the name a broker gives: it does not read this file")]
    return []


def _is_owners(stat: FileStat, owner: int, file: FileName) -> bool:
    needed = _needed_bits(file)
    return stat.uid == owner and stat.mode & needed == needed


def _needed_bits(file: FileName) -> int:
    """Return the permissions that a broker needs of its own file.

    It opens the files of a segment, producer snapshots and the lock for writing. All others it reads, and replaces or
    deletes them by name; a finished metadata snapshot is read-only from the moment it gets its name (Snapshots.freeze).
    """
    return 0o600 if file.role in _WRITTEN_IN_PLACE and file.state is not FileState.DELETED else 0o400


def owner_findings(path: PurePath, stat: FileStat, owner: int, file: FileName) -> list[Finding]:
    """Tell if the user `owner` could not open the file as a broker does, by being its owner."""
    if stat.uid == owner:
        if _is_owners(stat, owner, file):
            return []
        doing = "read and write" if _needed_bits(file) == 0o600 else "read"
        return [Finding(Damage.NOT_READABLE, path, f"mode {stat.mode:o}: its own user may not {doing} it")]
    others = _needed_bits(file) >> 6
    if owner == 0 or stat.mode & others == others:
        return []
    return [Finding(Damage.FOREIGN_OWNER, path, f"owned by user {stat.uid}, the directory by {owner}")]


class Resolved:
    """What a broker would go on with: segments in order, snapshots, and what has to be done to get there."""

    __slots__ = ("asides", "findings", "renames", "segments", "snapshots")

    def __init__(self) -> None:
        self.segments: list[SegmentFiles] = []
        self.snapshots: dict[int, str] = {}
        self.asides: list[SetAside] = []
        self.renames: list[Rename] = []
        self.findings: list[Finding] = []


_LEFT_TO_THE_BROKER: Final = {
    FileState.DELETED: (Damage.LEFTOVER_DELETED, "marked for deletion; a broker removes it at its next start"),
    FileState.CLEANED: (Damage.LEFTOVER_CLEANED, "an unfinished compaction; a broker removes it at its next start"),
    FileState.PARTIAL: (Damage.LEFTOVER_PART, "an unfinished metadata snapshot; a broker removes it at its next start"),
}
"""What a broker has given up itself, and what a clean stop leaves too: there is nothing to do about it."""


def swap_logs(inventory: Inventory) -> dict[int, PurePath]:
    """Return base offset and path of each `.log.swap` that is to be finished."""
    least = _least_cleaned(inventory)
    return {
        entry.file.base_offset: inventory.directory / name
        for name, entry in inventory.entries.items()
        if entry.file.state is FileState.SWAP
        and entry.file.role is FileRole.LOG
        and entry.file.base_offset is not None
        and (least is None or entry.file.base_offset < least)
    }


def _least_cleaned(inventory: Inventory) -> int | None:
    bases = [
        entry.file.base_offset
        for entry in inventory.entries.values()
        if entry.file.state is FileState.CLEANED and entry.file.base_offset is not None
    ]
    return min(bases, default=None)


def resolve(inventory: Inventory, swap_ends: Mapping[int, int], *, frees_deleted: bool = False) -> Resolved:
    """Say what becomes of each file. `swap_ends`: base offset to next offset of each log of `swap_logs`.

    `frees_deleted`: what a broker has marked for deletion goes as well.
    """
    resolved = _resolve_plain(inventory) if inventory.is_plain else None
    if resolved is not None:
        return resolved
    resolved = Resolved()
    least = _least_cleaned(inventory)
    live: dict[str, str] = {}  # name to be -> name now
    swaps: dict[str, str] = {}
    for name, entry in inventory.entries.items():
        state, base = entry.file.state, entry.file.base_offset
        if state in _LEFT_TO_THE_BROKER:
            kind, reason = _LEFT_TO_THE_BROKER[state]
            if frees_deleted and state is FileState.DELETED:
                resolved.asides.append(SetAside(inventory.directory / name, reason))
            resolved.findings.append(Finding(kind, inventory.directory / name, reason, size=entry.stat.size))
        elif state is FileState.SWAP:
            assert base is not None
            if least is not None and base >= least:
                reason = "belongs to a compaction that was never committed; a broker removes it at its next start"
                _set_aside(resolved, inventory, name, Damage.LEFTOVER_SWAP, reason)
            else:
                swaps[name.removesuffix(FileState.SWAP.value)] = name
        else:
            live[name] = name
    _finish_swaps(resolved, inventory, live, swaps, swap_ends)
    _collect(resolved, inventory, live)
    return resolved


def _resolve_plain(inventory: Inventory) -> Resolved | None:
    """Do what `resolve` does where nothing has to be set aside or renamed, which is nearly always; else None."""
    resolved, bases, beside = Resolved(), {}, set()
    for name, (file, _) in inventory.entries.items():
        role, base = file.role, file.base_offset
        if base is None:
            continue
        if role is _LOG:
            bases[base] = name[: -len(_LOG_SUFFIX)]
        elif role is _SNAPSHOT:
            resolved.snapshots[base] = name
        elif role is not _METADATA_SNAPSHOT:
            beside.add(base)
    if not beside <= bases.keys():
        return None
    resolved.segments = [_plain_segment(inventory, base, bases[base]) for base in sorted(bases)]
    return resolved


def _plain_segment(inventory: Inventory, base: Offset, digits: str) -> SegmentFiles:
    entries = inventory.entries
    names = [digits + suffix for suffix in _SUFFIXES]
    log, *side = [entry and entry.stat for entry in map(entries.get, names)]
    assert log is not None
    return SegmentFiles.listed(base, inventory.directory, names, log, side)


def _set_aside(resolved: Resolved, inventory: Inventory, name: str, kind: Damage, reason: str) -> None:
    path = inventory.directory / name
    resolved.asides.append(SetAside(path, reason))
    size = inventory.entries[name].stat.size
    resolved.findings.append(Finding(kind, path, reason, size=size))


def _finish_swaps(
    resolved: Resolved,
    inventory: Inventory,
    live: dict[str, str],
    swaps: dict[str, str],
    swap_ends: Mapping[int, int],
) -> None:
    if not swaps:
        return
    if swap_ends:
        low, high = min(swap_ends), max(swap_ends.values())
        covered = [n for n in live if (b := inventory.entries[n].file.base_offset) is not None and low <= b < high]
        for name in covered:
            reason = f"replaced by the finished compaction of the offsets from {low} to {high - 1}"
            resolved.asides.append(SetAside(inventory.directory / name, reason))
            del live[name]
    for target, name in swaps.items():
        path = inventory.directory / name
        if target in live:  # its log has been renamed already: this is the newer of the two
            resolved.asides.append(SetAside(inventory.directory / target, "replaced by a finished compaction"))
        resolved.renames.append(Rename(path, inventory.directory / target))
        reason = "a finished compaction or split; a broker puts it in place at its next start"
        resolved.findings.append(Finding(Damage.LEFTOVER_SWAP, path, reason, size=inventory.entries[name].stat.size))
        live[target] = name


def _collect(resolved: Resolved, inventory: Inventory, live: Mapping[str, str]) -> None:
    bases = set()
    # A broker takes the suffix off any swap file; what is called just `5` then, nobody reads.
    files = {name: file for name, now in live.items() if (file := _file(inventory, name, now)) is not None}
    for file in files.values():
        if file.role is FileRole.LOG and file.is_canonical and file.base_offset is not None and file.base_offset >= 0:
            bases.add(file.base_offset)
    for name, file in files.items():
        now = live[name]
        if file.role is FileRole.SNAPSHOT and file.is_canonical and file.base_offset is not None:
            resolved.snapshots[file.base_offset] = now
        elif file.role in SEGMENT_ROLES and file.role is not FileRole.LOG and file.base_offset not in bases:
            _set_aside(resolved, inventory, now, Damage.ORPHAN_INDEX, "there is no log of that base offset")
            resolved.renames = [rename for rename in resolved.renames if rename.path.name != now]
    resolved.segments = [_segment(inventory, live, Offset(base)) for base in sorted(bases)]


def _file(inventory: Inventory, name: str, now: str) -> FileName | None:
    return inventory.entries[name].file if name == now else parse_file_name(name)


def _segment(inventory: Inventory, live: Mapping[str, str], base: Offset) -> SegmentFiles:
    digits, entries = offset_digits(base), inventory.entries
    names, stats = [], []
    for suffix in _SUFFIXES:
        name = digits + suffix
        now = live.get(name)
        names.append(now or name)
        stats.append(None if now is None else entries[now].stat)
    log_stat = stats[0]
    assert log_stat is not None
    return SegmentFiles.listed(base, inventory.directory, names, log_stat, stats[1:])
