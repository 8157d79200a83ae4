"""Marks beside a real broker under load: they come in time, hold after a kill, and are gone on from."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest
from confluent_kafka import Producer
from golden.golden import checkpoint
from interop.kafka_lab import Cluster
from support.guarding import POINTS, Told
from support.real_clock import RealClock
from support.waiting import until

from daemon.ends.following import doubt_about
from daemon.ends.tail import TailFile
from daemon.guard.guard import GuardWorker
from daemon.ledger.ledger import Ledger
from daemon.verify.options import GuardOptions, ScrubOptions
from recovery.segment.mark_store import read_marks
from recovery.segment.marks import Circumstances, Mark

pytestmark = [pytest.mark.slow, pytest.mark.deep]

TOPIC = "orders"
PARTITIONS = 4
CONFIG = {"log.segment.bytes": str(1 << 20), "log.flush.offset.checkpoint.interval.ms": "600000"}
"""Segments roll under load."""
BUSY = ScrubOptions(pressure_low=1000, pressure_high=1000)


class Guard:
    """A guard in a thread of its own, until `die`, which leaves everything as it is, or `stop`."""

    def __init__(self, log_dir: Path, state: Path) -> None:
        self.told, clock = Told(), RealClock()
        self.ledger = Ledger(PurePath(state), clock, self.told, "test")
        options = GuardOptions(BUSY, poll_seconds=1, mark_within_seconds=2, sync_within_seconds=5)
        self.worker = GuardWorker(log_dir, self.ledger, clock, self.told, options)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.worker.start()
        while not self._ending.is_set():
            self._ending.wait(min(self.worker.step(), 0.2))

    def exposed(self) -> int | None:
        """Return the bytes that no mark covers, None until all partitions are in the sums."""
        exposure = self.worker.status()[0].exposure
        return None if exposure is None else exposure.bytes

    def die(self) -> None:
        self._ending.set()
        self._thread.join()
        self.ledger.close()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        self.worker.stop()
        self.ledger.close()


class Load:
    """Produces to all partitions until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._to = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.01):
            for partition in range(PARTITIONS):
                for _ in range(20):
                    with contextlib.suppress(BufferError):  # the broker is slow: there is load enough
                        self._to.produce(TOPIC, bytes(1000), partition=partition)
            self._to.poll(0)

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()


def logs(log_dir: Path) -> dict[tuple[str, int], int]:
    """Return the sizes of all segments of the topic."""
    return {(log.parent.name, int(log.stem)): log.stat().st_size for log in log_dir.glob(f"{TOPIC}-*/*.log")}


def unflushed(log_dir: Path) -> set[tuple[str, int]]:
    """Return the segments from the recovery point on: those that a recovery reads."""
    points = checkpoint(log_dir / POINTS) if (log_dir / POINTS).exists() else {}
    there = logs(log_dir)
    return {
        (name, base)
        for name, base in there
        if not any(other == name and base < later <= points.get(name, 0) for other, later in there)
    }


def proven(log_dir: Path, state: Path, *, durable: bool = False) -> dict[tuple[str, int], Mark]:
    """Return of each segment the mark that a recovery takes, or with `durable` takes after a power cut."""
    kept: dict[tuple[str, int], Mark] = {}
    for key, marks in read_marks(state, log_dir).marks.items():
        for mark in marks:
            now = Circumstances(
                mark.directory, mark.topic_id, mark.index_interval_bytes, mark.max_index_size,
                "another" if durable else mark.boot_id,
            )  # fmt: skip
            with TailFile(PurePath(log_dir, mark.directory, f"{mark.base_offset:020d}.log")) as file:
                if key not in kept and doubt_about(mark, file, now) is None:
                    kept[key] = mark
    return {key: mark for key, mark in kept.items() if key[0].startswith(f"{TOPIC}-")}


def covers(log_dir: Path, marks: dict[tuple[str, int], Mark], sizes: dict[tuple[str, int], int]) -> bool:
    """Tell whether marks reach to these sizes of segments, as far as they are not flushed by now."""
    asked = {key: size for key, size in sizes.items() if size and key in unflushed(log_dir)}
    return all(key in marks and marks[key].position >= size for key, size in asked.items())


def test_marks_come_in_time_hold_after_a_kill_and_a_guard_that_was_killed_goes_on_from_them(
    kafka_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster, state = kafka_cluster(config=CONFIG), tmp_path / "state"
    cluster.create_topic(TOPIC, partitions=PARTITIONS)
    (log_dir,) = cluster[0].log_dirs
    guard = Guard(log_dir, state)
    load = Load(cluster.bootstrap)
    until(lambda: len(logs(log_dir)) >= 2 * PARTITIONS, 120)
    at_some_time = logs(log_dir)
    until(lambda: covers(log_dir, proven(log_dir, state), at_some_time), 120)
    until(
        lambda: covers(log_dir, proven(log_dir, state, durable=True), at_some_time),
        240,
        say=lambda: guard.told.all[-5:],
    )
    guard.die()
    again = Guard(log_dir, state)
    until(lambda: again.exposed() is not None, 60)
    assert again.told.named("mark_dropped") == []
    cluster[0].kill()
    load.stop()
    left = logs(log_dir)
    until(
        lambda: covers(
            log_dir, proven(log_dir, state), {key: size - 100_000 for key, size in left.items() if size > 100_000}
        ),
        60,
    )
    until(lambda: (again.exposed() or 0) < 100_000, 60)
    again.stop()
    assert again.told.named("mark_dropped") == []
    assert again.worker.status()[0].findings == ()
    for mark in proven(log_dir, state).values():
        assert mark.position <= left[mark.directory, mark.base_offset]
