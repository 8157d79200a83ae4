"""Room: what a plan needs on the disk of the log directory and where copies go, asked for before the first effect."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

from recovery.apply.copying import data_end
from recovery.apply.part import Part
from recovery.apply.staging import temporaries
from recovery.plan.findings import Damage
from recovery.plan.plan import (
    Action,
    KeepCopy,
    LogDirPlan,
    Quarantine,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
)
from storage.base.errors import FileVanished, NoRoom, WriteFault
from storage.disk.fs import FileKind, Fs, ReadFs, temporary_name

_PAGE: Final = 4096
"""What a file system gives at a time."""
_ITEM: Final = 1 << 10
"""Bytes of one action in a manifest, or more."""
_START: Final = 8
"""Pages of a log directory that a broker writes when it starts, and a hand-over before: its checkpoints."""
_START_OF_LOG: Final = 4
"""Pages that it writes in each log at once: the preallocated indexes, of which the first entries take room, a producer
snapshot and the leader epochs. Where an index has no page it fails in the middle, and may empty the segment later."""
_SPARSE: Final = (".index.deleted", ".timeindex.deleted")


class Room:
    """What a plan needs, by its parts; `check` asks before the first effect, `check_left` before the first change."""

    def __init__(self, fs: ReadFs, plan: LogDirPlan, parts: Sequence[Part]) -> None:
        self._fs, self._plan, self._log_dir, self._parts = fs, plan, plan.log_dir, parts
        self._orders = parts[0].orders
        self._start = (_START + _START_OF_LOG * len(plan.partitions)) * _PAGE

    def check(self) -> None:
        """Raise `NoRoom`, which names the bytes that are needed, where something does not fit.

        What an earlier attempt left and will be replaced counts as free, and so does what goes before anything else.
        """
        here, copies = self._on_the_log_dirs_disk(), self._copies()
        if self._lack(here, copies) is None:
            return  # as nearly always: nothing is listed to look for earlier attempts
        here -= self._of_earlier_attempts(copies=False)
        copies -= self._of_earlier_attempts(copies=True)
        lack = self._lack(here, copies)
        if lack is not None:
            raise lack

    def _lack(self, here: int, copies: int) -> NoRoom | None:
        elsewhere = self._orders.quarantine_dir
        free = self._fs.free_bytes(self._log_dir)
        if elsewhere is None or self._fs.stat(elsewhere).device == self._fs.stat(self._log_dir).device:
            if here + copies <= free:
                return None
            helps = self._orders.keeps_beside and here - self._would_free() + _PAGE <= free
            return NoRoom(self._log_dir, here + copies, free, helps=helps)
        room = self._fs.free_bytes(elsewhere)
        if copies > room:
            return NoRoom(elsewhere, copies, room)
        return NoRoom(self._log_dir, here, free) if here > free else None

    def check_left(self) -> None:
        """Raise `NoRoom` where others have taken what a broker needs next, or what cuts beside another name take."""
        needed = self._start + self._beside_other_names()
        free = self._fs.free_bytes(self._log_dir)
        if needed > free:
            raise NoRoom(self._log_dir, needed, free)

    def _on_the_log_dirs_disk(self) -> int:
        """Return what new files and the next start of a broker take there, beyond what is freed first."""
        needed = self._start + self._beside_other_names()
        for part in self._parts:
            needed += _PAGE + sum(map(_new, part.actions))  # a page for names
        if not self._orders.keeps_beside:
            needed -= self._deleted()
        if self._orders.quarantine_dir is not None:
            needed += _PAGE  # the record of where the copies are
        return needed

    def _beside_other_names(self) -> int:
        """Return what logs take that are cut beside another name that they have, until it is gone."""
        cuts = (a for part in self._parts for a in part.actions if isinstance(a, TruncateTo))
        return sum(_pages(cut.size) for cut in cuts if self._fs.stat(cut.path).links > 1)

    def _deleted(self) -> int:
        """Return what is freed once the leftovers have gone."""
        return sum(self._freed(leftover.path) for part in self._parts for leftover in part.deleted)

    def _would_free(self) -> int:
        """Return what another place for the copies would free: a new plan then sets aside what now is left there."""
        leftovers = {f.path for f in self._plan.findings if f.kind is Damage.LEFTOVER_DELETED}
        others = {path.parent for path in leftovers} - {part.directory for part in self._parts}
        return sum(map(self._freed, leftovers)) - _PAGE * len(others)  # a page for names, as for each part

    def _freed(self, leftover: PurePath) -> int:
        try:
            stat = self._fs.stat(leftover)
        except FileVanished:
            return 0
        # An index may have more bytes than pages, and a file with another name frees nothing.
        return 0 if stat.links > 1 or leftover.name.endswith(_SPARSE) else stat.size

    def _copies(self) -> int:
        return sum(
            2 * _PAGE + _pages(_ITEM * len(part.actions)) + sum(map(self._copy, part.actions)) for part in self._parts
        )

    def _copy(self, action: Action) -> int:
        elsewhere = self._orders.quarantine_dir is not None
        match action:
            case Quarantine():
                return 0 if action.zeroes or self._orders.discard else _pages(action.size)
            case KeepCopy():
                return _pages(action.size)
            case ReplaceFile():
                size = self._fs.stat(action.path).size if elsewhere and action.replaces else 0
                return _pages(data_end(self._fs, action.path, size))
            case SpliceSegment() | SetAside():
                return _pages(self._fs.stat(action.path).size) if elsewhere else 0
            case _:
                return 0

    def _of_earlier_attempts(self, *, copies: bool) -> int:
        """Return the bytes of files that an attempt that died has left and this one writes again."""
        bytes_left = 0
        for part in self._parts:
            names = _copies_of(part) if copies else {path.name for path in temporaries(part.actions)}
            try:
                entries = self._fs.entries(part.keep_at if copies else part.directory)
            except FileVanished:
                continue
            bytes_left += sum(stat.size for name, stat in entries.items() if name in names and stat.links == 1)
        return bytes_left


def _copies_of(part: Part) -> set[str]:
    ranges = (a for a in part.actions if isinstance(a, Quarantine | KeepCopy))
    names = {part.kept(a.path, a.position).name for a in ranges}
    names |= {part.manifest.name, temporary_name(part.manifest).name}
    whole: Iterable[Action] = part.actions if part.orders.quarantine_dir is not None else ()
    return names | {part.kept(a.path).name for a in whole if isinstance(a, SetAside | ReplaceFile | SpliceSegment)}


def _new(action: Action) -> int:
    match action:
        case ReplaceFile() | SpliceSegment():
            return _pages(action.size)
        case SplitLog():
            return sum(_pages(piece.size) for piece in action.pieces)
        case _:
            return 0


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def make_place(fs: Fs, path: PurePath) -> None:
    """Make a directory for copies below the operator's, where it is missing; a link there is refused."""
    try:
        found = fs.stat(path)
    except FileVanished:
        fs.make_dir(path, fs.stat(path.parent)._replace(mode=0o700))  # it will hold customers' data
    else:
        if found.kind is not FileKind.DIRECTORY:
            raise WriteFault("keeping copies in it", path, OSError(errno.ENOTDIR, "no directory"))
    # Also of one that was there: who made it may have died before this, and then it would go with the power.
    fs.sync_dir(path.parent)
