"""A guard beside a real broker that produces, rolls, compacts, retains, moves, deletes: nothing is found that is not.

`LOGMEND_GUARD_SECONDS` says for how long; ten minutes are what a release takes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, Self

import pytest
from golden.golden import checkpoint
from interop.guard_load import CONFIG, STEADY, GuardLoad, produce_steadily
from interop.kafka_lab import Cluster, run_java
from support.guarding import POINTS, Told, flip, last_batch_of
from support.real_clock import RealClock
from support.waiting import until

from daemon.events.names import EVENTS
from daemon.guard.guard import GuardWorker
from daemon.guard.watch import Watcher
from daemon.ledger.ledger import Ledger
from daemon.verify.options import GuardOptions, ScrubOptions

pytestmark = [pytest.mark.slow, pytest.mark.deep]

SECONDS = float(os.environ.get("LOGMEND_GUARD_SECONDS", "25"))
SCRUB = ScrubOptions(
    cycle_seconds=15,
    confirm_seconds=2,
    census_seconds=1,
    pressure_high=1000,
    pressure_low=1000,
    index_interval_bytes=512,
)
WRITES = {"os.rename", "os.remove", "os.utime", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
          "os.mkdir", "os.rmdir", "os.setxattr"}  # fmt: skip


class WriteWatch:
    """Notes whatever this process does to a directory besides looking, as the interpreter itself reports it."""

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self.seen: list[tuple[str, Any]] = []
        self.opened = 0
        self._mine = threading.local()
        sys.addaudithook(self._hook)

    def mine(self) -> None:
        """Watch what the calling thread does."""
        self._mine.on = True

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.roots or not getattr(self._mine, "on", False):
            return
        if event == "open" and isinstance(args[0], str | os.PathLike):
            path, flags = os.fspath(args[0]), args[2]
            if str(path).startswith(self.roots):
                self.opened += 1
                if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                    self.seen.append((event, args))
        elif event in WRITES and any(str(arg).startswith(self.roots) for arg in args):
            self.seen.append((event, args))


class Guards:
    """A worker and a thread for each log directory, and one watcher."""

    def __init__(self, log_dirs: list[Path], state: Path, writes: WriteWatch) -> None:
        self.told, self.clock, self.writes = Told(), RealClock(), writes
        self.ledger = Ledger(PurePath(state), self.clock, self.told, "test")
        options = GuardOptions(SCRUB, verify_within_seconds=20, poll_seconds=1, broker_seconds=1, sync_within_seconds=5)
        self.workers = [GuardWorker(d, self.ledger, self.clock, self.told, options) for d in log_dirs]
        self._stopping, self._held = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(worker,)) for worker in self.workers]
        self.watcher = Watcher(log_dirs, self._changed, self.clock, 1.0, self.told)
        self.failed: list[BaseException] = []

    def _changed(self, paths: frozenset[PurePath]) -> None:
        for worker in self.workers:
            worker.wake(paths)

    def _run(self, worker: GuardWorker) -> None:
        self.writes.mine()
        try:
            worker.start()
            while not self._stopping.is_set():
                with self._held:
                    wait = worker.step()
                self._stopping.wait(min(wait, 0.2))
            worker.stop()
        except BaseException as error:
            self.failed.append(error)
            raise

    def __enter__(self) -> Self:
        self.watcher.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self.watcher.stop()
        self.ledger.close()

    def hold(self) -> threading.Lock:
        """Return what keeps the workers still while it is held."""
        return self._held

    def state(self, log: Path) -> str:
        """Return what is known of a segment, and what the scrubbers do."""
        rows = self.ledger.read(
            "SELECT s.* FROM segments s JOIN partitions p ON p.id = s.partition WHERE directory = ? AND base = ?",
            log.parent.name, int(log.stem),
        )  # fmt: skip
        scrubs = [worker.status()[0].scrub for worker in self.workers]
        return f"there: {log.exists()}; now: {self.clock.now_ms()}; {rows}; {scrubs}; {self.findings}; {self.failed}"

    @property
    def findings(self) -> list[Any]:
        return [finding for worker in self.workers for finding in worker.status()[0].findings]


@pytest.fixture(scope="module")
def writes() -> Iterator[WriteWatch]:
    watch = WriteWatch()
    yield watch
    watch.roots = ()


def move(cluster: Cluster, topic: str, partition: int, target: Path) -> None:
    """Move a replica to another log directory of its broker."""
    plan = {"version": 1, "partitions": [
        {"topic": topic, "partition": partition, "replicas": [0], "log_dirs": [str(target)]}
    ]}  # fmt: skip
    file = cluster.directory / "move.json"
    file.write_text(json.dumps(plan))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    where = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file), "--execute")
    run_java(cluster.version, cluster.directory, cluster.directory / "move.out", tool, *where)


def test_nothing_is_found_that_is_not_and_one_flipped_bit_is(
    kafka_cluster: Callable[..., Cluster], tmp_path: Path, writes: WriteWatch
) -> None:
    cluster = kafka_cluster(config=CONFIG, log_dirs=2)
    log_dirs = cluster[0].log_dirs
    load = GuardLoad(cluster)
    writes.roots = tuple(str(log_dir) for log_dir in log_dirs)
    with Guards(log_dirs, tmp_path / "state", writes) as guards:
        load.start()
        try:
            produce_steadily(cluster, 1500)
            home = next(d for d in log_dirs if (d / "orders-0").exists())
            move(cluster, "orders", 0, next(d for d in log_dirs if d != home))
            threading.Event().wait(SECONDS)
            assert_busy(guards, load)
            assert guards.findings == [], json.dumps([str(f) for f in guards.findings], indent=1)
            assert guards.told.named("finding_opened") == []
        finally:
            load.stop()
        check_flips(cluster, guards, next(d for d in log_dirs if (d / f"{STEADY}-0").exists()))
    assert guards.failed == []
    assert writes.opened > 100
    assert writes.seen == []
    assert guards.told.names() <= EVENTS.keys()


def assert_busy(guards: Guards, load: GuardLoad) -> None:
    """The zero counts only if there was something to see."""
    told = guards.told
    print(
        {name: len(told.named(name)) for name in sorted(told.names())}, load.produced, load.deleted,
        [(worker.status()[0].lag, worker.status()[0].scrub) for worker in guards.workers],
    )  # fmt: skip
    assert load.deleted >= 1
    for event in ("range_verified", "segment_verified", "partition_vanished", "broker_appeared"):
        assert told.named(event), event
    bases = {(f["topic"], f["partition"], f["base_offset"]) for f in told.named("segment_verified")}
    assert len(bases) > 20
    assert any(f["topic"] == "profiles" for f in told.named("segment_verified"))
    assert all(worker.status()[0].broker_pid for worker in guards.workers)


def check_flips(cluster: Cluster, guards: Guards, log_dir: Path) -> None:
    """Flip one bit in bytes that were just flushed, and one in bytes that were flushed long ago."""
    directory = log_dir / f"{STEADY}-0"
    point = checkpoint(log_dir / POINTS)[f"{STEADY}-0"]
    with guards.hold():  # or the guard is done with them before the bit is flipped
        produce_steadily(cluster, 400)
        until(lambda: checkpoint(log_dir / POINTS)[f"{STEADY}-0"] > point + 200, 120)
        log = max(log for log in directory.glob("*.log") if int(log.stem) <= point)
        position, size, base = last_batch_of(log, below=checkpoint(log_dir / POINTS)[f"{STEADY}-0"])
        assert base >= point
        flip(log, position + size - 3)
    until(lambda: any(f.path == log for f in guards.findings), 120)
    (new,) = [f for f in guards.findings if f.path == log]
    assert (new.topic, new.partition, new.kind, new.verdict) == (STEADY, 0, "batch_crc", "on disk")
    assert (new.position, new.first_offset) == (position, base)
    old = min(directory.glob("*.log"))
    flip(old, 200)
    until(lambda: any(f.path == old for f in guards.findings), 120, say=lambda: guards.state(old))
    (found,) = [f for f in guards.findings if f.path == old]
    assert (found.kind, found.verdict, found.severity) == ("batch_crc", "on disk", "damage")
    assert found.position <= 200 < found.position + found.size
    assert found.last_offset + 1 == found.next_good_offset
    assert {f.path for f in guards.findings} == {log, old}
