"""New files in a log directory get the owner of the directory, as far as we may set it."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest
from support.managers import NOW, P0, SMALL, append, batch, options
from support.memory_fs import MemoryFs

from engine.manager.manager import LogManager
from storage.base.units import Offset
from storage.disk.fs import FileKind, FileStat, OsFs, replace_atomically
from storage.disk.wrapped_fs import InheritingFs

TOP = PurePath("/data")


def stat(mode: int, uid: int = 1000, kind: FileKind = FileKind.DIRECTORY) -> FileStat:
    return FileStat(kind, 0, 0, 0, 0, mode, uid, uid + 1, 1, 0)


def of(fs: MemoryFs, path: PurePath) -> tuple[int, int, int]:
    found = fs.stat(path)
    return found.mode, found.uid, found.gid


@pytest.fixture
def disk() -> MemoryFs:
    fs = MemoryFs({})
    fs.plant(TOP, FileKind.DIRECTORY, like=stat(0o750))
    return fs


def test_files_and_directories_take_after_the_directory_they_are_made_in(disk: MemoryFs) -> None:
    fs = InheritingFs(disk, [TOP])
    fs.make_dir(TOP / "t-0")
    fs.create(TOP / "t-0" / "x.log").close()
    assert of(disk, TOP / "t-0") == (0o750, 1000, 1001)
    assert of(disk, TOP / "t-0" / "x.log") == (0o640, 1000, 1001)


def test_what_lies_elsewhere_and_the_tops_themselves_are_made_as_ever(disk: MemoryFs) -> None:
    fs = InheritingFs(disk, [TOP / "logs"])
    fs.make_dir(TOP / "logs")
    fs.create(TOP / "other").close()
    assert {of(disk, TOP / name)[1] for name in ("logs", "other")} == {0}


def test_a_file_that_is_replaced_keeps_its_owner_and_mode(disk: MemoryFs) -> None:
    disk.plant(TOP / "meta.properties", like=stat(0o600, 7, FileKind.FILE))
    replace_atomically(InheritingFs(disk, [TOP]), TOP / "meta.properties", b"new")
    assert of(disk, TOP / "meta.properties") == (0o600, 7, 8)
    replace_atomically(InheritingFs(disk, [TOP]), TOP / "list", b"new")
    assert of(disk, TOP / "list") == (0o640, 1000, 1001)


def test_who_says_like_gets_that(disk: MemoryFs) -> None:
    InheritingFs(disk, [TOP]).create(TOP / "x", stat(0o604, 9)).close()
    assert of(disk, TOP / "x") == (0o604, 9, 10)


@pytest.mark.needs(root=True)
def test_an_engine_that_root_runs_leaves_nothing_of_roots_in_the_log_directory_of_another(tmp_path: Path) -> None:
    top = tmp_path / "data"
    top.mkdir(mode=0o750)
    os.chown(top, 4321, 4322)
    settings = {**SMALL, "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"}
    for _ in range(2):
        with LogManager.open(OsFs(), [PurePath(top)], NOW, options()) as manager:
            if not manager.topics.all():
                manager.topics.create("orders", 2, settings, NOW)
            for number in range(8):
                append(manager, str(number), key=b"k")
            manager.compact(NOW)
            manager.truncate(P0, Offset(manager.log(P0).log_end - 1), NOW)
        (top / ".kafka_cleanshutdown").unlink()
        with next((top / "orders-0").glob("*[1-9].log")).open("ab") as torn:  # which recovery cuts, and keeps
            torn.write(batch("x")[:40])
    made = [top, *top.rglob("*")]
    assert any(path.name.endswith(".logmend.json") for path in made)
    assert len(made) > 20
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in made} == {(4321, 4322)}
    assert not [path for path in made if path.lstat().st_mode & 0o007 and path.name != ".lock"]
