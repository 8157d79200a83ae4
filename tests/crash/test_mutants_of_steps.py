"""Planted bugs in the rarer steps of a recovery: preconditions, room, hard links, swaps and splits.

Each has a trial of its own, which passes without the bug; with it the trial fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import pytest
from crash.test_mutants import Patch
from crash.test_recovery_crashes import Trial, overflowing
from support.damages import KINDS
from support.log_dirs import OPTIONS, SOUND, TOP, damaged, on_disk, place, plan_of, recover
from support.memory_fs import MemoryFs
from support.recovered import assert_clean, assert_nothing_is_lost
from support.wrapped_fs import Skipping

from recovery.apply import changing
from recovery.apply import execute as module
from recovery.apply.changing import Changer
from recovery.apply.copying import drop, range_of, write_new
from recovery.apply.keeping import Keeper
from recovery.apply.part import piece_path
from recovery.apply.room import Room
from recovery.apply.staging import Stager
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.digest import new_digest
from recovery.plan.orders import Orders
from recovery.plan.plan import Piece, Rename, SetAside, SplitLog
from storage.base.errors import EnvironmentFault, NoRoom, PlanStale
from storage.disk.fs import FileStat, Fs, temporary_name

TORN = TOP / place(20)


# ---- nothing is done where a file has changed, or where there is no room


def a_changed_file_stops_everything() -> int:
    """Of each file that was examined another size, another time, another inode."""
    files, tried = damaged(KINDS["damage_with_later_segments"], files=SOUND), 0
    for path in sorted({each.path for part in plan_of(on_disk(files)).partitions for each in part.preconditions}):
        for change in (grow, touch, replace_by_an_equal_one):
            fs = on_disk(files)
            planned = plan_log_dir(fs, TOP, OPTIONS)
            change(fs, path)
            found, effects = fs.contents(str(TOP)), fs.effects
            stopped = False
            try:
                with contextlib.suppress(EnvironmentFault):
                    module.execute(
                        fs, planned.plan, planned.content_of, Orders(planned.plan.plan_id, 1, "test"), SilentReporter()
                    )
            except PlanStale:
                stopped = True
            assert (stopped, fs.effects) == (True, effects), f"{change.__name__} of {path.name} is not seen"
            assert fs.contents(str(TOP)) == found
            tried += 1
    return tried


def grow(fs: MemoryFs, path: PurePath) -> None:
    with fs.open_append(path) as file:
        file.append(b"more")
    fs.set_mtime(path, fs.stat(path).mtime_ns)


def touch(fs: MemoryFs, path: PurePath) -> None:
    fs.set_mtime(path, fs.stat(path).mtime_ns + 1)


def replace_by_an_equal_one(fs: MemoryFs, path: PurePath) -> None:
    stat, data = fs.stat(path), fs.contents(str(path.parent))[path.name]
    with fs.create(temporary_name(path), stat) as file:
        file.append(data)
    fs.set_mtime(temporary_name(path), stat.mtime_ns)
    fs.rename(temporary_name(path), path)


def want_of_room_stops_everything() -> int:
    """With any room below the need, nothing is done; with the need that was named, all of it."""
    files = damaged(KINDS["noise_in_the_middle"], files=SOUND)
    files[place(20)] += b"\x5a" * 200_000  # a copy that is larger than what is rounded up elsewhere
    fs = on_disk(files)
    fs._room = fs._used()
    with pytest.raises(NoRoom) as refused:
        recover(fs)
    assert fs.effects == 0, "something was done before it was refused"
    assert fs.contents(str(TOP)) == files
    fs._room += refused.value.needed
    recover(fs)
    assert_clean(fs)
    assert_nothing_is_lost(files, fs.contents(str(TOP)))
    return 2


# ---- a log with another name


class LinkedTrial(Trial):
    """The torn log has another name, say in a backup made of hard links, which stays as it is."""

    backup = TOP.parent / "backup"

    def make(self) -> MemoryFs:
        fs = on_disk(self.files)
        fs.make_dir(self.backup)
        fs.sync_dir(self.backup.parent)
        fs.link(TORN, self.backup / TORN.name)
        fs.sync_dir(self.backup)
        return fs

    def judge(self, fs: MemoryFs) -> None:
        assert fs.contents(str(self.backup)) == {TORN.name: self.files[place(20)]}, "the other name has changed"
        super().judge(fs)


def a_log_with_another_name_is_cut_beside_it() -> int:
    files = damaged(KINDS["torn_tail"], files=SOUND)
    return sum(LinkedTrial(files, strict=strict).crash(60, depth=1).states for strict in (False, True))


# ---- swaps and splits


def a_swap_is_finished_from_whatever_is_left() -> int:
    kinds = ("swap_not_yet_in_place", "swap_half_renamed")
    return sum(Trial(damaged(KINDS[kind], files=SOUND), strict=True).crash(40).states for kind in kinds)


def a_split_is_finished_from_whatever_is_left() -> int:
    return sum(
        Trial(overflowing(), unfinished=(), strict=strict).crash(300, depth=1).states for strict in (False, True)
    )


# ---- the bugs


def no_look_at_what_was_examined(patch: Patch) -> None:
    patch.setattr(module, "check_preconditions", lambda fs, wanted: None)


def _looks_at(patch: Patch, *names: str) -> None:
    def check(fs: Fs, preconditions: Any) -> None:
        for wanted in preconditions:
            found = fs.stat(wanted.path)
            if any(getattr(found, name) != getattr(wanted, name) for name in names):
                raise PlanStale(wanted.path, "it has changed")

    patch.setattr(module, "check_preconditions", check)


def a_look_at_sizes_alone(patch: Patch) -> None:
    _looks_at(patch, "size")


def a_look_at_sizes_and_times_alone(patch: Patch) -> None:
    _looks_at(patch, "size", "mtime_ns")


def a_look_when_the_copies_are_there(patch: Patch) -> None:
    real, change = module.check_preconditions, Changer.change
    late: list[Any] = []

    def begin(self: Any, actions: Any) -> None:
        for fs, wanted in late if actions else ():
            real(fs, wanted)
        change(self, actions)

    patch.setattr(module, "check_preconditions", lambda fs, wanted: late.append((fs, wanted)))
    patch.setattr(Changer, "change", begin)


def no_question_for_room(patch: Patch) -> None:
    patch.setattr(Room, "check", lambda self: None)
    patch.setattr(Room, "check_left", lambda self: None)


def room_without_the_copies(patch: Patch) -> None:
    patch.setattr(Room, "_copies", lambda self: 0)


def room_that_is_asked_for_after_the_copies(patch: Patch) -> None:
    real, keep = Room.check, Keeper.keep
    asked: list[Room] = []

    def begin(self: Any) -> bool:
        has_manifest = keep(self)
        real(asked[-1])
        return has_manifest

    def check(self: Room) -> None:
        asked.append(self)

    patch.setattr(Room, "check", check)
    patch.setattr(Keeper, "keep", begin)


def _cuts(patch: Patch, cut: Callable[[Fs, PurePath, int], None]) -> None:
    patch.setattr(changing, "cut_file", cut)


def the_copy_up_to_the_cut_is_not_synced(patch: Patch) -> None:
    def cut(fs: Fs, path: PurePath, size: int) -> None:
        stat, pieces = fs.stat(path), [*range_of(fs, path, 0, size, new_digest())]
        drop(fs, temporary_name(path))
        with fs.create(temporary_name(path), stat) as file:
            for piece in pieces:
                file.append(piece)
        fs.set_mtime(temporary_name(path), stat.mtime_ns)
        fs.rename(temporary_name(path), path)
        fs.sync_dir(path.parent)

    _cuts(patch, cut)


def the_name_of_the_copy_up_to_the_cut_is_not_synced(patch: Patch) -> None:
    real = changing.cut_file
    _cuts(patch, lambda fs, path, size: real(Skipping(fs, "sync_dir", lambda path: True), path, size))


def the_old_name_goes_before_the_copy_is_there(patch: Patch) -> None:
    def cut(fs: Fs, path: PurePath, size: int) -> None:
        stat, pieces = fs.stat(path), [*range_of(fs, path, 0, size, new_digest())]
        fs.remove(path)
        write_new(fs, path, pieces, stat, private=False)
        fs.sync_dir(path.parent)

    _cuts(patch, cut)


def a_log_with_another_name_is_cut_in_place(patch: Patch) -> None:
    def cut(fs: Any, path: PurePath, size: int) -> None:
        file = fs._fs._find(path) if hasattr(fs, "_fs") else fs._find(path)
        links, file.links = file.links, 1
        fs.truncate(path, size)
        fs.sync_file(path)
        file.links = links

    _cuts(patch, cut)


def a_swap_is_named_before_what_it_replaces_is_gone(patch: Patch) -> None:
    real = Changer.change

    def change(self: Any, actions: Any) -> None:
        real(self, [action for action in actions if isinstance(action, Rename)])
        real(self, [action for action in actions if not isinstance(action, Rename)])

    patch.setattr(Changer, "change", change)


def a_swap_is_named_in_one_go_with_what_steps_aside(patch: Patch) -> None:
    real = Changer._rename

    def rename(self: Any, steps: Any) -> None:
        if any(isinstance(action, SetAside) for action, *_ in steps):
            fs, self._fs = self._fs, Skipping(self._fs, "sync_dir", lambda path: True)
            real(self, steps)
            self._fs = fs
        else:
            real(self, steps)

    patch.setattr(Changer, "_rename", rename)


def the_names_of_a_swap_are_not_synced(patch: Patch) -> None:
    real = Changer._rename

    def rename(self: Any, steps: Any) -> None:
        if any(isinstance(action, Rename) for action, *_ in steps):
            for _, source, target in reversed(steps):
                self._fs.rename(source, target)
        else:
            real(self, steps)

    patch.setattr(Changer, "_rename", rename)


def _moves(patch: Patch, move: Callable[[Any, SplitLog, list[Piece], str, str], None]) -> None:
    patch.setattr(Changer, "_move_pieces", lambda self, split, old, new: move(self, split, [*split.pieces], old, new))


def _name(self: Any, split: SplitLog, piece: Piece, old: str, new: str) -> None:
    live_one = piece_path(split, piece)
    self._fs.rename(live_one.with_name(live_one.name + old), live_one.with_name(live_one.name + new))


def pieces_get_their_names_from_the_lowest_on(patch: Patch) -> None:
    def move(self: Any, split: SplitLog, pieces: list[Piece], old: str, new: str) -> None:
        for piece in pieces:
            _name(self, split, piece, old, new)
            self._fs.sync_dir(self._directory)

    _moves(patch, move)


def pieces_get_their_names_with_one_sync(patch: Patch) -> None:
    def move(self: Any, split: SplitLog, pieces: list[Piece], old: str, new: str) -> None:
        for piece in reversed(pieces):
            _name(self, split, piece, old, new)
        self._fs.sync_dir(self._directory)

    _moves(patch, move)


def pieces_are_swapped_in_without_being_cleaned_first(patch: Patch) -> None:
    def move(self: Any, split: SplitLog, pieces: list[Piece], old: str, new: str) -> None:
        steps = {".cleaned": (old, ".swap"), ".swap": None, "": (".swap", "")}[new]
        for piece in reversed(pieces) if steps else ():
            _name(self, split, piece, *steps)
            self._fs.sync_dir(self._directory)

    _moves(patch, move)


def pieces_are_not_synced(patch: Patch) -> None:
    def write(self: Any, path: PurePath, pieces: Any, like: FileStat) -> None:
        drop(self._fs, path)
        with self._fs.create(path, like) as file:
            for data in pieces:
                file.append(data)
        self._fs.set_mtime(path, like.mtime_ns)

    patch.setattr(Stager, "_write", write)


Bug = Callable[[Patch], None]
TRIALS: dict[Callable[[], int], list[Bug]] = {
    a_changed_file_stops_everything: [
        no_look_at_what_was_examined,
        a_look_at_sizes_alone,
        a_look_at_sizes_and_times_alone,
        a_look_when_the_copies_are_there,
    ],
    want_of_room_stops_everything: [
        no_question_for_room,
        room_without_the_copies,
        room_that_is_asked_for_after_the_copies,
    ],
    a_log_with_another_name_is_cut_beside_it: [
        the_copy_up_to_the_cut_is_not_synced,
        the_name_of_the_copy_up_to_the_cut_is_not_synced,
        the_old_name_goes_before_the_copy_is_there,
        a_log_with_another_name_is_cut_in_place,
    ],
    a_swap_is_finished_from_whatever_is_left: [
        a_swap_is_named_before_what_it_replaces_is_gone,
        a_swap_is_named_in_one_go_with_what_steps_aside,
        the_names_of_a_swap_are_not_synced,
    ],
    a_split_is_finished_from_whatever_is_left: [
        pieces_get_their_names_from_the_lowest_on,
        pieces_get_their_names_with_one_sync,
        pieces_are_swapped_in_without_being_cleaned_first,
        pieces_are_not_synced,
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.__name__)
def test_without_a_planted_bug_it_holds(trial: Callable[[], int]) -> None:
    assert trial() > 1


@pytest.mark.parametrize(
    ("trial", "bug"), [(trial, bug) for trial, bugs in TRIALS.items() for bug in bugs],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_a_planted_bug_is_found(trial: Callable[[], int], bug: Bug, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, EnvironmentFault, NoRoom, PlanStale, pytest.fail.Exception)):
        trial()
