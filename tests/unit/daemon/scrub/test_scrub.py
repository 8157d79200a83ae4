"""The scrubber reads everything again within the promised time, yields to the broker, and reports only what is so."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.guarding import DAY, FAST, ORDERS, FakeClock, Guarded, Place, run, tree

from daemon.scrub.scrub import Scrubber
from daemon.status.model import CellVerdict, ScrubState
from daemon.verify.options import ScrubOptions


@pytest.fixture
def segments() -> int:
    return 6


@pytest.fixture
def scrub() -> ScrubOptions:
    return FAST


# ---- what is read


def test_every_closed_segment_is_read_and_the_flushed_part_of_the_active_one(guarded: Guarded) -> None:
    guarded.scrub_now()
    assert sorted(set(guarded.verified)) == [0, 100, 200, 300, 400]
    assert guarded.status.partitions[0].verdict is CellVerdict.SOUND
    guarded.place.flush(ORDERS, 550)
    guarded.scrub_now()
    assert 500 in guarded.verified


def test_a_closed_segment_above_the_recovery_point_waits(place: Place, tmp_path: Path) -> None:
    place.flush(ORDERS, 200)
    place.flip(ORDERS, 300, 300)
    guarded = Guarded(place, tmp_path / "state", scrub=FAST)
    guarded.scrub_now()
    assert guarded.kinds == []
    assert sorted(set(guarded.verified)) == [0, 100]
    place.flush(ORDERS, 500)
    guarded.run(3600)
    assert guarded.kinds == ["batch_crc"]
    guarded.close()


def test_neighbours_of_damage_are_read_next(guarded: Guarded, place: Place) -> None:
    place.flip(ORDERS, 200, 300)
    generation = guarded.worker._scrubber.generation
    row = generation.census.partitions[ORDERS]
    generation.page.set_suspect(row.id, [200])
    guarded.run(15)
    assert guarded.kinds == ["batch_crc"]
    assert set(guarded.verified) >= {100, 300}
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


@pytest.mark.slow
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
    assert len(guarded.verified) > 2.5 * 180
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
        before = len(guarded.verified)
        guarded.run(cycle / 4)
        quarters.append(len(guarded.verified) - before)
    assert min(quarters) >= 5
    order = [base for base in guarded.verified if base < 6000][:30]
    assert order != sorted(order)
    guarded.close()


def test_a_restart_takes_up_where_it_was(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", scrub=FAST, draw=random_draw())
    while len(guarded.verified) < 2:
        guarded.run(10)
    guarded.close()
    guarded.open()
    while len(guarded.verified) < 5:
        guarded.run(10)
    assert sorted(guarded.verified[:5]) == [0, 100, 200, 300, 400]
    guarded.close()


def test_who_cannot_keep_the_promise_says_by_how_much(place: Place, tmp_path: Path) -> None:
    options = ScrubOptions(cycle_seconds=3600, max_bytes_per_second=1)
    guarded = Guarded(place, tmp_path / "state", scrub=options)
    guarded.run(300)
    assert guarded.status.scrub.behind_seconds > 0
    assert len(guarded.told.named("scrub_behind")) == 1
    guarded.close()


def test_a_clock_that_is_set_back_puts_nothing_off_and_one_that_jumps_ahead_breaks_nothing(guarded: Guarded) -> None:
    guarded.scrub_now()
    guarded.clock.jump_ms(-400 * 86_400_000)
    before = len(guarded.verified)
    guarded.run(3600)
    assert len(guarded.verified) >= before + 5
    guarded.clock.jump_ms(4000 * 86_400_000)
    before = len(guarded.verified)
    guarded.run(600)
    assert before + 5 <= len(guarded.verified) <= before + 12
    assert guarded.kinds == []


# ---- yielding to others


def test_it_pauses_also_over_a_restart_until_it_is_told_to_go_on(guarded: Guarded) -> None:
    assert "pauses" in guarded.worker.command("scrub-pause")
    guarded.run(10)
    guarded.close()
    guarded.open()
    before = len(guarded.verified)
    guarded.run(7200)
    assert guarded.status.scrub.state is ScrubState.PAUSED
    assert len(guarded.verified) == before
    guarded.worker.command("scrub-resume")
    guarded.run(7200)
    assert len(guarded.verified) > before
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
    place.flip(ORDERS, 300, 300)
    guarded.worker.command("scrub-now")
    guarded.run(0.002)
    guarded.ledger._fell(sqlite3.OperationalError("database or disk is full"))
    guarded.run(60)
    assert guarded.ledger.trouble
    assert guarded.kinds == ["batch_crc"]
    assert set(guarded.verified) == {0, 100, 200, 400}


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
    guarded.scrub_now(3600)
    assert guarded.status.scrub.state is ScrubState.OUTSIDE_HOURS
    assert guarded.verified == []
    guarded.run(3 * 3600)
    assert len(set(guarded.verified)) == 5
    guarded.close()


def test_it_rests_while_the_disks_are_under_pressure(place: Place, tmp_path: Path) -> None:
    pressure = [90.0]
    guarded = Guarded(place, tmp_path / "state", scrub=FAST, pressure=lambda: pressure[0])
    guarded.scrub_now()
    assert guarded.status.scrub.state is ScrubState.YIELDING
    assert "90 %" in guarded.status.scrub.reason
    assert guarded.verified == []
    pressure[0] = 0.0
    guarded.run(60)
    assert len(set(guarded.verified)) == 5
    assert len(guarded.told.named("scrub_yielded")) == 1
    guarded.close()


def test_some_pressure_slows_it_down(place: Place, tmp_path: Path) -> None:
    took = []
    for number, pressure in enumerate((0.0, 25.0, 39.0)):
        options = ScrubOptions(cycle_seconds=3600, max_bytes_per_second=500)
        guarded = Guarded(place, tmp_path / f"state{number}", scrub=options, pressure=lambda p=pressure: p)
        guarded.worker.command("scrub-now")
        begin = guarded.clock.monotonic()
        while len(set(guarded.verified)) < 5:
            guarded.run(1)
        took.append(guarded.clock.monotonic() - begin)
        guarded.close()
    assert took[0] >= 4 * 1510 / 500
    assert took[1] > 1.5 * took[0]
    assert took[2] > 5 * took[0]


def test_switched_off_it_reads_nothing_and_still_knows_what_is_there(place: Place, tmp_path: Path) -> None:
    guarded = Guarded(place, tmp_path / "state", scrub=ScrubOptions(enabled=False))
    guarded.scrub_now()
    assert guarded.status.scrub.state is ScrubState.OFF
    assert guarded.verified == []
    assert guarded.status.scrub.segments_total == 6
    guarded.close()


def test_options_change_while_it_runs(guarded: Guarded) -> None:
    guarded.worker.adjust(replace(guarded.options, scrub=replace(FAST, enabled=False)))
    guarded.run(10)
    assert guarded.status.scrub.state is ScrubState.OFF
    guarded.worker.adjust(replace(guarded.options, scrub=FAST))
    guarded.scrub_now()
    assert len(set(guarded.verified)) == 5


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
