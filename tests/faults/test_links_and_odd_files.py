"""Links, FIFOs, sockets, devices and directories in the place of every kind of file; nothing waits, nothing follows."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import environment
from support.faults import DAMAGES, EVERYTHING, tmpfs, write_tree
from support.log_dirs import MARKER, POINTS, STARTS, place
from support.needs import impossible, need, need_mounts, need_root
from support.recovering import tree

CANARY = b"a canary outside of every log directory\n" * 40

Trap = Callable[[Path, Path], object]
TRAPS: dict[str, Trap] = {
    "link to a file": lambda path, canary: path.symlink_to(canary / "file"),
    "link to a directory": lambda path, canary: path.symlink_to(canary),
    "dangling link": lambda path, canary: path.symlink_to(canary / "nothing"),
    "link to itself": lambda path, canary: path.symlink_to(path),
    "link to an endless device": lambda path, canary: path.symlink_to("/dev/zero"),
    "hard link": lambda path, canary: os.link(canary / "file", path),
    "fifo": lambda path, canary: os.mkfifo(path),
    "socket": lambda path, canary: bound(path),
    "endless device": lambda path, canary: os.mknod(path, 0o20666, os.makedev(1, 5)),
    "device that takes all": lambda path, canary: os.mknod(path, 0o20666, os.makedev(1, 3)),
    "directory": lambda path, canary: path.mkdir(),
    "full directory": lambda path, canary: shutil.copytree(canary, path),
}
PLACES = [
    place(0), place(20), place(20, "index"), place(10, "timeindex"), place(20, "txnindex"), place(20, "snapshot"),
    place(20) + ".swap", place(20) + ".deleted", place(0) + ".cleaned", "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata", "orders-0", "orders-1", POINTS, STARTS, MARKER, "meta.properties", ".lock",
    "replication-offset-checkpoint", place(20, "index") + ".tmp", POINTS + ".tmp", "orders-0/0123456789ab.logmend.json",
]  # fmt: skip
COMMANDS = [("verify",), ("verify", "--depth", "records"), ("recover",), ("recover", "--accept-loss")]


def bound(path: Path) -> None:
    """Make a socket file, by a short name: that of an address has no room for a long one."""
    was = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(was)
        os.close(was)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "canary", {"file": CANARY, "00000000000000000000.log": CANARY})


def run(*words: object) -> tuple[int, str]:
    """Run the command; return its exit status and all it said. Fails if it hangs."""
    command = [sys.executable, "-m", "cli.main", *map(str, words)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=120, cwd="/",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def spring(home: Path, trap: str, name: str, canary: Path) -> None:
    path = home / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    TRAPS[trap](path, canary)


def fallen_for(home: Path, trap: str, name: str, canary: Path, words: tuple[str, ...]) -> Iterator[str]:
    """Run one command on one trap; yield what is wrong."""
    shutil.rmtree(home, ignore_errors=True)
    write_tree(home, DAMAGES["broken_in_the_middle"])
    spring(home, trap, name, canary)
    was = tree(canary)
    try:
        status, said = run(*words, home)
    except subprocess.TimeoutExpired:
        yield "it hangs"
        return
    if tree(canary) != was:
        yield "the canary has changed"
    if status not in range(8) or "Traceback" in said:
        yield f"status {status}: {said}"
    if CANARY[:20].decode() in said and trap != "hard link":  # a file under a second name is a file
        yield "what lies outside is told"


@pytest.mark.slow
@pytest.mark.timeout(3600 if EVERYTHING else 900)
@pytest.mark.parametrize("trap", sorted(TRAPS))
def test_no_trap_is_fallen_for(tmp_path: Path, canary: Path, trap: str) -> None:
    need_root()
    number = sorted(TRAPS).index(trap)
    names = PLACES if EVERYTHING else [PLACES[(number * 5 + at * 3) % len(PLACES)] for at in range(4)]
    wrong = [
        f"{words} with a {trap} as {name}: {why}"
        for at, name in enumerate(names)
        for words in (COMMANDS if EVERYTHING else [COMMANDS[(at + number) % len(COMMANDS)]])
        for why in fallen_for(tmp_path / "data", trap, name, canary, words)
    ]
    assert wrong == []


@pytest.mark.parametrize("where", ["quarantine", "quarantine/plan", "manifest"])
def test_a_place_for_copies_that_is_a_link_leads_nowhere_else(tmp_path: Path, canary: Path, where: str) -> None:
    """The operator may name a link as the place; nothing below it is followed."""
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    kept = tmp_path / "kept"
    kept.mkdir()
    plan_id = run("plan", home)[1].partition("plan ")[2][:12]
    assert plan_id.isalnum()
    if where == "quarantine/plan":
        (kept / plan_id).symlink_to(canary)
    elif where == "manifest":
        (kept / plan_id / "orders-0").mkdir(parents=True)
        (kept / plan_id / "orders-0" / f"{plan_id}.logmend.json").symlink_to(canary / "file")
    was = tree(canary)
    status, said = run("recover", "--quarantine", kept, home)
    assert status in (0, 5), said
    assert tree(canary) == was
    assert sorted(path.name for path in canary.iterdir()) == ["00000000000000000000.log", "file"]


def linked(home: Path) -> Path:
    """Return a backup of a directory as `cp -al` makes it: second names of the same files."""
    return Path(shutil.copytree(home, home.with_name("backup"), copy_function=os.link))


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_backup_made_of_hard_links_stays_what_it_was_when_the_directory_is_recovered(
    tmp_path: Path, damage: str
) -> None:
    home = write_tree(tmp_path / "data", DAMAGES[damage])
    backup = linked(home)
    was = tree(backup)
    assert run("recover", "--accept-loss", home)[0] == 0
    assert tree(home) != was
    assert tree(backup) == was


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_backup_made_after_a_recovery_stays_what_it_was_when_that_is_undone(
    tmp_path: Path, damage: str, elsewhere: bool
) -> None:
    home = write_tree(tmp_path / "data", DAMAGES[damage])
    before, kept = tree(home), tmp_path / "kept"
    kept.mkdir()
    place = ["--quarantine", kept] if elsewhere else []
    assert run("recover", "--accept-loss", *place, home)[0] == 0
    backup = linked(home)
    was = tree(backup)
    status, said = run("quarantine", "restore", "--all", *(["--quarantine", kept] if elsewhere else []), home)
    assert status == 0, said
    assert tree(backup) == was
    assert tree(home) == before


def test_a_log_of_ones_own_that_has_a_backup_made_of_hard_links_grows_beside_it(tmp_path: Path) -> None:
    home = tmp_path / "data"
    assert run("topics", "create", "--init", "--log-dir", home, "--topic", "t", "--partitions", "1")[0] == 0
    append(home, '{"value":"a"}\n')
    backup = linked(home)
    was = tree(backup)
    append(home, '{"value":"b"}\n')
    assert tree(backup) == was
    assert [path.stat().st_nlink for path in sorted((home / "t-0").glob("*.log"))] == [1]
    status, said = run("read", "--log-dir", home, "--topic", "t", "--json")
    assert (status, said.count('"value"')) == (0, 2), said


def append(home: Path, lines: str) -> None:
    command = [sys.executable, "-m", "cli.main", "append", "--log-dir", str(home), "--topic", "t"]
    subprocess.run(command, env=environment(), input=lines, text=True, check=True, timeout=180, cwd="/")


def test_a_directory_mounted_in_the_place_of_a_partition_is_worked_on_as_one(tmp_path: Path) -> None:
    need_mounts(tmp_path / "probe")
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    away = tmp_path / "away"
    (home / "orders-0").rename(away)
    with tmpfs(home / "orders-0", 1 << 20) as mounted:
        for path in away.iterdir():
            shutil.copy2(path, mounted)
        assert run("recover", home)[0] == 0
        assert list(mounted.glob("kept.*.logmend"))


def test_a_file_that_nobody_may_change_is_status_5_and_the_next_run_repairs(tmp_path: Path) -> None:
    need("chattr", root=True)
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    done = subprocess.run(["chattr", "+i", home / place(20)], capture_output=True, text=True, check=False)
    if done.returncode:
        impossible(f"this file system knows no such files: {done.stderr.strip()}")
    try:
        status, said = run("recover", home)
    finally:
        subprocess.run(["chattr", "-i", home / place(20)], check=True)
    assert status == 5
    assert f"{home / place(20)}: truncating to" in said
    assert run("recover", home)[0] == 0
