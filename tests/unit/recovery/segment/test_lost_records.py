"""What a cut takes is counted to its end, not only to the next sound batch."""

from __future__ import annotations

from pathlib import Path

from support.batches import batch_v2, legacy, marker
from support.calling import call
from support.command import make_log_dir
from support.log_dirs import POINTS, checkpoint, name_of

from recovery.logdir.survey import plan_log_dir
from recovery.plan.plan import Cut, PlanOptions
from storage.disk.fs import OsFs


def cuts_of(data: Path) -> tuple[Cut, ...]:
    return plan_log_dir(OsFs(), data, PlanOptions(depth="full", accept_loss=True)).plan.partitions[0].cuts


def bad(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def test_sound_batches_behind_the_damage_are_counted_by_what_they_say(tmp_path: Path) -> None:
    log = [
        batch_v2(0, 4),
        bad(batch_v2(4, 10)),
        batch_v2(14, 3),
        marker(17, 9, commit=True),
        bad(batch_v2(18, 2)),
        batch_v2(20, 5),
    ]
    make_log_dir(tmp_path / "data", b"".join(log))
    (cut,) = cuts_of(tmp_path / "data")
    assert (cut.first_offset, cut.last_offset, cut.records) == (4, 24, 10 + 3 + 2 + 5)


def test_bad_bytes_before_the_next_segment_cost_the_offsets_up_to_it(tmp_path: Path) -> None:
    log = make_log_dir(tmp_path / "data", batch_v2(0, 4) + bad(batch_v2(4, 6)))
    (log.parent / name_of(10)).write_bytes(batch_v2(10, 7))
    cut, behind = cuts_of(tmp_path / "data")
    assert (cut.first_offset, cut.last_offset, cut.records) == (4, 9, 6)
    assert (behind.first_offset, behind.last_offset, behind.records) == (10, 16, 7)


def test_entries_of_old_formats_are_counted_by_their_offsets(tmp_path: Path) -> None:
    log = [legacy(0, magic=1), bad(legacy(1, magic=1)), legacy(2, magic=1), legacy(3, magic=1)]
    make_log_dir(tmp_path / "data", b"".join(log))
    (cut,) = cuts_of(tmp_path / "data")
    assert (cut.first_offset, cut.last_offset, cut.records) == (1, 3, 3)


def test_a_torn_end_has_no_count(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "data", batch_v2(0, 4) + batch_v2(4, 6)[:-9])
    (cut,) = cuts_of(tmp_path / "data")
    assert (cut.first_offset, cut.last_offset, cut.records) == (4, None, None)


def test_plan_and_recover_announce_the_same_loss_before_and_after(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = make_log_dir(data, b"".join([batch_v2(0, 4), bad(batch_v2(4, 6)), batch_v2(10, 100)]))
    (log.parent / name_of(110)).write_bytes(batch_v2(110, 40))
    (data / POINTS).write_bytes(checkpoint({"orders-0": 150}))
    line = "loses 146 records, offsets 4 to 149 of orders-0"
    for words in (["plan"], ["recover", "--dry-run"], ["recover"]):
        assert line in map(str.strip, call(*words, "--accept-loss", data).stdout.splitlines())
