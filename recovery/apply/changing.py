"""Carries out the changes of one directory, once copies and new files are durable: renames, cuts, removals.

docs/understand/order-of-effects.md gives the reasons for the order. Later segments step aside before the cut, so that a
crash between the two leaves the damage that asks for both; derived files come after the log they are derived from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Protocol

from recovery.apply.part import Part, of_kind, piece_path
from recovery.plan.plan import Action, Rename, ReplaceFile, SetAside, SpliceSegment, SplitLog, TruncateTo
from storage.disk.fs import Fs, temporary_name
from storage.disk.second_names import cut_file

_CLEANED: Final = ".cleaned"
_SWAP: Final = ".swap"
_NOT_YET: Final = (_SWAP, _CLEANED)
"""In the order in which they step aside: while one is `.cleaned`, a loader drops them all."""


class Applying(Protocol):
    """A caller that follows which action is being carried out."""

    def applying(self, action: Action) -> None: ...


def remove_leftovers(fs: Fs, part: Part) -> None:
    """Remove what every broker deletes when it starts, and what is copied elsewhere or discarded."""
    leftovers = part.leftovers
    for action in leftovers:
        fs.remove(action.path)
    if leftovers:
        fs.sync_dir(part.directory)


class Changer:
    """Changes one directory. `actions` counts what was done; `synced` names files that are durable as they are now."""

    def __init__(self, fs: Fs, part: Part, reporter: Applying) -> None:
        self._fs, self._part, self._reporter = fs, part, reporter
        self._directory = part.directory
        self.actions = 0
        self.synced: set[PurePath] = set()

    def change(self, actions: Sequence[Action]) -> None:
        """Carry out the actions in their order, with a sync wherever the next step relies on the one before."""
        splits, replaced = of_kind(actions, SplitLog), of_kind(actions, ReplaceFile)
        gone = frozenset(self._part.leftovers)
        for action in gone:
            self._report(action)
        asides = [a for a in of_kind(actions, SetAside) if a not in gone]
        in_the_way = {piece_path(s, piece).name + suffix for s in splits for piece in s.pieces for suffix in _NOT_YET}
        for suffix in _NOT_YET:
            early = [a for a in asides if a.path.name in in_the_way and a.path.name.endswith(suffix)]
            self._set_aside(early)
        for split in splits:
            self._report(split)
            self._move_pieces(split, temporary_name(PurePath("-")).name[1:], _CLEANED)
            self._move_pieces(split, _CLEANED, _SWAP)
        self._step_aside([a for a in asides if a.path.name not in in_the_way])
        self._rename([(a, temporary_name(a.path), a.path) for a in of_kind(actions, SpliceSegment)])
        for cut in of_kind(actions, TruncateTo):
            self._cut(cut)
        self._rename([(a, a.path, a.target) for a in of_kind(actions, Rename)])
        for split in splits:
            self._move_pieces(split, _SWAP, "")
        self._rename([(a, temporary_name(a.path), a.path) for a in replaced])
        self.synced.update(action.path for action in replaced)

    def _step_aside(self, asides: Sequence[SetAside]) -> None:
        """Take files away that have to go; the last log is the damaged one, and alone tells that all others go as well.

        So these are gone for good before it: a file system that reorders renames could else take the damage away first.
        """
        last = max((place for place, action in enumerate(asides) if action.path.suffix == ".log"), default=0)
        for some in (asides[:last], asides[last:]):
            self._set_aside(some)

    def _set_aside(self, asides: Sequence[SetAside]) -> None:
        """Rename files so that no broker reads them; remove those of which a copy is kept elsewhere."""
        if self._part.orders.quarantine_dir is None:
            self._rename([(a, a.path, self._part.kept(a.path)) for a in asides])
            return
        for action in asides:
            self._report(action)
            self._fs.remove(action.path)
        if asides:
            self._fs.sync_dir(self._directory)

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
            live = piece_path(action, piece)
            self._fs.rename(live.with_name(live.name + old), live.with_name(live.name + new))
            self._fs.sync_dir(self._directory)

    def _report(self, action: Action) -> None:
        self._reporter.applying(action)
        self.actions += 1

    def _cut(self, action: TruncateTo) -> None:
        self._report(action)
        cut_file(self._fs, action.path, action.size)
        self.synced.add(action.path)
