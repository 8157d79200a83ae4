"""Planted bugs in the order and the content of a roll: each crash that they make dangerous is reported.

The sound order is crashed in `test_hand_over_crashes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from crash.harness import CrashFailure
from crash.test_hand_over_crashes import (
    FEW,
    PARTITION,
    Handing,
    Patch,
    in_method,
    logs_are_not_synced,
    points_rise_before_the_sync,
    syncing,
)
from support.log_dirs import END, name_of
from support.wrapped_fs import Skipping

from recovery.apply import hand_over as handing
from recovery.apply.changing import Changer
from recovery.plan.plan import Action, LogDirPlan, Quarantine, RecoveryPlan, ReplaceFile, SetAside, TruncateTo
from storage.disk.fs import Fs


def points_rise_before_the_roll(patch: Patch) -> None:
    real = handing._carry_out

    def twice(fs: Fs, last: LogDirPlan, *more: Any) -> None:
        real(fs, last._replace(partitions=()), *more)
        real(fs, last._replace(after=()), *more)

    patch.setattr(handing, "_carry_out", twice)


def _rolling(patch: Patch, change: Callable[[RecoveryPlan], RecoveryPlan]) -> None:
    real = handing.roll
    patch.setattr(handing, "roll", lambda partition: change(real(partition)))


def _without(plan: RecoveryPlan, *kinds: type) -> RecoveryPlan:
    return plan._replace(actions=tuple(action for action in plan.actions if not isinstance(action, kinds)))


def the_indexes_stay_preallocated(patch: Patch) -> None:
    _rolling(patch, lambda plan: _without(plan, Quarantine, TruncateTo))


def no_segment_begins(patch: Patch) -> None:
    _rolling(patch, lambda plan: _without(plan, ReplaceFile))


def names_of_new_segments_are_not_synced(patch: Patch) -> None:
    in_method(patch, Changer, "change", lambda fs: Skipping(fs, "sync_dir"))


def trimmed_indexes_are_not_synced(patch: Patch) -> None:
    in_method(patch, Changer, "_cut", lambda fs: Skipping(fs, "sync_file"))


def the_time_index_has_no_closing_entry(patch: Patch) -> None:
    """Cut one entry more off the time index than a roll does."""

    def shorter(plan: RecoveryPlan) -> RecoveryPlan:
        def less(action: Action) -> Action:
            if isinstance(action, Quarantine) and action.path.suffix == ".timeindex":
                return action._replace(position=action.position - 12, size=action.size + 12)
            if isinstance(action, TruncateTo) and action.path.suffix == ".timeindex":
                return action._replace(size=action.size - 12)
            return action

        return plan._replace(actions=tuple(map(less, plan.actions)))

    _rolling(patch, shorter)


def the_snapshot_is_missing(patch: Patch) -> None:
    """Roll a log without a snapshot at its end: the new segment takes its place in the directory."""

    def instead(plan: RecoveryPlan) -> RecoveryPlan:
        path = PARTITION / name_of(END, "snapshot")
        return plan._replace(actions=(SetAside(path, "planted"), *plan.actions))

    _rolling(patch, instead)


def the_snapshot_is_not_synced(patch: Patch) -> None:
    syncing(patch, lambda fs: Skipping(fs, "sync_file", lambda path: path.suffix == ".snapshot"))


ROLL_MUTANTS = [
    points_rise_before_the_sync,
    points_rise_before_the_roll,
    logs_are_not_synced,
    the_indexes_stay_preallocated,
    no_segment_begins,
    names_of_new_segments_are_not_synced,
    trimmed_indexes_are_not_synced,
    the_time_index_has_no_closing_entry,
    the_snapshot_is_missing,
    the_snapshot_is_not_synced,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ROLL_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_of_rolling_is_reported(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(CrashFailure):
        Handing(20, rolled=True).crash(FEW, depth=1)
