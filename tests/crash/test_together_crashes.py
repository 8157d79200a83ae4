"""A recovery that syncs the whole file system, as that of many partitions does, dies at any of its effects.

The trials are those of `test_recovery_crashes.py` and of `test_hand_over_crashes.py`, with the same demands.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
from crash.harness import CrashFailure
from crash.test_hand_over_crashes import Handing
from crash.test_recovery_crashes import LIMIT, SEED, STATES, TWO, Trial, overflowing
from support.damages import KINDS
from support.log_dirs import BASES, POINTS, SOUND, checkpoint, damaged, on_disk, place, recover
from support.memory_fs import MemoryFs, TracingFs
from support.tiers import deep, spread

from checkpoint.offsets import decode_offsets
from recovery.apply import hand_over as handing
from recovery.apply import together
from recovery.apply.execute import execute
from storage.disk.fs import Fs
from storage.disk.syncing import GroupedFs, GroupSync

Patch = pytest.MonkeyPatch
FEW_KINDS = [deep("damage_with_later_segments"), "flushed_index_wrong", "swap_half_renamed", "torn_tail"]


def sync_together(patch: Patch) -> None:
    """Have a recovery sync the whole file system for a few files too."""
    patch.setattr(together, "_FEWEST", 1)
    patch.setattr("support.recovering.execute", functools.partial(execute, together=True))


@pytest.fixture(autouse=True)
def syncs_together(monkeypatch: Patch) -> None:
    sync_together(monkeypatch)


def test_the_trials_do_sync_the_whole_file_system() -> None:
    fs = TracingFs(on_disk(damaged(KINDS["torn_tail"], files=SOUND)))
    recover(fs)
    assert fs.methods().count("sync_volume") > 2
    assert "sync_file" not in fs.methods()


@pytest.mark.slow
@pytest.mark.parametrize("kind", spread(KINDS, 10))
def test_a_recovery_that_dies_anywhere_ends_as_one_undisturbed(kind: str) -> None:
    assert Trial(damaged(KINDS[kind], files=SOUND)).crash(LIMIT // 3).states > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS) if STATES == "all" else random.Random(SEED).sample(sorted(KINDS), 8))
def test_names_that_survive_in_any_order_lead_to_the_same_end(kind: str) -> None:
    assert Trial(damaged(KINDS[kind], files=SOUND), strict=True).crash(LIMIT // 6).states > 1


def two(kind: str) -> Trial:
    """Return the trial of two partitions that are damaged alike."""
    files = damaged(KINDS[kind], files=TWO)
    other = {name.replace("orders-0/", "pay-3/"): data for name, data in files.items() if name.startswith("orders-0/")}
    point = next(iter(decode_offsets(files[POINTS]).values()))
    return Trial({**files, **other, POINTS: checkpoint({"orders-0": point, "pay-3": point})})


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEW_KINDS)
def test_several_partitions_that_wait_for_one_another_end_as_undisturbed(kind: str) -> None:
    assert two(kind).crash(LIMIT // 2).states > 1


def test_a_split_that_dies_anywhere_ends_as_one_undisturbed() -> None:
    files = overflowing()
    files[place(0)] += b"torn and no batch at all"
    assert Trial(files, unfinished=(".tmp", ".cleaned", ".swap")).crash(depth=1).states > 1


class HandingTogether(Handing):
    """The hand-over of a log that is synced with all else that is on its file system."""

    def hand_over(self, fs: Fs, created_ms: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            real = handing.hand_over
            patch.setattr("crash.test_hand_over_crashes.hand_over", functools.partial(real, threads=2))
            return super().hand_over(fs, created_ms)


@pytest.mark.parametrize("rolled", [False, True], ids=["marker", "rolled"])
@pytest.mark.parametrize("unsynced", BASES)
def test_a_hand_over_that_dies_anywhere_says_nothing_that_is_not_so(unsynced: int, *, rolled: bool) -> None:
    trial = HandingTogether(unsynced, marker=not rolled, rolled=rolled)
    fs = TracingFs(trial.make())
    trial.run(fs)
    assert "sync_volume" in fs.methods()
    assert trial.crash().states > 1


# ---- planted bugs


def the_file_system_is_not_synced(patch: Patch) -> None:
    patch.setattr(MemoryFs, "sync_volume", lambda *_: None)


def nobody_waits(patch: Patch) -> None:
    patch.setattr(GroupSync, "wait", lambda self: None)


def who_is_not_the_last_goes_on(patch: Patch) -> None:
    def wait(self: Any) -> None:
        if self._inside == 1:
            self._sync()

    patch.setattr(GroupSync, "wait", wait)


def a_sync_of_before_counts_for_what_came_after(patch: Patch) -> None:
    real = GroupedFs.create

    def create(self: Any, *arguments: Any) -> Any:
        file = real(self, *arguments)
        file._changed_after = -1  # type: ignore[attr-defined]
        file.append = file._inner.append  # type: ignore[attr-defined, method-assign]
        return file

    patch.setattr(GroupedFs, "create", create)


def names_are_not_synced(patch: Patch) -> None:
    patch.setattr(GroupedFs, "sync_dir", lambda self, directory: None)


BUGS = [
    the_file_system_is_not_synced,
    nobody_waits,
    who_is_not_the_last_goes_on,
    a_sync_of_before_counts_for_what_came_after,
    names_are_not_synced,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_reported(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    trial = two("flushed_index_wrong")
    bug(monkeypatch)
    with pytest.raises(CrashFailure):
        trial.crash(limit=300, depth=1)
