"""Many small logs in memory are read by one thread, all others by as many as were asked for: the plan is the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from support.damages import KINDS
from support.log_dirs import OPTIONS, POINTS, SOUND, TOP, checkpoint, damaged, on_disk
from support.needs import impossible

from recovery.logdir import nearness, survey
from recovery.logdir.nearness import MANY, is_near
from recovery.logdir.survey import plan_log_dir
from storage.disk.fs import OsFs

Patch = pytest.MonkeyPatch


def in_memory(*_: object) -> int:
    return 1


def on_the_disk(*_: object) -> int:
    raise BlockingIOError(errno.EAGAIN, "it would have to be waited for")


def unheard_of(*_: object) -> int:
    raise OSError(errno.EOPNOTSUPP, "not on this file system")


def logs(place: Path, count: int, size: int) -> list[Path]:
    made = []
    for number in range(count):
        made.append(place / f"orders-{number}")
        made[-1].mkdir(parents=True)
        for base in (0, 10):
            with (made[-1] / f"{base:020}.log").open("wb") as file:
                file.truncate(size if base else 1 << 30)
    return made


@pytest.mark.parametrize(
    ("count", "size", "read", "expected"),
    [
        (MANY, 1000, in_memory, True),
        (MANY, 0, on_the_disk, True),
        (MANY - 1, 1000, in_memory, False),
        (MANY, 5 << 20, in_memory, False),
        (MANY, 1000, on_the_disk, False),
        (MANY, 1000, unheard_of, False),
    ],
    ids=["near", "empty", "few", "large", "on the disk", "not told"],
)
def test_small_logs_in_memory_are_near(
    count: int, size: int, read: Any, expected: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(os, "preadv", read)
    assert is_near(OsFs(), logs(tmp_path, count, size)) is expected


def test_if_all_is_to_be_read_all_counts(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "preadv", in_memory)
    directories = logs(tmp_path, MANY, 1000)
    assert not is_near(OsFs(), directories, whole=True)
    for directory in directories:
        os.truncate(directory / f"{0:020}.log", 5000)
    assert is_near(OsFs(), directories, whole=True)


def test_the_first_byte_that_is_read_and_the_last_are_asked_for(tmp_path: Path, monkeypatch: Patch) -> None:
    asked: list[int] = []

    def ask(_descriptor: int, _target: object, position: int, _flags: int) -> int:
        asked.append(position)
        return 1

    monkeypatch.setattr(os, "preadv", ask)
    assert is_near(OsFs(), logs(tmp_path, MANY, 1000))
    assert set(asked) == {0, 999}


def test_where_nobody_knows_they_are_not(tmp_path: Path) -> None:
    directories = logs(tmp_path, MANY, 1000)
    for file in directories[0].iterdir():
        file.unlink()
    directories[0].rmdir()
    assert not is_near(OsFs(), directories)
    assert not is_near(on_disk(SOUND), [TOP / "orders-0"] * MANY)


def test_what_was_just_written_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"just now")
    with OsFs().open_read(tmp_path / "log") as file:
        told = file.is_in_memory(7)  # type: ignore[attr-defined]
        assert not file.is_in_memory(8)  # type: ignore[attr-defined]
    if not told:
        impossible("this file system does not tell")


def test_the_plan_does_not_depend_on_it(monkeypatch: Patch, tmp_path: Path) -> None:
    partitions = [f"orders-{number}" for number in range(MANY)]
    kinds = ["torn_tail", "indexes_wrong"]
    for number, partition in enumerate(partitions):
        (tmp_path / partition).mkdir()
        for name, data in damaged(KINDS[kinds[number % 2]], files=SOUND).items():
            if name.startswith("orders-0/"):
                (tmp_path / name.replace("orders-0", partition)).write_bytes(data)
    (tmp_path / POINTS).write_bytes(checkpoint(dict.fromkeys(partitions, 20)))
    pools: list[int] = []
    real = survey.Pool

    def pool(threads: int, name: str) -> Any:
        pools.append(threads)
        return real(threads, name)

    monkeypatch.setattr(survey, "Pool", pool)
    monkeypatch.setattr(os, "preadv", in_memory)
    near = plan_log_dir(OsFs(), tmp_path, OPTIONS, jobs=4).plan
    assert pools == []
    monkeypatch.setattr(nearness, "_LITTLE_BYTES", 0)
    assert plan_log_dir(OsFs(), tmp_path, OPTIONS, jobs=4).plan == near
    assert pools == [4]
    assert {partition.partition for partition in near.partitions if partition.actions} == set(partitions)
