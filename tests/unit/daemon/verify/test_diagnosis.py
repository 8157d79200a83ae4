"""Damage in old bytes is found and named; what may change, or moves meanwhile, is not taken for damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.batches import batch_v2
from support.guarding import FAST, ORDERS, Guarded, Place, batches

from daemon.status.model import CellVerdict
from daemon.verify.options import ScrubOptions


@pytest.fixture
def segments() -> int:
    return 6


@pytest.fixture
def scrub() -> ScrubOptions:
    return FAST


def test_a_flipped_bit_in_an_old_segment_is_found_within_the_cycle_and_named(guarded: Guarded, place: Place) -> None:
    place.flip(ORDERS, 200, 151 * 4 + 70)
    guarded.run(3600)
    (finding,) = guarded.status.findings
    assert (finding.topic, finding.partition, finding.kind, finding.verdict) == ("orders", 0, "batch_crc", "on disk")
    assert (finding.first_offset, finding.last_offset, finding.next_good_offset) == (240, 249, 250)


def test_each_of_several_places_in_one_segment_is_named(guarded: Guarded, place: Place) -> None:
    for number in (1, 4, 9):
        place.flip(ORDERS, 200, 151 * number + 70)
    guarded.scrub_now()
    assert [f.first_offset for f in guarded.status.findings] == [210, 240, 290]


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(".index", "index_off_batch"), (".timeindex", "time_index_off_batch"), (".txnindex", "txn_index_corrupt")],
)
def test_a_bad_index_beside_a_sound_log_is_found(place: Place, tmp_path: Path, suffix: str, kind: str) -> None:
    place.append(ORDERS, 500, batches(600, 60))
    place.segment(ORDERS, 500, place.log(ORDERS, 500).read_bytes())
    place.segment(ORDERS, 1200)
    place.flush(ORDERS, 1200)
    file = place.log(ORDERS, 500).with_suffix(suffix)
    data = bytearray(file.read_bytes() if file.exists() else bytes(33))
    data[-5 if suffix == ".timeindex" else -1] ^= 1
    file.write_bytes(data)
    guarded = Guarded(place, tmp_path / "state", scrub=FAST)
    guarded.scrub_now()
    assert guarded.kinds == [kind]
    assert guarded.status.findings[0].severity == "repairable"
    assert guarded.status.partitions[0].verdict is CellVerdict.REPAIRABLE, "its records are sound"
    guarded.close()


def test_a_missing_index_is_found_and_its_return_closes_the_finding(guarded: Guarded, place: Place) -> None:
    index = place.log(ORDERS, 200).with_suffix(".index")
    data = index.read_bytes()
    index.unlink()
    guarded.scrub_now()
    assert guarded.kinds == ["index_missing"]
    index.write_bytes(data)
    guarded.scrub_now()
    assert guarded.kinds == []


def test_a_sealed_segment_that_holds_other_batches_is_told_of_although_every_checksum_holds(
    guarded: Guarded, place: Place
) -> None:
    guarded.scrub_now()
    other = b"".join(batch_v2(200 + n * 10, 10, base_timestamp=1_600_000_000_000) for n in range(10))
    assert len(other) == place.log(ORDERS, 200).stat().st_size
    place.segment(ORDERS, 200, other)
    guarded.scrub_now()
    (finding,) = guarded.status.findings
    assert (finding.kind, finding.severity, finding.verdict) == ("changed_in_place", "damage", "on disk")
    guarded.scrub_now()
    assert guarded.kinds == ["changed_in_place"]
    place.log(ORDERS, 200).unlink()
    guarded.run(120)
    assert guarded.kinds == []


@pytest.mark.parametrize("how", ["compacted", "made again", "truncated and appended", "touched", "copied"])
def test_a_sealed_segment_that_may_change_may_change(guarded: Guarded, place: Place, how: str) -> None:
    guarded.scrub_now()
    other = b"".join(batch_v2(200 + n * 10, 10, base_timestamp=1_600_000_000_000) for n in range(10))
    log = place.log(ORDERS, 200)
    if how == "compacted":
        (place.path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 500\n")
        place.segment(ORDERS, 200, other)
    elif how == "made again":
        shutil.rmtree(place.directory(ORDERS))
        place.make(ORDERS, 6)
        place.segment(ORDERS, 200, other)
    elif how == "truncated and appended":
        place.segment(
            ORDERS, 200, batches(200, 4) + batch_v2(240, 20, leader_epoch=3) + batch_v2(260, 40, leader_epoch=3)
        )
    elif how == "touched":
        os.utime(log)
    else:
        data = log.read_bytes()
        log.unlink()
        log.write_bytes(data)
    guarded.scrub_now(120)
    guarded.scrub_now(120)
    assert guarded.kinds == []


def test_what_moves_between_two_looks_is_not_told_of(guarded: Guarded, place: Place) -> None:
    log = place.log(ORDERS, 200)
    good = log.read_bytes()
    place.flip(ORDERS, 200, 300)
    guarded.worker.command("scrub-now")
    while not guarded.worker._scrubber.generation.readings.suspects:
        guarded.run(0.01)
    log.unlink()
    place.segment(ORDERS, 200, good[: 151 * 3] + batch_v2(230, 70))
    guarded.run(60)
    assert guarded.kinds == []
    assert guarded.status.partitions[0].verdict is CellVerdict.SOUND


def test_a_segment_that_is_retained_out_between_two_looks_is_not_told_of(guarded: Guarded, place: Place) -> None:
    place.flip(ORDERS, 0, 300)
    guarded.worker.command("scrub-now")
    while not guarded.worker._scrubber.generation.readings.suspects:
        guarded.run(0.01)
    for suffix in (".log", ".index", ".timeindex"):
        place.log(ORDERS, 0).with_suffix(suffix).rename(place.log(ORDERS, 0).with_suffix(f"{suffix}.deleted"))
    guarded.run(120)
    assert guarded.kinds == []
    assert guarded.status.scrub.segments_total == 5
