"""What the store of marks keeps, and that a reader neither changes anything nor waits."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.marking import mark_of

from recovery.segment.mark_store import MarksNotWritten, MarkStore, read_marks
from recovery.segment.marks import FILE_NAME, Mark, decode_mark

LOG_DIR = Path("/data/kafka")


@pytest.fixture
def mark(tmp_path: Path) -> Mark:
    log = tmp_path / "orders-0" / f"{5:020}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(batch_v2(n) for n in range(5, 9)))
    made = mark_of(log, topic_id="Zm9vYmFyYmF6cXV4", is_durable=True)
    assert made is not None
    return made


@pytest.fixture
def state(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


def as_they_lie(state: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the files, but for the shared memory in which a writer at work notes who reads."""
    there = (each for each in sorted(state.iterdir()) if not each.name.endswith("-shm"))
    return {each.name: (each.stat().st_mtime_ns, each.stat().st_ino, each.read_bytes()) for each in there}


def test_a_mark_is_read_back_as_it_was_put(state: Path, mark: Mark) -> None:
    odd = mark._replace(directory="b\udcff-1", topic_id=None, is_durable=False, base_offset=0)
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark, odd])
        store.put(LOG_DIR.parent, [odd])
        assert store.read(LOG_DIR) == {("orders-0", 5): (mark,), ("b\udcff-1", 0): (odd,)}
    found = read_marks(state, LOG_DIR)
    assert (found.marks, found.reason) == ({("orders-0", 5): (mark,), ("b\udcff-1", 0): (odd,)}, "")


def test_a_newer_mark_takes_the_place_of_the_earlier_one_and_a_dropped_one_is_gone(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
        store.put(LOG_DIR, [mark._replace(made_ms=77), mark._replace(base_offset=99)])
        store.drop(LOG_DIR, [("orders-0", 99)])
    assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark._replace(made_ms=77),)}


def test_marks_of_log_directories_that_are_no_longer_guarded_are_dropped(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        for place in ("/a", "/b"):
            store.put(Path(place), [mark])
        store.drop_all_but([Path("/b")])
    assert [bool(read_marks(state, Path(place)).marks) for place in ("/a", "/b")] == [False, True]


def test_the_latest_mark_does_not_take_the_place_of_the_durable_one(state: Path, mark: Mark) -> None:
    further = mark._replace(position=mark.position + 1, is_durable=False)
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark._replace(is_durable=True)])
        store.put(LOG_DIR, [further])
        assert store.read(LOG_DIR) == {("orders-0", 5): (further, mark._replace(is_durable=True))}
        store.drop(LOG_DIR, [("orders-0", 5)])
        assert store.read(LOG_DIR) == {}


def test_reading_beside_a_writer_at_work_shows_what_it_has_put_and_changes_no_file(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
        before = as_they_lie(state)
        assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark,)}
        assert as_they_lie(state) == before
        store.put(LOG_DIR, [mark._replace(made_ms=2)])
        assert read_marks(state, LOG_DIR).marks["orders-0", 5][0].made_ms == 2


def _put_and_die(state: Path, mark: Mark) -> None:
    store = MarkStore(state)
    store.put(LOG_DIR, [mark])
    os._exit(9)


def test_the_marks_of_a_writer_that_was_killed_are_read_without_a_trace(state: Path, mark: Mark) -> None:
    writer = multiprocessing.get_context("spawn").Process(target=_put_and_die, args=(state, mark))
    writer.start()
    writer.join()
    assert (writer.exitcode, (state / f"{FILE_NAME}-wal").exists()) == (9, True)
    before = as_they_lie(state)
    assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark,)}
    assert as_they_lie(state) == before
    with MarkStore(state) as store:
        assert store.read(LOG_DIR) == {("orders-0", 5): (mark,)}


def test_a_store_that_was_closed_is_read_without_a_trace(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
    before = as_they_lie(state)
    assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark,)}
    assert as_they_lie(state) == before
    assert list(before) == [FILE_NAME]


def test_without_a_store_there_are_no_marks_and_none_is_made(state: Path) -> None:
    assert read_marks(state, LOG_DIR) == ({}, f"no marks in {state}")
    assert read_marks(state / "none", LOG_DIR).marks == {}
    assert list(state.iterdir()) == []


def test_a_store_that_is_locked_damaged_or_of_another_version_is_no_marks_at_once(state: Path, mark: Mark) -> None:
    path = state / FILE_NAME
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
    whole = path.read_bytes()
    for damaged in (b"", b"no database at all", whole[:5000], whole[:100] + bytes(len(whole) - 100)):
        path.write_bytes(damaged)
        assert read_marks(state, LOG_DIR).marks == {}
    path.write_bytes(whole)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    assert read_marks(state, LOG_DIR) == ({}, f"{path} is of another version")


def test_a_writer_that_locks_the_store_whole_is_not_waited_for(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
        db = sqlite3.connect(state / FILE_NAME, isolation_level=None)
        db.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        read_marks(state, LOG_DIR)
        assert time.monotonic() - begun < 60
        db.close()


def test_a_row_that_is_damaged_is_left_out_and_the_others_are_read(state: Path, mark: Mark) -> None:
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark, mark._replace(base_offset=6)])
    with sqlite3.connect(state / FILE_NAME) as db:
        db.execute("UPDATE marks SET mark = substr(mark, 1, 40) || x'EE' || substr(mark, 42) WHERE base = 6")
    db.close()
    assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark,)}


def test_a_writer_begins_anew_where_the_store_is_damaged_or_of_another_version(state: Path, mark: Mark) -> None:
    (state / FILE_NAME).write_bytes(b"no database at all" * 100)
    with MarkStore(state) as store:
        store.put(LOG_DIR, [mark])
    with sqlite3.connect(state / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with MarkStore(state) as store:
        assert store.read(LOG_DIR) == {}
        store.put(LOG_DIR, [mark])
    assert read_marks(state, LOG_DIR).marks == {("orders-0", 5): (mark,)}


def test_what_the_disk_refuses_is_told_by_one_kind_of_error(state: Path) -> None:
    with pytest.raises(MarksNotWritten, match="cannot be written"):
        MarkStore(state / "none")


def test_a_mark_that_is_damaged_anywhere_is_refused(mark: Mark) -> None:
    data = mark.encode()
    for place in range(len(data)):
        with pytest.raises(ValueError, match=r"."):
            decode_mark(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"."):
            decode_mark(data[:place])
    assert decode_mark(data) == mark
