"""What the watcher hears, and what it finds out where nothing can be heard."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pytest
from support.guarding import POINTS, Told
from support.real_clock import RealClock
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from daemon.guard.watch import Watcher

PATIENCE = 30.0


class Heard:
    """Collects what is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.calls: list[frozenset[PurePath]] = []
        self._news = threading.Condition()

    def __call__(self, paths: frozenset[PurePath]) -> None:
        with self._news:
            self.calls.append(paths)
            self._news.notify_all()

    def hears(self, path: Path) -> bool:
        """Return whether a path is reported, within some patience."""
        with self._news:
            return self._news.wait_for(lambda: any(path in call for call in self.calls), PATIENCE)

    def forget(self) -> None:
        with self._news:
            self.calls.clear()


def replace_checkpoint(log_dir: Path, text: str) -> None:
    new = log_dir / f"{POINTS}.tmp"
    new.write_text(text)
    new.replace(log_dir / POINTS)


Start = Callable[..., Watcher]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def start(heard: Heard) -> Iterator[Start]:
    started: list[Watcher] = []

    def begin(*paths: Path, told: Told | None = None, poll_seconds: float = 3600.0, **options: object) -> Watcher:
        watcher = Watcher(paths, heard, RealClock(), poll_seconds, told or Told(), **options)  # type: ignore[arg-type]
        watcher.start()
        started.append(watcher)
        return watcher

    yield begin
    for watcher in started:
        watcher.stop()


def test_a_checkpoint_that_is_renamed_over_is_heard_of(start: Start, heard: Heard, tmp_path: Path) -> None:
    start(tmp_path)
    replace_checkpoint(tmp_path, "0\n0\n")
    assert heard.hears(tmp_path / POINTS)


def test_a_checkpoint_that_is_written_in_place_is_heard_of(start: Start, heard: Heard, tmp_path: Path) -> None:
    (tmp_path / POINTS).write_text("0\n0\n")
    start(tmp_path)
    (tmp_path / POINTS).write_text("0\n1\na 0 1\n")
    assert heard.hears(tmp_path / POINTS)


def test_a_burst_is_told_of_in_few_calls_and_never_forgets_the_last(start: Start, heard: Heard, tmp_path: Path) -> None:
    start(tmp_path)
    for number in range(200):
        replace_checkpoint(tmp_path, f"0\n1\na 0 {number}\n")
    assert heard.hears(tmp_path / POINTS)
    heard.forget()
    replace_checkpoint(tmp_path, "0\n1\na 0 9999\n")
    assert heard.hears(tmp_path / POINTS)
    assert len(heard.calls) < 20


def test_what_happens_in_partitions_is_not_listened_to(start: Start, heard: Heard, tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    watcher = start(tmp_path)
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"x")
    (tmp_path / "anything").write_bytes(b"x")
    replace_checkpoint(tmp_path, "0\n0\n")
    assert heard.hears(tmp_path / POINTS)
    assert {path for call in heard.calls for path in call} == {tmp_path / POINTS}
    assert watcher.is_watching == {tmp_path}


def test_ten_thousand_partitions_need_one_watch(start: Start, tmp_path: Path) -> None:
    made: list[BaseObserver] = []

    def make() -> BaseObserver:
        made.append(Observer())
        return made[0]

    for number in range(300):
        (tmp_path / f"orders-{number}").mkdir()
    start(tmp_path, make_observer=make)
    assert len(made[0].emitters) == 1
    assert [emitter.watch.is_recursive for emitter in made[0].emitters] == [False]


def test_a_poll_finds_what_no_event_told(start: Start, heard: Heard, tmp_path: Path) -> None:
    (tmp_path / POINTS).write_text("0\n0\n")
    watcher = start(tmp_path, poll_only=True, poll_seconds=0.05)
    assert heard.hears(tmp_path / POINTS)
    heard.forget()
    replace_checkpoint(tmp_path, "0\n1\na 0 1\n")
    assert heard.hears(tmp_path / POINTS)
    assert watcher.is_watching == frozenset()
    assert watcher.beat() > 0


def test_the_same_size_and_time_under_another_inode_is_a_change(heard: Heard, tmp_path: Path) -> None:
    watcher = Watcher([tmp_path], heard, RealClock(), 3600, Told(), poll_only=True)
    (tmp_path / POINTS).write_text("0\n0\n")
    watcher.poll()
    assert watcher.poll() == frozenset()
    stat = (tmp_path / POINTS).stat()
    new = tmp_path / "new"
    new.write_text("0\n0\n")

    os.utime(new, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    new.replace(tmp_path / POINTS)
    assert watcher.poll() == {tmp_path / POINTS}


class Refusing:
    """An observer without watches left."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self) -> None: ...

    def schedule(self, *args: object, **options: object) -> object:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")


def test_where_the_limit_of_watches_is_reached_it_looks_instead_and_says_so_once(
    start: Start, heard: Heard, tmp_path: Path
) -> None:
    told = Told()
    (tmp_path / POINTS).write_text("0\n0\n")
    start(tmp_path, told=told, poll_seconds=0.05, make_observer=Refusing)
    assert heard.hears(tmp_path / POINTS)
    for number in range(3):
        heard.forget()
        replace_checkpoint(tmp_path, f"0\n1\na 0 {number}\n")
        assert heard.hears(tmp_path / POINTS)
    (fields,) = told.named("watch_degraded")
    assert fields["log_dir"] == tmp_path
    assert "watch limit" in str(fields["reason"])


def test_where_no_instance_is_left_it_looks_instead(start: Start, heard: Heard, tmp_path: Path) -> None:
    def make() -> BaseObserver:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    told = Told()
    (tmp_path / POINTS).write_text("0\n0\n")
    start(tmp_path, told=told, poll_seconds=0.05, make_observer=make)
    assert heard.hears(tmp_path / POINTS)
    assert len(told.named("watch_degraded")) == 1


def test_a_directory_that_goes_and_comes_again_is_heard_again(start: Start, heard: Heard, tmp_path: Path) -> None:
    log_dir, away = tmp_path / "data", tmp_path / "away"
    log_dir.mkdir()
    watcher = start(log_dir, poll_seconds=0.05)
    assert heard.hears(log_dir)
    log_dir.rename(away)
    heard.forget()
    heard_gone = log_dir
    assert heard.hears(heard_gone)
    log_dir.mkdir()  # another one, as after a mount
    heard.forget()
    while watcher.poll() or not watcher.is_watching:
        pass
    replace_checkpoint(log_dir, "0\n0\n")
    assert heard.hears(log_dir / POINTS)


def test_one_that_is_not_there_yet_is_waited_for(start: Start, heard: Heard, tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    watcher = start(log_dir, poll_seconds=0.05)
    assert watcher.is_watching == frozenset()
    log_dir.mkdir()
    assert heard.hears(log_dir)
    replace_checkpoint(log_dir, "0\n0\n")
    assert heard.hears(log_dir / POINTS)


def test_nothing_is_told_after_the_end(heard: Heard, tmp_path: Path) -> None:
    watcher = Watcher([tmp_path], heard, RealClock(), 0.05, Told())
    watcher.start()
    watcher.stop()
    heard.forget()
    replace_checkpoint(tmp_path, "0\n0\n")
    assert heard.calls == []
    assert not any(thread.name == "watch" for thread in threading.enumerate())
