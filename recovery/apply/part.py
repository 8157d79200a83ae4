"""One directory of a plan, as the steps of carrying it out take it: its actions, and where what they keep goes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from recovery.evidence.manifest import kept_name, manifest_name
from recovery.plan.orders import Orders
from recovery.plan.plan import Action, LogDirPlan, Piece, RecoveryPlan, SetAside, SplitLog
from storage.base.names import FileRole, FileState, segment_file_name
from storage.base.units import Offset
from storage.disk.fs import temporary_name

T = TypeVar("T")


class Part(NamedTuple):
    """A directory and what the plan does there. `offsets`: first offset of each cut, by file and position."""

    directory: PurePath
    actions: tuple[Action, ...]
    orders: Orders
    keep_at: PurePath
    offsets: dict[tuple[PurePath, int], int]

    @classmethod
    def of_log_dir(cls, plan: LogDirPlan, orders: Orders) -> Part:
        """Return the top of the log directory: what comes before and after all partitions."""
        actions = (*plan.before, *plan.after)
        return cls(plan.log_dir, actions, orders, _keep_at(plan.log_dir, "log-dir", orders), {})

    @classmethod
    def of_partition(cls, plan: RecoveryPlan, orders: Orders) -> Part:
        """Return the directory of one partition."""
        offsets = {(cut.path, cut.position): cut.first_offset for cut in plan.cuts}
        keep_at = _keep_at(plan.directory, plan.partition or "log-dir", orders)
        return cls(plan.directory, plan.actions, orders, keep_at, offsets)

    @property
    def manifest(self) -> PurePath:
        """Return where the manifest goes."""
        return self.keep_at / manifest_name(self.orders.plan_id)

    def kept(self, path: PurePath, position: int | None = None) -> PurePath:
        """Return where a file, or its bytes from `position` on, are kept."""
        return self.keep_at / kept_name(path.name, self.orders.plan_id, position)

    @property
    def leftovers(self) -> list[SetAside]:
        """Return the leftovers that go before anything else is done: all, where nothing is kept beside the log."""
        return [] if self.orders.keeps_beside else self.deleted

    @property
    def deleted(self) -> list[SetAside]:
        """Return the leftovers that are set aside: files that every broker deletes when it starts."""
        return [a for a in self.actions if isinstance(a, SetAside) and a.path.name.endswith(FileState.DELETED.value)]


def _keep_at(directory: PurePath, name: str, orders: Orders) -> PurePath:
    return directory if orders.quarantine_dir is None else orders.quarantine_dir / orders.plan_id / name


def piece_path(action: SplitLog, piece: Piece) -> PurePath:
    """Return the path that a piece of a split log gets in the end."""
    return action.path.with_name(segment_file_name(Offset(piece.base_offset), FileRole.LOG))


def piece_temporary(action: SplitLog, piece: Piece) -> PurePath:
    """Return a name of ours: a piece under one that a loader knows may be taken by what a crash has left."""
    return temporary_name(piece_path(action, piece))


def of_kind(actions: Iterable[Action], kind: type[T]) -> list[T]:
    """Return the actions of one kind, in their order."""
    return [action for action in actions if isinstance(action, kind)]
