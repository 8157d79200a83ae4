"""Log directories on a real disk, and a clock, for whoever guards or scrubs them."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.batches import batch_v2

from checkpoint.uuids import encode_uuid
from daemon.guard.guard import GuardWorker
from daemon.ledger.disk import Disk
from daemon.ledger.ledger import Ledger
from daemon.scrub.scrub import Scrubber
from daemon.status.model import Clock
from daemon.verify.options import GuardOptions, ScrubOptions
from storage.base.rows import BatchRows
from storage.kernel.fold import SegmentFold
from storage.kernel.scan import scan_batches

START_MS = 1_790_000_000_000
POINTS = "recovery-point-offset-checkpoint"
DAY = 86_400.0
ORDERS = "orders-0"
"""The partition of tests that need only one: four segments, the last one active, all flushed up to it."""
FAST = ScrubOptions(cycle_seconds=3600, census_seconds=30)


class FakeClock:
    """Time that only `pass_` moves; `jump_ms` moves the time of day alone."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.seconds = 1000.0
        self._wall_ms = start_ms - 1_000_000
        self._turn = threading.Lock()

    def now_ms(self) -> int:
        return self._wall_ms + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pass_(seconds)

    def pass_(self, seconds: float) -> None:
        with self._turn:
            self.seconds += seconds

    def jump_ms(self, by: int) -> None:
        self._wall_ms += by


class Told:
    """Keeps the events it is told of; `names` are those that the product knows."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, object]]] = []

    def tell(self, event: str, **fields: object) -> None:
        self.all.append((event, fields))

    def named(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.all if name == event]

    def names(self) -> set[str]:
        return {name for name, _ in self.all}


def points(entries: Mapping[str, int]) -> str:
    """Return a checkpoint file."""
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {offset}" for name, offset in entries.items()]
    return "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines])


def indexes_of(base: int, log: bytes, *, interval: int = 4096) -> tuple[bytes, bytes]:
    """Return what belongs into `.index` and `.timeindex` beside a log."""
    rows, fold = BatchRows(8192), SegmentFold(base, index_interval_bytes=interval)
    scanned = scan_batches(memoryview(log), rows, next_offset=base)
    assert scanned.size == len(log)
    fold.add(rows, scanned.count)
    return fold.offset_index(), fold.time_index()


def batches(base: int, count: int, *, records: int = 10, leader_epoch: int = 0) -> bytes:
    """Return `count` batches of ten records each, from offset `base` on."""
    return b"".join(batch_v2(base + n * records, records, leader_epoch=leader_epoch) for n in range(count))


class Place:
    """A log directory that tests fill as a broker would. Segments hold 100 offsets, in ten batches."""

    PER_SEGMENT = 100

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: dict[str, int] = {}
        path.mkdir()
        (path / "meta.properties").write_text("version=0\nbroker.id=1\n")

    def directory(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str, base: int) -> Path:
        return self.path / name / f"{base:020d}.log"

    def make(self, name: str, segments: int, *, flushed: int | None = None) -> None:
        """Make a partition whose last segment is active; everything up to it, or `flushed`, is flushed."""
        self.directory(name).mkdir()
        topic_id = encode_uuid(os.urandom(16))
        (self.directory(name) / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        for number in range(segments):
            self.segment(name, number * self.PER_SEGMENT)
        self.points[name] = (segments - 1) * self.PER_SEGMENT if flushed is None else flushed
        self.write_points()

    def segment(self, name: str, base: int, data: bytes | None = None) -> None:
        log = batches(base, 10) if data is None else data
        index, time_index = indexes_of(base, log)
        self.log(name, base).write_bytes(log)
        self.log(name, base).with_suffix(".index").write_bytes(index)
        self.log(name, base).with_suffix(".timeindex").write_bytes(time_index)

    def append(self, name: str, base: int, data: bytes) -> None:
        with self.log(name, base).open("ab") as file:
            file.write(data)

    def flush(self, name: str, point: int) -> None:
        """Let the checkpoint say that everything below `point` is flushed."""
        self.points[name] = point
        self.write_points()

    def write_points(self) -> None:
        """Replace the checkpoint as a broker does."""
        new = self.path / f"{POINTS}.tmp"
        new.write_text(points(self.points))
        new.replace(self.path / POINTS)

    def flip(self, name: str, base: int, position: int) -> None:
        """Flip one bit of a log, leaving the modification time as it is."""
        flip(self.log(name, base), position)


def flip(path: Path, position: int) -> None:
    """Flip one bit, leaving the modification time as it is: rot does not say when it came."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))
        file.flush()
        os.fsync(file.fileno())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def last_batch_of(log: Path, *, below: int) -> tuple[int, int, int]:
    """Return position, size and base offset of the last whole batch that ends below an offset."""
    data, rows = log.read_bytes(), BatchRows(65536)
    scanned = scan_batches(memoryview(data), rows, next_offset=int(log.stem))
    row = max(n for n in range(scanned.count) if rows.last_offset[n] < below)
    return rows.position[row], rows.size[row], rows.base_offset[row]


def tree(path: Path) -> dict[str, tuple[int, ...]]:
    """Return what nobody may change: names, sizes, modes, modification times, inodes."""
    return {
        str(each.relative_to(path)): (s.st_size, s.st_mode, s.st_mtime_ns, s.st_ino, s.st_ctime_ns)
        for each in [path, *path.rglob("*")]
        for s in [each.stat()]
    }


class Guarded:
    """A guard worker on a place, with a clock that its `run` moves as it is told to wait."""

    def __init__(self, place: Place, state: Path, **options: Any) -> None:
        self.place, self.state = place, state
        self.clock, self.told = options.pop("clock", None) or FakeClock(), options.pop("told", None) or Told()
        self.disk = options.pop("disk", None) or Disk()
        self.draws = options.pop("draw", lambda: 0.5)
        self.pressure = options.pop("pressure", lambda: 0.0)
        scrub = options.pop("scrub", ScrubOptions())
        self.options = GuardOptions(scrub=scrub, **options)
        self.open()

    def open(self) -> None:
        self.ledger = Ledger(self.state, self.clock, self.told, "1.0")
        self.worker = GuardWorker(
            self.place.path, self.ledger, self.clock, self.told, self.options, disk=self.disk, draw=self.draws,
            pressure=self.pressure,
        )  # fmt: skip
        self.worker.start()

    def close(self) -> None:
        self.worker.stop()
        self.ledger.close()

    def run(self, seconds: float) -> None:
        """Let the worker work for so long, by its clock."""
        run(self.worker, self.clock, seconds)

    def scrub_now(self, seconds: float = 60) -> None:
        """Have everything read, and wait until it is."""
        self.worker.command("scrub-now")
        self.run(seconds)

    @property
    def verified(self) -> list[int]:
        """The base offsets of the segments that were verified, in that order."""
        return [int(str(fields["base_offset"])) for fields in self.told.named("segment_verified")]

    @property
    def status(self) -> Any:
        (status,) = self.worker.status()
        return status

    @property
    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.status.findings]


def run(worker: GuardWorker | Scrubber, clock: FakeClock, seconds: float) -> int:
    """Step for so long, by the clock; return how many steps it took."""
    end, steps = clock.monotonic() + seconds, 0
    while clock.monotonic() < end:
        wait = worker.step()
        assert wait >= 0
        clock.pass_(max(wait, 0.001))
        steps += 1
    return steps


def offsets(guarded: Guarded) -> list[tuple[Any, ...]]:
    return [(f.topic, f.partition, f.first_offset, f.last_offset) for f in guarded.status.findings]


def ranges(guarded: Guarded) -> list[tuple[Any, ...]]:
    return [(f["first_offset"], f["next_offset"]) for f in guarded.told.named("range_verified")]


def grow(place: Place, base: int, count: int = 5) -> None:
    """Append batches to the last segment and have them flushed."""
    place.append(ORDERS, 300, batches(base, count))
    place.flush(ORDERS, base + 10 * count)


_: type[Clock] = FakeClock
