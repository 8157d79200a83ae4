"""A file system is synced as a whole only where that is worth as much as a sync of each file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.needs import impossible

from storage.base.errors import WriteFault
from storage.disk import volume as module
from storage.disk.fs import OsFs
from storage.disk.volume import OsVolume, open_volume

EXT4, XFS, BTRFS, NFS, FUSE = 0xEF53, 0x58465342, 0x9123683E, 0x6969, 0x65735546
Patch = pytest.MonkeyPatch


class Kernel:
    """Says what it is told to say, and writes down what is synced."""

    def __init__(self, kind: int = EXT4) -> None:
        self.kind, self.synced = kind, 0
        self.error: OSError | None = None

    def file_system(self, descriptor: int) -> int:
        os.fstat(descriptor)
        return self.kind

    def sync_file_system(self, descriptor: int) -> None:
        if self.error is not None:
            raise self.error
        os.fstat(descriptor)
        self.synced += 1


@pytest.fixture
def kernel(monkeypatch: Patch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(module, "kernel", made)
    monkeypatch.setattr(module, "_linux", lambda: (6, 1))
    return made


def opened(directory: Path) -> OsVolume:
    volume = open_volume(directory)
    if volume is None:
        impossible("there are no files without a name")
    return volume


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("kind", "is_one"), [(EXT4, True), (XFS, True), (BTRFS, False), (NFS, False), (FUSE, False)])
def test_only_kinds_under_which_power_was_cut_are_synced_as_a_whole(
    kind: int, is_one: bool, kernel: Kernel, tmp_path: Path
) -> None:
    kernel.kind = kind
    if is_one:
        with opened(tmp_path) as volume:
            assert volume.device == tmp_path.stat().st_dev
    else:
        assert open_volume(tmp_path) is None


RELEASES = {"5.7.19": False, "4.18.0-553.el8": False, "5.8.0": True, "6.1.0-13-amd64": True, "odd": False}


@pytest.mark.parametrize(("release", "is_one"), RELEASES.items())
def test_a_linux_that_does_not_tell_of_errors_syncs_each_file(
    release: str, is_one: bool, kernel: Kernel, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(module, "kernel", kernel)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "", "x86_64")))
    if is_one:
        opened(tmp_path).close()
    else:
        assert open_volume(tmp_path) is None


def test_a_sync_syncs_the_file_system_and_then_a_file_that_flushes_the_disk(
    kernel: Kernel, tmp_path: Path, monkeypatch: Patch
) -> None:
    seen: list[tuple[int, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append((kernel.synced, os.fstat(descriptor).st_nlink == 0))
        real(descriptor)

    with opened(tmp_path) as volume:
        monkeypatch.setattr(os, "fsync", fsync)
        volume.sync()
        volume.sync()
    assert seen == [(1, True), (2, True)]
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_fails_names_the_directory(kernel: Kernel, tmp_path: Path) -> None:
    with opened(tmp_path) as volume:
        kernel.error = OSError(5, "Input/output error")
        with pytest.raises(WriteFault, match=f"syncing the file system.*{tmp_path.name}|{tmp_path.name}.*syncing"):
            volume.sync()


@pytest.mark.parametrize("kind", [EXT4, NFS])
def test_nothing_stays_open(kind: int, kernel: Kernel, tmp_path: Path) -> None:
    kernel.kind = kind
    before = descriptors()
    for _ in range(3):
        volume = open_volume(tmp_path)
        if volume is not None:
            volume.close()
    assert open_volume(tmp_path / "nowhere") is None
    assert descriptors() == before


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_filter_that_refuses_the_call_leaves_a_sync_of_each_file(number: int, kernel: Kernel, tmp_path: Path) -> None:
    opened(tmp_path).close()
    kernel.error = OSError(number, os.strerror(number))
    assert open_volume(tmp_path) is None


def test_without_the_kernel_each_file_is_synced(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module, "kernel", None)
    assert open_volume(tmp_path) is None


def test_another_disk_than_the_real_one_is_never_taken_for_it(tmp_path: Path) -> None:
    class Counting(OsFs):
        """A disk that does more than the real one with each call."""

    assert Counting().volume(tmp_path) is None


def test_the_real_one_is_synced(tmp_path: Path) -> None:
    volume = OsFs().volume(tmp_path)
    if volume is None:
        impossible("no ext4 or xfs, or a Linux that is too old")
    with volume:
        (tmp_path / "some").write_bytes(b"data")
        volume.sync()
        assert volume.device == (tmp_path / "some").stat().st_dev
