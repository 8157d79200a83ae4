"""Over random histories a recovery with marks comes to the plan of one without, whatever marks are left over."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.log_dirs import META, POINTS, checkpoint, name_of
from support.marking import BOOT, LATER_BOOT, fold_of, mark_of, marked_bytes, planned_with, planned_without, same
from support.mutate import KINDS

from checkpoint.markers import PARTITION_METADATA, encode_partition_metadata
from recovery.plan.plan import PlanOptions
from recovery.segment import verify
from recovery.segment.marks import Mark
from recovery.segment.segment_files import SegmentFiles

INTERVAL = 150
Key = tuple[str, int]


class Life:
    """One partition of a broker, its guard, and what both have left on the disk."""

    def __init__(self, top: Path, seed: int) -> None:
        self.top, self.directory, self.rng = top, top / "orders-0", random.Random(seed)
        self.marks: dict[Key, tuple[Mark, bytes]] = {}
        self.synced: dict[Path, int] = {}
        self.boot, self.clock, self.epoch, self.topics = BOOT, 1000, 1, 0
        top.mkdir()
        (top / "meta.properties").write_bytes(META)
        self.make_topic()

    def make_topic(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        self.topics, self.point, self.next, self.synced = self.topics + 1, 0, 0, {}
        self.topic_id = bytes([self.topics]) * 16
        (self.directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(self.topic_id))
        self.log = self.directory / name_of(0)
        self.log.touch()
        self.append()

    # ---- the broker

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            count = self.rng.randrange(1, 4)
            producer = self.rng.choice((-1, -1, 7))
            sequence = self.next if producer >= 0 else -1
            batch = batch_v2(
                self.next, leader_epoch=self.epoch, payload=self.rng.randbytes(self.rng.choice((40, 100, 300))),
                count=count, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
                max_timestamp=self.rng.choice((10**12, 10**12 + self.next)),
            )  # fmt: skip
            with self.log.open("ab") as file:
                file.write(batch)
            self.next += count

    def roll(self) -> None:
        if self.log.stat().st_size:
            self.log = self.directory / name_of(self.next)
            self.log.touch()

    def truncate(self) -> None:
        """Take batches away that another leader does not have, and follow it: maybe to the same length."""
        batches = cut(self.log.read_bytes())
        if batches:
            kept = self.rng.randrange(len(batches))
            with self.log.open("r+b") as file:
                file.truncate(sum(map(len, batches[:kept])))
            self.synced[self.log] = min(self.synced.get(self.log, 0), self.log.stat().st_size)
            self.next = offsets(batches[kept])[0]
            self.epoch += 1
            again = self.rng.random() < 0.5
            for batch in batches[kept:] if again else []:
                first, last = offsets(batch)
                other = batch_v2(
                    first, leader_epoch=self.epoch, payload=self.rng.randbytes(len(batch) - 61), count=last - first + 1
                )
                with self.log.open("ab") as file:
                    file.write(other)
                self.next = last + 1

    def compact(self) -> None:
        closed = sorted(self.directory.glob("*.log"))[:-1]
        if closed:
            log = self.rng.choice(closed)
            batches = [batch for batch in cut(log.read_bytes()) if self.rng.random() < 0.7]
            new = log.with_suffix(".new")
            new.write_bytes(b"".join(batches))
            new.replace(log)
            self.synced[log] = log.stat().st_size

    def retain(self) -> None:
        closed = sorted(self.directory.glob("*.log"))[:-1]
        if closed:
            for path in self.directory.glob(f"{closed[0].stem}.*"):
                path.unlink()

    def flush(self) -> None:
        for log in self.directory.glob("*.log"):
            self.synced[log] = log.stat().st_size
        self.point = self.rng.choice((int(self.log.stem), self.next))

    # ---- the guard

    def mark(self) -> None:
        for log in self.directory.glob("*.log"):
            self.clock += 1
            count = self.rng.choice((None, None, 1, 3))
            mark = mark_of(
                log, count, topic_id=self.topic_id.hex(), interval=INTERVAL, boot_id=self.boot, made_ms=self.clock
            )
            if mark is not None and self.rng.random() < 0.8:
                self.marks["orders-0", int(log.stem)] = (mark, log.read_bytes()[: mark.position])

    def sync(self) -> None:
        self.mark()
        for log in self.directory.glob("*.log"):
            self.synced[log] = log.stat().st_size
        for key, (mark, data) in self.marks.items():
            log = self.directory / name_of(key[1])
            if log.exists() and log.stat().st_ino == mark.inode and log.read_bytes()[: mark.position] == data:
                self.marks[key] = (mark._replace(is_durable=True), data)

    # ---- the end

    def crash(self) -> str:
        for log in self.directory.glob("*.log"):
            offsets, times = fold_of(log, interval=INTERVAL).fold.take_indexes()
            is_active = log == self.log
            log.with_suffix(".index").write_bytes(offsets + bytes(80 * is_active))
            log.with_suffix(".timeindex").write_bytes(times + bytes(120 * is_active))
        (self.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n1 0\n")
        (self.top / POINTS).write_bytes(checkpoint({"orders-0": self.point}))
        if self.rng.random() < 0.4:
            self.boot = LATER_BOOT
            for log in self.directory.glob("*.log"):
                self.lose(log)
        if self.rng.random() < 0.6:
            name = self.rng.choice(sorted(KINDS))
            KINDS[name](self.directory, self.rng)
            return name
        return ""

    def lose(self, log: Path) -> None:
        """Take what was not synced away, as a power cut does: cut, zero, or partly there."""
        data, synced = log.read_bytes(), self.synced.get(log, 0)
        place = self.rng.randrange(synced, len(data) + 1)
        end = self.rng.choice((place, len(data), len(data)))
        lost = data[:place] + bytes(end - place)
        if len(lost) > place + 64 and self.rng.random() < 0.5:
            lost = lost[: place + 64] + data[place + 64 :]
        with log.open("r+b") as file:
            file.write(lost)
            file.truncate(len(lost))


def cut(data: bytes) -> list[bytes]:
    batches, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        batches.append(data[at : at + size])
        at += size
    return batches


def offsets(batch: bytes) -> tuple[int, int]:
    first = int.from_bytes(batch[:8], "big")
    return first, first + int.from_bytes(batch[23:27], "big")


STEPS = ("append", "append", "append", "roll", "truncate", "compact", "retain", "flush", "mark", "mark", "sync", "sync")


def lived(top: Path, seed: int) -> tuple[Life, str]:
    life = Life(top, seed)
    for _ in range(life.rng.randrange(4, 25)):
        step = "make_topic" if life.rng.random() < 0.03 else life.rng.choice(STEPS)
        getattr(life, step)()
    return life, life.crash()


def is_rotten(life: Life) -> bool:
    """Tell whether bytes below a mark were changed in place, which no broker does: that is for the scrubber."""
    for (_, base), (mark, data) in life.marks.items():
        log = life.directory / name_of(base)
        if log.exists() and log.stat().st_ino == mark.inode and log.read_bytes()[: mark.position] != data:
            return True
    return False


def same_with_marks(top: Path, seed: int) -> tuple[bool, int, str]:
    life, damage = lived(top, seed)
    options = PlanOptions(index_interval_bytes=life.rng.choice((INTERVAL, INTERVAL, INTERVAL, INTERVAL, 300)))
    marks = {key: mark for key, (mark, _) in life.marks.items()}
    with_marks = planned_with(top, options, marks, life.boot)
    if damage and is_rotten(life):
        return True, 0, damage
    return same(with_marks, planned_without(top, options)), marked_bytes(with_marks), damage


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_plan_is_the_same_with_marks_and_without_whatever_has_happened(tmp_path: Path, first: int) -> None:
    seen = [same_with_marks(tmp_path / str(seed), seed) for seed in range(first, first + 20)]
    assert [seed for seed, (is_same, _, _) in enumerate(seen, first) if not is_same] == []
    assert any(size for _, size, _ in seen)


def test_without_the_proof_a_history_is_found_in_which_marks_change_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_there(mark: Mark, _: object, files: SegmentFiles, __: object) -> str | None:
        return "shorter" if files.log_stat.size < mark.position else None

    def any_bytes(_: object, __: object, mark: Mark) -> tuple[bytes, bytes]:
        return bytes(mark.index_size), bytes(mark.time_index_size)

    monkeypatch.setattr(verify, "prove", is_there)
    monkeypatch.setattr(verify, "known_indexes", any_bytes)
    assert not all(same_with_marks(tmp_path / str(seed), seed)[0] for seed in range(30))
