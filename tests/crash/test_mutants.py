"""Planted bugs in the order of effects: the crash tests report every one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import pytest
from crash.harness import CrashFailure
from crash.test_recovery_crashes import Trial
from support.damages import KINDS
from support.log_dirs import POINTS, SOUND, TOP, checkpoint, damaged
from support.wrapped_fs import Skipping

from recovery.apply import changing, copying, keeping, staging
from recovery.apply import execute as module
from recovery.apply.changing import Changer
from recovery.apply.keeping import Keeper
from recovery.plan.plan import LogDirPlan, ReplaceFile, TruncateTo
from storage.disk.fs import replace_atomically

Patch = pytest.MonkeyPatch
ROOMS = (changing, copying, keeping, staging, module)


def without(patch: Patch, method: str, which: Callable[[PurePath], bool] = lambda path: True) -> None:
    real = module.execute

    def run(fs: Any, *arguments: Any) -> Any:
        return real(Skipping(fs, method, which), *arguments)

    patch.setattr("support.recovering.execute", run)


def everywhere(patch: Patch, name: str, function: Callable[..., Any]) -> None:
    """Put another function in the place of one of recovery/apply/copying.py, wherever it is used."""
    for room in ROOMS:
        if hasattr(room, name):
            patch.setattr(room, name, function)


def copies_are_not_synced(patch: Patch) -> None:
    def write_new(fs: Any, path: PurePath, pieces: Any, like: Any, *, private: bool) -> None:
        copying.drop(fs, path)
        with fs.create(path, like) as file:
            for piece in pieces:
                file.append(piece)
            if not path.name.endswith(".logmend"):
                file.sync()

    everywhere(patch, "write_new", write_new)


def names_of_copies_are_not_synced(patch: Patch) -> None:
    real = Keeper.keep

    def keep(self: Any) -> bool:
        self._fs = Skipping(self._fs, "sync_dir", lambda path: True)
        return real(self)

    patch.setattr(Keeper, "keep", keep)


def later_segments_step_aside_after_the_cut(patch: Patch) -> None:
    real = Changer.change

    def change(self: Any, actions: Any) -> None:
        real(self, [action for action in actions if isinstance(action, TruncateTo)])
        real(self, [action for action in actions if not isinstance(action, TruncateTo)])

    patch.setattr(Changer, "change", change)


def the_manifest_comes_after_the_cut(patch: Patch) -> None:
    write, change = copying.write_new, Changer.change
    late: dict[PurePath, tuple[Any, ...]] = {}

    def write_new(fs: Any, path: PurePath, pieces: Any, like: Any, *, private: bool) -> None:
        if ".logmend.json" in path.name:
            late[path.parent] = (fs, path, list(pieces), like)
            write(fs, path, [], like, private=private)
        else:
            write(fs, path, pieces, like, private=private)

    def change_first(self: Any, actions: Any) -> None:
        change(self, actions)
        if actions and self._directory in late:
            fs, path, pieces, like = late.pop(self._directory)
            write(fs, path.with_name(path.name.removesuffix(".tmp")), pieces, like, private=True)

    everywhere(patch, "write_new", write_new)
    patch.setattr(Changer, "change", change_first)


def a_checkpoint_leads_the_log(patch: Patch) -> None:
    real = module.execute

    def run(fs: Any, *arguments: Any) -> Any:
        replace_atomically(fs, TOP / POINTS, checkpoint({"orders-0": 30}))
        done = real(fs, *arguments)
        replace_atomically(fs, TOP / POINTS, SOUND[POINTS])
        return done

    patch.setattr("support.recovering.execute", run)


def replacements_are_not_synced(patch: Patch) -> None:
    patch.setattr("recovery.apply.staging.sync_all", lambda files, threads: None)


def renames_are_not_synced(patch: Patch) -> None:
    without(patch, "sync_dir")


def the_cut_is_not_synced(patch: Patch) -> None:
    without(patch, "sync_file")


def old_copies_are_in_the_way(patch: Patch) -> None:
    everywhere(patch, "drop", lambda fs, path: None)


def the_marker_goes_last(patch: Patch) -> None:
    real = module.execute

    def run(fs: Any, plan: LogDirPlan, *arguments: Any) -> Any:
        return real(fs, plan._replace(before=(), after=(*plan.after, *plan.before)), *arguments)

    patch.setattr("support.recovering.execute", run)


def derived_files_are_replaced_before_the_cut(patch: Patch) -> None:
    real = Changer.change

    def change(self: Any, actions: Any) -> None:
        real(self, [action for action in actions if isinstance(action, ReplaceFile)])
        real(self, [action for action in actions if not isinstance(action, ReplaceFile)])

    patch.setattr(Changer, "change", change)


MUTANTS: dict[Callable[[Patch], None], str] = {
    copies_are_not_synced: "damage_with_later_segments",
    names_of_copies_are_not_synced: "garbage_between_segments",
    a_checkpoint_leads_the_log: "torn_tail",
    later_segments_step_aside_after_the_cut: "damage_with_later_segments",
    the_manifest_comes_after_the_cut: "zero_tail",
    replacements_are_not_synced: "flushed_index_wrong",
    renames_are_not_synced: "damage_with_later_segments",
    the_cut_is_not_synced: "torn_tail",
    old_copies_are_in_the_way: "torn_tail",
    the_marker_goes_last: "marker_beside_bad_derived_files",
    derived_files_are_replaced_before_the_cut: "batch_no_broker_writes",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_reported(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    trial = Trial(damaged(KINDS[MUTANTS[mutant]], files=SOUND))
    mutant(monkeypatch)
    with pytest.raises(CrashFailure):
        trial.crash(limit=300)
