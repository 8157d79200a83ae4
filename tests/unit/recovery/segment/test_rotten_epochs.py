"""A leader epoch lies outside of every checksum: one that the batches behind it contradict is not taken over."""

from __future__ import annotations

import pytest
from support.batches import batch_v2
from support.log_dirs import EPOCHS, OPTIONS, POINTS, TOP, checkpoint, live, on_disk, place, plan_of, recover

from checkpoint.leader_epoch import decode_epochs
from recovery.plan.plan import PlanOptions
from recovery.segment.epoch_runs import believed_rises

FULL = PlanOptions(depth="full", index_interval_bytes=150)
END = 10


def log(base: int, *epochs: int) -> bytes:
    return b"".join(batch_v2(base + number, 1, leader_epoch=epoch) for number, epoch in enumerate(epochs))


def flushed(*segments: tuple[int, ...]) -> dict[str, bytes]:
    """Return a recovered log directory of which all but the last segment, without epochs, is flushed."""
    files, base = {POINTS: checkpoint({})}, 0
    for epochs in segments:
        files[place(base)] = log(base, *epochs)
        base += len(epochs)
    fs = on_disk({**files, place(base): b""})
    recover(fs)
    return live(fs.contents(str(TOP))) | {POINTS: checkpoint({"orders-0": base})}


def starts(data: bytes) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in decode_epochs(data)]


@pytest.mark.parametrize("rotten", [3, 99, 1 << 30])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
def test_a_rotten_epoch_of_a_flushed_batch_does_not_enter_the_epoch_file(at: int, rotten: int) -> None:
    sound = (0, 0, 0, 1, 1, 2, 2, 2)
    files = flushed(sound)
    hurt = {**files, place(0): log(0, *(rotten if n == at else epoch for n, epoch in enumerate(sound)))}
    fs = on_disk(hurt)
    assert "epoch_fall" in {finding.kind.value for finding in plan_of(fs, FULL).findings}
    recover(fs, FULL)
    assert starts(fs.contents(str(TOP))[EPOCHS]) == [(0, 0), (1, 3), (2, 5)]
    assert plan_of(fs, FULL).is_empty


def test_a_rotten_epoch_at_the_end_of_a_flushed_segment_does_not_enter_it_either() -> None:
    """No batch of its own segment tells; the next segment begins with an epoch that is lower."""
    files = flushed((0, 0, 1), (1, 1, 2))
    fs = on_disk({**files, place(0): log(0, 0, 0, 77)})
    recover(fs, FULL)
    assert starts(fs.contents(str(TOP))[EPOCHS]) == [(0, 0), (1, 2), (2, 5)]
    assert plan_of(fs, FULL).is_empty


def test_an_epoch_file_that_was_lost_is_made_from_what_most_batches_say() -> None:
    files = flushed((0, 0, 1, 1, 2, 2))
    del files[EPOCHS]
    fs = on_disk({**files, place(0): log(0, 0, 50, 1, 1, 2, 2)})
    recover(fs, OPTIONS)
    assert starts(fs.contents(str(TOP))[EPOCHS]) == [(0, 0), (1, 2), (2, 4)]


@pytest.mark.parametrize(
    ("epochs", "rises"),
    [
        ([], []),
        ([5], [(5, 0)]),
        ([0, 0, 9, 1, 1], [(0, 0), (1, 3)]),
        ([4, 4, 1, 4, 4], [(4, 0)]),
        ([9, 1], [(1, 1)]),
        ([0, 9, 8, 7, 1, 2], [(0, 0), (1, 4), (2, 5)]),
        ([-1, 3, -1, 3], [(3, 1)]),
        ([7, 7, 7, 1], [(7, 0)]),
    ],
)
def test_what_is_believed_is_the_most_that_only_rises(epochs: list[int], rises: list[tuple[int, int]]) -> None:
    assert believed_rises((epoch, offset) for offset, epoch in enumerate(epochs)) == rises
