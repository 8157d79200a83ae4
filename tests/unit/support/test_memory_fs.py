"""What the model in memory says a power cut may leave, case by case."""

from __future__ import annotations

import os
import random
from pathlib import Path, PurePath

import pytest
from support.memory_fs import Crashed, MemoryFs

from storage.base.errors import DiskFull, FileVanished
from storage.disk.fs import FileKind, OsFs, read_all

A, B, D = PurePath("/d/a"), PurePath("/d/b"), PurePath("/d")
SECTOR = 512


def left(fs: MemoryFs, *, strict: bool = False) -> list[dict[str, bytes]]:
    return [state.to_fs(fs).contents() for state in fs.crash_states(strict=strict)]


def append(fs: MemoryFs, path: PurePath, data: bytes) -> None:
    with fs.open_append(path) as file:
        file.append(data)


# ---- content


def test_what_is_synced_stays_and_of_the_rest_any_prefix_cut_at_sectors_may() -> None:
    fs = MemoryFs({"/d/a": b"s" * 500})
    append(fs, A, b"1" * 24)
    fs.sync_file(A)
    append(fs, A, b"2" * 600)
    append(fs, A, b"3" * 10)
    sizes = sorted(len(state["d/a"]) for state in left(fs))
    assert sizes == [524, 1024, 1124, 1134]
    assert all((b"s" * 500 + b"1" * 24 + b"2" * 600 + b"3" * 10).startswith(state["d/a"]) for state in left(fs))


def test_in_strict_mode_parts_of_the_last_write_may_be_zeros() -> None:
    fs = MemoryFs({"/d/a": b""})
    append(fs, A, b"x" * 600)
    found = {state["d/a"] for state in left(fs, strict=True)}
    x, zero = b"x", b"\0"
    assert found == {b"", x * 512, x * 600, zero * 600, x * 512 + zero * 88, zero * 512 + x * 88}


def test_a_truncation_is_done_or_not_done_also_below_a_later_write() -> None:
    fs = MemoryFs({"/d/a": b"abcdef"})
    fs.truncate(A, 2)
    append(fs, A, b"XY")
    assert {state["d/a"] for state in left(fs)} == {b"abcdef", b"ab", b"abXY", b"abXYef"}


def test_a_synced_file_without_a_synced_name_may_be_gone() -> None:
    fs = MemoryFs({"/d/": b""})
    with fs.create(A) as file:
        file.append(b"abc")
        file.sync()
    assert left(fs) == [{}, {"d/a": b"abc"}]
    fs.sync_dir(D)
    assert left(fs) == [{"d/a": b"abc"}]


def test_a_synced_name_without_synced_content_may_be_an_empty_file() -> None:
    fs = MemoryFs({"/d/": b""})
    with fs.create(A) as file:
        file.append(b"abc")
    fs.sync_dir(D)
    assert left(fs) == [{"d/a": b""}, {"d/a": b"abc"}]


def test_a_time_that_was_set_is_lost_or_kept_and_kept_once_synced() -> None:
    fs = MemoryFs({"/d/a": b"abc"})
    before = fs.stat(A).mtime_ns
    fs.set_mtime(A, 42)
    assert [state.to_fs(fs).stat(A).mtime_ns for state in fs.crash_states()] == [before, 42]
    fs.sync_file(A)
    assert [state.to_fs(fs).stat(A).mtime_ns for state in fs.crash_states()] == [42]


# ---- names


def test_of_name_changes_a_prefix_remains_and_in_strict_mode_any_subset() -> None:
    fs = MemoryFs({"/d/": b""})
    for name in "abc":
        fs.create(D / name).close()
    assert [sorted(state) for state in left(fs)] == [[], ["d/a"], ["d/a", "d/b"], ["d/a", "d/b", "d/c"]]
    assert len(left(fs, strict=True)) == 8


def test_a_rename_within_a_directory_is_never_half_done() -> None:
    fs = MemoryFs({"/d/a": b"new", "/d/b": b"old"})
    fs.rename(A, B)
    assert left(fs, strict=True) == [{"d/a": b"new", "d/b": b"old"}, {"d/b": b"new"}]


def test_a_rename_between_directories_may_leave_both_names_and_only_in_strict_mode_none() -> None:
    fs = MemoryFs({"/d/a": b"x", "/e/": b""})
    fs.rename(A, PurePath("/e/a"))
    both, none = {"d/a": b"x", "e/a": b"x"}, dict[str, bytes]()
    assert both in left(fs)
    assert none not in left(fs)
    assert none in left(fs, strict=True)
    fs.sync_dir(D)
    assert left(fs) == [{"e/a": b"x"}]
    assert none in left(fs, strict=True)
    fs.sync_dir(PurePath("/e"))
    assert left(fs, strict=True) == [{"e/a": b"x"}]


def test_a_removed_file_may_be_back_and_so_may_what_it_made_room_for() -> None:
    fs = MemoryFs({"/d/a": b"old"})
    fs.remove(A)
    with fs.create(A) as file:
        file.append(b"new")
        file.sync()
    assert left(fs) == [{"d/a": b"old"}, {}, {"d/a": b"new"}]


def test_everything_in_a_directory_whose_name_is_not_synced_may_be_gone() -> None:
    fs = MemoryFs({"/d/": b""})
    fs.make_dir(D / "q")
    with fs.create(D / "q" / "a") as file:
        file.append(b"abc")
        file.sync()
    fs.sync_dir(D / "q")
    assert left(fs) == [{}, {"d/q/a": b"abc"}]


def test_two_names_of_one_file_are_one_file_after_a_crash_too() -> None:
    fs = MemoryFs({"/d/a": b"abc"})
    fs.link(A, B)
    fs.sync_dir(D)
    (state,) = [state.to_fs(fs) for state in fs.crash_states()]
    assert (state.stat(A).inode, state.stat(A).links) == (state.stat(B).inode, 2)
    copied = MemoryFs({"/d/a": b"abc", "/d/b": b"abc"})
    assert [s.fingerprint for s in copied.crash_states()] != [s.fingerprint for s in fs.crash_states()]


def test_states_of_equal_content_are_listed_once_whatever_the_numbers_of_their_files() -> None:
    fs = MemoryFs({"/d/a": b"same"})
    fs.remove(A)
    with fs.create(A) as file:
        file.append(b"same")
        file.sync()
    assert left(fs) == [{"d/a": b"same"}, {}]


# ---- dying and coming back


def test_a_machine_dies_before_the_effect_it_is_told_and_stays_dead() -> None:
    fs = MemoryFs({"/d/a": b"abc"})
    fs.stop_before(2)
    fs.truncate(A, 2)
    file = fs.open_append(A)
    for call in (lambda: file.append(b"x"), lambda: fs.remove(A), lambda: fs.stat(A), lambda: fs.stat(B), file.sync):
        with pytest.raises(Crashed):
            call()
    file.close()
    assert (fs.effects, [str(effect) for effect in fs.history]) == (1, ["truncate /d/a (2)"])
    assert fs.contents() == {"d/a": b"ab"}


def test_a_call_that_is_refused_is_no_effect() -> None:
    fs = MemoryFs({"/d/a": b"abc"})
    with pytest.raises(FileVanished):
        fs.remove(B)
    with fs.open_append(A) as file:
        file.append(b"")
    assert fs.effects == 0


def test_states_are_of_the_moment_they_were_asked_for_and_do_not_touch_one_another() -> None:
    fs = MemoryFs({"/d/a": b"abc"})
    append(fs, A, b"def")
    states = fs.crash_states()
    fs.sync_file(A)
    fs.remove(A)
    first, second = [state.to_fs(fs) for state in states]
    append(first, A, b"1")
    assert (first.contents(), second.contents()) == ({"d/a": b"abc1"}, {"d/a": b"abcdef"})
    assert (first.effects, second.effects) == (1, 0)


def test_a_sample_has_both_ends_and_says_that_it_is_one() -> None:
    fs = MemoryFs({"/d/a": b""})
    append(fs, A, b"x" * SECTOR * 100)
    some, complete = fs.some_crash_states(10, random.Random(1))
    sizes = {len(state.to_fs(fs).contents()["d/a"]) for state in some}
    assert (len(some), complete) == (10, False)
    assert {0, SECTOR * 100} <= sizes
    every, complete = fs.some_crash_states(101, random.Random(1))
    assert (len(every), complete) == (101, True)


def test_a_disk_without_room_takes_what_fits_and_tells() -> None:
    fs = MemoryFs({"/d/a": b"abc"}, room=5)
    assert fs.free_bytes(D) == 2
    with fs.open_append(A) as file, pytest.raises(DiskFull):
        file.append(b"defg")
    assert (fs.contents(), fs.free_bytes(D)) == ({"d/a": b"abcde"}, 0)
    fs.truncate(A, 1)
    assert fs.free_bytes(D) == 4


# ---- from and to a real disk


def test_a_real_tree_is_loaded_durably_and_dumped_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "t-0").mkdir(parents=True)
    target.mkdir()
    (source / "t-0" / "a").write_bytes(b"abc")
    (source / "t-0" / "a").chmod(0o640)
    os.utime(source / "t-0" / "a", ns=(5, 1_600_000_000_123_456_789))
    (source / "meta").write_bytes(b"")
    (source / "link").symlink_to("meta")
    os.mkfifo(source / "fifo")
    fs = MemoryFs.load(source, "/logs")
    assert left(fs) == [{"logs/meta": b"", "logs/t-0/a": b"abc"}]
    kinds = {name: stat.kind for name, stat in fs.entries(PurePath("/logs")).items()}
    assert kinds == {name: stat.kind for name, stat in OsFs().entries(source).items()}
    assert kinds["link"] is FileKind.SYMLINK
    fs.dump(target, "/logs")
    before, after = (OsFs().stat(root / "t-0" / "a") for root in (source, target))
    assert (before.size, before.mode, before.mtime_ns) == (after.size, after.mode, after.mtime_ns)
    assert read_all(OsFs(), target / "t-0" / "a", 9) == b"abc"
    assert MemoryFs.load(target).contents() == fs.contents("/logs")


def test_two_names_of_a_real_file_are_loaded_as_one_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.link(tmp_path / "a", tmp_path / "b")
    fs = MemoryFs.load(tmp_path)
    assert fs.stat(PurePath("/a")) == fs.stat(PurePath("/b"))
    assert (fs.stat(PurePath("/a")).links, fs.contents()) == (2, {"a": b"abc", "b": b"abc"})
