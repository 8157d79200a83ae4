"""A producer that the broker had forgotten stays forgotten, wherever the fold of the log begins."""

from __future__ import annotations

from support.batches import batch_v2
from support.log_dirs import META, POINTS, STARTS, TOP, Files, checkpoint, live, on_disk, place, plan_of, recover

from storage.base.units import Offset
from storage.producers.producer_state import ProducerState, decode_snapshot

NEWEST = place(30, "snapshot")


def expired_at_the_second_roll() -> Files:
    """Return a log whose first segment has a producer that the snapshot at 20 does not know any more."""
    silent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    logs = {place(base): batch_v2(base, 10, **(silent if base == 0 else {})) for base in (0, 10, 20)}
    fs = on_disk({POINTS: checkpoint({}), STARTS: checkpoint({}), "meta.properties": META} | logs)
    recover(fs)
    files = live(fs.contents(str(TOP)))
    files[place(20, "snapshot")] = ProducerState(map_end_offset=Offset(20)).encode_snapshot()
    del files[NEWEST]
    return files


def test_what_a_recovery_writes_is_right_also_for_a_look_that_begins_later() -> None:
    fs = on_disk(expired_at_the_second_roll() | {POINTS: checkpoint({"orders-0": 10})})
    recover(fs)
    recovered = live(fs.contents(str(TOP)))
    assert decode_snapshot(recovered[NEWEST], Offset(30)).entries == {}
    for point in (0, 10, 20, 30):
        assert plan_of(on_disk(recovered | {POINTS: checkpoint({"orders-0": point})})).is_empty


def test_a_producer_that_a_snapshot_still_knows_is_kept() -> None:
    files = expired_at_the_second_roll()
    files[place(20, "snapshot")] = files[place(10, "snapshot")]
    fs = on_disk(files | {POINTS: checkpoint({"orders-0": 10})})
    recover(fs)
    assert set(decode_snapshot(live(fs.contents(str(TOP)))[NEWEST], Offset(30)).entries) == {7}
