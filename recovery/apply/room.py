"""Room for evidence: whether what is to be kept fits, and the directories that it goes to."""

from __future__ import annotations

import errno
from pathlib import PurePath
from typing import Final

from recovery.plan.orders import Orders
from recovery.plan.plan import KeepCopy, LogDirPlan, Quarantine, ReplaceFile, SpliceSegment, SplitLog, TruncateTo
from storage.base.errors import FileVanished, NoRoom, WriteFault
from storage.disk.fs import FileKind, Fs, ReadFs

_MANIFEST_ROOM: Final = 16 << 10


def check_room(fs: ReadFs, plan: LogDirPlan, orders: Orders) -> bool:
    """Make sure that what is cut can be kept; tell whether derived files must reuse the space of the old ones.

    Raises `NoRoom`, which names the bytes that are needed, where the copies do not fit.
    """
    actions = [*plan.before, *plan.after, *(action for p in plan.partitions for action in p.actions)]
    if not actions:
        return False
    copies = 0 if orders.discard else sum(a.size for a in actions if isinstance(a, Quarantine) and not a.zeroes)
    places = 1 + sum(bool(p.actions) for p in plan.partitions)
    evidence = copies + places * _MANIFEST_ROOM
    derived = sum(a.size for a in actions if isinstance(a, ReplaceFile))
    derived += sum(piece.size for a in actions if isinstance(a, SplitLog) for piece in a.pieces)
    evidence += sum(a.size for a in actions if isinstance(a, SpliceSegment | KeepCopy))
    derived += sum(a.size for a in actions if isinstance(a, TruncateTo) and fs.stat(a.path).links > 1)
    free = fs.free_bytes(plan.log_dir)
    keep_at = orders.quarantine_dir
    room = free if keep_at is None else fs.free_bytes(keep_at)
    if evidence > room and not (orders.discard and keep_at is None):
        where = plan.log_dir if keep_at is None else keep_at
        raise NoRoom(where, evidence, room)
    return derived + (evidence if keep_at is None else 0) > free


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
