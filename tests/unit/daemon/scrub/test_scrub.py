"""Everything is read again within the promised time, in nobody's way, and nothing is told that is not so."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import pytest
from support.batches import batch_v2
from support.guarding import DAY, FakeClock, Guarded, Place, batches, run, tree

from daemon.events.names import EVENTS
from daemon.guard.guard import GuardWorker
from daemon.ledger.disk import Disk
from daemon.scrub.scrub import Scrubber
from daemon.status.model import CellVerdict, ScrubState
from daemon.verify.device_health import DeviceHealth
from daemon.verify.options import ScrubOptions
from storage.disk.fs import read_fault

NAME = "orders-0"
FAST = ScrubOptions(cycle_seconds=3600, census_seconds=30)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "data")
    made.make(NAME, 6)
    return made


@pytest.fixture
def guarded(place: Place, tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(place, tmp_path / "state", scrub=FAST)
    made.run(5)
    yield made
    assert made.told.names() <= EVENTS.keys()
    for event, fields in made.told.all:
        assert fields.keys() <= set(EVENTS[event].fields), event
    made.close()


def now(guarded: Guarded, seconds: float = 60) -> None:
    """Have everything read, and wait until it is."""
    guarded.worker.command("scrub-now")
    guarded.run(seconds)


def verified(guarded: Guarded) -> list[int]:
    return [int(str(f["base_offset"])) for f in guarded.told.named("segment_verified")]


# ---- what is found


def test_every_closed_segment_is_read_and_the_flushed_part_of_the_active_one(guarded: Guarded) -> None:
    now(guarded)
    assert sorted(set(verified(guarded))) == [0, 100, 200, 300, 400]
    assert guarded.status.partitions[0].verdict is CellVerdict.SOUND
    guarded.place.flush(NAME, 550)
    now(guarded)
    assert 500 in verified(guarded)


def test_a_flipped_bit_in_an_old_segment_is_found_within_the_cycle_and_named(guarded: Guarded, place: Place) -> None:
    place.flip(NAME, 200, 151 * 4 + 70)
    guarded.run(3600)
    (finding,) = guarded.status.findings
    assert (finding.topic, finding.partition, finding.kind, finding.verdict) == ("orders", 0, "batch_crc", "on disk")
    assert (finding.first_offset, finding.last_offset, finding.next_good_offset) == (240, 249, 250)


def test_each_of_several_places_in_one_segment_is_named(guarded: Guarded, place: Place) -> None:
    for number in (1, 4, 9):
        place.flip(NAME, 200, 151 * number + 70)
    now(guarded)
    assert [f.first_offset for f in guarded.status.findings] == [210, 240, 290]


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(".index", "index_off_batch"), (".timeindex", "time_index_off_batch"), (".txnindex", "txn_index_corrupt")],
)
def test_a_bad_index_beside_a_sound_log_is_found(place: Place, tmp_path: Path, suffix: str, kind: str) -> None:
    place.append(NAME, 500, batches(600, 60))
    place.segment(NAME, 500, place.log(NAME, 500).read_bytes())
    place.segment(NAME, 1200)
    place.flush(NAME, 1200)
    file = place.log(NAME, 500).with_suffix(suffix)
    data = bytearray(file.read_bytes() if file.exists() else bytes(33))
    data[-5 if suffix == ".timeindex" else -1] ^= 1
    file.write_bytes(data)
    guarded = Guarded(place, tmp_path / "state", scrub=FAST)
    now(guarded)
    assert guarded.kinds == [kind]
    assert guarded.status.findings[0].severity == "repairable"
    assert guarded.status.partitions[0].verdict is CellVerdict.REPAIRABLE, "its records are sound"
    guarded.close()


def test_a_missing_index_is_found_and_its_return_closes_the_finding(guarded: Guarded, place: Place) -> None:
    index = place.log(NAME, 200).with_suffix(".index")
    data = index.read_bytes()
    index.unlink()
    now(guarded)
    assert guarded.kinds == ["index_missing"]
    index.write_bytes(data)
    now(guarded)
    assert guarded.kinds == []


def test_a_sealed_segment_that_holds_other_batches_is_told_of_although_every_checksum_holds(
    guarded: Guarded, place: Place
) -> None:
    now(guarded)
    other = b"".join(batch_v2(200 + n * 10, 10, base_timestamp=1_600_000_000_000) for n in range(10))
    assert len(other) == place.log(NAME, 200).stat().st_size
    place.segment(NAME, 200, other)
    now(guarded)
    (finding,) = guarded.status.findings
    assert (finding.kind, finding.severity, finding.verdict) == ("changed_in_place", "damage", "on disk")
    now(guarded)
    assert guarded.kinds == ["changed_in_place"]
    place.log(NAME, 200).unlink()
    guarded.run(120)
    assert guarded.kinds == []


@pytest.mark.parametrize("how", ["compacted", "made again", "truncated and appended", "touched", "copied"])
def test_a_sealed_segment_that_may_change_may_change(guarded: Guarded, place: Place, how: str) -> None:
    now(guarded)
    other = b"".join(batch_v2(200 + n * 10, 10, base_timestamp=1_600_000_000_000) for n in range(10))
    log = place.log(NAME, 200)
    if how == "compacted":
        (place.path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 500\n")
        place.segment(NAME, 200, other)
    elif how == "made again":
        shutil.rmtree(place.directory(NAME))
        place.make(NAME, 6)
        place.segment(NAME, 200, other)
    elif how == "truncated and appended":
        place.segment(
            NAME, 200, batches(200, 4) + batch_v2(240, 20, leader_epoch=3) + batch_v2(260, 40, leader_epoch=3)
        )
    elif how == "touched":
        os.utime(log)
    else:
        data = log.read_bytes()
        log.unlink()
        log.write_bytes(data)
    now(guarded, 120)
    now(guarded, 120)
    assert guarded.kinds == []


def test_what_moves_between_two_looks_is_not_told_of(guarded: Guarded, place: Place) -> None:
    log = place.log(NAME, 200)
    good = log.read_bytes()
    place.flip(NAME, 200, 300)
    guarded.worker.command("scrub-now")
    while not guarded.worker._scrubber.generation.readings.suspects:
        guarded.run(0.01)
    log.unlink()
    place.segment(NAME, 200, good[: 151 * 3] + batch_v2(230, 70))
    guarded.run(60)
    assert guarded.kinds == []
    assert guarded.status.partitions[0].verdict is CellVerdict.SOUND


def test_a_segment_that_is_retained_out_between_two_looks_is_not_told_of(guarded: Guarded, place: Place) -> None:
    place.flip(NAME, 0, 300)
    guarded.worker.command("scrub-now")
    while not guarded.worker._scrubber.generation.readings.suspects:
        guarded.run(0.01)
    for suffix in (".log", ".index", ".timeindex"):
        place.log(NAME, 0).with_suffix(suffix).rename(place.log(NAME, 0).with_suffix(f"{suffix}.deleted"))
    guarded.run(120)
    assert guarded.kinds == []
    assert guarded.status.scrub.segments_total == 5


def test_a_closed_segment_above_the_recovery_point_waits(place: Place, tmp_path: Path) -> None:
    place.flush(NAME, 200)
    place.flip(NAME, 300, 300)
    guarded = Guarded(place, tmp_path / "state", scrub=FAST)
    now(guarded)
    assert guarded.kinds == []
    assert sorted(set(verified(guarded))) == [0, 100]
    place.flush(NAME, 500)
    guarded.run(3600)
    assert guarded.kinds == ["batch_crc"]
    guarded.close()


def test_neighbours_of_damage_are_read_next(guarded: Guarded, place: Place) -> None:
    place.flip(NAME, 200, 300)
    generation = guarded.worker._scrubber.generation
    row = generation.census.partitions[NAME]
    generation.page.set_suspect(row.id, [200])
    guarded.run(15)
    assert guarded.kinds == ["batch_crc"]
    assert set(verified(guarded)) >= {100, 300}
    assert row.name.topic == "orders"


# ---- the promise


class Slow:
    """A week of a broker's life: partitions that roll, and old segments that go."""

    def __init__(self, place: Place, names: int, segments: int) -> None:
        self.place, self.names = place, [f"topic-{n}" for n in range(names)]
        for name in self.names:
            place.make(name, segments)
        self.first = dict.fromkeys(self.names, 0)
        self.last = dict.fromkeys(self.names, (segments - 1) * 100)

    def roll(self, name: str) -> None:
        place = self.place
        self.last[name] += 100
        place.segment(name, self.last[name])
        place.flush(name, self.last[name])
        for suffix in (".log", ".index", ".timeindex"):
            place.log(name, self.first[name]).with_suffix(suffix).unlink()
        self.first[name] += 100


def random_draw() -> Callable[[], float]:
    return random.Random(7).random


@pytest.fixture
def long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it rest until there is something to do, not until an order may have come."""
    monkeypatch.setattr("daemon.scrub.scrub.LONGEST_REST", 600.0)
    monkeypatch.setattr("daemon.scrub.segment_queue.LONGEST_REST", 600.0)


def test_in_two_weeks_of_a_busy_directory_no_segment_waits_longer_than_was_promised(
    tmp_path: Path, long_rests: None
) -> None:
    place = Place(tmp_path / "data")
    slow = Slow(place, 6, 30)
    cycle = 4 * DAY
    options = ScrubOptions(cycle_seconds=cycle, census_seconds=600, confirm_seconds=5)
    guarded = Guarded(place, tmp_path / "state", scrub=options, poll_seconds=600, draw=random_draw(),
                      broker_seconds=3600)  # fmt: skip
    seen: dict[tuple[str, int], float] = {}
    longest, rows = 0.0, []
    for part in range(14 * 4):
        guarded.run(DAY / 4)
        slow.roll(slow.names[part % len(slow.names)])
        when = guarded.ledger.read(
            "SELECT p.directory, s.base, s.verified_ms FROM segments s JOIN partitions p ON p.id = s.partition"
        )
        now_ms = guarded.clock.now_ms()
        for directory, base, verified_ms in when:
            since = seen.setdefault((directory, base), now_ms)
            longest = max(longest, now_ms - (verified_ms or since))
        rows.append(guarded.ledger.read("SELECT COUNT(*) FROM segments")[0][0])
    assert len(verified(guarded)) > 2.5 * 180
    assert longest <= cycle * 1000
    assert max(rows) <= 6 * 31
    assert guarded.told.named("scrub_behind") == []
    assert guarded.told.named("scrub_pass_finished")
    assert guarded.kinds == []
    guarded.close()
    assert (tmp_path / "state" / "ledger.sqlite3").stat().st_size < 1 << 20


def test_the_first_pass_is_spread_over_the_cycle_in_an_order_of_chance(tmp_path: Path, long_rests: None) -> None:
    place = Place(tmp_path / "data")
    place.make("a-0", 61)
    cycle = 2 * DAY
    guarded = Guarded(place, tmp_path / "state", draw=random_draw(), poll_seconds=600, broker_seconds=3600,
                      scrub=ScrubOptions(cycle_seconds=cycle, census_seconds=900))  # fmt: skip
    quarters = []
    for _ in range(4):
        before = len(verified(guarded))
        guarded.run(cycle / 4)
        quarters.append(len(verified(guarded)) - before)
    assert min(quarters) >= 5
    order = [base for base in verified(guarded) if base < 6000][:30]
    assert order != sorted(order)
    guarded.close()


def test_a_restart_takes_up_where_it_was(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", scrub=FAST, draw=random_draw())
    while len(verified(guarded)) < 2:
        guarded.run(10)
    guarded.close()
    guarded.open()
    while len(verified(guarded)) < 5:
        guarded.run(10)
    assert sorted(verified(guarded)[:5]) == [0, 100, 200, 300, 400]
    guarded.close()


def test_who_cannot_keep_the_promise_says_by_how_much(place: Place, tmp_path: Path) -> None:
    options = ScrubOptions(cycle_seconds=3600, max_bytes_per_second=1)
    guarded = Guarded(place, tmp_path / "state", scrub=options)
    guarded.run(300)
    assert guarded.status.scrub.behind_seconds > 0
    assert len(guarded.told.named("scrub_behind")) == 1
    guarded.close()


def test_a_clock_that_is_set_back_puts_nothing_off_and_one_that_jumps_ahead_breaks_nothing(guarded: Guarded) -> None:
    now(guarded)
    guarded.clock.jump_ms(-400 * 86_400_000)
    before = len(verified(guarded))
    guarded.run(3600)
    assert len(verified(guarded)) >= before + 5
    guarded.clock.jump_ms(4000 * 86_400_000)
    before = len(verified(guarded))
    guarded.run(600)
    assert before + 5 <= len(verified(guarded)) <= before + 12
    assert guarded.kinds == []


# ---- in nobody's way


def test_it_pauses_also_over_a_restart_until_it_is_told_to_go_on(guarded: Guarded) -> None:
    assert "pauses" in guarded.worker.command("scrub-pause")
    guarded.run(10)
    guarded.close()
    guarded.open()
    before = len(verified(guarded))
    guarded.run(7200)
    assert guarded.status.scrub.state is ScrubState.PAUSED
    assert len(verified(guarded)) == before
    guarded.worker.command("scrub-resume")
    guarded.run(7200)
    assert len(verified(guarded)) > before
    assert len(guarded.told.named("scrub_paused")) == len(guarded.told.named("scrub_resumed")) == 1


def test_one_topic_alone_may_be_asked_for(guarded: Guarded, place: Place) -> None:
    place.make("pay-0", 3)
    guarded.run(60)
    guarded.told.all.clear()
    guarded.worker.command("scrub-now", "pay")
    guarded.run(5)
    assert {f["topic"] for f in guarded.told.named("segment_verified")} == {"pay"}
    with pytest.raises(ValueError, match="scrub-everything"):
        guarded.worker.command("scrub-everything")


def test_what_was_asked_for_is_read_although_the_ledger_begins_anew_meanwhile(guarded: Guarded, place: Place) -> None:
    place.flip(NAME, 300, 300)
    guarded.worker.command("scrub-now")
    guarded.run(0.002)
    guarded.ledger._fell(sqlite3.OperationalError("database or disk is full"))
    guarded.run(60)
    assert guarded.ledger.trouble
    assert guarded.kinds == ["batch_crc"]
    assert set(verified(guarded)) == {0, 100, 200, 400}


def test_a_partition_is_shown_once_after_its_ledger_was_replaced(guarded: Guarded) -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    guarded.ledger._fell(error)
    guarded.run(60)
    assert guarded.told.named("ledger_rebuilt")
    assert [(cell.topic, cell.partition) for cell in guarded.status.partitions] == [("orders", 0)]


def test_outside_its_hours_it_reads_nothing(place: Place, tmp_path: Path) -> None:
    clock = FakeClock()
    hour = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).astimezone().hour
    options = ScrubOptions(cycle_seconds=DAY, hours=frozenset({(hour + 3) % 24}))
    guarded = Guarded(place, tmp_path / "state", scrub=options, clock=clock)
    now(guarded, 3600)
    assert guarded.status.scrub.state is ScrubState.OUTSIDE_HOURS
    assert verified(guarded) == []
    guarded.run(3 * 3600)
    assert len(set(verified(guarded))) == 5
    guarded.close()


def test_it_rests_while_the_disks_are_under_pressure(place: Place, tmp_path: Path) -> None:
    pressure = [90.0]
    guarded = Guarded(place, tmp_path / "state", scrub=FAST, pressure=lambda: pressure[0])
    now(guarded)
    assert guarded.status.scrub.state is ScrubState.YIELDING
    assert "90 %" in guarded.status.scrub.reason
    assert verified(guarded) == []
    pressure[0] = 0.0
    guarded.run(60)
    assert len(set(verified(guarded))) == 5
    assert len(guarded.told.named("scrub_yielded")) == 1
    guarded.close()


def test_some_pressure_slows_it_down(place: Place, tmp_path: Path) -> None:
    took = []
    for number, pressure in enumerate((0.0, 25.0, 39.0)):
        options = ScrubOptions(cycle_seconds=3600, max_bytes_per_second=500)
        guarded = Guarded(place, tmp_path / f"state{number}", scrub=options, pressure=lambda p=pressure: p)
        guarded.worker.command("scrub-now")
        begin = guarded.clock.monotonic()
        while len(set(verified(guarded))) < 5:
            guarded.run(1)
        took.append(guarded.clock.monotonic() - begin)
        guarded.close()
    assert took[0] >= 4 * 1510 / 500
    assert took[1] > 1.5 * took[0]
    assert took[2] > 5 * took[0]


class SickDisk(Disk):
    """Gives an error for some logs."""

    sick: frozenset[str] = frozenset()

    def open_read(self, path: PurePath) -> Any:
        if path.name in self.sick:
            raise read_fault("reading", path, OSError(errno.EIO, "Input/output error"))
        return super().open_read(path)

    def open_again(self, path: PurePath) -> Any:
        return self.open_read(path)


def test_many_bad_files_in_a_short_time_stop_the_scrub_of_their_device(place: Place, tmp_path: Path) -> None:
    disk = SickDisk()
    disk.sick = frozenset(f"{base:020}.log" for base in (0, 100, 200))
    options = ScrubOptions(cycle_seconds=3600, sick_errors=3, sick_seconds=600)
    guarded = Guarded(place, tmp_path / "state", scrub=options, disk=disk)
    now(guarded)
    assert guarded.status.scrub.state is ScrubState.SICK_DEVICE
    assert "scrub-resume" in guarded.status.scrub.reason
    (told,) = guarded.told.named("device_sick")
    assert told["errors"] == 3
    before = len(verified(guarded))
    guarded.run(7200)
    assert len(verified(guarded)) == before
    disk.sick = frozenset()
    guarded.worker.command("scrub-resume")
    guarded.run(7200)
    assert len(verified(guarded)) > before
    assert guarded.kinds == []
    guarded.close()


def test_errors_that_come_slowly_or_of_one_file_make_no_sick_device() -> None:
    clock = FakeClock()
    health = DeviceHealth(clock, 3, 60)
    for _ in range(10):
        assert not health.note(1, "a")
    for number in range(10):
        clock.pass_(40)
        assert not health.note(1, str(number))
    assert not health.is_sick(1)
    assert [health.note(2, name) for name in "abcd"] == [False, False, True, False]
    assert health.is_sick(2)
    assert not health.is_sick(1)


def test_switched_off_it_reads_nothing_and_still_knows_what_is_there(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", scrub=ScrubOptions(enabled=False))
    now(guarded)
    assert guarded.status.scrub.state is ScrubState.OFF
    assert verified(guarded) == []
    assert guarded.status.scrub.segments_total == 6
    guarded.close()


def test_options_change_while_it_runs(guarded: Guarded) -> None:
    guarded.worker.adjust(replace(guarded.options, scrub=replace(FAST, enabled=False)))
    guarded.run(10)
    assert guarded.status.scrub.state is ScrubState.OFF
    guarded.worker.adjust(replace(guarded.options, scrub=FAST))
    now(guarded)
    assert len(set(verified(guarded))) == 5


def test_our_own_directory_is_scrubbed_as_well(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", scrub=FAST)
    ends = {"orders": 600}
    own = Scrubber(
        place.path, guarded.ledger, guarded.clock, guarded.told, FAST, flushed=lambda name: ends.get(name.topic),
        pressure=lambda: 0.0, draw=lambda: 0.5,
    )  # fmt: skip
    own.start()
    before = tree(place.path)
    own.command("scrub-now")
    run(own, guarded.clock, 30)
    assert [cell.verdict for cell in own.board.cells] == [CellVerdict.SOUND]
    assert own.board.status.segments_total == 6
    assert own.board.status.bytes_total == 6 * 1510
    assert tree(place.path) == before
    own.close()
    guarded.close()


_: type[GuardWorker] = GuardWorker
