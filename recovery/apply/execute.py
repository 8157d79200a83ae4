"""Carries out a plan. Besides quarantine.py the only room that is given a writable file system.

docs/understand/order-of-effects.md gives the reasons for the order. Of all directories of the plan: copies and
manifests, then what frees room, then every new file under a temporary name. All that may lack room has happened by
then. Only then the changes: the marker goes, each partition follows, at last the checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import TypeVar

from recovery.apply.changing import Applying, Changer, remove_leftovers
from recovery.apply.copying import drop, write_new
from recovery.apply.keeping import Healed, Keeper, remove_copies
from recovery.apply.part import Part
from recovery.apply.room import Room, make_place
from recovery.apply.staging import Contents, Stager, temporaries
from recovery.apply.together import each_partition
from recovery.evidence.manifest import Manifest, encode, manifest_name
from recovery.plan.orders import Orders
from recovery.plan.plan import LogDirPlan, Precondition, RecoveryPlan
from storage.base.errors import FileVanished, LogmendError, PlanStale
from storage.disk.fs import Fs, ReadFs, temporary_name
from storage.disk.syncing import SYNC_THREADS

__all__ = ["Applying", "Executed", "check_preconditions", "execute"]
R = TypeVar("R")


class Executed:
    """What was done; also after an error, for a caller that has made it."""

    __slots__ = ("actions", "changing", "freed", "kept_bytes", "manifests", "plan_id", "synced")

    def __init__(self, plan_id: str) -> None:
        self.plan_id = plan_id
        self.actions = self.kept_bytes = 0
        self.manifests: list[PurePath] = []
        self.synced: set[PurePath] = set()
        """Files that are durable as they are now, by their names."""
        self.freed = 0
        """Leftovers that were removed before anything else."""
        self.changing = False
        """The changes have begun."""


def execute(  # noqa: PLR0913 (what a plan does not say)
    fs: Fs,
    plan: LogDirPlan,
    contents: Contents,
    orders: Orders,
    reporter: Applying,
    *,
    threads: int = 1,
    together: bool = False,
    healed: Healed = lambda *_: (),
    effects: Executed | None = None,
) -> Executed:
    """Carry out `plan`, whose log directory the caller has locked.

    Raises `PlanStale` before the first effect if a file is no longer as it was examined, `NoRoom` before the first
    effect if there is no room for all of it, and `WriteFault` from whatever call fails; before the first change the
    copies and new files are then removed again, later the directory is as after a crash, and a new plan finishes the
    work. With several `threads`, as many partitions are worked on at a time: they
    are independent, and most of the time goes by waiting for syncs. `together`: nobody else writes much to this file
    system, so that many partitions may wait for a sync of all of it; each step is then durable for all at once.
    """
    check_preconditions(fs, plan.preconditions)
    for partition in plan.partitions:
        check_preconditions(fs, partition.preconditions)
    effects = Executed(orders.plan_id) if effects is None else effects
    if plan.is_empty:
        return effects
    changing = [partition for partition in plan.partitions if partition.actions]
    run = _Run(fs, plan, orders, changing, effects, threads, together=together and orders.quarantine_dir is None)
    # To start a thread takes as long as many a sync, so there are not as many for each of the directories.
    sync_threads = max(SYNC_THREADS // min(threads, len(changing) or 1), 2)
    run.room.check()
    with run.undone_on_error():
        if orders.discard:
            run.free()
        run.keep(healed)
        if orders.quarantine_dir is not None:
            run.free()
        run.stage(contents, healed, sync_threads)
        run.room.check_left()
    effects.changing = True
    run.change(reporter)
    return effects


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


class _Run:
    """The steps of a plan, each for all of its directories before the next one begins."""

    def __init__(
        self,
        fs: Fs,
        plan: LogDirPlan,
        orders: Orders,
        changing: Sequence[RecoveryPlan],
        effects: Executed,
        threads: int,
        *,
        together: bool,
    ) -> None:
        self._fs, self._plan, self._orders, self._done = fs, plan, orders, effects
        self._root = Part.of_log_dir(plan, orders)
        self._parts = {partition.partition: Part.of_partition(partition, orders) for partition in changing}
        self._all = [self._root, *self._parts.values()]
        self._each = partial(each_partition, fs, plan.log_dir, partitions=changing, threads=threads, together=together)
        self.room = Room(fs, plan, self._all)

    def _for_each(self, work: Callable[[Fs, Part], R]) -> list[R]:
        return list(self._each(lambda fs, partition: work(fs, self._parts[partition.partition])))

    def keep(self, healed: Healed) -> None:
        """Make copies and manifests of all directories durable."""
        place = self._orders.quarantine_dir
        if place is not None:
            make_place(self._fs, place / self._orders.plan_id)

        def keep(fs: Fs, part: Part) -> tuple[Part, bool, int]:
            if place is not None:
                make_place(fs, part.keep_at)
            keeper = Keeper(fs, part, healed)
            return part, keeper.keep(), keeper.kept_bytes

        kept = [keep(self._fs, self._root)] if self._root.actions else []
        for part, has_manifest, size in (*kept, *self._for_each(keep)):
            self._done.kept_bytes += size
            self._done.manifests += [part.manifest] if has_manifest else []

    def free(self) -> None:
        """Remove what every broker deletes when it starts, where nothing is kept beside the log."""
        for part in self._all:
            # Counted before: an error in the middle is no "nothing done".
            self._done.freed += len(part.leftovers)
            remove_leftovers(self._fs, part)

    def stage(self, contents: Contents, healed: Healed, sync_threads: int) -> None:
        """Write the record of where copies are, and all new files under temporary names."""
        self._write_record()

        def stage(fs: Fs, part: Part) -> None:
            Stager(fs, part, contents, healed, sync_threads).stage()

        stage(self._fs, self._root)
        self._for_each(stage)

    def _write_record(self) -> None:
        """Write in the log directory where copies went that are kept elsewhere: a manifest without items."""
        place, path = self._orders.quarantine_dir, self._record
        if place is None:
            return
        orders = self._orders
        record = Manifest(
            orders.plan_id, str(self._plan.log_dir), orders.created_ms, orders.version, (), copies_in=str(place)
        )
        write_new(self._fs, temporary_name(path), [encode(record)], self._fs.stat(self._plan.log_dir), private=True)
        self._fs.rename(temporary_name(path), path)
        self._fs.sync_dir(self._plan.log_dir)

    @property
    def _record(self) -> PurePath:
        return self._plan.log_dir / manifest_name(self._orders.plan_id)

    def change(self, reporter: Applying) -> None:
        """Carry out the changes: first those before all partitions, last the checkpoints."""

        def change(fs: Fs, part: Part) -> Changer:
            changer = Changer(fs, part, reporter)
            changer.change(part.actions)
            return changer

        root = Changer(self._fs, self._root, reporter)
        root.change(self._plan.before)
        changers = self._for_each(change)
        root.change(self._plan.after)
        for changer in (root, *changers):
            self._done.actions += changer.actions
            self._done.synced |= changer.synced

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Remove new files and copies again if what is done within fails: a full disk gets back what they take.

        Copies stay once a leftover that they hold has gone.
        """
        try:
            yield
        except LogmendError:
            needed = self._done.freed and self._orders.quarantine_dir is not None
            for part in self._all:
                for path in temporaries(part.actions):
                    with contextlib.suppress(LogmendError):
                        drop(self._fs, path)
                if not needed:
                    with contextlib.suppress(LogmendError):
                        remove_copies(self._fs, part)
            with contextlib.suppress(LogmendError):
                drop(self._fs, temporary_name(self._record))
            if not needed:
                self._remove_places()
            raise

    def _remove_places(self) -> None:
        self._done.kept_bytes, self._done.manifests = 0, []
        if self._orders.quarantine_dir is None:
            return
        with contextlib.suppress(LogmendError):
            drop(self._fs, self._record)
        for place in (*(part.keep_at for part in self._all), self._orders.quarantine_dir / self._orders.plan_id):
            with contextlib.suppress(LogmendError):
                self._fs.remove_dir(place)
