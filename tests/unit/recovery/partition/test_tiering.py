"""A tiered log begins in the remote tier: what only that knows is kept, or the partition is held."""

from __future__ import annotations

import pytest
from support.log_dirs import (
    BASES,
    END,
    EPOCHS,
    KRAFT,
    MARKER,
    POINTS,
    STARTS,
    Files,
    checkpoint,
    live,
    on_disk,
    place,
    plan_of,
    recover,
    sound,
)

from checkpoint.leader_epoch import decode_epochs
from recovery.partition.points import Points, is_tiered
from recovery.plan.findings import Damage, Finding
from recovery.plan.plan import LogDirPlan

LOCAL_START = BASES[-1]
HISTORY = b"0\n3\n0 0\n1 5\n2 12\n"
"""The batches of the local log are of epoch 2, which began in the remote tier."""


def tiered(log_start: int = 0, history: bytes | None = HISTORY) -> Files:
    """Return a log directory whose first segments are in the remote tier alone."""
    files = {
        name: data
        for name, data in sound().items()
        if not any(name.startswith(f"orders-0/{base:020d}") for base in BASES[:-1])
    }
    files[STARTS] = checkpoint({"orders-0": log_start})
    files[EPOCHS] = history or b""
    if history is None:
        del files[EPOCHS]
    return files


def findings(plan: LogDirPlan, kind: Damage) -> list[Finding]:
    return [finding for finding in plan.findings if finding.kind is kind]


def epochs(files: Files) -> list[tuple[int, int]]:
    return [tuple(map(int, entry)) for entry in decode_epochs(files[EPOCHS])]  # type: ignore[misc]


def recovered(files: Files) -> Files:
    """Return what a recovery leaves; there must be nothing left to do."""
    fs = on_disk(files)
    recover(fs)
    assert plan_of(fs).is_empty
    return live(fs.contents("/data"))


def test_of_a_tiered_log_with_all_its_files_nothing_is_changed() -> None:
    plan = plan_of(on_disk(tiered()))
    assert plan.is_empty
    assert not plan.is_held


@pytest.mark.parametrize("marker", [False, True])
@pytest.mark.parametrize("size", range(len(HISTORY) + 1))
def test_wherever_the_epoch_file_is_torn_no_epoch_below_the_local_log_is_lost(size: int, marker: bool) -> None:
    files = tiered(history=HISTORY[:size]) | ({MARKER: b""} if marker else {})
    plan = plan_of(on_disk(files))
    after = recovered(files)
    lost = findings(plan, Damage.EPOCHS_LOST)
    assert plan.is_held == bool(lost)
    if lost:
        assert after[EPOCHS] == files[EPOCHS]
    else:
        assert epochs(after) == [(0, 0), (1, 5), (2, 12)]


def test_a_torn_line_above_the_local_start_is_derived_again() -> None:
    after = recovered(tiered(history=b"0\n4\n0 0\n1 5\n2 12\n3 2"))
    assert epochs(after) == [(0, 0), (1, 5), (2, 12)]


def test_a_line_at_the_local_start_tells_that_none_below_it_is_missing() -> None:
    history = b"0\n4\n0 0\n1 12\n2 20\n3"
    assert epochs(recovered(tiered(history=history))) == [(0, 0), (1, 12), (2, 20)]


@pytest.mark.parametrize("history", [None, b"", b"0\n0\n", b"0\n2\n0 0\n1 5\n", b"0\n1\n2 25\n"])
def test_without_the_epochs_of_remote_segments_the_partition_is_held(history: bytes | None) -> None:
    files = tiered(history=history)
    (lost,) = findings(plan_of(on_disk(files)), Damage.EPOCHS_LOST)
    assert (lost.first_offset, lost.last_offset) == (0, LOCAL_START - 1)
    assert "--heal-from" in lost.evidence
    assert recovered(files).get(EPOCHS) == history


def test_lines_that_do_not_rise_are_not_what_a_broker_wrote() -> None:
    # A broker drops what a later line contradicts, and then the remote segments of that epoch.
    assert findings(plan_of(on_disk(tiered(history=b"0\n3\n0 0\n1 5\n2 3\n"))), Damage.EPOCHS_LOST)


def test_a_log_start_in_the_local_log_needs_no_epochs_below_it() -> None:
    files = tiered(LOCAL_START + 4, history=b"0\n3\n0 0\n1")
    assert epochs(recovered(files)) == [(2, LOCAL_START + 4)]


def test_of_a_log_that_is_not_tiered_the_batches_give_the_epochs() -> None:
    files = tiered(history=None) | {STARTS: checkpoint({})}
    assert epochs(recovered(files)) == [(2, LOCAL_START)]


def test_an_empty_local_segment_leaves_the_epochs_of_the_remote_ones() -> None:
    files = {name: data for name, data in tiered().items() if not name.startswith("orders-0/0")}
    files |= {place(LOCAL_START): b"", POINTS: checkpoint({"orders-0": LOCAL_START})}
    assert epochs(recovered(files)) == [(0, 0), (1, 5), (2, 12)]
    assert findings(plan_of(on_disk(files | {EPOCHS: HISTORY[:-2]})), Damage.EPOCHS_LOST)


def test_without_a_local_segment_the_partition_is_held_and_nothing_of_it_changes() -> None:
    files = {name: data for name, data in tiered().items() if not name.startswith("orders-0/0")}
    plan = plan_of(on_disk(files))
    assert findings(plan, Damage.LOCAL_LOG_LOST)
    assert [partition.held for partition in plan.partitions] == [True]
    assert recovered(files) == files


def test_a_partition_that_was_just_made_is_not_held() -> None:
    plan = plan_of(on_disk({"orders-0/partition.metadata": b"", POINTS: checkpoint({}), STARTS: checkpoint({})}))
    assert not findings(plan, Damage.LOCAL_LOG_LOST)


@pytest.mark.parametrize("metadata", [KRAFT, {}])
def test_a_cut_below_the_log_start_offset_is_held_where_a_broker_would_begin_anew(metadata: Files) -> None:
    files = {name: data for name, data in sound().items() if not name.startswith("orders-0/0")}
    files |= {place(0): sound()[place(0)][:70], POINTS: checkpoint({}), STARTS: checkpoint({"orders-0": 9})} | metadata
    (partition,) = [found for found in plan_of(on_disk(files)).partitions if found.partition == "orders-0"]
    assert partition.held == bool(metadata)
    assert bool(partition.actions) != bool(metadata)
    assert ("local_log_lost" in {finding.kind.value for finding in partition.findings}) == bool(metadata)


@pytest.mark.parametrize("starts", [None, b"", b"0\n1\norders 0 "])
def test_a_lost_log_start_offset_is_where_the_epochs_begin(starts: bytes | None) -> None:
    files = {**tiered(4, history=b"0\n3\n0 4\n1 5\n2 12\n"), STARTS: starts or b""} | KRAFT
    if starts is None:
        del files[STARTS]
    after = recovered(files)
    assert b"orders 0 4\n" in after[STARTS]
    assert epochs(after) == [(0, 4), (1, 5), (2, 12)]


def test_the_log_start_offset_of_a_log_that_is_not_tiered_is_not_guessed() -> None:
    files = tiered(history=b"0\n3\n0 4\n1 5\n2 12\n")
    del files[STARTS]
    assert STARTS not in recovered(files)


def test_a_snapshot_at_the_local_start_stays() -> None:
    files = tiered()
    assert place(LOCAL_START, "snapshot") in files
    assert place(LOCAL_START, "snapshot") in recovered(files | {POINTS: checkpoint({"orders-0": END})})


def test_a_torn_log_start_checkpoint_keeps_its_whole_lines() -> None:
    torn = checkpoint({"audit-0": 7, "orders-0": 4, "sales-0": 9})[: -len(b"9\n")]
    assert recovered(tiered() | {STARTS: torn})[STARTS] == checkpoint({"audit-0": 7, "orders-0": 4})


class Metadata:
    """What the metadata log says of every topic."""

    def __init__(self, tiered: bool | None) -> None:
        self.tiered = tiered

    def is_tiered(self, topic: str) -> bool | None:
        assert topic == "orders"
        return self.tiered


@pytest.mark.parametrize(
    ("known", "log_start", "local_start", "answer"),
    [
        (True, None, 10, True),
        (True, None, None, True),
        (False, 5, 10, False),  # the checkpoint was written before retention moved the first segment
        (False, 0, 10, True),  # a broker notes 0 for tiered logs only
        (None, 5, 10, True),
        (None, 5, 5, False),
        (None, None, 10, False),
        (None, 5, None, False),
    ],
)
def test_what_tells_a_tiered_log(
    known: bool | None, log_start: int | None, local_start: int | None, answer: bool
) -> None:
    points = Points(0, log_start or 0, has_log_start=log_start is not None, topic="orders", topic_ids=Metadata(known))  # type: ignore[arg-type]
    assert is_tiered(points, local_start) is answer
