"""What a broker flushes is verified; what it does besides is no damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.guarding import ORDERS as NAME
from support.guarding import FakeClock, Guarded, Place, Told, batches, grow, offsets, ranges, tree

from daemon.ledger.truncations import read_truncations
from daemon.status.model import CellVerdict, DirState, Mode
from daemon.verify.options import ScrubOptions
from storage.disk.fs import lock_log_dir

# ---- newly flushed


def test_newly_flushed_bytes_are_verified_once_and_no_byte_twice(guarded: Guarded, place: Place) -> None:
    grow(place, 400)
    guarded.run(20)
    grow(place, 450)
    guarded.run(20)
    assert ranges(guarded) == [(300, 450), (450, 500)]
    sizes = [f["bytes"] for f in guarded.told.named("range_verified")]
    assert sum(map(int, sizes)) == place.log(NAME, 300).stat().st_size
    assert guarded.status.lag.partitions == 0


def test_a_range_goes_on_through_segments_that_were_rolled_meanwhile(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.segment(NAME, 450, batches(450, 10))
    place.segment(NAME, 550, batches(550, 10))
    place.flush(NAME, 600)
    guarded.run(20)
    assert ranges(guarded) == [(300, 450), (450, 550), (550, 600)]
    assert guarded.kinds == []


def test_a_bit_flipped_in_flushed_bytes_is_found_within_a_minute_and_named(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 300, 1510 + 2 * 151 + 100)
    place.flush(NAME, 450)
    guarded.run(60)
    (finding,) = guarded.status.findings
    assert offsets(guarded) == [("orders", 0, 420, 429)]
    assert (finding.kind, finding.verdict, finding.severity) == ("batch_crc", "on disk", "damage")
    assert (finding.position, finding.size, finding.next_good_offset) == (1510 + 302, 151, 430)
    assert finding.command == f"logmend recover --depth full --topic orders --heal-from REPLICA {place.path}"
    assert guarded.status.partitions[0].verdict is CellVerdict.DAMAGED
    assert (430, 450) in ranges(guarded)


def test_damage_above_the_recovery_point_is_nobodys_business(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5) + batches(450, 3)[:-20])
    place.flip(NAME, 300, 1510 + 4 * 151 + 100)
    place.flush(NAME, 440)
    guarded.run(60)
    assert guarded.kinds == []
    assert ranges(guarded) == [(300, 440)]


def test_damage_above_the_point_is_not_told_of_together_with_damage_below(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 8))
    place.flip(NAME, 300, 1510 + 151 + 100)
    place.flip(NAME, 300, 1510 + 5 * 151 + 100)
    place.flush(NAME, 440)
    guarded.run(60)
    assert offsets(guarded) == [("orders", 0, 410, 419)]


def test_what_is_half_written_at_the_first_look_and_whole_at_the_second_is_no_finding(
    guarded: Guarded, place: Place
) -> None:
    whole = batches(400, 5)
    place.append(NAME, 300, whole[:-30])
    place.flush(NAME, 450)
    guarded.run(3)
    assert guarded.worker._ranges is not None
    assert [pending.suspicion is not None for pending in guarded.worker._ranges.backlog._pending.values()] == [True]
    place.append(NAME, 300, whole[-30:])
    guarded.run(60)
    assert guarded.kinds == []
    assert ranges(guarded)[-1][1] == 450


def test_a_point_that_moves_backwards_is_an_event_of_its_own_and_verification_goes_on(
    guarded: Guarded, place: Place
) -> None:
    grow(place, 400)
    guarded.run(20)
    with place.log(NAME, 300).open("r+b") as file:
        file.truncate(1510 + 151)
    place.flush(NAME, 410)
    guarded.run(20)
    (told,) = guarded.told.named("recovery_point_regressed")
    guarded.ledger.commit()
    (cut,) = read_truncations(guarded.ledger.state_dir, [place.path])
    assert (cut.first_offset, cut.last_offset) == (told["new"], told["old"] - 1)
    assert (told["topic"], told["partition"], told["old"], told["new"]) == ("orders", 0, 450, 410)
    place.append(NAME, 300, batches(410, 6, leader_epoch=1))
    place.flip(NAME, 300, 1510 + 151 + 100)  # in what takes the place of bytes that were verified
    place.flush(NAME, 470)
    guarded.run(20)
    assert offsets(guarded) == [("orders", 0, 410, 419)]
    assert ranges(guarded)[-1][1] == 470


def test_a_truncation_that_the_checkpoint_does_not_show_yet_is_no_finding(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    guarded.run(5)
    with place.log(NAME, 300).open("r+b") as file:
        file.truncate(1510)
    place.flush(NAME, 450)
    guarded.run(20)
    assert guarded.kinds == []
    place.flush(NAME, 400)
    guarded.run(20)
    assert guarded.kinds == []
    assert guarded.status.lag.partitions == 0


def test_a_log_that_stays_below_its_recovery_point_is_told_of(guarded: Guarded, place: Place) -> None:
    place.flush(NAME, 450)
    for _ in range(4):
        guarded.run(60)
        place.write_points()
    guarded.run(60)
    assert guarded.kinds == ["checkpoint_beyond_end"]
    assert offsets(guarded) == [("orders", 0, 400, 449)]


def test_a_segment_that_is_compacted_under_us_is_found_again(guarded: Guarded, place: Place) -> None:
    grow(place, 400)
    guarded.run(20)
    log = place.log(NAME, 300)
    new = log.with_suffix(".new")
    new.write_bytes(batch_v2(430, 5) + batches(440, 6))
    new.replace(log)
    place.flush(NAME, 500)
    guarded.run(60)
    assert guarded.kinds == []
    assert ranges(guarded)[-1][1] == 500


def test_a_partition_that_goes_while_it_is_waited_for_leaves_nothing_behind(guarded: Guarded, place: Place) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 300, 1510 + 100)
    place.flush(NAME, 450)
    guarded.run(2)
    place.directory(NAME).rename(place.path / f"{NAME}.0123456789abcdef0123456789abcdef-delete")
    del place.points[NAME]
    place.write_points()
    guarded.run(90)
    assert guarded.kinds == []
    assert guarded.status.lag.partitions == 0
    assert guarded.status.partitions == ()
    assert len(guarded.told.named("partition_vanished")) == 1


def test_a_partition_that_comes_is_verified_from_its_beginning(guarded: Guarded, place: Place) -> None:
    place.make("pay-7", 2, flushed=200)
    guarded.run(20)
    told = [f for f in guarded.told.named("range_verified") if f["topic"] == "pay"]
    assert [(f["first_offset"], f["next_offset"]) for f in told] == [(0, 100), (100, 200)]


def test_a_topic_that_was_deleted_and_made_again_is_another_one(guarded: Guarded, place: Place) -> None:
    grow(place, 400)
    guarded.run(20)
    shutil.rmtree(place.directory(NAME))
    place.make(NAME, 1, flushed=100)
    guarded.run(80)
    assert guarded.told.named("recovery_point_regressed") == []
    assert guarded.kinds == []
    assert ranges(guarded)[-1] == (0, 100)


@pytest.mark.parametrize("suffix", ["-future", "-stray", "-delete"])
def test_directories_that_are_no_live_partitions_are_left_alone(guarded: Guarded, place: Place, suffix: str) -> None:
    odd = f"pay-0.0123456789abcdef0123456789abcdef{suffix}"
    place.make(odd, 2)
    del place.points[odd]
    place.flip(odd, 0, 100)
    place.flush("pay-0", 150)
    guarded.scrub_now(90)
    assert guarded.kinds == []
    assert [cell.topic for cell in guarded.status.partitions] == ["orders"]


def test_a_restart_goes_on_where_it_was(guarded: Guarded, place: Place) -> None:
    grow(place, 400)
    guarded.run(20)
    guarded.close()
    place.append(NAME, 300, batches(450, 5))
    place.flush(NAME, 500)
    guarded.open()
    guarded.run(20)
    assert ranges(guarded) == [(300, 450), (450, 500)]


def test_many_segments_are_not_listed_to_find_the_place(guarded: Guarded, place: Place) -> None:
    index = place.log(NAME, 300).with_suffix(".index")
    place.append(NAME, 300, batches(400, 100))
    index.write_bytes(index.read_bytes() + bytes(8 * 1000))  # as a running broker keeps it
    place.flush(NAME, 1400)
    guarded.run(20)
    assert ranges(guarded) == [(300, 1400)]


@pytest.mark.parametrize("entry", [b"\0\0\0\x10\0\0\0\x05", b"\xff" * 8, b"\0\0\0\x01\x7f\xff\xff\xff", b"\0\0\0\x64"])
def test_a_wrong_index_leads_nobody_astray(place: Place, tmp_path: Path, entry: bytes) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flush(NAME, 420)
    place.log(NAME, 300).with_suffix(".index").write_bytes(entry)
    guarded = Guarded(place, tmp_path / "state")
    guarded.run(5)
    place.flush(NAME, 450)
    guarded.run(60)
    assert guarded.kinds == []
    assert ranges(guarded)[-1][1] == 450
    guarded.close()


# ---- the directory itself


def test_a_guard_changes_nothing_at_all(place: Place, tmp_path: Path) -> None:
    place.append(NAME, 300, batches(400, 5))
    place.flip(NAME, 100, 50)
    place.flush(NAME, 450)
    before = tree(place.path)
    guarded = Guarded(place, tmp_path / "state")
    guarded.scrub_now(120)
    assert guarded.kinds == ["batch_crc"]
    guarded.close()
    assert tree(place.path) == before


def test_it_sees_who_holds_the_lock_and_keeps_nobody_from_taking_it(guarded: Guarded, place: Place) -> None:
    assert guarded.status.broker_pid is None
    with lock_log_dir(place.path):
        guarded.run(20)
        assert guarded.status.broker_pid == os.getpid()
    guarded.run(20)
    assert guarded.status.broker_pid is None
    assert len(guarded.told.named("broker_appeared")) == len(guarded.told.named("broker_gone")) == 1


@pytest.mark.parametrize("leaves_mount_point", [True, False])
def test_a_directory_that_is_unmounted_is_absent_and_known_when_it_is_back(
    guarded: Guarded, place: Place, leaves_mount_point: bool
) -> None:
    guarded.scrub_now(30)
    verified = guarded.status.partitions
    away = place.path.with_name("away")
    place.path.rename(away)
    if leaves_mount_point:
        place.path.mkdir()
    guarded.run(200)
    assert guarded.status.state is DirState.ABSENT
    assert guarded.status.reason
    assert guarded.status.mode is Mode.GUARD
    if leaves_mount_point:
        place.path.rmdir()
    away.rename(place.path)
    guarded.run(20)
    assert guarded.status.state is DirState.GUARDING
    assert guarded.status.partitions == verified
    grow(place, 400)
    guarded.run(20)
    assert ranges(guarded) == [(300, 450)]
    assert len(guarded.told.named("log_dir_absent")) == len(guarded.told.named("log_dir_back")) == 1


def test_a_directory_that_is_not_there_at_the_start_is_waited_for(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    place.path.rename(tmp_path / "away")
    guarded = Guarded(place, tmp_path / "state")
    guarded.run(20)
    assert guarded.status.state is DirState.ABSENT
    (tmp_path / "away").rename(place.path)
    place.make(NAME, 2)
    guarded.run(20)
    assert guarded.status.state is DirState.GUARDING
    assert len(guarded.status.partitions) == 1
    guarded.close()


def test_a_checkpoint_that_cannot_be_read_twice_is_a_finding_until_it_can(guarded: Guarded, place: Place) -> None:
    (place.path / "recovery-point-offset-checkpoint").write_text("0\n5\norders 0 300\n")
    guarded.run(4)
    assert guarded.kinds == []
    guarded.run(20)
    assert guarded.kinds == ["checkpoint_corrupt"]
    place.write_points()
    guarded.run(20)
    assert guarded.kinds == []


def test_a_wake_is_heard_at_once(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", poll_seconds=3600, scrub=ScrubOptions(census_seconds=3600))
    guarded.run(10)
    grow(place, 400)
    guarded.run(10)
    assert ranges(guarded) == []
    guarded.worker.wake(frozenset({place.path / "recovery-point-offset-checkpoint"}))
    guarded.run(10)
    assert ranges(guarded) == [(300, 450)]
    guarded.close()


def test_the_ledger_may_begin_anew_under_it(guarded: Guarded, place: Place) -> None:
    guarded.ledger.write("DELETE FROM segments")
    guarded.ledger._db.execute("ROLLBACK")
    guarded.ledger._fell(__import__("sqlite3").OperationalError("disk I/O error"))
    guarded.run(20)
    assert "cannot be written" in guarded.status.reason
    grow(place, 400)
    guarded.run(30)
    assert guarded.kinds == []
    assert ranges(guarded)[-1][1] == 450
    assert guarded.status.partitions[0].segments == 4


def test_reading_is_never_faster_than_allowed(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", max_bytes_per_second=1000)
    guarded.run(5)
    before = guarded.clock.monotonic()
    place.append(NAME, 300, batches(400, 100))
    place.flush(NAME, 1400)
    guarded.run(2)
    place.append(NAME, 300, batches(1400, 1))
    place.flush(NAME, 1410)
    while ranges(guarded)[-1][1] != 1410:
        guarded.run(1)
    assert guarded.clock.monotonic() - before > 15100 / 1000
    guarded.close()


def test_it_says_when_what_was_flushed_waits_too_long(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", verify_within_seconds=10, told=Told(), clock=FakeClock())
    guarded.run(5)
    place.flush(NAME, 450)
    guarded.run(30)
    assert guarded.status.lag.partitions == 1
    assert guarded.status.lag.seconds > 10
    assert len(guarded.told.named("verification_behind")) == 1
    guarded.close()
