"""Which leader epoch a partition goes on with: a new one wherever consumers could have seen what is gone."""

from __future__ import annotations

import pytest
from support.managers import NOW, P0, A, append, open_manager
from support.memory_fs import MemoryFs

from checkpoint.markers import CLEAN_SHUTDOWN
from storage.base.units import Offset
from storage.batch.batch import parse_header, split_batches

EPOCHS = A / "orders-0" / "leader-epoch-checkpoint"


def epoch_of_next(fs: MemoryFs, *, is_clean: bool = True) -> int:
    """Open, append, close; return the epoch of what was appended."""
    if not is_clean:
        fs.remove(A / CLEAN_SHUTDOWN)
    with open_manager(fs) as manager:
        base = append(manager, "next").first_offset
        (only,) = split_batches(manager.read(P0, Offset(base), 1 << 20).load())
        return parse_header(only).leader_epoch


def with_epoch(number: int) -> MemoryFs:
    """Return a disk with a log whose last batch has this leader epoch, shut down cleanly."""
    fs = MemoryFs({"/a/": b""})
    with open_manager(fs) as manager:
        manager.topics.create("orders", 1, {}, NOW)
        append(manager, "a")
        manager.partition(P0).start_epoch(number)
        append(manager, "b")
    return fs


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("content", [None, b"0\n0\n", b"0\n1\n0 0\n"], ids=["lost", "emptied", "too old"])
def test_a_new_leader_epoch_is_above_all_in_the_log_whatever_the_file_says(
    content: bytes | None, is_clean: bool
) -> None:
    fs = with_epoch(7)
    fs.remove(EPOCHS)
    if content is not None:
        fs.plant(EPOCHS, content=content)
    assert epoch_of_next(fs, is_clean=is_clean) == 8


def test_without_a_crash_the_leader_epoch_goes_on() -> None:
    assert epoch_of_next(with_epoch(7)) == 7


def test_a_leader_epoch_that_was_due_is_not_forgotten_by_shutdowns_without_an_append() -> None:
    fs = with_epoch(7)
    fs.remove(A / CLEAN_SHUTDOWN)
    for _ in range(3):
        open_manager(fs).close()
    assert epoch_of_next(fs) == 8


def test_an_emptied_log_goes_on_above_the_epochs_of_what_is_gone() -> None:
    fs = with_epoch(7)
    fs.remove(A / CLEAN_SHUTDOWN)
    for name in fs.contents("/a/orders-0"):
        if name.startswith("0000"):
            fs.remove(A / "orders-0" / name)
    open_manager(fs).close()
    open_manager(fs).close()
    assert epoch_of_next(fs) == 8
