"""Parts of many files: the same from the kernel, from Python and from a disk that is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.memory_fs import MemoryFs

import storage.disk.fs
from storage.base.errors import EnvironmentFault, FileVanished, ReadFault
from storage.disk.fs import OsFs, ReadFs, ReadOnlyFs, read_parts

CONTENTS = {"one.log": b"0123456789", "two.index": b"abcdef", "empty": b"", "caf\udce9.log": b"odd name"}


@pytest.fixture(params=["kernel", "python", "read-only", "memory"])
def fs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReadFs:
    if request.param == "memory":
        return MemoryFs({str(tmp_path / name): data for name, data in CONTENTS.items()})
    for name, data in CONTENTS.items():
        (tmp_path / name).write_bytes(data)
    if request.param == "python":
        monkeypatch.setattr(storage.disk.fs, "_disk", None)
    return ReadOnlyFs(OsFs()) if request.param == "read-only" else OsFs()


def test_each_part_is_read_as_far_as_its_file_goes(fs: ReadFs, tmp_path: Path) -> None:
    wanted = [("one.log", 3, 4), ("two.index", 4, 10), ("empty", 0, 5), ("caf\udce9.log", 4, 4), ("one.log", 99, 1)]
    assert read_parts(fs, tmp_path, wanted) == [b"3456", b"ef", b"", b"name", b""]


def test_one_that_is_gone_does_not_keep_the_others_from_being_read(fs: ReadFs, tmp_path: Path) -> None:
    first, second, third = read_parts(fs, tmp_path, [("one.log", 0, 1), ("gone", 0, 1), ("two.index", 0, 1)])
    assert (first, third) == (b"0", b"a")
    assert isinstance(second, FileVanished)
    assert second.path == tmp_path / "gone"


def test_in_a_directory_that_is_gone_every_part_is(fs: ReadFs, tmp_path: Path) -> None:
    found = read_parts(fs, tmp_path / "gone", [("one.log", 0, 1), ("two.index", 0, 1)])
    assert [type(fault) for fault in found] == [FileVanished, FileVanished]


@pytest.mark.parametrize("has_kernel", [True, False])
def test_nothing_but_plain_files_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_kernel: bool
) -> None:
    if not has_kernel:
        monkeypatch.setattr(storage.disk.fs, "_disk", None)
    (tmp_path / "target").write_bytes(b"seen through a link")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / ".lock").touch()
    names = ("link", "fifo", "directory", ".lock")
    faults = read_parts(OsFs(), tmp_path, [(name, 0, 1) for name in names])
    assert all(isinstance(fault, ReadFault) for fault in faults)
    numbers = [fault.errno for fault in faults if isinstance(fault, EnvironmentFault)]
    assert numbers[0] == errno.ELOOP
    assert numbers[1:] in ([errno.EINVAL, errno.EINVAL, errno.EBUSY], [errno.EINVAL, errno.EISDIR, errno.EBUSY])


def test_both_list_a_directory_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in CONTENTS.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("one.log")
    (tmp_path / "directory").mkdir(mode=0o2750)
    os.mkfifo(tmp_path / "fifo")
    os.utime(tmp_path / "one.log", ns=(1, -1_500_000_001))
    with_kernel = OsFs().entries(tmp_path)
    monkeypatch.setattr(storage.disk.fs, "_disk", None)
    assert list(with_kernel.items()) == list(OsFs().entries(tmp_path).items())
    assert with_kernel["one.log"].mtime_ns == -1_500_000_001
    assert list(with_kernel) == sorted([*CONTENTS, "directory", "fifo", "link"])
