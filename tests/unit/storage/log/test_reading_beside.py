"""Threads that read beside the one that appends, rolls, compacts and deletes see whole batches, in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TypeVar

import pytest
from support.batches import TRANSACTIONAL, TS, marker
from support.log_in_memory import NOW, PLACE, MemoryEpochs, add, batch, disk, opened
from support.memory_fs import MemoryFs
from support.wrapped_fs import Call, WrappedFs

from storage.base.config import LogConfig
from storage.base.names import FileState
from storage.base.refusals import OffsetOutOfRange
from storage.base.rows import CONTROL_NONE, ProducerEvent
from storage.base.units import Offset, TimestampMs
from storage.batch.batch import ensure_sound, split_batches
from storage.cleanup.compaction import Compaction, Round
from storage.cleanup.offset_map import OffsetMap
from storage.disk.fs import OsFs
from storage.index.txn_index import AbortedTxn
from storage.log.log import Log
from storage.log.log_types import LogSetup
from storage.producers.producer_state import ProducerState
from storage.producers.producers import Origin
from storage.segment.segment import LogSegment
from storage.segment.segment_types import SegmentLimits

pytestmark = pytest.mark.slow

T = TypeVar("T")

APPENDS = 600
CONFIG = LogConfig(internal_segment_bytes=2000, index_interval_bytes=100, cleanup_policy=("compact",))


class Reader(threading.Thread):
    """Reads on and on, from the beginning of the log or from anywhere."""

    def __init__(self, log: Log, ended: threading.Event, seed: int) -> None:
        super().__init__()
        self.log, self.ended, self.rng = log, ended, random.Random(seed)
        self.batches = 0
        self.faults: list[str] = []

    def run(self) -> None:
        while not self.ended.is_set() or not self.batches:
            try:
                self.read_some()
            except OffsetOutOfRange:
                continue  # retention was there before
            except Exception as error:  # noqa: BLE001 (a thread would keep it to itself)
                self.faults.append(repr(error))
                return

    def read_some(self) -> None:
        log = self.log
        start = Offset(self.rng.randint(log.log_start, max(log.log_end, log.log_start)))
        found = log.offset_for_time(-2)
        assert found is not None
        fetched = log.read(start, 3000)
        data = fetched.load()
        if len(data) < fetched.size:
            self.faults.append(f"{len(data)} of {fetched.size} bytes at {start}")
        if fetched.is_first_cut or not data:
            return
        expected = None
        for part in split_batches(data[: whole(data)]):
            header = ensure_sound(part)
            if expected is None and header.last_offset < start:
                self.faults.append(f"asked for {start}, got {header.base_offset}")
            if expected is not None and header.base_offset < expected:
                self.faults.append(f"{header.base_offset} behind {expected}")
            expected = header.last_offset + 1
            self.batches += 1


def whole(data: memoryview) -> int:
    """Return the bytes of whole batches."""
    position = 0
    while len(data) - position >= 12:
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        position += size
    return position


def compact(log: Log, now_ms: int) -> None:
    how = Compaction(
        fs=OsFs(), directory=log.directory, config=CONFIG,
        swap=lambda cleaned, sources: log.replace_segments([cleaned], sources) and None, last_records=dict,
    )  # fmt: skip
    log.flush()
    how.run(log.segments.all, Round(log.log_start, log.segments.active.base_offset, now_ms), OffsetMap(1 << 16))


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_see_what_was_appended_whole_whatever_else_goes_on(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = Log.open(OsFs(), PurePath(tmp_path), CONFIG, LogSetup(MemoryEpochs()), now_ms=NOW)
    ended = threading.Event()
    readers = [Reader(log, ended, number) for number in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(APPENDS):
            log.append_as_leader(batch(rng.randint(1, 4), size=rng.choice([1, 90])), leader_epoch=0, now_ms=NOW)
            log.set_high_watermark(log.log_end)
            if number % 60 == 59:
                compact(log, NOW)
            if number % 100 == 99:
                gone = log.segments.all[: len(log.segments) // 2]
                log.set_log_start(log.segments.all[len(gone)].base_offset)
                log.delete_segments(gone)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert [reader.faults for reader in readers] == [[], []]
    assert all(reader.batches > 0 for reader in readers)
    log.close()


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start it; return the thread, and the list that its result or its error will be in."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001 (a thread would keep it to itself)
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def closed_segment(fs: MemoryFs) -> LogSegment:
    """Return a segment with one batch of which nothing was read yet."""
    log = opened(fs, index_interval_bytes=0)
    add(log, 2)
    add(log, 2)
    log.close()
    return LogSegment.open(fs, PLACE, Offset(0), SegmentLimits(), NOW, listing=fs.entries(PLACE))


@pytest.mark.parametrize(
    "look",
    [lambda s: s.reader(), lambda s: s.indexes.offsets.data, lambda s: s.indexes.times.data],
    ids=["log", "index", "time"],
)
def test_a_segment_that_is_being_renamed_is_opened_under_its_new_name(look: Callable[[LogSegment], object]) -> None:
    fs = disk()
    segment = closed_segment(fs)
    started: list[tuple[threading.Thread, list[object]]] = []

    def before(_: MemoryFs) -> None:
        if not started:
            started.append(in_thread(lambda: look(segment)))
        started[0][0].join(0.05)  # it has to wait

    fs.before_effect = before
    segment.rename(FileState.DELETED)
    fs.before_effect = None
    ((thread, found),) = started
    thread.join()
    assert not isinstance(found[0], Exception), found


def test_entries_that_are_added_while_another_thread_loads_an_index_stay() -> None:
    fs = disk()
    closed_segment(fs)
    reading, go_on = threading.Event(), threading.Event()

    class SlowFs(WrappedFs):
        def _do(self, call: Call, action: Callable[[], T]) -> T:
            result = action()
            if call.method == "open_read" and call.path.suffix == ".timeindex" and not reading.is_set():
                reading.set()
                go_on.wait(10)
            return result

    slow = SlowFs(fs)
    segment = LogSegment.open(slow, PLACE, Offset(0), SegmentLimits(), NOW, listing=fs.entries(PLACE))
    reader, _ = in_thread(lambda: segment.indexes.times.look_up(TimestampMs(TS)))
    assert reading.wait(10)
    writer, _ = in_thread(lambda: segment.indexes.times.file.append(bytes(12)))
    writer.join(0.05)
    go_on.set()
    reader.join()
    writer.join()
    assert segment.indexes.times.data.endswith(bytes(12))


def test_an_index_is_cut_in_a_copy_so_that_a_look_up_goes_on() -> None:
    segment = closed_segment(disk())
    seen = segment.indexes.offsets.data
    before = bytes(seen)
    segment.truncate_to(Offset(0), NOW)
    assert bytes(seen) == before != segment.indexes.offsets.data


def test_a_transaction_is_never_neither_open_nor_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a reader of committed records would be let at what is aborted just now."""
    log = opened(disk())
    append_in_transaction(log)
    log.set_high_watermark(log.log_end)
    seen: list[int] = []
    original = ProducerState.add_batch

    def add_batch(state: ProducerState, event: ProducerEvent) -> AbortedTxn | None:
        seen.append(log.last_stable_offset)
        done = original(state, event)
        seen.append(log.last_stable_offset)
        return done

    monkeypatch.setattr(ProducerState, "add_batch", add_batch)
    log.append_as_leader(marker(0, 7, commit=False), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    assert seen == [1, 1]
    assert log.last_stable_offset == 1
    log.set_high_watermark(log.log_end)
    assert log.last_stable_offset == log.log_end


def append_in_transaction(log: Log) -> None:
    add(log)
    add(log, 2, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)


def test_the_first_open_transaction_is_found_while_others_come_and_go() -> None:
    state, ended = ProducerState(), threading.Event()

    def change() -> None:
        for number in range(20_000):
            event = ProducerEvent(number, number, TRANSACTIONAL, TS, 1 + number % 5, 0, number // 5, CONTROL_NONE)
            state.add_batch(event)
            end = ProducerEvent(number, number, TRANSACTIONAL, TS, 1 + number % 5, 0, -1, 1 << 32)
            state.add_batch(end)
        ended.set()

    thread, found = in_thread(change)
    while not ended.is_set() and thread.is_alive():
        state.first_unstable_offset()
    thread.join()
    assert found == [None]
    assert state.first_unstable_offset() is None
