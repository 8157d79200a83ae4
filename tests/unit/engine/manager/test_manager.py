"""A log manager from opening to the marker: recovery, appends, schedules, checkpoints, disks that fail."""

from __future__ import annotations

import errno
import random
from pathlib import PurePath

import pytest
from support.batches import batch_v2, record
from support.cleaning import write_log
from support.managers import NOW, P0, SMALL, A, B, FailingFs, append, batch, open_manager, options, records, values
from support.memory_fs import MemoryFs

from checkpoint.leader_epoch import decode_epochs
from checkpoint.markers import CLEAN_SHUTDOWN
from checkpoint.offsets import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
)
from engine.manager.cleaning import RETRY_MS
from engine.manager.manager import LogManager
from engine.settings.options import Intervals
from engine.settings.refusals import LogDirHeld, NoLogDir, PartitionOffline, UnknownTopic
from storage.base.config import LogConfig
from storage.base.errors import ConfigInvalid, DiskFull, WriteFault
from storage.base.refusals import OutOfOrderSequence
from storage.base.units import Epoch, Offset, TopicPartition


def disk(*more: str) -> MemoryFs:
    return MemoryFs({"/a/": b"", "/b/": b""} | dict.fromkeys(more, b""))


def points(fs: MemoryFs, name: str, log_dir: PurePath = A) -> dict[TopicPartition, Offset]:
    return decode_offsets(fs.contents(str(log_dir))[name])


def crashed(manager: LogManager) -> None:
    """Close everything as a crash of the process would."""
    for log_dir in manager.log_dirs:
        log_dir.abandon()


# ---- opening and closing


def test_what_was_appended_is_there_after_a_clean_shutdown_without_recovery() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a", "b")
    assert fs.contents("/a")[CLEAN_SHUTDOWN] == b'{"version":0,"brokerEpoch":-1}'
    assert points(fs, RECOVERY_POINTS) == points(fs, HIGH_WATERMARKS) == {P0: 2}
    with open_manager(fs) as manager:
        assert values(manager) == ["a", "b"]
        assert append(manager, "c").first_offset == 2
        assert manager.partition(P0).leader_epoch == 0


def test_the_marker_is_the_last_thing_written_and_its_removal_the_first() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    manager.close()
    assert [str(effect.path) for effect in fs.history[-2:]] == [f"/a/{CLEAN_SHUTDOWN}.tmp", "/a"]
    before = len(fs.history)
    open_manager(fs)
    first = [(effect.method, effect.path.name) for effect in fs.history[before : before + 2]]
    assert first == [("remove", CLEAN_SHUTDOWN), ("sync_dir", "a")]


def test_closing_twice_is_harmless_and_afterwards_nothing_is_served() -> None:
    manager = open_manager(disk())
    manager.topics.create("orders", 1, {}, NOW)
    manager.close()
    manager.close()
    with pytest.raises(PartitionOffline, match="closed"):
        append(manager, "a")


def test_after_a_crash_recovery_cuts_the_torn_tail_and_a_new_leader_epoch_begins() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    append(manager, "b")
    crashed(manager)
    log = A / "orders-0" / "00000000000000000000.log"
    fs.truncate(log, fs.stat(log).size - 1)
    with open_manager(fs) as manager:
        assert values(manager) == ["a"]
        assert append(manager, "c").first_offset == 1
        assert [batch.epoch for batch in manager.partition(P0).epochs.entries] == [0, 1]
    assert decode_epochs(fs.contents("/a/orders-0")["leader-epoch-checkpoint"]) == [(0, 0), (1, 1)]


def test_after_a_crash_a_new_leader_epoch_is_noted_even_if_nothing_is_appended() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    crashed(manager)
    open_manager(fs).close()
    assert decode_epochs(fs.contents("/a/orders-0")["leader-epoch-checkpoint"]) == [(0, 0), (1, 1)]


def test_a_held_log_directory_is_refused_and_stays_as_it_is() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a")
        append(manager, "b")
    log = A / "orders-0" / "00000000000000000000.log"
    fs.remove(A / CLEAN_SHUTDOWN)
    fs.truncate(log, fs.stat(log).size - 1)
    before = fs.contents("/a")
    with pytest.raises(LogDirHeld, match="orders-0"):
        open_manager(fs)
    assert fs.contents("/a") == before


def test_a_partition_in_two_log_directories_is_refused_before_markers_go() -> None:
    fs = MemoryFs({"/a/orders-0/": b"", "/b/orders-0/": b"", f"/a/{CLEAN_SHUTDOWN}": b"", f"/b/{CLEAN_SHUTDOWN}": b""})
    with pytest.raises(ConfigInvalid, match="orders-0 lies in /a and /b"):
        open_manager(fs, [A, B])
    assert CLEAN_SHUTDOWN in fs.contents("/a")


def test_an_unclean_directory_beside_a_clean_one_is_recovered_alone() -> None:
    fs = disk()
    with open_manager(fs, [A, B]) as manager:
        manager.topics.create("orders", 2, {}, NOW)
    fs.remove(B / CLEAN_SHUTDOWN)
    with open_manager(fs, [A, B]) as manager:
        assert [len(log_dir.partitions) for log_dir in manager.log_dirs] == [1, 1]


# ---- appends


def test_duplicates_are_answered_and_gaps_refused() -> None:
    manager = open_manager(disk())
    manager.topics.create("orders", 1, {}, NOW)
    first = append(manager, "a", producer_id=7, producer_epoch=0, base_sequence=0)
    again = append(manager, "a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert (again.first_offset, again.is_duplicate) == (first.first_offset, True)
    with pytest.raises(OutOfOrderSequence):
        append(manager, "b", producer_id=7, producer_epoch=0, base_sequence=5)
    assert values(manager) == ["a"]


def test_producers_are_known_again_after_a_shutdown() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a", producer_id=7, producer_epoch=0, base_sequence=0)
    with open_manager(fs) as manager:
        assert append(manager, "a", producer_id=7, producer_epoch=0, base_sequence=0).is_duplicate


def test_a_partition_that_does_not_exist_is_named() -> None:
    manager = open_manager(disk())
    manager.topics.create("orders", 1, {}, NOW)
    with pytest.raises(UnknownTopic, match="orders-1"):
        manager.append(TopicPartition("orders", 1), batch("a"), NOW)
    with pytest.raises(UnknownTopic, match="clicks"):
        manager.append(TopicPartition("clicks", 0), batch("a"), NOW)


def test_a_truncation_moves_the_recovery_point_at_once_and_begins_an_epoch() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    for value in "abc":
        append(manager, value)
    manager.flush(P0, NOW)
    manager.log_dirs[0].write_recovery_points()
    assert manager.truncate(P0, Offset(1), NOW).log_end == 1
    assert points(fs, RECOVERY_POINTS) == {P0: 1}
    assert append(manager, "d").first_offset == 1
    assert manager.partition(P0).epochs.entries[-1] == (1, 1)


def test_records_that_are_deleted_stay_deleted_after_a_crash() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    for value in "abc":
        append(manager, value)
    manager.delete_records(P0, Offset(2))
    assert points(fs, LOG_START_OFFSETS) == {P0: 2}
    crashed(manager)
    manager = open_manager(fs)
    assert manager.log(P0).log_start == 2
    assert values(manager, start=2) == ["c"]


# ---- schedules


def test_with_flush_ms_a_log_is_flushed_in_time_and_the_checkpoint_follows() -> None:
    fs = disk()
    manager = open_manager(fs, intervals=Intervals(flush_ms=10, recovery_points_ms=100))
    manager.topics.create("orders", 1, {"flush.ms": "50"}, NOW)
    append(manager, "a")
    manager.run_due(NOW + 20)
    assert manager.log(P0).recovery_point == 0
    manager.run_due(NOW + 60)
    assert manager.log(P0).recovery_point == 1
    assert points(fs, RECOVERY_POINTS) == {}
    manager.run_due(NOW + 100)
    assert points(fs, RECOVERY_POINTS) == {P0: 1}


def test_what_a_roll_closes_is_flushed_with_the_next_run() -> None:
    manager = open_manager(disk(), intervals=Intervals(flush_ms=0))
    manager.topics.create("orders", 1, SMALL, NOW)
    for value in "abcd":
        append(manager, value)
    assert manager.log(P0).recovery_point == 0
    manager.run_due(NOW)
    active = manager.log(P0).segments.active.base_offset
    assert manager.log(P0).recovery_point == active > 0


def test_no_checkpoint_ever_says_more_than_the_log_knows_to_be_durable() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    manager.log_dirs[0].write_recovery_points()
    assert points(fs, RECOVERY_POINTS) == {P0: 0}


def test_retention_deletes_what_is_too_old_and_the_files_go_after_the_delay() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {**SMALL, "retention.ms": "1000", "file.delete.delay.ms": "500"}, NOW)
    for value in "abcd":
        append(manager, value)
    assert manager.retain(NOW + 2000) == []
    log = manager.log(P0)
    assert (log.log_start, log.log_end, len(log.segments)) == (4, 4, 1)
    deleted = [name for name in fs.contents("/a/orders-0") if name.endswith(".deleted")]
    assert deleted
    manager.log_dirs[0].remove_due(NOW + 2499)
    assert [name for name in fs.contents("/a/orders-0") if name.endswith(".deleted")] == deleted
    manager.log_dirs[0].remove_due(NOW + 2500)
    assert [name for name in fs.contents("/a/orders-0") if name.endswith(".deleted")] == []


def test_topics_of_a_broker_lose_nothing_by_settings_that_nobody_gave() -> None:
    fs = disk()
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, SMALL, NOW)
        for value in "abcd":
            append(manager, value)
    fs.remove(A / "logmend-topics.json")
    manager = open_manager(fs, defaults=LogConfig(retention_ms=0))
    assert manager.retain(NOW + 10**9) == []
    assert values(manager) == ["a", "b", "c", "d"]
    manager.topics.alter("orders", NOW, settings={"retention.ms": "0"})
    assert manager.retain(NOW + 10**9) == []
    assert manager.log(P0).log_start == 4


def test_compaction_keeps_the_newest_of_each_key_and_notes_how_far_it_came() -> None:
    fs = disk()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, NOW)
    for number in range(9):
        append(manager, str(number), key=b"k%d" % (number % 2))
    active = manager.log(P0).segments.active.base_offset
    assert manager.compact(NOW) == []
    assert points(fs, CLEANER_OFFSETS) == {P0: active}
    offsets = [record.offset for record in records(manager)]
    assert offsets == sorted({active - 1, active - 2, *range(active, 9)})
    manager.close()
    again = open_manager(fs)
    assert [record.offset for record in records(again)] == offsets


def test_a_log_that_cannot_be_compacted_is_named_and_the_others_are() -> None:
    fs = disk()
    manager = open_manager(fs)
    settings = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    for topic in ("bad", "orders"):
        manager.topics.create(topic, 1, settings, NOW)
        for number in range(6):
            append(manager, str(number), key=b"k", name=TopicPartition(topic, 0))
    manager.flush(TopicPartition("bad", 0), NOW)
    path = A / "bad-0" / "00000000000000000000.log"
    data = bytearray(fs.contents("/a/bad-0")[path.name])
    data[66] ^= 1
    fs.truncate(path, 0)
    with fs.open_append(path) as file:
        file.append(data)
    (fault,) = manager.compact(NOW)
    assert "BAD_CRC" in str(fault)
    assert list(manager.cleaner.uncleanable) == [TopicPartition("bad", 0)]
    assert points(fs, CLEANER_OFFSETS).keys() == {P0}
    assert manager.compact(NOW + 1) == []  # left alone
    data[66] ^= 1
    fs.truncate(path, 0)
    with fs.open_append(path) as file:
        file.append(data)
    assert manager.compact(NOW + RETRY_MS) == []
    assert manager.cleaner.uncleanable == {}
    assert len(points(fs, CLEANER_OFFSETS)) == 2


def test_a_segment_whose_offsets_do_not_fit_is_split_and_compacted_with_the_next_round() -> None:
    fs = disk()
    manager = open_manager(fs)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "index.interval.bytes": "0"}
    manager.topics.create("orders", 1, settings, NOW)
    manager.close()
    for name in fs.contents("/a/orders-0"):
        if name.startswith("0000"):
            fs.remove(A / "orders-0" / name)
    far = 2**31 + 5
    write_log(fs, A / "orders-0", [[batch_v2(offset, [record(key=b"k")]) for offset in (0, 1, far, far + 1)]])
    again = open_manager(fs)
    assert again.compact(NOW) == []
    assert [segment.base_offset for segment in again.log(P0).segments] == [0, far, far + 2]
    assert [found.offset for found in records(again)] == [0, 1, far, far + 1]
    assert again.compact(NOW) == []
    assert [found.offset for found in records(again)] == [far + 1]
    again.close()
    assert [found.offset for found in records(open_manager(fs))] == [far + 1]


# ---- disks that fail


def test_a_failed_sync_takes_its_log_directory_offline_alone() -> None:
    inner = disk()
    with open_manager(inner, [A, B]) as manager:
        manager.topics.create("orders", 2, {}, NOW)
    fs = FailingFs(inner, errno.EIO, lambda call: call.method == "sync" and call.path.is_relative_to(A))
    manager = open_manager(fs, [A, B])
    append(manager, "a")
    fs.is_broken = True
    with pytest.raises(WriteFault):
        manager.flush(P0, NOW)
    assert list(manager.offline) == [A]
    with pytest.raises(PartitionOffline, match="orders-0 is offline"):
        append(manager, "b")
    other = TopicPartition("orders", 1)
    append(manager, "c", name=other)
    manager.close()
    assert CLEAN_SHUTDOWN not in inner.contents("/a")
    assert CLEAN_SHUTDOWN in inner.contents("/b")


def test_a_log_that_cannot_be_closed_costs_the_marker_and_no_other_log() -> None:
    inner = disk()
    with open_manager(inner) as manager:
        manager.topics.create("orders", 2, {}, NOW)
    fs = FailingFs(inner, errno.EIO, lambda call: call.method == "sync" and "orders-0" in str(call.path))
    manager = open_manager(fs)
    other = TopicPartition("orders", 1)
    append(manager, "a")
    append(manager, "b", name=other)
    fs.is_broken = True
    with pytest.raises(WriteFault, match="orders-0"):
        manager.close()
    assert CLEAN_SHUTDOWN not in inner.contents("/a")
    assert "00000000000000000001.snapshot" in inner.contents("/a/orders-1")


def test_a_full_disk_refuses_appends_and_nothing_else() -> None:
    inner = disk()
    fs = FailingFs(inner, errno.ENOSPC, lambda call: call.method == "append")
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    fs.is_broken = True
    with pytest.raises(DiskFull):
        append(manager, "b")
    assert values(manager) == ["a"]
    assert manager.offline == {}
    fs.is_broken = False
    assert append(manager, "b").first_offset == 1


def test_a_log_directory_that_cannot_be_read_is_offline_from_the_start() -> None:
    inner = disk()
    with open_manager(inner, [A, B]) as manager:
        manager.topics.create("orders", 2, {}, NOW)
    fs = FailingFs(inner, errno.EIO, lambda call: call.path == A / "meta.properties", is_broken=True)
    manager = open_manager(fs, [A, B])
    assert list(manager.offline) == [A]
    assert manager.topics.get("orders").partitions == 2
    with pytest.raises(PartitionOffline):
        append(manager, "a")


def test_without_any_log_directory_there_is_no_manager() -> None:
    fs = FailingFs(disk(), errno.EIO, lambda call: call.path.name == "meta.properties", is_broken=True)
    with pytest.raises(NoLogDir, match="EIO"):
        open_manager(fs)


def test_a_log_directory_that_is_locked_is_refused_and_the_locks_are_let_go() -> None:
    held: set[PurePath] = set()

    class Lock:
        def __init__(self, path: PurePath) -> None:
            self.path = path

        def __enter__(self) -> None:
            if self.path == B:
                raise ConfigInvalid("taken")
            held.add(self.path)

        def __exit__(self, *_: object) -> None:
            held.discard(self.path)

    with pytest.raises(ConfigInvalid, match="taken"):
        LogManager.open(disk(), [A, B], NOW, options(lock=Lock))
    assert held == set()


def test_what_is_appended_unsynced_is_seen_once_it_is_synced() -> None:
    fs = MemoryFs()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    done = manager.append_unsynced(P0, batch("a", "b"), NOW)
    assert done is not None
    log = manager.log(P0)
    assert (done.first_offset, log.log_end, log.high_watermark, log.last_stable_offset) == (0, 2, 0, 0)
    assert manager.sync([P0, P0]) == {}
    assert (log.high_watermark, log.recovery_point) == (2, 0)
    (state, *_), _ = fs.some_crash_states(1, random.Random(1))
    assert values(open_manager(state.to_fs(fs))) == ["a", "b"]


def test_a_flush_shows_what_was_appended_unsynced_as_well() -> None:
    manager = open_manager(MemoryFs())
    manager.topics.create("orders", 1, {}, NOW)
    manager.append_unsynced(P0, batch("a"), NOW)
    manager.flush(P0, NOW)
    assert manager.log(P0).high_watermark == 1


def test_a_sync_tells_log_by_log_what_failed() -> None:
    fs = FailingFs(MemoryFs(), errno.EIO, lambda call: call.method == "sync" and A in call.path.parents)
    manager = open_manager(fs, (A, B))
    manager.topics.create("orders", 2, {}, NOW)
    places = {partition.name: log_dir.path for log_dir, partition in manager.partitions()}
    for name in places:
        manager.append_unsynced(name, batch("a"), NOW)
    fs.is_broken = True
    gone = TopicPartition("gone", 0)
    failed = manager.sync([*places, gone])
    (lost,) = (name for name, place in places.items() if place == A)
    assert {name: type(fault) for name, fault in failed.items()} == {lost: WriteFault, gone: UnknownTopic}
    assert set(manager.offline) == {A}
    (kept,) = (name for name, place in places.items() if place == B)
    assert manager.log(kept).high_watermark == 1


def test_the_epoch_that_is_due_ends_where_the_log_ends() -> None:
    fs = MemoryFs()
    manager = open_manager(fs)
    manager.topics.create("orders", 1, {}, NOW)
    append(manager, "a")
    manager.flush(P0, NOW)
    (state, *_), _ = fs.some_crash_states(1, random.Random(1))
    again = open_manager(state.to_fs(fs))
    assert again.partition(P0).leader_epoch == 1
    assert [again.end_offset_for_epoch(P0, Epoch(epoch)) for epoch in (0, 1, 2)] == [(0, 1), (1, 1), None]
