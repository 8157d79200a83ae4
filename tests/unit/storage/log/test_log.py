"""A log rolls, flushes, reads, truncates and closes, and says what is durable only once it is.

That its bytes and answers are Kafka's is shown by the scripts in tests/interop; here is what those can not show.
"""

from __future__ import annotations

import errno

import pytest
from support.batches import TS, batch_v2
from support.log_in_memory import NOW, PLACE, MemoryEpochs, add, batch, disk, from_producer, opened, stored
from support.memory_fs import FaultFs, MemoryFs

from storage.base.errors import DiskFull, WriteFault
from storage.base.names import FileState
from storage.base.refusals import (
    LogUnusable,
    OffsetOutOfRange,
)
from storage.base.units import Offset
from storage.disk.fs import FileKind, Fs
from storage.log.log import Log
from storage.log.log_types import Isolation
from storage.segment.segment import LogSegment
from storage.segment.segment_types import BatchEnd, SegmentLimits


def files(fs: MemoryFs) -> list[str]:
    return sorted(fs.contents(str(PLACE)))


# ---- rolling, flushing, closing


def test_a_closed_segment_that_is_cut_and_goes_on_leaves_its_second_names_as_they_were() -> None:
    """As a backup by `cp -al` has them."""
    fs = disk()
    log = opened(fs, index_interval_bytes=1)
    for _ in range(3):
        add(log, 2)
    log.roll(NOW)
    add(log, 2)
    log.flush()
    backup = PLACE.parent / "backup"
    fs.plant(backup, FileKind.DIRECTORY)
    for name in fs.entries(PLACE):
        fs.link(PLACE / name, backup / name)
    before = fs.contents(str(backup))
    log.truncate_to(Offset(4), NOW)
    add(log, 2)
    log.flush()
    assert fs.contents(str(backup)) == before
    assert [int.from_bytes(data[:8], "big") for data in stored(log)] == [0, 2, 4]


def test_a_roll_leaves_a_sealed_segment_a_snapshot_and_an_empty_segment() -> None:
    fs = disk()
    log = opened(fs)
    add(log, 5)
    assert log.roll(NOW).base_offset == 5
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    assert log.roll(NOW).base_offset == 5
    assert len(log.segments) == 2
    log.flush(log.roll(NOW).base_offset)
    assert files(fs) == [
        "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
        "00000000000000000005.log", "00000000000000000005.snapshot",
    ]  # fmt: skip
    assert fs.contents(str(PLACE))["00000000000000000000.timeindex"].hex() == f"{TS + 4:016x}00000004"


def test_segments_roll_by_message_time_and_the_append_says_so() -> None:
    log = opened(disk(), segment_ms=1000)
    add(log)
    assert add(log, base_timestamp=TS + 1000).rolled is None
    assert add(log, base_timestamp=TS + 1001).rolled == (2,)


def test_no_flush_takes_the_recovery_point_beyond_the_log_end() -> None:
    """A roll that is waiting to be flushed up to, and a truncation below it: what is appended then is not flushed."""
    log = opened(fs := disk())
    add(log, 3)
    rolled = log.roll(NOW).base_offset
    log.truncate_to(Offset(0), NOW)
    assert log.flush(rolled) == log.recovery_point == 0
    add(log, 2)
    assert log.flush() == 2
    sizes = {len(left.to_fs(fs).contents(str(PLACE))[f"{0:020d}.log"]) for left in fs.crash_states()}
    assert sizes == {log.segments.active.size}, "what was flushed may be lost"


def test_the_recovery_point_moves_only_behind_a_flush() -> None:
    log = opened(disk())
    add(log, 5)
    assert log.recovery_point == 0
    assert log.flush() == 5
    add(log, 5)
    assert log.flush(5) == 5
    log = opened(disk(), flush_messages=4)
    add(log, 3)
    assert log.recovery_point == 0
    add(log)
    assert log.recovery_point == 4


def test_a_closed_log_opens_as_it_was_and_refuses_further_changes() -> None:
    fs = disk()
    log = opened(fs, internal_segment_bytes=400)
    for _ in range(10):
        add(log, 2)
    log.close()
    for change in (lambda: add(log), log.flush, log.close, lambda: log.roll(NOW), lambda: log.truncate_to(3, NOW)):
        with pytest.raises(LogUnusable, match="closed"):
            change()
    before = fs.contents()
    again = opened(fs, is_clean=True, internal_segment_bytes=400)
    assert (again.log_end, again.recovery_point, len(stored(again))) == (20, 20, 10)
    assert fs.contents() == before
    again.close()
    assert fs.contents() == before


def test_a_log_that_recovery_has_to_see_first_is_not_opened() -> None:
    with pytest.raises(LogUnusable, match="recovery has to run first"):
        opened(MemoryFs({f"{PLACE}/00000000000000000000.log.swap": b""}))


def test_what_a_compaction_left_that_was_cut_off_is_removed_when_the_log_is_opened() -> None:
    fs = MemoryFs({f"{PLACE}/00000000000000000000.{part}.cleaned": b"x" for part in ("log", "index")})
    opened(fs).close()
    assert not [name for name in fs.entries(PLACE) if name.endswith(".cleaned")]


def test_a_log_that_was_cut_below_its_start_begins_there_anew() -> None:
    fs = disk()
    log = opened(fs)
    add(log, 1)
    add(log, 5)
    log.set_high_watermark(6)
    log.set_log_start(3)
    log.truncate_to(4, NOW)  # takes the whole batch of the offsets 1 to 5
    assert (log.log_start, log.log_end) == (3, 4)
    log.close()
    again = opened(fs, is_clean=True, log_start=3)
    assert (again.log_start, again.log_end, [segment.base_offset for segment in again.segments]) == (3, 3, [3])
    assert [path.name for path in again.removed_on_open][:1] == ["00000000000000000000.log.deleted"]
    assert add(again).first_offset == 3


def test_deleted_files_go_when_the_log_is_opened() -> None:
    fs = MemoryFs({f"{PLACE}/00000000000000000007.log.deleted": b"x", f"{PLACE}/notes.txt": b""})
    opened(fs)
    assert files(fs) == ["00000000000000000000.log", "notes.txt"]


def test_a_bad_snapshot_is_dropped_and_the_log_is_asked_instead() -> None:
    fs = disk()
    log = opened(fs)
    from_producer(log, 0)
    log.close()
    fs.plant(PLACE / "00000000000000000001.snapshot", content=b"rubbish")
    again = opened(fs, is_clean=True)
    assert from_producer(again, 0).is_duplicate
    assert fs.contents(str(PLACE))["00000000000000000001.snapshot"] != b"rubbish"


def test_a_clean_log_gets_a_snapshot_at_its_start_only_if_it_has_none_at_all() -> None:
    fs = disk()
    found = []
    for _ in range(3):  # as a broker: what lies at the log start is dropped, and missed the next time
        opened(fs, log_start=Offset(15), is_clean=True).close()
        found.append([name for name in files(fs) if name.endswith(".snapshot")])
    snapshot = "00000000000000000015.snapshot"
    assert found == [[snapshot], [], [snapshot]]


# ---- reading


def test_ranges_begin_with_a_batch_and_never_cross_a_segment() -> None:
    log = opened(disk())
    for _ in range(4):
        add(log, 5)
    log.roll(NOW)
    add(log, 5)
    size = len(batch(5))
    fetched = log.read(7, 10)
    assert (fetched.position, fetched.size, fetched.is_first_cut) == (size, size, False)
    assert bytes(fetched.load()) == stored(log)[1]
    cut = log.read(7, 10, min_one=False)
    assert (cut.size, cut.is_first_cut) == (10, True)
    assert log.read(7, 1 << 20).size == 3 * size
    assert log.read(20, 1 << 20).size == size
    assert log.read(25, 1 << 20).size == 0
    for offset in (26, -1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 1)


def test_readers_below_the_high_watermark_see_no_more() -> None:
    log = opened(disk())
    for _ in range(3):
        add(log, 5)
    log.set_high_watermark(10)
    assert log.read(0, 1 << 20, isolation=Isolation.HIGH_WATERMARK).size == 2 * len(batch(5))
    assert log.read(10, 1 << 20, isolation=Isolation.HIGH_WATERMARK).size == 0
    assert log.set_high_watermark(99) == 15


def test_a_record_is_found_by_its_time_and_by_names_of_times() -> None:
    log = opened(disk())
    add(log, 5)
    add(log, 5, base_timestamp=TS + 100)
    add(log, 1, base_timestamp=TS + 50)
    assert log.offset_for_time(TS + 2) == (TS + 2, 2)
    assert log.offset_for_time(TS + 5) == (TS + 100, 5)
    assert log.offset_for_time(TS + 105) is None
    assert log.offset_for_time(-1) == (-1, 11)
    assert log.offset_for_time(-2) == (-1, 0)
    assert log.offset_for_time(-3) == (TS + 104, 9)


# ---- truncation and log start


def test_truncation_takes_segments_batches_epochs_and_what_producers_did() -> None:
    fs, epochs = disk(), MemoryEpochs()
    log = opened(fs, epochs)
    from_producer(log, 0, 5)
    log.roll(NOW)
    from_producer(log, 5, 5, leader_epoch=1)
    log.roll(NOW)
    from_producer(log, 10, 5, leader_epoch=2)
    log.set_high_watermark(15)
    log.flush()
    done = log.truncate_to(7, NOW)
    assert (done.log_end, done.recovery_point, log.high_watermark) == (7, 7, 7)
    assert sorted(path.name for path in done.removed) == [
        "00000000000000000010.index.deleted", "00000000000000000010.log.deleted",
        "00000000000000000010.snapshot.deleted", "00000000000000000010.timeindex.deleted",
    ]  # fmt: skip
    assert (len(stored(log)), epochs.entries) == (1, [(0, 0), (1, 5)])
    assert from_producer(log, 5, 2).first_offset == 7
    assert log.truncate_to(99, NOW).removed == ()


def test_full_truncation_begins_anew_where_it_is_told() -> None:
    fs, epochs = disk(), MemoryEpochs()
    log = opened(fs, epochs)
    from_producer(log, 0, 5)
    log.roll(NOW)
    log.flush()
    log.truncate_fully(5, NOW)
    assert (log.log_start, log.log_end, log.recovery_point, log.high_watermark) == (5, 5, 5, 5)
    assert (epochs.entries, log.producers.state.entries) == ([], {})
    assert add(log).first_offset == 5
    log.truncate_to(3, NOW)  # below the first segment
    assert (log.log_start, log.log_end) == (3, 3)


def test_the_log_start_moves_upward_only_and_not_past_the_high_watermark() -> None:
    log = opened(disk())
    add(log, 5)
    with pytest.raises(OffsetOutOfRange):
        log.set_log_start(3)
    log.set_high_watermark(5)
    assert (log.set_log_start(3), log.set_log_start(2), log.log_start) == (True, False, 3)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 1)
    assert log.offset_for_time(TS) == (TS + 3, 3)


# ---- a disk that refuses


def failing(method: str, number: int, how: int = errno.EIO) -> tuple[MemoryFs, Log]:
    fs = disk()
    faulty: Fs = FaultFs(fs, number, how, short_write=True, only={method})
    return fs, opened(faulty)


def test_a_full_disk_leaves_nothing_torn_and_the_log_goes_on() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    whole = fs.contents()
    with pytest.raises(DiskFull):
        add(log)
    assert (fs.contents(), log.log_end) == (whole, 1)
    assert add(log).first_offset == 1


def test_a_full_disk_at_a_roll_leaves_the_old_segment_active() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    whole = fs.contents()
    with pytest.raises(DiskFull):
        log.roll(NOW)
    assert (fs.contents(), [segment.base_offset for segment in log.segments]) == (whole, [0])
    assert log.roll(NOW).base_offset == 1


def test_an_index_that_can_not_be_written_is_tried_again() -> None:
    fs, log = failing("append", 2, errno.ENOSPC)
    add(log)
    log.segments.active.seal()
    with pytest.raises(DiskFull):
        log.flush()
    assert log.recovery_point == 0
    assert log.flush() == 1
    assert len(fs.contents(str(PLACE))["00000000000000000000.timeindex"]) == 12


@pytest.mark.parametrize("method", ["sync", "sync_dir"])
def test_a_failed_sync_is_never_tried_again(method: str) -> None:
    _, log = failing(method, 1)
    add(log)
    with pytest.raises(WriteFault):
        log.flush()
    assert log.recovery_point == 0
    for change in (log.flush, lambda: add(log), log.close):
        with pytest.raises(LogUnusable):
            change()
    log.close_abruptly()


def test_an_append_behind_a_gap_that_failed_leaves_a_log_that_goes_on() -> None:
    fs = disk()
    log = opened(FaultFs(fs, 3, errno.ENOSPC, only={"append"}))
    add(log)
    far = 2**31 + 5  # needs a new segment
    with pytest.raises(DiskFull):
        log.append_as_follower(batch_v2(far), leader_epoch=0, now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert add(log).first_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.close()
    assert opened(fs, is_clean=True).log_end == 2


# ---- segments in place of others


def compacted(fs: Fs, log: Log, sources: int) -> tuple[LogSegment, tuple[LogSegment, ...]]:
    """Return a durable `.cleaned` segment with the first batch of the log, and the segments it stands for."""
    first, batch_of_first = log.segments.all[0], stored(log)[0]
    limits = SegmentLimits()
    made = LogSegment.create(fs, PLACE, first.base_offset, limits, NOW, state=FileState.CLEANED)
    made.append(batch_of_first, [BatchEnd(first.base_offset, TS, len(batch_of_first))])
    made.seal()
    made.flush()
    made.close()
    return made, log.segments.all[:sources]


def three_closed(fs: Fs) -> Log:
    log = opened(fs)
    for sequence in range(3):
        from_producer(log, sequence)
        log.roll(NOW)
    from_producer(log, 3)
    log.flush()
    return log


def test_merged_segments_leave_with_their_snapshots_and_what_is_left_goes_on() -> None:
    fs = disk()
    log = three_closed(fs)
    made, sources = compacted(fs, log, 3)
    gone = log.replace_segments([made], sources)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert {path.name for path in gone if ".snapshot" in path.name} == {
        f"{base:020d}.snapshot.deleted" for base in (1, 2)
    }
    assert [name for name in files(fs) if name.endswith(".snapshot")] == [f"{3:020d}.snapshot"]
    assert set(gone) == {PLACE / name for name in files(fs) if name.endswith(".deleted")}
    for path in gone:
        fs.remove(path)
    assert log.truncate_to(Offset(2), NOW).log_end == 2
    assert log.truncate_fully(Offset(7), NOW).log_end == 7
    from_producer(log, 0, epoch=1)
    log.close()
    again = opened(fs, log_start=Offset(7), is_clean=True)
    assert (again.log_start, again.log_end) == (7, 8)


def test_a_log_whose_segments_could_not_be_replaced_whole_is_unusable() -> None:
    counting = FaultFs(disk(), 0, errno.ENOSPC, only=["rename", "sync_dir"])
    log = three_closed(counting)
    before = counting.calls
    made, sources = compacted(counting, log, 3)
    log.replace_segments([made], sources)
    assert counting.calls - before > 10
    for nth in range(before + 1, counting.calls + 1):
        fs = FaultFs(disk(), nth, errno.ENOSPC, only=["rename", "sync_dir"])
        log = three_closed(fs)
        made, sources = compacted(fs, log, 3)
        with pytest.raises(DiskFull):
            log.replace_segments([made], sources)
        with pytest.raises(LogUnusable):
            add(log)


def test_readers_of_a_segment_that_was_replaced_read_on() -> None:
    fs = disk()
    log = three_closed(fs)
    fetched = log.read(Offset(1), 1000)
    made, sources = compacted(fs, log, 3)
    log.replace_segments([made], sources)
    assert len(fetched.load()) == fetched.size > 0
