"""Planted bugs in the rarer steps of a recovery: preconditions, room, hard links, swaps, splits, indexes in place.

Each has a trial of its own, which passes without the bug; with it the trial fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pytest
from crash.harness import Counts, every_crash
from crash.test_mutants import Patch
from crash.test_recovery_crashes import Trial, overflowing
from support.damages import KINDS
from support.log_dirs import OPTIONS, SOUND, TOP, Files, damaged, live, on_disk, place, plan_of, recover
from support.memory_fs import MemoryFs
from support.recovered import assert_clean, assert_nothing_is_lost
from support.wrapped_fs import Skipping

from recovery.apply import execute as module
from recovery.logdir.survey import SilentReporter, plan_log_dir
from recovery.plan.orders import Orders
from recovery.plan.plan import Piece, Rename, SetAside, SplitLog, TruncateTo
from storage.base.errors import EnvironmentFault, NoRoom, PlanStale
from storage.disk.fs import FileStat, Fs, temporary_name

Directory = module._Directory
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


# ---- indexes in place


@dataclass
class TightTrial:
    """Room for what must be kept, and for nothing beside: indexes are written over the old ones, which are not kept."""

    files: Files
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        self.room = on_disk(self.files)._used()
        with contextlib.suppress(NoRoom):
            self.room += self._needed()
        fs = self.make()
        recover(fs)
        self.end = live(fs.contents(str(TOP)))
        kept = [name for name in fs.contents(str(TOP)) if "kept." in name and name.split("kept.")[1][:26] in self.names]
        assert not kept, "there was room"

    def _needed(self) -> int:
        fs = on_disk(self.files)
        fs._room = fs._used()
        try:
            recover(fs)
        except NoRoom as refused:
            return refused.needed
        return 0

    def make(self) -> MemoryFs:
        fs = on_disk(self.files)
        fs._room = self.room
        return fs

    def again(self, fs: Fs) -> None:
        assert isinstance(fs, MemoryFs)
        assert_derived_is_a_prefix(fs.contents(str(TOP)), self.files, self.end, self.names)
        fs._room = None
        recover(fs, created_ms=2)

    def judge(self, fs: MemoryFs) -> None:
        found = fs.contents(str(TOP))
        # A crash may leave the first entries of a new index, and all of these are right: it stays.
        begun = {name: data for name, data in live(found).items() if name in self.names}
        assert all(self.end[name].startswith(data) for name, data in begun.items())
        assert live(found) | {name: self.end[name] for name in begun} == self.end
        indexes = {name for name in self.files if name.endswith(("index", "timeindex"))}
        assert_nothing_is_lost({n: d for n, d in self.files.items() if n not in indexes}, found)
        assert_clean(fs)
        for left in fs.crash_states():
            now = live(left.to_fs(fs).contents(str(TOP)))
            assert now == live(found), "not all that was done is durable"

    def crash(self) -> Counts:
        return every_crash(
            self.make, lambda fs: recover(fs) and None, self.judge, self.again, 1, 400, promised=lambda: ()
        )


def assert_derived_is_a_prefix(now: Files, before: Files, end: Files, names: tuple[str, ...]) -> None:
    """An index that is written in place is the old one or a beginning of the new one, at any time."""
    for name in names:
        data = now[name]
        assert data == before[name] or end[name].startswith(data) or not any(data), f"{name} misleads"


def indexes_in_place_end_as_others_do() -> int:
    names = (place(20, "index"), place(20, "timeindex"))
    return TightTrial(damaged(KINDS["indexes_wrong"], files=SOUND), names).crash().states


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
    real, change = module.check_preconditions, Directory.change
    late: list[Any] = []

    def begin(self: Any, actions: Any) -> None:
        for fs, wanted in late if actions else ():
            real(fs, wanted)
        change(self, actions)

    patch.setattr(module, "check_preconditions", lambda fs, wanted: late.append((fs, wanted)))
    patch.setattr(Directory, "change", begin)


def no_question_for_room(patch: Patch) -> None:
    patch.setattr(module, "check_room", lambda fs, plan, orders: False)


def room_without_the_copies(patch: Patch) -> None:
    real = module.check_room
    patch.setattr(module, "check_room", lambda fs, plan, orders: real(fs, plan, orders._replace(discard=True)))


def room_that_is_asked_for_after_the_copies(patch: Patch) -> None:
    real, keep = module.check_room, Directory.keep
    asked: list[Any] = []

    def begin(self: Any, actions: Any) -> None:
        keep(self, actions)
        real(*asked)

    patch.setattr(module, "check_room", lambda *given: asked.extend(given) if not asked else None)
    patch.setattr(Directory, "keep", begin)


def the_copy_up_to_the_cut_is_not_synced(patch: Patch) -> None:
    def write_new(self: Any, path: PurePath, pieces: Any, like: FileStat, *, private: bool) -> None:
        self._drop(path)
        with self._fs.create(path, like) as file:
            for piece in pieces:
                file.append(piece)
            if path.name != f"{TORN.name}.tmp":
                file.sync()

    patch.setattr(Directory, "_write_new", write_new)


def the_name_of_the_copy_up_to_the_cut_is_not_synced(patch: Patch) -> None:
    real = Directory._cut_copy

    def cut(self: Any, action: TruncateTo, stat: FileStat) -> None:
        fs, self._fs = self._fs, Skipping(self._fs, "sync_dir", lambda path: True)
        real(self, action, stat)
        self._fs = fs

    patch.setattr(Directory, "_cut_copy", cut)


def the_old_name_goes_before_the_copy_is_there(patch: Patch) -> None:
    def cut(self: Any, action: TruncateTo, stat: FileStat) -> None:
        pieces = [bytes(piece) for piece in self._pieces(action.path, 0, action.size, module.new_digest())]
        self._fs.remove(action.path)
        self._write_new(action.path, pieces, stat, private=False)
        self._fs.sync_dir(self._directory)

    patch.setattr(Directory, "_cut_copy", cut)


def a_log_with_another_name_is_cut_in_place(patch: Patch) -> None:
    def cut(self: Any, action: TruncateTo, stat: FileStat) -> None:
        file = self._fs._fs._find(action.path) if hasattr(self._fs, "_fs") else self._fs._find(action.path)
        links, file.links = file.links, 1
        self._fs.truncate(action.path, action.size)
        self._fs.sync_file(action.path)
        file.links = links

    patch.setattr(Directory, "_cut_copy", cut)


def a_swap_is_named_before_what_it_replaces_is_gone(patch: Patch) -> None:
    real = Directory.change

    def change(self: Any, actions: Any) -> None:
        real(self, [action for action in actions if isinstance(action, Rename)])
        real(self, [action for action in actions if not isinstance(action, Rename)])

    patch.setattr(Directory, "change", change)


def a_swap_is_named_in_one_go_with_what_steps_aside(patch: Patch) -> None:
    real = Directory._rename

    def rename(self: Any, steps: Any) -> None:
        if any(isinstance(action, SetAside) for action, *_ in steps):
            fs, self._fs = self._fs, Skipping(self._fs, "sync_dir", lambda path: True)
            real(self, steps)
            self._fs = fs
        else:
            real(self, steps)

    patch.setattr(Directory, "_rename", rename)


def the_names_of_a_swap_are_not_synced(patch: Patch) -> None:
    real = Directory._rename

    def rename(self: Any, steps: Any) -> None:
        if any(isinstance(action, Rename) for action, *_ in steps):
            for _, source, target in reversed(steps):
                self._fs.rename(source, target)
        else:
            real(self, steps)

    patch.setattr(Directory, "_rename", rename)


def _moves(patch: Patch, move: Callable[[Any, SplitLog, list[Piece], str, str], None]) -> None:
    patch.setattr(Directory, "_move_pieces", lambda self, split, old, new: move(self, split, [*split.pieces], old, new))


def _name(self: Any, split: SplitLog, piece: Piece, old: str, new: str) -> None:
    live_one = module._piece_path(split, piece)
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
    real = Directory._write_piece

    def write(self: Any, action: SplitLog, piece: Piece) -> Any:
        fs = self._fs
        write_new, self._write_new = self._write_new, self._write_without_sync
        self._fs = Skipping(fs, "sync_file", lambda path: True)
        try:
            return real(self, action, piece)
        finally:
            self._fs, self._write_new = fs, write_new

    def write_without_sync(self: Any, path: PurePath, pieces: Any, like: FileStat, *, private: bool) -> None:
        self._drop(path)
        with self._fs.create(path, like) as file:
            for data in pieces:
                file.append(data)

    patch.setattr(Directory, "_write_without_sync", write_without_sync, raising=False)
    patch.setattr(Directory, "_write_piece", write)


def an_index_in_place_is_not_synced(patch: Patch) -> None:
    patch.setattr(module, "sync_all", lambda files, threads: None)


def an_index_in_place_is_not_emptied_first(patch: Patch) -> None:
    real = Directory._replace

    def replace_all(self: Any, actions: Any) -> None:
        fs, self._fs = self._fs, Skipping(self._fs, "truncate", lambda path: True)
        real(self, actions)
        self._fs = fs

    patch.setattr(Directory, "_replace", replace_all)


def an_index_in_place_is_noise_first(patch: Patch) -> None:
    def replace_all(self: Any, actions: Any) -> None:
        for action in actions:
            data = self._given.contents(action.path)
            self._fs.truncate(action.path, 0)
            with self._fs.open_append(action.path) as file:
                file.append(b"\x7f" * len(data))
                file.sync()
            self._fs.truncate(action.path, 0)
            with self._fs.open_append(action.path) as file:
                file.append(data)
                file.sync()

    patch.setattr(Directory, "_replace", replace_all)


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
    indexes_in_place_end_as_others_do: [
        an_index_in_place_is_not_synced,
        an_index_in_place_is_not_emptied_first,
        an_index_in_place_is_noise_first,
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
