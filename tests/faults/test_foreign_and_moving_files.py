"""Files of somebody else, and files that shrink, grow or vanish while they are read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import environment, logmend, start
from support.faults import DAMAGES, check_end, check_nothing_is_lost, read_tree, recovered, write_tree
from support.log_dirs import place
from support.needs import need, need_root
from support.recovering import tree
from support.waiting import until

SOMEBODY = 12345


def without_rights(*words: object) -> subprocess.CompletedProcess[str]:
    """Run `logmend` as root without any capability: a user like others, who can yet read the interpreter."""
    need("setpriv", root=True)
    drop = ["setpriv", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    return subprocess.run(
        [*drop, sys.executable, "-m", "cli.main", *map(str, words)], env=environment(), capture_output=True, text=True,
        check=False, timeout=180, cwd="/",
    )  # fmt: skip


def give_away(directory: Path, *, file_mode: int, mode: int) -> None:
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)
        path.chmod(mode if path.is_dir() else file_mode)


@pytest.mark.parametrize("command", ["verify", "plan", "recover"])
def test_a_directory_that_may_not_be_read_is_status_5_and_says_what_may_not_be_done(
    tmp_path: Path, command: str
) -> None:
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    give_away(home, file_mode=0o600, mode=0o700)
    was = tree(home)
    done = without_rights(command, home)
    assert (done.returncode, tree(home)) == (5, was)
    assert f"{home}" in done.stderr
    assert "Permission denied (EACCES)" in done.stderr


@pytest.mark.parametrize("name", [place(20), place(20, "index"), "recovery-point-offset-checkpoint"])
@pytest.mark.parametrize("command", ["verify", "recover"])
def test_one_file_that_may_not_be_read_stops_everything_before_the_first_effect(
    tmp_path: Path, command: str, name: str
) -> None:
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    os.chown(home / name, SOMEBODY, SOMEBODY)
    (home / name).chmod(0o600)
    was = tree(home)
    done = without_rights(command, home)
    assert (done.returncode, tree(home)) == (5, was)
    assert "Permission denied (EACCES)" in done.stdout + done.stderr
    assert Path(name).name in done.stdout + done.stderr


def test_a_directory_that_may_only_be_read_is_verified_but_not_recovered(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    give_away(home, file_mode=0o644, mode=0o755)
    was = tree(home)
    looked, done = without_rights("verify", home), without_rights("recover", home)
    assert (looked.returncode, done.returncode, tree(home)) == (1, 5, was)
    assert "torn_tail" in looked.stdout
    assert f"{home}/.lock: locking failed: Permission denied (EACCES)" in done.stderr


def test_a_log_of_somebody_else_that_has_to_be_cut_is_status_5_and_stays_whole(tmp_path: Path) -> None:
    before = DAMAGES["torn"]
    home = write_tree(tmp_path / "data", before)
    os.chown(home / place(20), SOMEBODY, SOMEBODY)
    done = without_rights("recover", home)
    assert done.returncode == 5
    assert f"{home / place(20)}: truncating to" in done.stderr
    assert (home / place(20)).read_bytes() == before[place(20)]
    check_nothing_is_lost(home, before)
    check_end(home, before, recovered(before, tmp_path / "undisturbed"))


def test_what_is_written_anew_belongs_to_whom_the_old_file_belonged(tmp_path: Path) -> None:
    need_root()
    home = write_tree(tmp_path / "data", DAMAGES["broken_in_the_middle"])
    give_away(home, file_mode=0o640, mode=0o750)
    assert logmend("recover", home).returncode == 0
    for path in home.rglob("*"):
        stat = path.stat()
        assert (stat.st_uid, stat.st_gid) == (SOMEBODY, SOMEBODY), path
        if path.is_file() and not path.name.endswith((".logmend", ".logmend.json", ".lock")):
            assert stat.st_mode & 0o777 == 0o640, path


BESIDE = """
import os, recovery.partition.partition
run = recovery.partition.partition.Survey.run
done = []
def changed(self, job, reader, progress):
    if not done:
        done.append(job)
        {what}
    return run(self, job, reader, progress)
recovery.partition.partition.Survey.run = changed
"""
Change = Callable[[Path], object]
CHANGES: dict[str, tuple[str, Change]] = {
    "shrinks": ("os.truncate(job.files.log, 100)", lambda log: os.truncate(log, 100)),
    "vanishes": ("os.unlink(job.files.log)", lambda log: log.unlink()),
    "grows": ("open(job.files.log, 'ab').write(b'more')", lambda log: log.write_bytes(log.read_bytes() + b"more")),
    "becomes a link": ("os.unlink(job.files.log); os.symlink('/dev/zero', job.files.log)", lambda log: log.unlink()),
    "goes with its directory": (
        "os.rename(self.directory, str(self.directory) + '.away')",
        lambda log: log.parent.rename(log.parent.with_suffix(".away")),
    ),
}


@pytest.mark.parametrize("what", sorted(CHANGES))
@pytest.mark.parametrize("command", ["verify", "recover"])
def test_a_log_that_changes_between_listing_and_reading_is_never_cut_on_what_was_seen(
    tmp_path: Path, command: str, what: str
) -> None:
    """An operator, or a broker that ignores the lock: what the other left is judged anew, or nothing is done."""
    code, change = CHANGES[what]
    model = write_tree(tmp_path / "model", DAMAGES["torn"])
    change(model / place(20))
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    (tmp_path / "sitecustomize.py").write_text(BESIDE.format(what=code))
    env = environment()
    done = logmend(command, "-j", "1", home, env={**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"})
    assert done.returncode in ((0, 1, 5) if command == "verify" else (0, 5, 7)), done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    check_nothing_is_lost(home, read_tree(model))
    if command == "verify":
        assert not list(home.rglob("*.logmend"))


@pytest.mark.slow
def test_files_that_come_and_go_all_the_while_never_break_a_verification(tmp_path: Path) -> None:
    """Rolls, retention and renames of a broker at work, made as fast as they can be."""
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    whole = (home / place(0)).read_bytes()
    code = (
        "import itertools, os, sys, time\n"
        "home, whole = sys.argv[1], bytes.fromhex(sys.argv[2])\n"
        "for n in itertools.count():\n"
        "    name = f'{home}/orders-0/{n % 7:020d}.log'\n"
        "    with open(name + '.new', 'wb') as f: f.write(whole[:n % len(whole)])\n"
        "    os.rename(name + '.new', name)\n"
        "    with open(name, 'ab') as f: f.truncate(n % 90)\n"
        "    if n % 3 == 0: os.rename(name, name + '.deleted'); os.unlink(name + '.deleted')\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(home), whole.hex()], stderr=subprocess.PIPE, text=True)
    try:
        statuses = set()
        for number in range(12):
            done = logmend("verify", "--depth", "full", *(("--json",) if number % 2 else ()), home)
            assert "Traceback" not in done.stdout + done.stderr
            assert done.returncode in (0, 1, 5), done.stderr
            statuses.add(done.returncode)
        assert other.poll() is None, other.stderr.read() if other.stderr else ""
    finally:
        other.kill()
        other.communicate()
    assert statuses


@pytest.mark.slow
def test_a_process_that_is_stopped_and_goes_on_hours_later_holds_its_lock_and_finishes(tmp_path: Path) -> None:
    home = write_tree(tmp_path / "data", DAMAGES["torn"])
    (tmp_path / "sitecustomize.py").write_text(BESIDE.format(what="os.kill(os.getpid(), 19)"))
    env = environment()
    process = start("recover", "-j", "1", home, env={**env, "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"})
    try:
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        assert logmend("recover", home).returncode == 6
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate(timeout=180)
    assert process.returncode == 0
