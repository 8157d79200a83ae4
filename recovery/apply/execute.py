"""Carries out a plan. Besides quarantine.py the only module of this package that is given a writable file system.

docs/understand/order-of-effects.md gives the reasons for the order of effects. Per log directory: the marker goes,
then each partition, at last the checkpoints. Per partition: copies and manifest are durable before anything changes;
later segments step aside before the cut, so that a crash between the two leaves the damage that asks for both; derived
files come after the log they are derived from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from recovery.apply.room import check_room, make_place
from recovery.apply.together import each_partition
from recovery.evidence.manifest import Item, Manifest, encode, kept_name, manifest_name
from recovery.plan.digest import new_digest, sha256_of
from recovery.plan.orders import Orders
from recovery.plan.plan import (
    Action,
    KeepCopy,
    LogDirPlan,
    Piece,
    Precondition,
    Quarantine,
    RecoveryPlan,
    Rename,
    ReplaceFile,
    SetAside,
    SpliceSegment,
    SplitLog,
    TruncateTo,
)
from storage.base.errors import FileVanished, LogmendError, PlanStale
from storage.base.names import FileRole, segment_file_name
from storage.base.units import Offset
from storage.disk.buffers import page_aligned
from storage.disk.fs import FileKind, FileStat, Fs, ReadFs, WriteFile, temporary_name
from storage.disk.syncing import SYNC_THREADS, sync_all

if TYPE_CHECKING:
    import hashlib

_CHUNK: Final = 1 << 20
_CLEANED: Final = ".cleaned"
_SWAP: Final = ".swap"
_NOT_YET: Final = (_SWAP, _CLEANED)
"""In the order in which they step aside: while one is `.cleaned`, a loader drops them all."""
_IN_PLACE: Final = (".index", ".timeindex")
_AT_ONCE: Final = 64
"""Files that are written before they are synced together."""


class Applying(Protocol):
    """A caller that follows which action is being carried out."""

    def applying(self, action: Action) -> None: ...


class Executed:
    """What was done."""

    __slots__ = ("actions", "kept_bytes", "manifests", "plan_id", "synced")

    def __init__(self, plan_id: str) -> None:
        self.plan_id = plan_id
        self.actions = self.kept_bytes = 0
        self.manifests: list[PurePath] = []
        self.synced: set[PurePath] = set()
        """Files that are durable as they are now, by their names."""


Healed = Callable[[PurePath, int], Iterable[bytes]]
"""Gives what a replica has for a piece of a spliced log, by path and number of the piece."""
Contents = Callable[[PurePath], bytes]
"""Gives what is to be written to a path; called once for each, right before it is written."""


class _Given(NamedTuple):
    """Where what is written comes from, and by how many threads it is made durable in one directory."""

    contents: Contents
    healed: Healed
    sync_threads: int


def execute(
    fs: Fs,
    plan: LogDirPlan,
    contents: Contents,
    orders: Orders,
    reporter: Applying,
    *,
    threads: int = 1,
    together: bool = False,
    healed: Healed = lambda *_: (),
) -> Executed:
    """Carry out `plan`, whose log directory the caller has locked.

    Raises `PlanStale` before the first effect if a file is no longer as it was examined, `NoRoom` before the first
    effect if what must be kept cannot be, and `WriteFault` from whatever call fails; the directory is then as after a
    crash, and a new plan finishes the work. With several `threads`, as many partitions are worked on at a time: they
    are independent, and most of the time goes by waiting for syncs. `together`: nobody else writes much to this file
    system, so that many partitions may wait for a sync of all of it; each step is then durable for all at once.
    """
    check_preconditions(fs, plan.preconditions)
    for partition in plan.partitions:
        check_preconditions(fs, partition.preconditions)
    in_place = check_room(fs, plan, orders)
    changing = [partition for partition in plan.partitions if partition.actions]
    # To start a thread takes as long as many a sync, so there are not as many for each of the directories.
    sync_threads = max(SYNC_THREADS // min(threads, len(changing) or 1), 2)
    done, given = Executed(orders.plan_id), _Given(contents, healed, sync_threads)
    root = _Directory(fs, plan.log_dir, "", given, orders, reporter, done, in_place=in_place)
    if orders.quarantine_dir is not None and not plan.is_empty:
        make_place(fs, orders.quarantine_dir / orders.plan_id)
    root.keep((*plan.before, *plan.after))
    root.change(plan.before)

    def work(fs: Fs, partition: RecoveryPlan) -> Executed:
        part = Executed(orders.plan_id)
        worker = _Directory(
            fs, partition.directory, partition.partition, given, orders, reporter, part, in_place=in_place
        )
        worker.offsets = {(cut.path, cut.position): cut.first_offset for cut in partition.cuts}
        worker.keep(partition.actions)
        worker.change(partition.actions)
        return part

    together = together and orders.quarantine_dir is None
    for part in each_partition(fs, plan.log_dir, work, changing, threads, together=together):
        done.actions += part.actions
        done.kept_bytes += part.kept_bytes
        done.manifests += part.manifests
        done.synced |= part.synced
    root.change(plan.after)
    return done


def check_preconditions(fs: ReadFs, preconditions: Iterable[Precondition]) -> None:
    """Raise `PlanStale` for the first file that is not as it was when the plan was made."""
    for wanted in preconditions:
        try:
            now = fs.stat(wanted.path)
        except FileVanished:
            raise PlanStale(wanted.path, "it has vanished") from None
        for name in ("size", "mtime_ns", "inode"):
            if getattr(now, name) != getattr(wanted, name):
                raise PlanStale(wanted.path, f"its {name} has changed")


class _Directory:
    """Carries out the actions of one directory."""

    def __init__(
        self,
        fs: Fs,
        directory: PurePath,
        partition: str,
        given: _Given,
        orders: Orders,
        reporter: Applying,
        done: Executed,
        *,
        in_place: bool,
    ) -> None:
        self._fs, self._directory, self._given = fs, directory, given
        self._orders, self._reporter, self._done, self._in_place = orders, reporter, done, in_place
        self._keep_at = directory
        self._new_file: FileStat | None = None
        self.offsets: dict[tuple[PurePath, int], int] = {}
        """Where cuts begin: first offset by file and position."""
        if orders.quarantine_dir is not None:
            self._keep_at = orders.quarantine_dir / orders.plan_id / (partition or "log-dir")

    # ---- before anything changes

    def keep(self, actions: Sequence[Action]) -> None:
        """Make copies and manifest durable."""
        if not actions:
            return
        elsewhere = self._keep_at != self._directory
        if self._orders.quarantine_dir is not None:
            make_place(self._fs, self._keep_at)
        items = [item for action in actions for item in self._kept(action, elsewhere=elsewhere)]
        manifest = Manifest(
            self._orders.plan_id, str(self._directory), self._orders.created_ms, self._orders.version, tuple(items)
        )
        path = self._keep_at / manifest_name(self._orders.plan_id)
        if not self._orders.discard or any(item.kept for item in items):
            # A name of its own until it is whole: after a crash there must be no manifest that cannot be read.
            temporary = temporary_name(path)
            self._write_new(temporary, [encode(manifest)], self._fs.stat(self._directory), private=True)
            self._fs.rename(temporary, path)
            self._done.manifests.append(path)
        self._fs.sync_dir(self._keep_at)
        if elsewhere:
            self._fs.sync_dir(self._directory)

    def _kept(self, action: Action, *, elsewhere: bool) -> list[Item]:
        plan_id, name = self._orders.plan_id, action.path.name
        match action:
            case Quarantine():
                return [self._keep_range(action)]
            case TruncateTo():
                return []
            case SetAside():
                stat = self._fs.stat(action.path)
                kept = kept_name(name, plan_id)
                first = self.offsets.get((action.path, 0))
                size, mtime_ns = stat.size, stat.mtime_ns
                return [Item("aside", name, action.reason, kept, size=size, mtime_ns=mtime_ns, first_offset=first)]
            case Rename():
                stat = self._fs.stat(action.path)
                reason = "an interrupted swap is finished"
                return [Item("renamed", name, reason, mtime_ns=stat.mtime_ns, result_name=action.target.name)]
            case ReplaceFile():
                return [self._keep_old(action, elsewhere=elsewhere)]
            case KeepCopy():
                return [self._copy_range(action)]
            case SpliceSegment():
                return [self._write_spliced(action, elsewhere=elsewhere)]
            case SplitLog():
                return [self._write_piece(action, piece) for piece in action.pieces]

    def _write_piece(self, action: SplitLog, piece: Piece) -> Item:
        """Write a piece under a name of ours: one that a loader knows may still be taken by what a crash has left."""
        stat = self._fs.stat(action.path)
        live = _piece_path(action, piece)
        target = temporary_name(live)
        digest = new_digest()
        self._write_new(target, self._pieces(action.path, piece.position, piece.size, digest), stat, private=False)
        self._fs.set_mtime(target, stat.mtime_ns)
        self._fs.sync_file(target)
        reason = f"a part of {action.path.name}, of which the offsets do not fit one segment"
        return Item("created", live.name, reason, result_size=piece.size, result_sha256=digest.hexdigest())

    def _write_spliced(self, action: SpliceSegment, *, elsewhere: bool) -> Item:
        """Write the healed log beside the old one, durably, and give the old one its second name."""
        stat = self._fs.stat(action.path)
        temporary, digest = temporary_name(action.path), new_digest()
        try:
            self._write_new(temporary, self._spliced(action, digest), stat, private=False)
        except LogmendError:  # a replica may be gone, or a disk full: nobody would look for what was written so far
            with contextlib.suppress(LogmendError):
                self._drop(temporary)
            raise
        self._fs.set_mtime(temporary, stat.mtime_ns)
        self._fs.sync_file(temporary)
        kept, sha256 = kept_name(action.path.name, self._orders.plan_id), ""
        if elsewhere:
            sha256 = self._copy(action.path, 0, stat.size, self._keep_at / kept, stat)
        else:
            self._drop(self._keep_at / kept)
            self._fs.link(action.path, self._keep_at / kept)
        return Item(
            "replaced", action.path.name, action.reason, kept, size=stat.size, sha256=sha256, mtime_ns=stat.mtime_ns,
            result_size=action.size, result_sha256=digest.hexdigest(),
        )  # fmt: skip

    def _spliced(self, action: SpliceSegment, digest: hashlib._Hash) -> Iterator[bytes]:
        for number, piece in enumerate(action.pieces):
            if piece.position is not None:
                yield from self._pieces(action.path, piece.position, piece.size, digest)
                continue
            of_piece = new_digest()
            for data in self._given.healed(action.path, number):
                of_piece.update(data)
                digest.update(data)
                yield data
            if of_piece.hexdigest() != piece.sha256:
                raise PlanStale(action.path, "what the replica has for it has changed")

    def _keep_range(self, action: Quarantine) -> Item:
        stat = self._fs.stat(action.path)
        name = action.path.name
        kept, sha256 = "", ""
        if not action.zeroes and not self._orders.discard:
            kept = kept_name(name, self._orders.plan_id, action.position)
            sha256 = self._copy(action.path, action.position, action.size, self._keep_at / kept, stat)
        return Item(
            "cut", name, action.reason, kept, action.position, action.size, action.zeroes, sha256, stat.mtime_ns,
            result_size=action.position, first_offset=self.offsets.get((action.path, action.position)),
        )  # fmt: skip

    def _copy_range(self, action: KeepCopy) -> Item:
        stat, name = self._fs.stat(action.path), action.path.name
        kept = kept_name(name, self._orders.plan_id, action.position)
        sha256 = self._copy(action.path, action.position, action.size, self._keep_at / kept, stat)
        return Item(
            "copied", name, action.reason, kept, action.position, action.size, sha256=sha256, mtime_ns=stat.mtime_ns,
            first_offset=action.first_offset,
        )  # fmt: skip

    def _keep_old(self, action: ReplaceFile, *, elsewhere: bool) -> Item:
        name = action.path.name
        if not action.replaces:
            return Item("created", name, action.reason, result_size=action.size, result_sha256=action.sha256)
        stat = self._fs.stat(action.path)
        kept = kept_name(name, self._orders.plan_id)
        sha256 = ""
        if elsewhere:
            sha256 = self._copy(action.path, 0, stat.size, self._keep_at / kept, stat)
        elif self._reuses_space(action):
            kept = ""
        else:
            self._drop(self._keep_at / kept)
            self._fs.link(action.path, self._keep_at / kept)
        return Item(
            "replaced", name, action.reason, kept, size=stat.size, sha256=sha256, mtime_ns=stat.mtime_ns,
            result_size=action.size, result_sha256=action.sha256,
        )  # fmt: skip

    def _reuses_space(self, action: ReplaceFile) -> bool:
        if not (self._in_place and action.replaces and action.path.suffix in _IN_PLACE):
            return False
        return self._fs.stat(action.path).links == 1

    def _copy(self, source: PurePath, position: int, size: int, target: PurePath, like: FileStat) -> str:
        """Copy a range durably and return its SHA-256; a copy that an earlier attempt left is replaced."""
        digest = new_digest()
        self._write_new(target, self._pieces(source, position, size, digest), like, private=True)
        self._done.kept_bytes += size
        return digest.hexdigest()

    def _pieces(self, source: PurePath, position: int, size: int, digest: hashlib._Hash) -> Iterator[bytes]:
        buffer = page_aligned(_CHUNK)
        with self._fs.open_read(source) as file:
            for at in range(position, position + size, _CHUNK):
                part = buffer[: min(_CHUNK, position + size - at)]
                if file.read_into(at, part) < len(part):
                    raise PlanStale(source, "it has shrunk")
                digest.update(part)
                yield bytes(part)

    def _write_new(self, path: PurePath, pieces: Iterable[bytes], like: FileStat, *, private: bool) -> None:
        self._drop(path)
        if private:  # it holds customers' data: readable by the owner of the log alone
            like = FileStat(FileKind.FILE, 0, 0, 0, 0, 0o600, like.uid, like.gid, 1, 0)
        with self._fs.create(path, like) as file:
            for piece in pieces:
                file.append(piece)
            file.sync()

    def _drop(self, path: PurePath) -> None:
        with contextlib.suppress(FileVanished):
            self._fs.remove(path)

    # ---- the changes

    def change(self, actions: Sequence[Action]) -> None:
        """Carry out the actions in their order, with a sync wherever the next step relies on the one before."""
        replaced = [a for a in actions if isinstance(a, ReplaceFile)]
        splits = [a for a in actions if isinstance(a, SplitLog)]
        self._rename([(a, temporary_name(a.path), a.path) for a in actions if isinstance(a, SpliceSegment)])
        asides = [a for a in actions if isinstance(a, SetAside)]
        in_the_way = {_piece_path(s, piece).name + suffix for s in splits for piece in s.pieces for suffix in _NOT_YET}
        for suffix in _NOT_YET:
            early = [a for a in asides if a.path.name in in_the_way and a.path.name.endswith(suffix)]
            self._rename([(a, a.path, self._aside(a)) for a in early])
        for split in splits:
            self._report(split)
            self._move_pieces(split, temporary_name(PurePath("-")).name[1:], _CLEANED)
            self._move_pieces(split, _CLEANED, _SWAP)
        self._step_aside([a for a in asides if a.path.name not in in_the_way])
        for cut in (a for a in actions if isinstance(a, TruncateTo)):
            self._cut(cut)
        self._rename([(a, a.path, a.target) for a in actions if isinstance(a, Rename)])
        for split in splits:
            self._move_pieces(split, _SWAP, "")
        for first in range(0, len(replaced), _AT_ONCE):
            self._replace(replaced[first : first + _AT_ONCE])
        if replaced:
            self._fs.sync_dir(self._directory)

    def _step_aside(self, asides: Sequence[SetAside]) -> None:
        """Rename files that have to go; the last log is the damaged one, and alone tells that all others go as well.

        So these are gone for good before it: a file system that reorders renames could else take the damage away first.
        """
        last = max((place for place, action in enumerate(asides) if action.path.suffix == ".log"), default=0)
        for some in (asides[:last], asides[last:]):
            self._rename([(a, a.path, self._aside(a)) for a in some])

    def _aside(self, action: SetAside) -> PurePath:
        return self._directory / kept_name(action.path.name, self._orders.plan_id)

    def _rename(self, steps: Sequence[tuple[Action, PurePath, PurePath]]) -> None:
        """Give files their new names, and make all of these durable before anything follows."""
        for action, source, target in steps:
            self._report(action)
            self._fs.rename(source, target)
        if steps:
            self._fs.sync_dir(self._directory)

    def _move_pieces(self, action: SplitLog, old: str, new: str) -> None:
        """Give all pieces their next suffix, one after the other for good, and the highest first.

        A loader drops all that are `.swap` above one that is `.cleaned`, and all that are in place between two `.swap`.
        """
        for piece in reversed(action.pieces):
            live = _piece_path(action, piece)
            self._fs.rename(live.with_name(live.name + old), live.with_name(live.name + new))
            self._fs.sync_dir(self._directory)

    def _report(self, action: Action) -> None:
        self._reporter.applying(action)
        self._done.actions += 1

    def _cut(self, action: TruncateTo) -> None:
        self._report(action)
        stat = self._fs.stat(action.path)
        if stat.links > 1:
            self._cut_copy(action, stat)
            return
        self._fs.truncate(action.path, action.size)
        # The time of the last write is data to Kafka: retention of old formats goes by it.
        self._fs.set_mtime(action.path, stat.mtime_ns)
        self._fs.sync_file(action.path)
        self._done.synced.add(action.path)

    def _cut_copy(self, action: TruncateTo, stat: FileStat) -> None:
        """Cut a file that has another name somewhere, maybe in a backup made of hard links: that one stays whole."""
        temporary = temporary_name(action.path)
        self._write_new(temporary, self._pieces(action.path, 0, action.size, new_digest()), stat, private=False)
        self._fs.set_mtime(temporary, stat.mtime_ns)
        self._fs.rename(temporary, action.path)
        self._fs.sync_dir(self._directory)

    def _replace(self, actions: Sequence[ReplaceFile]) -> None:
        """Write all, sync all, then give each its name, in their order."""
        renamed = []
        with contextlib.ExitStack() as opened:
            files: list[WriteFile] = []
            for action in actions:
                self._report(action)
                data = self._given.contents(action.path)
                if len(data) != action.size or sha256_of(data) != action.sha256:
                    raise PlanStale(action.path, "what is derived from the log for it has changed")
                if self._reuses_space(action):
                    # A prefix of an index is a valid index, so a crash in the middle misleads no broker.
                    self._fs.truncate(action.path, 0)
                    file = opened.enter_context(self._fs.open_append(action.path))
                else:
                    file = opened.enter_context(self._create_beside(action))
                    renamed.append(action.path)
                if data:
                    file.append(data)
                files.append(file)
            sync_all(files, self._given.sync_threads)
        for path in renamed:
            self._fs.rename(temporary_name(path), path)
        self._done.synced.update(action.path for action in actions)

    def _create_beside(self, action: ReplaceFile) -> WriteFile:
        self._drop(temporary_name(action.path))
        like = self._fs.stat(action.path) if action.replaces else self._model()
        return self._fs.create(temporary_name(action.path), like)

    def _model(self) -> FileStat:
        """Return owner and mode for a file that was not there: those of the first plain file beside it."""
        if self._new_file is None:  # looked for once: a directory may hold thousands of files, and lack as many
            entries = self._fs.entries(self._directory).items()
            plain = (s for n, s in entries if s.kind is FileKind.FILE and n.endswith((".log", ".index", "checkpoint")))
            directory = self._fs.stat(self._directory)
            like = next(plain, None)
            mode = 0o644 if like is None else like.mode
            self._new_file = FileStat(FileKind.FILE, 0, 0, 0, 0, mode, directory.uid, directory.gid, 1, 0)
        return self._new_file


def _piece_path(action: SplitLog, piece: Piece) -> PurePath:
    return action.path.with_name(segment_file_name(Offset(piece.base_offset), FileRole.LOG))
