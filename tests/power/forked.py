"""Cuts the power of a real file system under code of ours that runs in a process made by `fork`.

Faster by far than the real command under strace (`powercut.py`), since no interpreter has to start: the child counts
the effects that reach the disk, and stops for ever before or behind the one that it was told. Then the file system is
shut down, the child killed, the image mounted again, and what remains is judged by the parent, who was told what the
child had promised: the ledger lies outside.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import select
import shutil
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.engine_steps import LATER, OPTIONS, STEPS, Machine, Promises, begun, opened, promises_of_begun
from power.disk import Disk, mounted
from support.faults import DAMAGES, ROLL, ROLLED, check_end, check_nothing_is_lost, read_tree, write_tree
from support.log_dirs import Files
from support.recovering import plan, recover

from recovery.apply import together
from storage.disk.fs import OsFs, OsWriteFile
from storage.disk.volume import OsVolume

CHANGES = [
    "create",
    "truncate",
    "rename",
    "link",
    "remove",
    "make_dir",
    "remove_dir",
    "set_mtime",
    "sync_file",
    "sync_dir",
]
EFFECTS = [
    *((OsFs, name) for name in CHANGES),
    *((OsWriteFile, name) for name in ("append", "sync")),
    (OsVolume, "sync"),
]
SECONDS = 120
WEIGHTS = {"append": 12, "flush": 4, "roll": 3, "compact": 3, "retain": 2, "truncate": 2, "restart": 2}
"""How often a step of the engine is drawn; the others once."""


class Stop:
    """Counts effects in a child, and ends at the one of this number; 0 counts only."""

    def __init__(self, number: int, *, behind: bool, tell: Callable[[], object]) -> None:
        self.number, self.behind, self.tell = number, behind, tell
        self.count, self._turn = 0, threading.Lock()

    def arm(self) -> None:
        for owner, name in EFFECTS:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._turn:
                self.count += 1
                is_it = self.count == self.number
                if is_it and not self.behind:
                    self._end()
            try:
                return real(*arguments, **named)
            finally:
                if is_it:
                    with self._turn:
                        self._end()

        return call

    def _end(self) -> None:
        self.tell()
        while True:  # whoever wants the turn waits as well: nothing more begins
            signal.pause() if threading.current_thread() is threading.main_thread() else threading.Event().wait()


def in_child(
    work: Callable[[Stop], None], number: int, *, behind: bool, facts: Callable[[], object]
) -> tuple[int, Any]:
    """Fork; do `work` in the child up to its effect `number` or its end; return its process, and what it told.

    The child stops by itself; whoever calls kills it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            ready, _, _ = select.select([pipe], [], [], SECONDS)
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise AssertionError("the child neither stops nor ends")
            told = pickle.load(pipe)
        return child, told

    def tell(failure: str = "") -> None:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump((failure, stop.count, facts()), pipe)

    stop = Stop(number, behind=behind, tell=tell)
    try:
        stop.arm()
        work(stop)
        stop._end()
    except BaseException:  # noqa: BLE001 (told to the parent)
        tell(traceback.format_exc())
        signal.pause()
    os._exit(1)


def let_go(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def sync_disk(place: Path) -> None:
    """Make durable what is on this file system, and leave all others alone."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


@dataclass
class NoCut:
    """A directory whose file system goes on: only the process is killed, and all that it wrote is there."""

    place: Path

    def cut_power(self, flag: int) -> None: ...

    def unmount(self) -> None: ...

    def mount(self) -> None: ...


@dataclass
class Cutter:
    """One kind of work on one disk, cut again and again."""

    disk: Disk | NoCut
    rng: random.Random
    cuts: int = 0
    left_to_do: int = 0
    at_end: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """In which step of the engine the power went."""

    @property
    def home(self) -> Path:
        return self.disk.place / "data"

    def cycle(self) -> None:
        """Cut once, and judge."""
        raise NotImplementedError

    def clear(self) -> None:
        for path in self.disk.place.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def cut(self, work: Callable[[Stop], None], number: int, facts: Callable[[], object]) -> tuple[Any, str]:
        """Cut the power at an effect of `work`; return what the child knew, and the story."""
        behind = self.rng.random() < 0.7
        child, (failure, count, told) = in_child(work, number, behind=behind, facts=facts)
        noise, flag = self.rng.choice(["none", "none", "some", "all"]), self.rng.choice([2, 2, 2, 1])
        try:
            assert not failure, failure
            self.write_back(noise)
            self.disk.cut_power(flag)
        finally:
            let_go(child)
        self.disk.unmount()
        self.disk.mount()
        self.cuts += 1
        self.at_end += count < number
        return told, f"{'behind' if behind else 'before'} effect {number} of {count}, noise {noise}, flag {flag}"

    def write_back(self, noise: str) -> None:
        """Let some of what was written reach the disk without anybody's sync, as happens at any time."""
        if noise == "all":
            sync_disk(self.disk.place)
        elif noise == "some":
            files = sorted(path for path in self.home.rglob("*") if path.is_file() and path.name != ".lock")
            for path in self.rng.sample(files, len(files) // 3):
                with path.open("rb") as file:
                    os.fsync(file.fileno())


class EngineCutter(Cutter):
    """Random steps of a log manager."""

    start: Files | None = None

    def cycle(self) -> None:
        self.clear()
        if self.start is None:
            self.start = begun().contents("/data")
        write_tree(self.home, self.start)
        sync_disk(self.disk.place)
        seed = self.rng.randrange(1 << 30)
        machine = Machine(OsFs(), promises_of_begun(), written=3, home=self.home)
        done: list[str] = []

        def work(stop: Stop) -> None:
            rng = random.Random(seed)
            machine.open()
            names, weights = list(STEPS), [WEIGHTS.get(name, 1) for name in STEPS]
            while len(done) < 40:
                name = rng.choices(names, weights)[0] if machine.can("append") else rng.choice(["create", "restart"])
                done.append(name)
                STEPS[name](machine)

        told, story = self.cut(work, self.rng.randint(1, 300), lambda: (machine.promises, done))
        promises, steps = told
        self.seen.update(steps[-1:])
        try:
            self.judge(promises)
        except Exception as error:
            raise AssertionError(f"{story}: {', '.join(steps)}: {type(error).__name__}: {error}") from error

    def judge(self, promises: Promises) -> None:
        if isinstance(self.disk, NoCut):  # what was said was written, and is there whether it was flushed or not
            promises.flushed = max(promises.said, default=promises.flushed - 1) + 1
        # A recovery that was cut off is made again with the same plan, and writes its manifest anew.
        before = {name: data for name, data in read_tree(self.home).items() if not name.endswith(".logmend.json")}
        self.left_to_do += not plan(self.home, OPTIONS).is_empty
        recover(self.home, OPTIONS)
        check_nothing_is_lost(self.home, before)
        assert plan(self.home, OPTIONS).is_empty
        with opened(OsFs(), self.home) as manager:
            promises.judge(manager)
            assert manager.retain(LATER) == []
            assert manager.compact(LATER) == []


class CommandCutter(Cutter):
    """`recover` or `quarantine restore`, by the functions that the commands call."""

    command: str = "recover"
    fewest: int = together._FEWEST

    def cycle(self) -> None:
        from cli.main import main  # noqa: PLC0415 (what is cut is imported by whoever cuts it)

        name = self.rng.choice(sorted(DAMAGES))
        before = DAMAGES[name]
        self.clear()
        write_tree(self.home, before)
        plan_id = plan(self.home).plan_id
        words = ["recover", "-j", "1", *ROLL, str(self.home)]
        if self.command == "restore":
            recover(self.home)
            words = ["quarantine", "restore", "--plan", plan_id, str(self.home)]
        sync_disk(self.disk.place)

        def work(stop: Stop) -> None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            together._FEWEST = self.fewest  # in the child alone
            status = main(words)
            assert status == 0, status

        _, story = self.cut(work, self.rng.randint(1, 60 if self.command == "recover" else 30), lambda: None)
        try:
            self.judge(before, name)
        except Exception as error:
            raise AssertionError(f"{self.command}, {name}, {story}: {error}") from error

    def judge(self, before: Files, name: str) -> None:
        if self.command == "recover":
            check_nothing_is_lost(self.home, before)
            self.left_to_do += not plan(self.home).is_empty
            check_end(self.home, before, self.wanted(name), ROLLED)
            return
        from recovery.evidence.kept import find_kept  # noqa: PLC0415
        from recovery.evidence.quarantine import restore  # noqa: PLC0415

        kept, bad = find_kept(OsFs(), [self.home])
        assert bad == []
        if kept:
            self.left_to_do += 1
            restore(OsFs(), kept)
        assert read_tree(self.home) == before, "what was put back is not what there was"

    def wanted(self, name: str) -> Files:
        if name not in _WANTED:
            from support.faults import recovered  # noqa: PLC0415

            _WANTED[name] = recovered(DAMAGES[name], self.disk.place.parent / "undisturbed", ROLLED)
        return _WANTED[name]


_WANTED: dict[str, Files] = {}


class TogetherCutter(CommandCutter):
    """`recover` that syncs the whole file system, as it does where there is much to be done."""

    fewest = 1


class RestoreCutter(CommandCutter):
    """`quarantine restore`."""

    command = "restore"


CUTTERS: dict[str, type[Cutter]] = {
    "engine": EngineCutter,
    "recover": CommandCutter,
    "together": TogetherCutter,
    "restore": RestoreCutter,
}


def cut_forked(kind: str, what: str, count: int, seed: int, directory: Path) -> Cutter:
    """Cut the power `count` times; raises `AssertionError` with what was done where something does not hold."""
    with mounted(kind, directory) as disk:
        cutter = CUTTERS[what](disk, random.Random(f"{kind}-{what}-{seed}"))
        for number in range(count):
            try:
                cutter.cycle()
            except AssertionError as error:
                raise AssertionError(f"cut {number} of seed {seed}: {error}") from error
    return cutter
