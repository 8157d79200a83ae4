"""One suite for every `Fs`: the real disk, also under pyfakefs, the model in memory and the overlay behave alike."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

import pytest
from pyfakefs.fake_filesystem_unittest import Patcher
from support.memory_fs import Crashed, FaultFs, MemoryFs, TracingFs

from storage.base.errors import DiskFull, EnvironmentFault, FileVanished, ReadFault, WriteFault
from storage.disk import os_files
from storage.disk.fs import FileKind, FileStat, Fs, OsFs, ReadOnlyFs, read_all, replace_atomically, temporary_name
from storage.disk.overlay_fs import OverlayFs, _node

LIMIT = 1 << 20


@dataclass
class Place:
    """A file system and an empty directory on it."""

    fs: Fs
    top: PurePath
    symlink: Callable[[PurePath, PurePath], None]

    def write(self, name: str, data: bytes = b"") -> PurePath:
        path = self.top / name
        with self.fs.create(path) as file:
            file.append(data)
        return path

    def read(self, name: str) -> bytes:
        return read_all(self.fs, self.top / name, LIMIT)

    def names(self) -> list[str]:
        return list(self.fs.entries(self.top))


def os_symlink(at: PurePath, to: PurePath) -> None:
    os.symlink(to, at)


@pytest.fixture(scope="module", params=["disk", "pyfakefs", "memory", "overlay"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "pyfakefs":
        with Patcher(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(os_files, "LINUX", False)  # descriptors are not the kernel's
            yield request.param
    else:
        yield request.param


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        memory = MemoryFs({"/top/": b""})
        return Place(memory, PurePath("/top"), lambda at, _: memory.plant(at, FileKind.SYMLINK))
    if kind == "pyfakefs":
        top = Path("/fake") / request.node.name
        os.makedirs(top)
        return Place(OsFs(), PurePath(top), os_symlink)
    real: Path = request.getfixturevalue("tmp_path")
    if kind == "overlay":
        overlay = OverlayFs(ReadOnlyFs(OsFs()), [real])
        return Place(overlay, PurePath(real), lambda at, to: plant_symlink(overlay, at, to))
    return Place(OsFs(), PurePath(real), os_symlink)


def plant_symlink(overlay: OverlayFs, at: PurePath, to: PurePath) -> None:
    """Make a link on the disk below, and let the overlay see it: it has looked into the directory by then."""
    os.symlink(to, at)
    names = overlay._directory(at.parent).names(overlay.inner)
    names[at.name] = _node(OsFs().stat(at), at)


def expect_fault(kind: type[EnvironmentFault], number: int, call: Callable[[], object]) -> EnvironmentFault:
    """Return what `call` raises, checked to be exactly of this kind and error number."""
    with pytest.raises(EnvironmentFault) as caught:
        call()
    assert type(caught.value) is kind
    assert caught.value.errno == number
    return caught.value


# ---- looking


def test_entries_are_listed_in_order_of_their_names_with_kind_and_size(place: Place) -> None:
    place.write("b", b"12345")
    place.write("a")
    place.fs.make_dir(place.top / "c")
    place.symlink(place.top / "d", place.top / "a")
    found = place.fs.entries(place.top)
    assert list(found) == ["a", "b", "c", "d"]
    assert [stat.kind for stat in found.values()] == [
        FileKind.FILE, FileKind.FILE, FileKind.DIRECTORY, FileKind.SYMLINK,
    ]  # fmt: skip
    assert (found["a"].size, found["b"].size) == (0, 5)


def test_an_entry_is_what_stat_says_of_it(place: Place) -> None:
    path = place.write("a", b"12345")
    assert place.fs.entries(place.top)["a"] == place.fs.stat(path)


def test_looking_at_what_is_not_there_says_that_it_vanished(place: Place) -> None:
    nothing = place.top / "nothing"
    for call in (place.fs.entries, place.fs.stat, place.fs.open_read):
        assert expect_fault(FileVanished, errno.ENOENT, partial(call, nothing)).path == nothing


def test_listing_a_file_is_a_fault_and_no_vanishing(place: Place) -> None:
    path = place.write("a")
    expect_fault(ReadFault, errno.ENOTDIR, lambda: place.fs.entries(path))
    expect_fault(ReadFault, errno.ENOTDIR, lambda: place.fs.stat(path / "below"))


def test_a_symbolic_link_is_seen_and_never_opened(place: Place) -> None:
    place.write("a", b"kept")
    link = place.top / "link"
    place.symlink(link, place.top / "a")
    expect_fault(ReadFault, errno.ELOOP, lambda: place.fs.open_read(link))
    expect_fault(WriteFault, errno.ELOOP, lambda: place.fs.open_append(link))
    expect_fault(WriteFault, errno.ELOOP, lambda: place.fs.truncate(link, 0))
    expect_fault(WriteFault, errno.ELOOP, lambda: place.fs.sync_file(link))
    with pytest.raises(WriteFault):
        place.fs.create(link)
    assert place.fs.stat(link).kind is FileKind.SYMLINK
    assert place.read("a") == b"kept"


def test_replacing_a_symbolic_link_leaves_what_it_points_to(place: Place) -> None:
    place.write("a", b"kept")
    place.symlink(place.top / "link", place.top / "a")
    place.symlink(temporary_name(place.top / "link"), place.top / "a")
    replace_atomically(place.fs, place.top / "link", b"new")
    assert (place.read("a"), place.read("link"), place.names()) == (b"kept", b"new", ["a", "link"])


def test_removing_a_symbolic_link_leaves_what_it_points_to(place: Place) -> None:
    place.write("a", b"kept")
    place.symlink(place.top / "link", place.top / "a")
    place.fs.remove(place.top / "link")
    assert place.names() == ["a"]


def test_a_directory_is_not_opened_as_a_file(place: Place) -> None:
    directory = place.top / "d"
    place.fs.make_dir(directory)
    expect_fault(ReadFault, errno.EISDIR, lambda: place.fs.open_read(directory))
    expect_fault(WriteFault, errno.EISDIR, lambda: place.fs.open_append(directory))
    expect_fault(WriteFault, errno.EISDIR, lambda: place.fs.truncate(directory, 0))
    expect_fault(WriteFault, errno.EISDIR, lambda: place.fs.remove(directory))


def test_the_file_with_the_lock_is_never_opened(place: Place) -> None:
    lock = place.top / ".lock"
    expect_fault(WriteFault, errno.EBUSY, lambda: place.fs.create(lock))
    expect_fault(ReadFault, errno.EBUSY, lambda: place.fs.open_read(lock))
    expect_fault(WriteFault, errno.EBUSY, lambda: place.fs.open_append(lock))


def test_free_bytes_are_a_number_of_bytes(place: Place) -> None:
    assert place.fs.free_bytes(place.top) > 0


# ---- reading


@pytest.mark.parametrize(
    ("position", "size", "expected"), [(0, 4, b"abcd"), (2, 3, b"cde"), (4, 9, b"ef"), (6, 3, b""), (99, 3, b"")]
)
def test_reading_stops_at_the_end_of_the_file_and_nowhere_else(
    place: Place, position: int, size: int, expected: bytes
) -> None:
    with place.fs.open_read(place.write("a", b"abcdef")) as file:
        target = bytearray(b"." * size)
        assert file.read_into(position, memoryview(target)) == len(expected)
    assert bytes(target) == expected + b"." * (size - len(expected))


def test_reading_into_a_part_of_a_buffer_leaves_the_rest(place: Place) -> None:
    with place.fs.open_read(place.write("a", b"abcdef")) as file:
        target = bytearray(b"......")
        assert file.read_into(1, memoryview(target)[2:4]) == 2
    assert bytes(target) == b"..bc.."


def test_an_open_file_sees_what_is_appended_and_outlives_its_name(place: Place) -> None:
    path = place.write("a", b"abc")
    target = bytearray(9)
    with place.fs.open_read(path) as file:
        with place.fs.open_append(path) as more:
            more.append(b"def")
        place.fs.remove(path)
        assert file.read_into(0, memoryview(target)) == 6
    assert target[:6] == b"abcdef"


def test_read_all_returns_a_file_of_the_limit_and_refuses_one_byte_more(place: Place) -> None:
    path = place.write("a", b"x" * 200_000)
    assert read_all(place.fs, path, 200_000) == b"x" * 200_000
    expect_fault(ReadFault, errno.EFBIG, lambda: read_all(place.fs, path, 199_999))
    assert read_all(place.fs, place.write("empty"), 0) == b""


def test_a_read_only_file_system_reads_and_has_nothing_that_writes(place: Place) -> None:
    path = place.write("a", b"abc")
    looking = ReadOnlyFs(place.fs)
    assert read_all(looking, path, 9) == b"abc"
    assert looking.entries(place.top) == place.fs.entries(place.top)
    assert not [name for name in ("create", "truncate", "rename", "remove", "sync_dir") if hasattr(looking, name)]


# ---- writing


def test_a_file_is_created_once(place: Place) -> None:
    path = place.write("a", b"abc")
    expect_fault(WriteFault, errno.EEXIST, lambda: place.fs.create(path))
    assert place.read("a") == b"abc"


def test_a_new_file_has_the_mode_and_owner_of_its_model_but_no_set_uid(place: Place) -> None:
    like = FileStat(FileKind.FILE, 9, 9, 9, 9, 0o4640, os.getuid(), os.getgid(), 1, 0)
    with place.fs.create(place.top / "a", like) as file:
        file.append(b"abc")
    found = place.fs.stat(place.top / "a")
    assert (found.mode, found.uid, found.gid, found.size) == (0o640, os.getuid(), os.getgid(), 3)


def test_a_new_directory_has_the_mode_of_its_model(place: Place) -> None:
    like = FileStat(FileKind.DIRECTORY, 9, 9, 9, 9, 0o700, os.getuid(), os.getgid(), 1, 0)
    place.fs.make_dir(place.top / "d", like)
    found = place.fs.stat(place.top / "d")
    assert (found.kind, found.mode) == (FileKind.DIRECTORY, 0o700)


def test_appending_goes_to_the_end_as_it_is_now(place: Place) -> None:
    path = place.write("a", b"abcdef")
    with place.fs.open_append(path) as file:
        file.append(bytearray(b"gh"))
        place.fs.truncate(path, 2)
        file.append(memoryview(b"XY"))
        file.append(b"")
        file.sync()
    assert place.read("a") == b"abXY"


def test_truncating_cuts_and_never_grows(place: Place) -> None:
    path = place.write("a", b"abcdef")
    place.fs.truncate(path, 4)
    assert place.read("a") == b"abcd"
    expect_fault(WriteFault, errno.EINVAL, lambda: place.fs.truncate(path, 5))
    place.fs.truncate(path, 4)
    assert place.read("a") == b"abcd"


def test_a_file_with_two_names_is_not_written_in_place(place: Place) -> None:
    path = place.write("a", b"kept")
    place.fs.link(path, place.top / "b")
    expect_fault(WriteFault, errno.EMLINK, lambda: place.fs.truncate(path, 0))
    expect_fault(WriteFault, errno.EMLINK, lambda: place.fs.open_append(path))
    place.fs.remove(path)
    place.fs.truncate(place.top / "b", 2)
    assert place.read("b") == b"ke"


def test_a_link_is_the_same_file_and_never_takes_a_name_away(place: Place) -> None:
    path = place.write("a", b"abc")
    place.write("c", b"kept")
    place.fs.link(path, place.top / "b")
    first, second = place.fs.stat(path), place.fs.stat(place.top / "b")
    assert (first.inode, first.links, second.links) == (second.inode, 2, 2)
    expect_fault(WriteFault, errno.EEXIST, lambda: place.fs.link(path, place.top / "c"))
    assert place.read("c") == b"kept"


def test_a_renamed_file_keeps_its_number_and_replaces_what_was_there(place: Place) -> None:
    path = place.write("a", b"new")
    place.write("b", b"old")
    number = place.fs.stat(path).inode
    place.fs.rename(path, place.top / "b")
    assert (place.names(), place.read("b"), place.fs.stat(place.top / "b").inode) == (["b"], b"new", number)


def test_renaming_moves_between_directories_and_moves_directories(place: Place) -> None:
    place.fs.make_dir(place.top / "d")
    place.fs.rename(place.write("a", b"abc"), place.top / "d" / "b")
    place.fs.rename(place.top / "d", place.top / "e")
    assert place.names() == ["e"]
    assert read_all(place.fs, place.top / "e" / "b", LIMIT) == b"abc"


def test_renaming_one_name_of_a_file_to_another_of_its_names_does_nothing(place: Place) -> None:
    path = place.write("a", b"abc")
    place.fs.link(path, place.top / "b")
    place.fs.rename(path, place.top / "b")
    assert place.names() == ["a", "b"]


def test_a_file_does_not_take_the_name_of_a_directory(place: Place) -> None:
    path = place.write("a")
    place.fs.make_dir(place.top / "d")
    expect_fault(WriteFault, errno.EISDIR, lambda: place.fs.rename(path, place.top / "d"))
    expect_fault(WriteFault, errno.EEXIST, lambda: place.fs.make_dir(place.top / "d"))
    assert place.names() == ["a", "d"]


def test_changing_what_is_not_there_says_that_it_vanished(place: Place) -> None:
    nothing, fs = place.top / "nothing", place.fs
    calls: list[Callable[[], object]] = [
        lambda: fs.open_append(nothing),
        lambda: fs.truncate(nothing, 0),
        lambda: fs.rename(nothing, place.top / "b"),
        lambda: fs.link(nothing, place.top / "b"),
        lambda: fs.remove(nothing),
        lambda: fs.remove_dir(nothing),
        lambda: fs.set_mtime(nothing, 0),
        lambda: fs.sync_file(nothing),
        lambda: fs.sync_dir(nothing),
        lambda: fs.create(nothing / "below"),
        lambda: fs.make_dir(nothing / "below"),
    ]
    for call in calls:
        fault = expect_fault(FileVanished, errno.ENOENT, call)
        assert nothing in (fault.path, fault.path.parent)
    assert place.names() == []


def test_only_an_empty_directory_is_removed(place: Place) -> None:
    directory = place.top / "d"
    place.fs.make_dir(directory)
    path = place.write("d/a")
    expect_fault(WriteFault, errno.ENOTEMPTY, lambda: place.fs.remove_dir(directory))
    expect_fault(WriteFault, errno.ENOTDIR, lambda: place.fs.remove_dir(path))
    expect_fault(WriteFault, errno.ENOTDIR, lambda: place.fs.sync_dir(path))
    place.fs.remove(path)
    place.fs.remove_dir(directory)
    assert place.names() == []


def test_the_modification_time_is_set_to_the_nanosecond(place: Place) -> None:
    path = place.write("a", b"abc")
    place.fs.set_mtime(path, 1_600_000_000_123_456_789)
    place.fs.sync_file(path)
    assert place.fs.stat(path).mtime_ns == 1_600_000_000_123_456_789


def test_syncing_changes_nothing_that_can_be_seen(place: Place) -> None:
    path = place.write("a", b"abc")
    before = place.fs.entries(place.top)
    place.fs.sync_file(path)
    place.fs.sync_dir(place.top)
    assert place.fs.entries(place.top) == before


# ---- replacing


def test_replacing_makes_the_file_and_replaces_it_past_a_stale_temporary_one(place: Place) -> None:
    path = place.top / "a"
    replace_atomically(place.fs, path, b"one")
    assert place.read("a") == b"one"
    place.write("a.tmp", b"from an earlier crash")
    replace_atomically(place.fs, path, b"two")
    assert (place.read("a"), place.names()) == (b"two", ["a"])


def test_replacing_syncs_the_content_before_the_name_and_the_name_at_last(place: Place) -> None:
    traced = TracingFs(place.fs)
    replace_atomically(traced, place.top / "a", b"one")
    assert traced.methods() == ["create", "append", "sync", "rename", "sync_dir"]


def test_replacing_that_fails_at_any_call_leaves_the_old_content_and_can_be_done_again(place: Place) -> None:
    path = place.write("a", b"old")
    counted = FaultFs(place.fs, 0, errno.EIO)
    replace_atomically(counted, path, b"old")
    for nth in range(1, counted.calls + 1):
        with pytest.raises(WriteFault):
            replace_atomically(FaultFs(place.fs, nth, errno.EIO, short_write=True), path, b"new")
        assert place.read("a") == (b"new" if nth == counted.calls else b"old")
    replace_atomically(place.fs, path, b"newer")
    assert (place.read("a"), place.names()) == (b"newer", ["a"])


# ---- faults made to happen


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_from_other_faults_and_may_leave_a_part(place: Place, number: int) -> None:
    full = FaultFs(place.fs, 1, number, short_write=True, only=("append",))
    with full.create(place.top / "a") as file:
        expect_fault(DiskFull, number, lambda: file.append(b"abcdef"))
    assert place.read("a") == b"abc"


def test_a_fault_for_ever_stays_and_a_single_one_passes(place: Place) -> None:
    path = place.write("a", b"abc")
    once = FaultFs(place.fs, 2, errno.EIO, only=("stat",))
    assert once.stat(path).size == 3
    expect_fault(ReadFault, errno.EIO, lambda: once.stat(path))
    assert once.stat(path).size == 3
    for_ever = FaultFs(place.fs, 2, errno.EIO, forever=True)
    assert for_ever.stat(path).size == 3
    expect_fault(ReadFault, errno.EIO, lambda: for_ever.stat(path))
    expect_fault(WriteFault, errno.EIO, lambda: for_ever.remove(path))
    assert [call.method for call in for_ever.failed] == ["stat", "remove"]


def test_a_read_that_fails_is_no_end_of_file(place: Place) -> None:
    path = place.write("a", b"abc")
    with FaultFs(place.fs, 1, errno.EIO, only=("read_into",)).open_read(path) as file:
        expect_fault(ReadFault, errno.EIO, lambda: file.read_into(0, memoryview(bytearray(3))))


# ---- crashes, which only the model knows


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("stale", [False, True])
def test_a_crash_while_replacing_leaves_the_old_content_or_the_new_one(strict: bool, stale: bool) -> None:
    path, old, new = PurePath("/d/a"), b"old" * 400, b"new" * 500
    files = {"/d/a": old} | ({"/d/a.tmp": b"stale"} if stale else {})
    seen = set()
    for effect in range(1, 20):
        fs = MemoryFs(files)
        fs.stop_before(effect)
        try:
            replace_atomically(fs, path, new)
            finished = True
        except Crashed:
            finished = False
        left = [state.to_fs(fs) for state in fs.crash_states(strict=strict)]
        seen |= {read_all(state, path, LIMIT) for state in left}
        if finished:
            assert {read_all(state, path, LIMIT) for state in left} == {new}
            break
        for state in left:
            replace_atomically(state, path, b"again")
            assert state.contents("/d") == {"a": b"again"}
    assert seen == {old, new}
