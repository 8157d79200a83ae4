"""What only the real disk has: links swapped in, FIFOs, short writes, signals, owners, and the lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import storage.disk.fs
from storage.base.errors import DiskFull, EnvironmentFault, FileVanished, LogDirInUse, ReadFault, WriteFault
from storage.disk.fs import FileKind, FileStat, OsFs, lock_log_dir, lock_state, read_all
from storage.disk.os_files import OsReadFile

FS = OsFs()


class ScriptedRaw:
    """A raw file that answers each call with the next value of a script, or raises it."""

    def __init__(self, *script: int | OSError | None) -> None:
        self.script, self.taken = list(script), bytearray()

    def _next(self) -> int | None:
        answer = self.script.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def seek(self, *place: int) -> int:
        return 0

    def fileno(self) -> int:
        return -1

    def write(self, data: memoryview) -> int | None:
        count = self._next()
        self.taken += bytes(data[: count or 0])
        return count

    def readinto(self, target: memoryview) -> int | None:
        count = self._next()
        target[: count or 0] = b"r" * (count or 0)
        return count

    def close(self) -> None:
        self._next()


def raw(*script: int | OSError | None) -> tuple[ScriptedRaw, io.FileIO]:
    made = ScriptedRaw(*script)
    return made, cast(io.FileIO, made)


@contextlib.contextmanager
def done_within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- bytes in, bytes out


def test_a_short_write_is_completed(tmp_path: Path) -> None:
    script, file = raw(3, 1, 4)
    storage.disk.fs.OsWriteFile(tmp_path, file).append(b"abcdefgh")
    assert script.taken == b"abcdefgh"


@pytest.mark.parametrize("answer", [0, None])
def test_a_write_that_takes_nothing_is_a_fault_and_no_endless_loop(tmp_path: Path, answer: int | None) -> None:
    _, file = raw(3, answer)
    with pytest.raises(WriteFault) as caught:
        storage.disk.fs.OsWriteFile(tmp_path, file).append(b"abcdefgh")
    assert caught.value.errno == errno.EIO


def test_a_read_that_would_have_to_wait_is_no_end_of_file(tmp_path: Path) -> None:
    _, file = raw(2, None)
    with pytest.raises(ReadFault) as caught:
        OsReadFile(tmp_path, file).read_into(5, memoryview(bytearray(9)))
    assert (caught.value.errno, caught.value.operation) == (errno.EAGAIN, "reading at 7")


def test_a_short_read_goes_on_to_the_end(tmp_path: Path) -> None:
    _, file = raw(2, 3, 0)
    target = bytearray(9)
    assert OsReadFile(tmp_path, file).read_into(0, memoryview(target)) == 5
    assert target == b"rrrrr\0\0\0\0"


def test_an_error_on_closing_is_a_fault_too(tmp_path: Path) -> None:
    _, file = raw(OSError(errno.EDQUOT, "quota"))
    with pytest.raises(DiskFull):
        storage.disk.fs.OsWriteFile(tmp_path, file).close()


def test_views_of_numbers_are_written_and_read_as_bytes(tmp_path: Path) -> None:
    numbers = memoryview(bytearray(range(16))).cast("q")
    with FS.create(tmp_path / "a") as file:
        file.append(numbers)
    back = memoryview(bytearray(16)).cast("q")
    with FS.open_read(tmp_path / "a") as read:
        assert read.read_into(0, back) == 16
    assert back.tolist() == numbers.tolist()


def test_a_write_beyond_the_limit_of_sizes_leaves_a_part_and_says_so(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with FS.create(tmp_path / "a") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(WriteFault) as caught:
                file.append(b"x" * 1500)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (caught.value.errno, (tmp_path / "a").stat().st_size) == (errno.EFBIG, 1000)


def test_signals_in_the_middle_change_nothing(tmp_path: Path) -> None:
    hits: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with FS.create(tmp_path / "a") as file:
            for number in range(50):
                file.append(bytes([number]) * 100_000)
                file.sync()
        content = read_all(FS, tmp_path / "a", 1 << 24)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits
    assert content == b"".join(bytes([number]) * 100_000 for number in range(50))


def test_threads_may_read_one_open_file_at_different_places(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join(bytes([n]) * 1000 for n in range(100)))
    wrong: list[int] = []
    with FS.open_read(tmp_path / "a") as file:

        def read(number: int) -> None:
            target = bytearray(1000)
            for _ in range(50):
                file.read_into(number * 1000, memoryview(target))
                wrong.extend([number] if target != bytes([number]) * 1000 else [])

        threads = [threading.Thread(target=read, args=(n,)) for n in range(0, 100, 25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_each_sync_reaches_the_very_file_or_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    with FS.create(tmp_path / "a") as file:
        file.sync()
    FS.sync_file(tmp_path / "a")
    FS.sync_dir(tmp_path)
    assert synced == [FS.stat(tmp_path / "a").inode] * 2 + [FS.stat(tmp_path).inode]


def test_a_sync_that_fails_is_a_fault_and_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fail(descriptor: int) -> None:
        tried.append(descriptor)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fsync", fail)
    before = open_descriptors()
    with FS.create(tmp_path / "a") as file, pytest.raises(WriteFault):
        file.sync()
    for call in (partial(FS.sync_file, tmp_path / "a"), partial(FS.sync_dir, tmp_path)):
        with pytest.raises(WriteFault):
            call()
    assert (len(tried), open_descriptors()) == (3, before)


# ---- odd things in a directory


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    odd = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(odd)
    else:
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path):
            made.bind("odd")
    before = open_descriptors()
    calls: list[Callable[[], object]] = [
        lambda: FS.open_read(odd), lambda: FS.open_append(odd), lambda: FS.truncate(odd, 0),
        lambda: FS.sync_file(odd), lambda: FS.create(odd),
    ]  # fmt: skip
    with done_within(2):
        for call in calls:
            with pytest.raises(EnvironmentFault) as caught:
                call()
            assert caught.value.errno in (errno.EINVAL, errno.ENXIO, errno.EEXIST)
    assert open_descriptors() == before
    assert FS.stat(odd).kind is FileKind.OTHER


def test_refused_files_leave_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.link(tmp_path / "a", tmp_path / "b")
    before = open_descriptors()
    with pytest.raises(WriteFault):
        FS.open_append(tmp_path / "a")
    assert open_descriptors() == before


def test_the_mode_of_a_model_is_not_given_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "victim").chmod(0o600)
    (tmp_path / "link").symlink_to("victim")
    like = FileStat(FileKind.FILE, 0, 0, 0, 0, 0o666, os.getuid(), os.getgid(), 1, 0)
    with pytest.raises(WriteFault):
        FS.create(tmp_path / "link", like)
    FS.set_mtime(tmp_path / "link", 5)
    found = FS.stat(tmp_path / "victim")
    assert (found.mode, found.mtime_ns > 5) == (0o600, True)


def test_a_new_file_with_a_model_is_private_before_it_has_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = os.chmod

    def look_then_change(target: int, mode: int) -> None:
        seen.append(os.fstat(target).st_mode)
        real(target, mode)

    monkeypatch.setattr(os, "chmod", look_then_change)
    like = FileStat(FileKind.FILE, 0, 0, 0, 0, 0o644, os.getuid(), os.getgid(), 1, 0)
    FS.create(tmp_path / "a", like).close()
    assert [mode & 0o777 for mode in seen] == [0o600]
    assert FS.stat(tmp_path / "a").mode == 0o644


def test_who_may_not_give_a_file_away_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not you")

    monkeypatch.setattr(os, "chown", refuse)
    like = FileStat(FileKind.FILE, 0, 0, 0, 0, 0o640, 12345, 12345, 1, 0)
    FS.create(tmp_path / "a", like).close()
    found = FS.stat(tmp_path / "a")
    assert (found.uid, found.mode) == (os.getuid(), 0o640)


def test_names_of_any_bytes_are_listed_and_opened_and_printed_on_one_line(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\n\x1b[2J.log")
    FS.create(tmp_path / name).close()
    assert list(FS.entries(tmp_path)) == [name]
    with pytest.raises(FileVanished) as caught:
        FS.rename(tmp_path / "nothing", tmp_path / name)
    assert str(caught.value).isprintable()


def test_free_space_of_what_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(FileVanished):
        FS.free_bytes(tmp_path / "nothing")


def test_a_directory_of_ten_thousand_entries_is_listed_within_a_second(tmp_path: Path) -> None:
    for number in range(10_000):
        os.close(os.open(tmp_path / f"{number:020d}.log", os.O_CREAT | os.O_WRONLY))
    with done_within(1):
        assert len(FS.entries(tmp_path)) == 10_000


# ---- the lock

HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
getattr(fcntl, sys.argv[2])(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held_by_another(directory: Path, how: str = "lockf") -> Iterator[int]:
    """Let another process hold the lock; gives its number."""
    command = [sys.executable, "-c", HOLDER, str(directory / ".lock"), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other.pid
        other.communicate()


def is_free_for_another(directory: Path) -> bool:
    command = [sys.executable, "-c", HOLDER, str(directory / ".lock"), "lockf"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


def test_a_directory_that_another_process_holds_is_in_use_until_it_lets_go(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as other:
        assert lock_state(tmp_path) == other
        with pytest.raises(LogDirInUse), lock_log_dir(tmp_path):
            pass
        assert lock_state(tmp_path) == other
    assert lock_state(tmp_path) is None
    with lock_log_dir(tmp_path):
        assert lock_state(tmp_path) == os.getpid()


def test_flock_would_not_notice_who_holds_the_lock(tmp_path: Path) -> None:
    with held_by_another(tmp_path), (tmp_path / ".lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(LogDirInUse), lock_log_dir(tmp_path):
            pass


def test_a_flock_of_another_process_is_not_the_lock(tmp_path: Path) -> None:
    with held_by_another(tmp_path, "flock"), lock_log_dir(tmp_path):
        assert lock_state(tmp_path) == os.getpid()


def test_another_process_sees_the_lock_as_long_as_it_is_held(tmp_path: Path) -> None:
    with lock_log_dir(tmp_path):
        assert not is_free_for_another(tmp_path)
    assert is_free_for_another(tmp_path)
    assert (tmp_path / ".lock").exists()


def test_the_same_process_does_not_get_the_lock_twice_and_keeps_it_when_it_tries(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    with lock_log_dir(tmp_path / "d"):
        for name in ("d", "link"):
            with pytest.raises(LogDirInUse), lock_log_dir(tmp_path / name):
                pass
            assert lock_state(tmp_path / name) == os.getpid()
        with pytest.raises(ReadFault):
            FS.open_read(tmp_path / "d" / ".lock")
        assert not is_free_for_another(tmp_path / "d")


def test_an_error_under_the_lock_lets_go_of_it(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(ZeroDivisionError), lock_log_dir(tmp_path):
        raise ZeroDivisionError
    assert lock_state(tmp_path) is None
    assert is_free_for_another(tmp_path)
    assert open_descriptors() == before


def test_asking_for_the_lock_neither_makes_it_nor_takes_it(tmp_path: Path) -> None:
    assert lock_state(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").touch(mode=0o444)
    assert lock_state(tmp_path) is None


@pytest.mark.parametrize("odd", ["symlink", "dangling", "fifo", "directory"])
def test_a_lock_that_is_no_plain_file_is_a_fault_at_once(tmp_path: Path, odd: str) -> None:
    lock = tmp_path / ".lock"
    if odd == "fifo":
        os.mkfifo(lock)
    elif odd == "directory":
        lock.mkdir()
    else:
        (tmp_path / "target").write_bytes(b"kept") if odd == "symlink" else None
        lock.symlink_to("target")
    before = open_descriptors(), sorted(os.listdir(tmp_path))
    with done_within(2):
        with pytest.raises(WriteFault), lock_log_dir(tmp_path):
            pass
        if odd != "directory":
            with pytest.raises(ReadFault):
                lock_state(tmp_path)
    assert (open_descriptors(), sorted(os.listdir(tmp_path))) == before


def test_the_lock_of_a_directory_that_is_not_there_has_vanished(tmp_path: Path) -> None:
    with pytest.raises(FileVanished), lock_log_dir(tmp_path / "nothing"):
        pass
    with pytest.raises(FileVanished):
        lock_state(tmp_path / "nothing")


def test_a_lock_file_replaced_before_it_is_locked_is_not_relied_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, swaps = fcntl.lockf, iter([True])

    def swap_then_lock(descriptor: int, how: int) -> None:
        if next(swaps, False):
            (tmp_path / ".lock").unlink()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", swap_then_lock)
    with lock_log_dir(tmp_path):
        assert not is_free_for_another(tmp_path)


@pytest.mark.needs(root=True)
def test_a_new_lock_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    with lock_log_dir(tmp_path):
        found = (tmp_path / ".lock").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 12346, 0o644)


def test_a_lock_is_given_back_although_closing_its_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = os.close

    def closed_with_an_error(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with lock_log_dir(tmp_path):
        monkeypatch.setattr(os, "close", closed_with_an_error)
    monkeypatch.undo()
    assert lock_state(tmp_path) is None
    with lock_log_dir(tmp_path):
        assert lock_state(tmp_path) == os.getpid()


def test_a_lock_file_that_cannot_be_looked_at_is_not_said_to_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object) -> os.stat_result:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "lstat", refused)
    with pytest.raises(WriteFault, match="locking failed: Permission denied"), lock_log_dir(tmp_path):
        pass
