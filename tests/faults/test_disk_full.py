"""Disks without room: file systems of exact sizes, from all that is needed down to nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import environment, logmend
from support.faults import (
    DAMAGES,
    DERIVED,
    EVERYTHING,
    check_end,
    check_nothing_is_lost,
    check_recovered,
    recovered,
    sample,
    tmpfs,
    write_tree,
)
from support.log_dirs import POINTS, Files, checkpoint
from support.needs import need_mounts
from support.recovering import tree

PAGE = 4096
PLAN_ID = re.compile(r'"plan_id": "[0-9a-f]{12}"')
BIG = {
    name: data + bytes(3 * PAGE) + b"x" if name.endswith("20.log") else data for name, data in DAMAGES["torn"].items()
}
"""A tail that takes more than one page to keep."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    need_mounts(tmp_path / "probe")
    with tmpfs(tmp_path / "disk", 1 << 20) as place:
        yield place


def fill(disk: Path, free: int) -> None:
    """Leave `free` bytes, in whole pages, on a file system that root may fill to the last one."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        left = free_bytes(disk) - free
        assert left >= 0, "the file system was too small to begin with"
        filler.write(bytes(left))
    assert free_bytes(disk) == free


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def make_room(disk: Path) -> None:
    (disk / "filler").unlink()


BOUNDED = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv[0] = "logmend"
runpy.run_module("cli.main", run_name="__main__")
"""
SIZES = [*range(0, 40 * PAGE, PAGE)]


@pytest.mark.slow
@pytest.mark.parametrize("free", sample(SIZES, 9))
@pytest.mark.parametrize("name", sorted(DAMAGES) if EVERYTHING else ["broken_in_the_middle", "torn"])
def test_whatever_room_there_is_nothing_is_lost_and_with_room_the_next_run_repairs(
    disk: Path, tmp_path: Path, name: str, free: int
) -> None:
    before = BIG if name == "torn" else DAMAGES[name]
    wanted = recovered(before, tmp_path / "undisturbed")
    home = write_tree(disk / "data", before)
    (home / ".lock").touch()
    fill(disk, free)
    was = tree(home)
    done = logmend("recover", home)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 5), said
    assert "Traceback" not in said
    if done.returncode == 0:
        check_recovered(done, home, wanted)
    elif "bytes, " in said:
        assert tree(home) == was, "what was refused beforehand changed something"
        assert f"{free} are free" in said
    else:
        assert "No space left on device (ENOSPC)" in said
    check_nothing_is_lost(home, before)
    make_room(disk)
    check_end(home, before, wanted)


def test_without_room_for_the_copies_the_need_is_named_and_nothing_changes(disk: Path) -> None:
    home = write_tree(disk / "data", BIG)
    fill(disk, 0)
    was = tree(home)
    done = logmend("recover", home)
    assert (done.returncode, tree(home)) == (5, was)
    assert "needs " in done.stderr
    assert " bytes, 0 are free" in done.stderr
    assert "--quarantine DIR" in done.stderr


def test_what_is_named_as_the_need_is_enough(disk: Path, tmp_path: Path) -> None:
    home = write_tree(disk / "data", BIG)
    fill(disk, 0)
    needed = int(logmend("recover", home).stderr.partition("needs ")[2].split()[0])
    make_room(disk)
    fill(disk, -(-needed // PAGE) * PAGE)
    done = logmend("recover", home)
    assert done.returncode == 0, done.stderr
    check_recovered(done, home, recovered(BIG, tmp_path / "undisturbed"))


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_with_copies_elsewhere_a_full_disk_is_recovered(disk: Path, tmp_path: Path, name: str) -> None:
    """Only side files that have to be made and were not there before need room on the log's own disk."""
    before = DAMAGES[name]
    wanted = recovered(before, tmp_path / "undisturbed")
    home = write_tree(disk / "data", before)
    (tmp_path / "kept").mkdir()
    fill(disk, 0)
    done = logmend("recover", "--quarantine", tmp_path / "kept", home)
    assert done.returncode in (0, 5), done.stderr
    check_nothing_is_lost(home, before, tmp_path / "kept")
    make_room(disk)
    check_end(home, before, wanted, elsewhere=tmp_path / "kept")


def torn_and_else_as_recovered(tmp_path: Path) -> tuple[Files, Files]:
    """Return a directory whose side files are as they will be after the cut, so that nothing new has to be made."""
    wanted = recovered(DAMAGES["torn"], tmp_path / "undisturbed")
    log = next(name for name in wanted if name.endswith("20.log"))
    return {**wanted, log: wanted[log] + b"half a batch" * 900}, wanted


def test_a_tail_is_cut_with_no_free_byte_when_its_copy_goes_elsewhere(disk: Path, tmp_path: Path) -> None:
    before, wanted = torn_and_else_as_recovered(tmp_path)
    home = write_tree(disk / "data", before)
    (tmp_path / "kept").mkdir()
    fill(disk, 0)
    done = logmend("recover", "--quarantine", tmp_path / "kept", home)
    assert done.returncode == 0, done.stderr
    check_recovered(done, home, wanted)
    check_nothing_is_lost(home, before, tmp_path / "kept")


def test_indexes_are_made_anew_in_the_place_of_the_old_ones_with_no_free_byte(disk: Path, tmp_path: Path) -> None:
    wanted = recovered({**DAMAGES["torn"], POINTS: checkpoint({})}, tmp_path / "undisturbed")
    before = {name: b"\x7f" * 24 if name.endswith(DERIVED) else data for name, data in wanted.items()}
    home = write_tree(disk / "data", before)
    (tmp_path / "kept").mkdir()
    fill(disk, 0)
    done = logmend("recover", "--quarantine", tmp_path / "kept", home)
    assert done.returncode == 0, done.stderr
    check_recovered(done, home, wanted)


@pytest.mark.parametrize("words", [("verify",), ("verify", "--depth", "records"), ("plan",), ("recover", "--dry-run")])
def test_looking_needs_no_room_and_no_right_to_write(disk: Path, words: tuple[str, ...]) -> None:
    home = write_tree(disk / "data", DAMAGES["broken_in_the_middle"])
    fill(disk, 0)
    was = (tree(home), os.stat(home).st_mtime_ns, os.stat(home / "orders-0").st_mtime_ns)
    full = logmend(*words, "--json", home)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    read_only = logmend(*words, "--json", home)
    assert (full.returncode, read_only.returncode) == (1, 1), read_only.stderr
    # Only the id of a plan differs: to verify is to look at timestamps too, at a time that is part of what was asked.
    assert PLAN_ID.sub("", full.stdout) == PLAN_ID.sub("", read_only.stdout)
    assert (tree(home), os.stat(home).st_mtime_ns, os.stat(home / "orders-0").st_mtime_ns) == was


def test_recovering_a_read_only_disk_is_refused_with_status_5(disk: Path) -> None:
    home = write_tree(disk / "data", DAMAGES["torn"])
    was = tree(home)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = logmend("recover", home)
    assert (done.returncode, tree(home)) == (5, was)
    assert "Read-only file system (EROFS)" in done.stderr


def test_no_inode_left_is_a_full_disk(tmp_path: Path) -> None:
    need_mounts(tmp_path / "probe")
    before = DAMAGES["torn"]
    with tmpfs(tmp_path / "disk", 1 << 20, inodes=len(before) + 6) as disk:
        home = write_tree(disk / "data", before)
        for number in range(os.statvfs(disk).f_favail):
            (disk / f"filler-{number}").touch()
        done = logmend("recover", home)
        assert done.returncode == 5
        assert "ENOSPC" in done.stderr
        check_nothing_is_lost(home, before)


@pytest.mark.slow
@pytest.mark.parametrize("limit", sample(range(0, 700, 1 if EVERYTHING else 50), 8))
def test_a_write_that_is_cut_short_at_any_byte_leaves_log_and_quarantine_whole(tmp_path: Path, limit: int) -> None:
    """RLIMIT_FSIZE is the only thing that makes the kernel write less than it was asked to."""
    before = DAMAGES["torn"]
    wanted = recovered(before, tmp_path / "undisturbed")
    home = write_tree(tmp_path / "data", before)
    (home / ".lock").touch()
    code = BOUNDED.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", code, "recover", home], env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode in (0, 5)
    assert done.returncode == 0 or "File too large (EFBIG)" in done.stderr
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    check_nothing_is_lost(home, before)
    check_end(home, before, wanted)
