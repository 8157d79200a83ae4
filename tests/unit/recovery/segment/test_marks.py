"""A mark is taken only where it is proven that the bytes below it are the ones that the guard has read.

In each of these worlds something below the mark is wrong by now, and one circumstance tells so. A plan with marks has
to be the plan without them; and with the proof taken out it is another one, or the world would test nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.batches import batch_v2, legacy
from support.log_dirs import META, POINTS, checkpoint, name_of
from support.marking import BOOT, LATER_BOOT, fold_of, mark_of, marked_bytes, planned_with, planned_without, same

from checkpoint.markers import PARTITION_METADATA, encode_partition_metadata
from recovery.logdir.survey import Planned, plan_log_dir
from recovery.plan.findings import Damage
from recovery.plan.plan import PlanOptions
from recovery.segment import verify
from recovery.segment.marks import Mark
from recovery.segment.memory import Guarded, Memory
from recovery.segment.segment_files import SegmentFiles
from storage.disk.fs import OsFs

OPTIONS = PlanOptions(index_interval_bytes=150)
TOPIC_ID = bytes(range(16))
World = Callable[[Path, Mark], Mark]
WORLDS: dict[str, World] = {}


def world(function: World) -> World:
    WORLDS[function.__name__] = function
    return function


def batches(count: int = 12, payload: int = 100) -> list[bytes]:
    return [batch_v2(n, leader_epoch=1, payload=bytes([n]) * payload, count=1) for n in range(count)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the log of one segment, nothing of which is flushed."""
    top = tmp_path / "data"
    (top / "orders-0").mkdir(parents=True)
    (top / "meta.properties").write_bytes(META)
    (top / POINTS).write_bytes(checkpoint({"orders-0": 0}))
    (top / "orders-0" / PARTITION_METADATA).write_bytes(encode_partition_metadata(TOPIC_ID))
    (top / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n1 0\n")
    made = top / "orders-0" / name_of(0)
    put(made, batches())
    return made


def put(log: Path, parts: list[bytes], interval: int = 150) -> None:
    """Write a log in place, and the indexes that a broker keeps beside it."""
    with log.open("r+b" if log.exists() else "w+b") as file:
        file.write(b"".join(parts))
        file.truncate()
    write_indexes(log, interval)


def write_indexes(log: Path, interval: int = 150) -> None:
    offsets, times = fold_of(log, interval=interval).fold.take_indexes()
    log.with_suffix(".index").write_bytes(offsets + bytes(80))
    log.with_suffix(".timeindex").write_bytes(times + bytes(120))


def rot(log: Path, place: int = 70) -> None:
    """Make the first batch unsound; nothing else changes."""
    with log.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def marked(log: Path, count: int | None = 8, **more: object) -> Mark:
    made = mark_of(log, count, topic_id=TOPIC_ID.hex(), interval=150, **more)  # type: ignore[arg-type]
    assert made is not None
    return made


def plans(log: Path, mark: Mark, boot_id: str = BOOT, options: PlanOptions = OPTIONS) -> tuple[Planned, Planned]:
    top = log.parent.parent
    marks = {("orders-0", int(log.stem)): mark}
    return planned_with(top, options, marks, boot_id), planned_without(top, options)


def test_what_lies_below_a_mark_that_holds_is_not_read_again_and_the_plan_is_the_same(log: Path) -> None:
    mark = marked(log)
    with_marks, without = plans(log, mark)
    assert same(with_marks, without)
    assert (marked_bytes(with_marks), marked_bytes(without)) == (mark.position, 0)
    assert with_marks.plan.partitions[0].coverage.marked_age_ms == 4_000


def test_a_mark_at_the_very_end_of_a_log_holds(log: Path) -> None:
    with_marks, without = plans(log, marked(log, None))
    assert same(with_marks, without)
    assert marked_bytes(with_marks) == log.stat().st_size


def test_rot_below_a_mark_that_holds_is_left_to_the_scrubber(log: Path) -> None:
    mark, before = marked(log), planned_without(log.parent.parent, OPTIONS)
    rot(log)
    with_marks, without = plans(log, mark)
    assert without.plan.partitions[0].cuts
    assert [p.actions for p in with_marks.plan.partitions] == [p.actions for p in before.plan.partitions]


def test_a_mark_that_was_synced_holds_after_another_start_of_the_system(log: Path) -> None:
    mark = marked(log, is_durable=True)
    with_marks, without = plans(log, mark, LATER_BOOT)
    assert same(with_marks, without)
    assert marked_bytes(with_marks) == mark.position


# ---- what tells that a mark does not hold


@world
def topic_made_anew(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(topic_id="f" * 32)


@world
def topic_id_gone(log: Path, mark: Mark) -> Mark:
    rot(log)
    (log.parent / PARTITION_METADATA).unlink()
    return mark


@world
def topic_id_unreadable(log: Path, mark: Mark) -> Mark:
    rot(log)
    (log.parent / PARTITION_METADATA).write_bytes(b"rubbish")
    return mark


@world
def file_replaced_under_its_name(log: Path, mark: Mark) -> Mark:
    rot(log)
    copy = log.with_suffix(".copy")
    copy.write_bytes(log.read_bytes())
    copy.replace(log)
    return mark


@world
def other_device(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(device=mark.device + 1)


@world
def log_with_a_second_name(log: Path, mark: Mark) -> Mark:
    rot(log)
    os.link(log, log.parent.parent.parent / "second")
    return mark


@world
def mark_of_another_partition(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(directory="orders-1")


@world
def mark_of_another_segment(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(base_offset=7)


@world
def truncated_below_the_mark(log: Path, mark: Mark) -> Mark:
    os.truncate(log, mark.position - 30)
    return mark


@world
def truncated_and_appended_at_the_same_lengths(log: Path, mark: Mark) -> Mark:
    parts = batches()
    put(log, [*parts[:5], *(batch_v2(n, leader_epoch=2, payload=bytes([n]) * 100, count=1) for n in range(5, 12))])
    rot(log)
    return mark


@world
def last_batch_damaged_behind_its_header(log: Path, mark: Mark) -> Mark:
    rot(log, mark.position - 5)
    return mark


@world
def other_index_interval(log: Path, mark: Mark) -> Mark:
    write_indexes(log, 300)
    other = mark_of(log, 8, topic_id=TOPIC_ID.hex(), interval=300)
    assert other is not None
    rot(log)
    return other


@world
def other_index_size(log: Path, mark: Mark) -> Mark:
    other = mark_of(log, 8, topic_id=TOPIC_ID.hex(), interval=150, index_bytes=4096)
    assert other is not None
    rot(log)
    return other


@world
def system_started_since(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(boot_id=LATER_BOOT)


@world
def no_leader_epoch(log: Path, mark: Mark) -> Mark:
    put(log, [batch_v2(n, leader_epoch=-1) for n in range(12)])
    made = marked(log)
    rot(log, 65)
    return made


@world
def older_format(log: Path, mark: Mark) -> Mark:
    put(log, [legacy(0), *batches()[1:]])
    made = marked(log)
    rot(log, 30)
    return made


@world
def gap_of_compaction(log: Path, mark: Mark) -> Mark:
    put(log, [each for n, each in enumerate(batches()) if n != 3])
    made = marked(log)
    rot(log)
    return made


@world
def gap_at_the_base(log: Path, mark: Mark) -> Mark:
    put(log, batches()[1:])
    made = marked(log)
    rot(log)
    return made


@world
def leader_epochs_that_fall(log: Path, mark: Mark) -> Mark:
    put(log, [batch_v2(n, leader_epoch=2 if n == 3 else 1, payload=bytes([n]) * 100, count=1) for n in range(12)])
    made = marked(log)
    rot(log)
    return made


@world
def fold_damaged(log: Path, mark: Mark) -> Mark:
    rot(log)
    return mark._replace(fold=mark.fold[:-1] + b"?")


@world
def fold_of_more_bytes(log: Path, mark: Mark) -> Mark:
    fold = marked(log, 11).fold
    rot(log)
    return mark._replace(fold=fold)


@world
def hole_below_the_mark(log: Path, mark: Mark) -> Mark:
    put(log, batches(payload=9000))
    made, data = marked(log), log.read_bytes()
    with log.open("r+b") as file:
        file.truncate(0)
        file.truncate(len(data))
        file.seek(16384)
        file.write(data[16384:])
        file.flush()
        os.fsync(file.fileno())
        if os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0:
            pytest.skip("this file system tells no holes")
    return made


@pytest.mark.parametrize("name", WORLDS)
def test_a_mark_that_is_not_proven_changes_nothing(log: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = WORLDS[name](log, marked(log))
    with_marks, without = plans(log, mark)
    assert same(with_marks, without)
    assert marked_bytes(with_marks) == 0
    if name == "topic_id_unreadable":
        return  # nothing is even asked of a mark then
    monkeypatch.setattr(verify, "prove", lambda *_: None)
    try:
        blind, _ = plans(log, mark)
    except ValueError:
        return  # a fold that is none
    assert not same(blind, without) or marked_bytes(blind) > 0


# ---- the indexes, and what lies behind a mark


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


INDEXES: dict[str, Callable[[Path], object]] = {
    "an entry below the mark is wrong": lambda log: flip(log.with_suffix(".index"), 7),
    "a time below the mark is wrong": lambda log: flip(log.with_suffix(".timeindex"), 7),
    "the index is shorter than at the mark": lambda log: os.truncate(log.with_suffix(".index"), 8),
    "the time index is empty": lambda log: os.truncate(log.with_suffix(".timeindex"), 0),
    "the index is gone": lambda log: log.with_suffix(".index").unlink(),
    "the time index is gone": lambda log: log.with_suffix(".timeindex").unlink(),
}


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_does_not_begin_as_the_guard_saw_it_makes_all_be_read(
    log: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, [batch_v2(n, leader_epoch=1, payload=bytes(100), count=1, max_timestamp=10**12 + n) for n in range(12)])
    mark = marked(log)
    assert min(mark.index_size, mark.time_index_size) >= 12
    INDEXES[name](log)
    with_marks, without = plans(log, mark)
    assert same(with_marks, without)
    assert marked_bytes(with_marks) == 0
    assert without.plan.partitions[0].actions
    monkeypatch.setattr(verify, "known_indexes", as_they_lie)
    try:
        blind, _ = plans(log, mark)
    except (ValueError, FileNotFoundError):
        return  # they are not even as long
    assert not same(blind, without)


def as_they_lie(_: object, files: SegmentFiles, mark: Mark) -> tuple[bytes, bytes]:
    """Return the beginnings of both indexes as they are now: what a mark without digests would take."""
    paths, sizes = (files.index, files.time_index), (mark.index_size, mark.time_index_size)
    offsets, times = (Path(path).read_bytes()[:size] for path, size in zip(paths, sizes, strict=True))
    return offsets, times


def empty_from(log: Path, place: int) -> None:
    os.truncate(log, place)
    os.truncate(log, 4000)


def end_index(log: Path) -> None:
    index, size = log.with_suffix(".index"), mark_size(log)
    index.write_bytes(index.read_bytes()[:size] + bytes(80))


BEHIND: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "a torn batch": (True, lambda log: os.truncate(log, log.stat().st_size - 9)),
    "zero bytes": (True, lambda log: os.truncate(log, log.stat().st_size + 700)),
    "a whole log of zero bytes": (True, lambda log: empty_from(log, 8 * 161)),
    "an unsound batch": (False, lambda log: flip_in_place(log, 8 * 161 + 100)),
    "a batch twice": (False, lambda log: append(log, batches()[11])),
    "a batch out of order": (False, lambda log: append(log, batches()[3])),
    "garbage": (True, lambda log: append(log, b"garbage, and no batch at all" * 9)),
    "an index that is wrong behind the mark": (True, lambda log: flip(log.with_suffix(".index"), mark_size(log) + 7)),
    "an index of zero bytes behind the mark": (True, end_index),
    "a later batch with a gap": (True, lambda log: append(log, batch_v2(40, leader_epoch=1))),
    "a leader epoch that rises": (True, lambda log: append(log, batch_v2(12, leader_epoch=4))),
}  # fmt: skip


def flip_in_place(log: Path, place: int) -> None:
    rot(log, place)


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def mark_size(log: Path) -> int:
    return marked(log).index_size


@pytest.mark.parametrize("name", BEHIND)
def test_whatever_lies_behind_a_mark_is_found_as_without_it(log: Path, name: str) -> None:
    is_marked, change = BEHIND[name]
    mark = marked(log)
    change(log)
    with_marks, without = plans(log, mark)
    assert same(with_marks, without)
    assert (marked_bytes(with_marks) > 0) is is_marked
    assert list(without.plan.findings)


def test_more_damage_than_a_crash_leaves_makes_all_be_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that follows the only one below the mark does not fit; which of both is wrong, the whole log tells."""
    put(log, [batch_v2(0, leader_epoch=1), batch_v2(9, leader_epoch=1), *batches(5)[1:]])
    mark = marked(log, 1)
    assert same(*plans(log, mark))
    assert marked_bytes(plans(log, mark)[0]) == 0
    monkeypatch.setattr(verify, "_LEFT_BY_A_CRASH", tuple(Damage))
    assert marked_bytes(plans(log, mark)[0]) > 0


ASKED = {
    "depth": {"depth": "full"},
    "records": {"depth": "records"},
    "loss": {"accept_loss": True},
    "marker": {"clean_marker": True},
}


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_for_explicitly_is_read(log: Path, name: str) -> None:
    with_marks, without = plans(log, marked(log), options=OPTIONS._replace(**ASKED[name]))  # type: ignore[arg-type]
    assert same(with_marks, without)
    assert marked_bytes(with_marks) == 0


@pytest.mark.parametrize("name", ["__cluster_metadata-0", f"orders-0.{'a' * 32}-future", f"orders-0.{'a' * 32}-stray"])
def test_the_metadata_log_and_directories_on_their_way_are_read_whole(log: Path, name: str) -> None:
    mark = marked(log)._replace(directory=name)
    moved = log.parent.rename(log.parent.parent / name) / log.name
    top = moved.parent.parent
    with_marks = planned_with(top, OPTIONS, {(name, 0): mark})
    assert same(with_marks, planned_without(top, OPTIONS))
    assert marked_bytes(with_marks) == 0


def test_where_the_latest_mark_does_not_hold_the_durable_one_before_it_does(log: Path) -> None:
    top, durable = log.parent.parent, marked(log, 3, is_durable=True)
    marks = {("orders-0", 0): (marked(log), durable)}
    with_marks = plan_log_dir(OsFs(), top, OPTIONS, memory=Memory(Guarded(marks, LATER_BOOT)))
    assert same(with_marks, planned_without(top, OPTIONS))
    assert marked_bytes(with_marks) == durable.position
