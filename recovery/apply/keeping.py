"""Keeps what a plan takes away: copies and the manifest are durable before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from recovery.apply.copying import data_end, drop, range_of, write_new
from recovery.apply.part import Part, piece_path
from recovery.evidence.manifest import Item, Manifest, encode
from recovery.plan.digest import new_digest
from recovery.plan.plan import (
    Action,
    KeepCopy,
    Piece,
    Quarantine,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
)
from storage.base.errors import PlanStale
from storage.disk.fs import CHUNK, FileStat, Fs, ReadFs, temporary_name

if TYPE_CHECKING:
    import hashlib

Healed = Callable[[PurePath, int], Iterable[bytes]]
"""Gives what a replica has for a piece of a spliced log, by path and number of the piece."""


class Keeper:
    """Makes the copies and the manifest of one directory."""

    def __init__(self, fs: Fs, part: Part, healed: Healed) -> None:
        self._fs, self._part, self._healed = fs, part, healed
        self._orders = part.orders
        self._elsewhere = part.orders.quarantine_dir is not None
        self._discarded = frozenset(part.leftovers) if part.orders.discard else frozenset()
        self.kept_bytes = 0

    def keep(self) -> bool:
        """Make copies and manifest durable; tell whether there is a manifest."""
        part = self._part
        items = [item for action in part.actions for item in self._kept(action)]
        manifest = Manifest(
            self._orders.plan_id, str(part.directory), self._orders.created_ms, self._orders.version, tuple(items)
        )
        has_manifest = not self._orders.discard or any(item.kept for item in items)
        if has_manifest:
            # A name of its own until it is whole: after a crash there must be no manifest that cannot be read.
            temporary = temporary_name(part.manifest)
            write_new(self._fs, temporary, [encode(manifest)], self._fs.stat(part.directory), private=True)
            self._fs.rename(temporary, part.manifest)
        self._fs.sync_dir(part.keep_at)
        return has_manifest

    def _kept(self, action: Action) -> list[Item]:
        match action:
            case Quarantine():
                return [self._range(action)]
            case TruncateTo():
                return []
            case SetAside():
                return [] if action in self._discarded else [self._aside(action)]
            case Rename():
                stat = self._fs.stat(action.path)
                reason = "an interrupted swap is finished"
                return [
                    Item("renamed", action.path.name, reason, mtime_ns=stat.mtime_ns, result_name=action.target.name)
                ]
            case ReplaceFile():
                return [self._replaced(action)]
            case KeepCopy():
                return [self._copied(action)]
            case SpliceSegment():
                return [self._spliced(action)]
            case SplitLog():
                return [self._piece(action, piece) for piece in action.pieces]

    def _aside(self, action: SetAside) -> Item:
        """Note a file that will step aside; elsewhere its copy is made now, and the file itself will go."""
        stat, kept = self._fs.stat(action.path), self._part.kept(action.path)
        sha256 = self._copy(action.path, 0, stat.size, kept, stat) if self._elsewhere else ""
        return Item(
            "aside", action.path.name, action.reason, kept.name, size=stat.size, sha256=sha256, mtime_ns=stat.mtime_ns,
            first_offset=self._part.offsets.get((action.path, 0)), mode=stat.mode,
        )  # fmt: skip

    def _piece(self, action: SplitLog, piece: Piece) -> Item:
        digest = new_digest()
        for _ in range_of(self._fs, action.path, piece.position, piece.size, digest):
            pass
        reason = f"a part of {action.path.name}, of which the offsets do not fit one segment"
        name = piece_path(action, piece).name
        return Item("created", name, reason, result_size=piece.size, result_sha256=digest.hexdigest())

    def _spliced(self, action: SpliceSegment) -> Item:
        digest = new_digest()
        for _ in spliced(self._fs, action, self._healed, digest):
            pass
        return self._old(action.path, action.reason, action.size, digest.hexdigest())

    def _range(self, action: Quarantine) -> Item:
        stat, name = self._fs.stat(action.path), action.path.name
        kept, sha256 = "", ""
        if not action.zeroes and not self._orders.discard:
            target = self._part.kept(action.path, action.position)
            kept, sha256 = target.name, self._copy(action.path, action.position, action.size, target, stat)
        return Item(
            "cut", name, action.reason, kept, action.position, action.size, action.zeroes, sha256, stat.mtime_ns,
            result_size=action.position, first_offset=self._part.offsets.get((action.path, action.position)),
        )  # fmt: skip

    def _copied(self, action: KeepCopy) -> Item:
        stat, target = self._fs.stat(action.path), self._part.kept(action.path, action.position)
        sha256 = self._copy(action.path, action.position, action.size, target, stat)
        return Item(
            "copied", action.path.name, action.reason, target.name, action.position, action.size, sha256=sha256,
            mtime_ns=stat.mtime_ns, first_offset=action.first_offset,
        )  # fmt: skip

    def _replaced(self, action: ReplaceFile) -> Item:
        if action.replaces:
            return self._old(action.path, action.reason, action.size, action.sha256)
        return Item(
            "created", action.path.name, action.reason, result_size=action.size, result_sha256=action.sha256
        )  # fmt: skip

    def _old(self, path: PurePath, reason: str, result_size: int, result_sha256: str) -> Item:
        """Keep a file that another one takes the place of: by a second name, elsewhere as a copy."""
        stat, copy = self._fs.stat(path), self._part.kept(path)
        kept_size, sha256 = None, ""
        if self._elsewhere:
            kept_size, sha256 = self._copy_old(path, stat, copy)
        else:
            drop(self._fs, copy)
            self._fs.link(path, copy)
        return Item(
            "replaced", path.name, reason, copy.name, size=stat.size, sha256=sha256, mtime_ns=stat.mtime_ns,
            result_size=result_size, result_sha256=result_sha256, kept_size=kept_size,
        )  # fmt: skip

    def _copy_old(self, path: PurePath, stat: FileStat, kept: PurePath) -> tuple[int, str]:
        """Copy a file, an index up to the zeroes that it ends with; return the size of that, and the SHA-256 of all."""
        digest, end = new_digest(), data_end(self._fs, path, stat.size)
        write_new(self._fs, kept, range_of(self._fs, path, 0, end, digest), stat, private=True)
        for at in range(end, stat.size, CHUNK):
            digest.update(bytes(min(CHUNK, stat.size - at)))
        self.kept_bytes += end
        return end, digest.hexdigest()

    def _copy(self, source: PurePath, position: int, size: int, target: PurePath, like: FileStat) -> str:
        """Copy a range durably and return its SHA-256."""
        digest = new_digest()
        write_new(self._fs, target, range_of(self._fs, source, position, size, digest), like, private=True)
        self.kept_bytes += size
        return digest.hexdigest()


def spliced(fs: ReadFs, action: SpliceSegment, healed: Healed, digest: hashlib._Hash) -> Iterator[bytes]:
    """Yield a healed log: its own sound pieces, and what a replica has for the holes between them.

    It is read twice: the manifest, which names the digest of the whole, is durable before a new file is begun.
    """
    for number, piece in enumerate(action.pieces):
        if piece.position is not None:
            yield from range_of(fs, action.path, piece.position, piece.size, digest)
            continue
        of_piece = new_digest()
        for data in healed(action.path, number):
            of_piece.update(data)
            digest.update(data)
            yield data
        if of_piece.hexdigest() != piece.sha256:
            raise PlanStale(action.path, "what the replica has for it has changed")


def remove_copies(fs: Fs, part: Part) -> None:
    """Remove the copies and the manifest of a plan of which nothing was changed."""
    drop(fs, part.manifest)
    for action in part.actions:
        match action:
            case Quarantine() | KeepCopy():
                drop(fs, part.kept(action.path, action.position))
            case ReplaceFile() | SpliceSegment():
                drop(fs, part.kept(action.path))
            case SetAside() if part.orders.quarantine_dir is not None:
                drop(fs, part.kept(action.path))
            case _:
                pass
    drop(fs, temporary_name(part.manifest))
