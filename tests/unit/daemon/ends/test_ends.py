"""The guard follows the ends of logs, and marks how far a recovery need not read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import batch_v2
from support.guarding import ORDERS as NAME
from support.guarding import POINTS, Guarded, Place, batches, tree
from support.waiting import until

from daemon.ends.tail import TailFile
from daemon.events.names import EVENTS
from recovery.segment.mark_store import read_marks
from recovery.segment.marks import FILE_NAME, Mark

BATCH = len(batch_v2(0, 10))


@pytest.fixture
def guarded(place: Place, tmp_path: Path) -> Iterator[Guarded]:
    made = opened(place, tmp_path)
    yield made
    assert made.kinds == []
    for event, fields in made.told.all:
        assert fields.keys() <= set(EVENTS[event].fields), event
    made.close()


def opened(place: Place, tmp_path: Path, **options: Any) -> Guarded:
    made = Guarded(place, tmp_path / "state", **{"mark_within_seconds": 5.0, "sync_within_seconds": 0.0} | options)
    made.run(5)
    return made


def marks(guarded: Guarded, base: int = 300) -> tuple[Mark, ...]:
    """Return the marks that a recovery would get now."""
    return read_marks(guarded.state, guarded.place.path).marks.get((NAME, base), ())


def position(guarded: Guarded, base: int = 300) -> int:
    return max((mark.position for mark in marks(guarded, base)), default=0)


def size(place: Place, base: int = 300) -> int:
    return place.log(NAME, base).stat().st_size


def rewrite(place: Place, keep: int, data: bytes) -> None:
    """Truncate the active log and append other bytes, as a follower does."""
    with place.log(NAME, 300).open("r+b") as file:
        file.truncate(keep)
    place.append(NAME, 300, data)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Name, position and size of every read of more than a header and a last batch."""
    seen: list[tuple[str, int, int]] = []
    whole = TailFile.read_into

    def read_into(self: TailFile, start: int, target: memoryview) -> int:
        if len(target) > BATCH:
            seen.append((self.path.name, start, len(target)))
        return whole(self, start, target)

    monkeypatch.setattr(TailFile, "read_into", read_into)
    return seen


# ---- what is marked


def test_what_is_appended_is_marked_within_five_seconds(guarded: Guarded, place: Place) -> None:
    assert position(guarded) == size(place)
    place.append(NAME, 300, batches(400, 5))
    guarded.run(5)
    (latest,) = marks(guarded)
    assert (latest.position, latest.next_offset, latest.is_durable) == (size(place), 450, False)


def test_no_byte_is_read_twice_while_a_log_grows_nor_after_a_restart(
    place: Place, tmp_path: Path, reads: list[tuple[str, int, int]]
) -> None:
    guarded = opened(place, tmp_path)
    for base in (400, 450):
        place.append(NAME, 300, batches(base, 5))
        guarded.run(5)
    guarded.close()
    again = opened(place, tmp_path)
    place.append(NAME, 300, batches(500, 5))
    again.run(5)
    name = place.log(NAME, 300).name
    assert [read for read in reads if read[0] == name] == [
        (name, 0, 10 * BATCH), (name, 10 * BATCH, 5 * BATCH), (name, 15 * BATCH, 5 * BATCH),
        (name, 20 * BATCH, 5 * BATCH),
    ]  # fmt: skip
    assert position(again) == size(place)
    again.close()


def test_a_batch_that_is_being_written_waits_for_its_end(guarded: Guarded, place: Place) -> None:
    batch = batch_v2(400, 10)
    before = size(place)
    place.append(NAME, 300, batch[:40])
    guarded.run(5)
    assert position(guarded) == before
    assert guarded.status.exposure.bytes == 40
    place.append(NAME, 300, batch[40:])
    guarded.run(5)
    assert position(guarded) == size(place)
    assert guarded.status.exposure.bytes == 0


def test_zero_bytes_of_a_preallocated_log_are_an_end(guarded: Guarded, place: Place) -> None:
    with place.log(NAME, 300).open("r+b") as file:
        file.truncate(size(place) + 100_000)
    guarded.run(30)
    assert position(guarded) == 10 * BATCH
    with place.log(NAME, 300).open("r+b") as file:
        file.seek(10 * BATCH)
        file.write(batches(400, 5))
    guarded.run(90)
    assert position(guarded) == 15 * BATCH


def test_a_batch_larger_than_any_window_is_marked(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batch_v2(400, 1, payload=os.urandom(9 << 20)) + batches(401, 2))
    guarded.run(10)
    assert position(guarded) == size(place)


def test_a_log_that_rolls_is_followed_into_its_next_segments_and_marks_below_the_point_go(
    guarded: Guarded, place: Place
) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.segment(NAME, 450, batches(450, 3))
    guarded.run(10)
    assert (position(guarded), position(guarded, 450)) == (size(place), size(place, 450))
    place.flush(NAME, 450)
    guarded.run(10)
    assert (position(guarded), position(guarded, 450)) == (0, size(place, 450))


def test_segments_below_the_recovery_point_are_not_read(guarded: Guarded) -> None:
    assert [position(guarded, base) for base in (0, 100, 200)] == [0, 0, 0]


def test_a_log_without_leader_epochs_is_not_marked(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batch_v2(400, 10, leader_epoch=-1))
    guarded.run(10)
    assert position(guarded) <= 10 * BATCH


def test_before_a_broker_has_written_its_first_checkpoint_logs_are_followed_from_their_last_segment_on(
    place: Place, tmp_path: Path
) -> None:
    (place.path / POINTS).unlink()
    guarded = opened(place, tmp_path)
    place.segment(NAME, 400, batches(400, 3))
    guarded.run(10)
    assert [position(guarded, base) for base in (200, 300, 400)] == [0, size(place), size(place, 400)]
    guarded.close()


# ---- what a broker does


def test_a_truncated_log_is_read_again_and_what_took_the_place_is_marked(guarded: Guarded, place: Place) -> None:
    rewrite(place, 5 * BATCH, batches(350, 10, leader_epoch=1))
    guarded.run(10)
    (mark,) = marks(guarded)
    assert (mark.position, mark.next_offset) == (size(place), 450)
    assert len(guarded.told.named("mark_dropped")) == 1


def test_bytes_of_the_same_size_that_took_the_place_of_others_are_noticed(guarded: Guarded, place: Place) -> None:
    before = marks(guarded)[0]
    rewrite(place, 9 * BATCH, batches(390, 1, leader_epoch=1))
    guarded.run(5)
    assert marks(guarded)[0].position == before.position
    assert marks(guarded)[0].header != before.header


def test_a_truncation_in_the_middle_of_a_piece_leaves_no_mark_of_two_histories(
    guarded: Guarded, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of the piece was read before the truncation, the second after it."""
    whole, done = TailFile.read_into, []

    def read_into(self: TailFile, start: int, target: memoryview) -> int:
        count = whole(self, start, target)
        if start == 10 * BATCH and len(target) == 2 * BATCH and not done:
            done.append(start)
            rewrite(place, 10 * BATCH, batches(400, 2, leader_epoch=2))
            target[BATCH:] = batches(410, 1, leader_epoch=2)
        return count

    monkeypatch.setattr(TailFile, "read_into", read_into)
    place.append(NAME, 300, batches(400, 2))
    guarded.run(5)
    assert done
    assert not [mark for mark in marks(guarded) if mark.next_offset > 400]
    guarded.run(70)
    other = guarded.state.parent / "other"
    other.mkdir()
    honest = opened(place, other)
    assert [mark._replace(made_ms=0) for mark in marks(guarded)] == [mark._replace(made_ms=0) for mark in marks(honest)]
    honest.close()


def test_a_topic_that_was_deleted_and_made_anew_begins_without_a_mark(guarded: Guarded, place: Place) -> None:
    before = marks(guarded)[0]
    place.directory(NAME).rename(place.path / f"{NAME}.0123456789abcdef0123456789abcdef-delete")
    guarded.run(10)
    assert marks(guarded) == ()
    place.make(NAME, 1, flushed=0)
    guarded.run(10)
    (mark,) = marks(guarded, 0)
    assert mark.topic_id not in (None, before.topic_id)
    assert mark.position == size(place, 0)


def test_a_compacted_log_has_no_mark_where_offsets_are_missing(guarded: Guarded, place: Place) -> None:
    swap = place.log(NAME, 300).with_suffix(".swap")
    swap.write_bytes(batches(300, 2) + batches(380, 2))
    swap.replace(place.log(NAME, 300))
    guarded.run(200)
    assert marks(guarded) == ()


def test_a_partition_that_appears_is_followed_and_one_that_vanishes_is_forgotten(
    guarded: Guarded, place: Place
) -> None:
    place.make("later-3", 1, flushed=0)
    guarded.run(10)
    found = read_marks(guarded.state, place.path).marks
    assert set(found) == {(NAME, 300), ("later-3", 0)}
    shutil.rmtree(place.directory("later-3"))
    guarded.run(10)
    assert set(read_marks(guarded.state, place.path).marks) == {(NAME, 300)}


# ---- the guard itself


def test_the_guard_changes_nothing_below_the_log_directory(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    before = tree(place.path)
    guarded.run(20)
    assert position(guarded) == size(place)
    assert tree(place.path) == before


def test_only_a_mark_made_before_a_sync_is_durable(place: Place, tmp_path: Path) -> None:
    guarded = opened(place, tmp_path, sync_within_seconds=10.0)

    def is_durable_at(wanted: int) -> bool:
        guarded.run(1)
        return any(mark.position == wanted for mark in marks(guarded) if mark.is_durable)

    until(lambda: is_durable_at(10 * BATCH))
    assert guarded.status.exposure.power_bytes == 0
    place.append(NAME, 300, batches(400, 5))
    guarded.run(4)
    assert guarded.status.exposure.power_bytes in (0, 5 * BATCH)
    until(lambda: is_durable_at(15 * BATCH))
    guarded.close()


def test_without_syncs_no_mark_is_durable(guarded: Guarded) -> None:
    guarded.run(300)
    assert [mark.is_durable for mark in marks(guarded)] == [False]
    assert guarded.status.exposure.power_bytes == guarded.status.exposure.marked_bytes


def test_without_marks_there_is_no_exposure_to_show(place: Place, tmp_path: Path) -> None:
    guarded = opened(place, tmp_path, mark_within_seconds=0.0)
    assert guarded.status.exposure is None
    assert not (guarded.state / FILE_NAME).exists()
    guarded.close()


def test_a_small_truncation_goes_on_from_the_durable_mark(
    place: Place, tmp_path: Path, reads: list[tuple[str, int, int]]
) -> None:
    guarded = opened(place, tmp_path, sync_within_seconds=600.0)
    until(lambda: guarded.run(1) is None and any(mark.is_durable for mark in marks(guarded)))
    place.append(NAME, 300, batches(400, 5))
    guarded.run(5)
    reads.clear()
    rewrite(place, 12 * BATCH, batches(420, 6, leader_epoch=1))
    guarded.run(10)
    assert position(guarded) == size(place)
    assert min(start for name, start, _ in reads if name == place.log(NAME, 300).name) == 10 * BATCH
    guarded.close()


def test_what_cannot_be_written_is_told_once_and_written_later(place: Place, tmp_path: Path) -> None:
    guarded = opened(place, tmp_path)
    store = guarded.worker._ends._keeper
    store.close()
    path = PurePath(guarded.state) / FILE_NAME
    Path(path).unlink()
    Path(path).mkdir()
    for base in (400, 410):
        place.append(NAME, 300, batches(base, 1))
        guarded.run(30)
    assert len(guarded.told.named("marks_not_written")) == 1
    assert guarded.status.exposure.bytes == 0
    Path(path).rmdir()
    guarded.run(30)
    assert position(guarded) == size(place)
    guarded.close()


def test_while_the_disks_are_busy_nothing_is_read_that_is_not_in_memory_and_nothing_is_synced(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressure = [90.0]
    monkeypatch.setattr(TailFile, "_resident", lambda *_: 0)
    guarded = opened(place, tmp_path, pressure=lambda: pressure[0], sync_within_seconds=1.0)
    guarded.run(30)
    assert marks(guarded) == ()
    assert guarded.status.exposure.bytes == size(place)
    pressure[0] = 0.0
    until(lambda: guarded.run(1) is None and any(mark.is_durable for mark in marks(guarded)))
    guarded.close()
