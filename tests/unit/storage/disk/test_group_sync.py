"""Threads that wait for the same sync: what each is told is durable is durable, and there are few syncs."""

from __future__ import annotations

import threading
from pathlib import PurePath
from typing import Self

import pytest
from support.memory_fs import MemoryFs, TracingFs

from storage.base.errors import FileVanished, WriteFault
from storage.disk.fs import Fs
from storage.disk.syncing import GroupedFs, GroupSync

HOME = PurePath("/data")


def disk() -> MemoryFs:
    return MemoryFs({f"{HOME}/": b""})


def group_of(fs: Fs) -> GroupSync:
    volume = fs.volume(HOME)
    assert volume is not None
    return GroupSync(volume)


def write(fs: Fs, name: str, data: bytes = b"some") -> None:
    with fs.create(HOME / name) as file:
        file.append(data)
        file.sync()


class FailingVolume:
    """Fails from the `first` sync on, as a disk that is gone."""

    device = 1

    def __init__(self, first: int) -> None:
        self.first, self.syncs = first, 0

    def sync(self) -> None:
        self.syncs += 1
        if self.syncs >= self.first:
            raise WriteFault("syncing the file system", HOME, OSError(5, "EIO"))

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_what_each_was_told_is_durable_is_durable(threads: int) -> None:
    inner = disk()
    group = group_of(inner)
    fs = GroupedFs(inner, group)
    told: list[str] = []

    def work(number: int) -> int:
        for step in range(5):
            write(fs, f"{number}-{step}", b"%d" % number * 600)
            told.append(f"{number}-{step}")
            for left in inner.crash_states():
                found = left.to_fs(inner).contents(str(HOME))
                assert all(found[name] == name[:1].encode() * 600 for name in told)
            if step == number % 5:
                fs.sync_dir(HOME)
        return number * number

    assert group.run(work, range(9), threads) == [number * number for number in range(9)]
    assert len(told) == 45


def test_all_wait_for_the_same_sync() -> None:
    fs = TracingFs(disk())
    group = group_of(fs)
    members = 8

    def work(number: int) -> None:
        for step in range(5):
            write(GroupedFs(fs, group), f"{number}-{step}")

    group.run(work, range(members), members)
    assert fs.methods().count("sync_volume") == group.syncs == 5
    assert fs.methods().count("sync") == 0


def test_who_has_ended_is_not_waited_for() -> None:
    fs = disk()
    group = group_of(fs)
    steps = [1, 5, 2, 9]

    def work(number: int) -> None:
        for step in range(steps[number]):
            write(GroupedFs(fs, group), f"{number}-{step}")

    group.run(work, range(4), 4)
    assert len(fs.contents(str(HOME))) == sum(steps)
    assert group.syncs == max(steps)


def test_of_files_written_one_after_the_other_the_first_sync_is_for_all() -> None:
    inner = disk()
    group = group_of(inner)
    fs = GroupedFs(inner, group)

    def work(_: int) -> None:
        files = [fs.create(HOME / name) for name in "abcd"]
        for file in files:
            file.append(b"some")
        for file in files:
            file.sync()
        files[2].append(b" more")
        files[3].sync()
        assert group.syncs == 1
        files[2].sync()
        assert group.syncs == 2
        with fs.open_append(HOME / "a") as again:
            again.sync()  # somebody else may have written to it before it was opened
        assert group.syncs == 3

    group.run(work, [0], 1)


def test_a_sync_that_fails_is_told_to_all_and_none_is_tried_again() -> None:
    volume = FailingVolume(2)
    group = GroupSync(volume)
    fs = GroupedFs(disk(), group)
    failed: list[int] = []

    def work(number: int) -> None:
        for step in range(4):
            try:
                write(fs, f"{number}-{step}")
            except WriteFault:
                failed.append(number)
                with pytest.raises(WriteFault):
                    fs.sync_dir(HOME)
                raise

    with pytest.raises(WriteFault, match="syncing the file system"):
        group.run(work, range(20), 4)
    assert volume.syncs == 2
    assert len(failed) == len(set(failed)) <= 4, "more were begun after it"


def test_the_first_that_fails_is_raised_and_those_that_began_end() -> None:
    inner = disk()
    group = group_of(inner)
    fs = GroupedFs(inner, group)
    ended: list[int] = []

    def work(number: int) -> None:
        write(fs, f"{number}")
        if number == 1:
            raise FileVanished("looking", HOME, OSError(2, "ENOENT"))
        fs.sync_dir(HOME)
        ended.append(number)

    with pytest.raises(FileVanished):
        group.run(work, range(50), 3)
    assert len(inner.contents(str(HOME))) < 50
    assert {*map(str, ended), "1"} == set(inner.contents(str(HOME)))


def test_to_sync_what_is_not_there_fails() -> None:
    inner = disk()
    group = group_of(inner)

    def work(_: int) -> None:
        fs = GroupedFs(inner, group)
        with pytest.raises(FileVanished):
            fs.sync_file(HOME / "nothing")
        with pytest.raises(FileVanished):
            fs.sync_dir(HOME / "nowhere")

    group.run(work, [0], 1)
    assert group.syncs == 0


def test_without_more_threads_that_is_said_and_nobody_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = disk()
    group = group_of(inner)
    real, started = threading.Thread.start, []

    def start(self: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        real(self)

    def work(number: int) -> None:
        write(GroupedFs(inner, group), f"{number}")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        group.run(work, range(20), 4)
    assert not any(thread.is_alive() for thread in started)
