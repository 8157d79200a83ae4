"""A fold that is put away and gone on with comes out as one that was never interrupted; of both kernels alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.batches import TRANSACTIONAL, TS, batch_v2, legacy, marker

from storage.base.rows import BatchRows, Stop
from storage.kernel.fold import STATE_VERSION, SegmentFold
from storage.kernel.scan import crc32c, kernel_name, scan_batches

KERNELS = ["python", pytest.param("c", marks=pytest.mark.skipif(kernel_name() != "c", reason="no C kernel"))]
ANY = {
    "index_interval_bytes": (0, 150, 400, 4096),
    "max_index_size": (36, 100, 4096, 10_485_760),
    "event_limit": (3, 20, 200_000),
}


def some_log(rng: random.Random) -> list[bytes]:
    """Return batches as a log may have them: producers, transactions, epochs, gaps, old formats."""
    batches, offset, epoch, timestamp = [], rng.choice((0, 70)), rng.choice((-1, 0, 3)), TS
    for _ in range(rng.randrange(40)):
        count = rng.randrange(1, 5)
        offset += rng.choice((0, 0, 0, 0, 3, 2**30))
        epoch = rng.choice((epoch, epoch, epoch, epoch + 1, max(epoch - 1, -1)))
        timestamp += rng.choice((0, 5, 5, -3))
        producer = rng.choice((-1, -1, 7, 8, 9, 1 << 40))
        shared = {"leader_epoch": epoch, "max_timestamp": rng.choice((timestamp, timestamp, -1))}
        kind = rng.random()
        if kind < 0.05:
            batches.append(legacy(offset))
            count = 1
        elif kind < 0.15:
            batches.append(marker(offset, max(producer, 7), rng.randrange(2), commit=rng.random() < 0.5))
            count = 1
        else:
            bits = rng.choice((0, 0, TRANSACTIONAL, 2))
            batches.append(
                batch_v2(
                    offset,
                    count,
                    attributes=bits,
                    producer_id=producer,
                    producer_epoch=rng.randrange(2),
                    base_sequence=rng.randrange(100),
                    payload=bytes(rng.randrange(9, 400)),
                    **shared,
                )
            )
        offset += count
    return batches


def pieces(log: bytes, capacity: int) -> Iterator[tuple[BatchRows, int]]:
    """Yield the rows of a log, some at a time."""
    rows, place, next_offset = BatchRows(capacity), 0, 0
    while place < len(log):
        scanned = scan_batches(memoryview(log)[place:], rows, position=place, next_offset=next_offset)
        assert scanned.stop in {Stop.END, Stop.ROWS_FULL}
        yield rows, scanned.count
        next_offset, place = rows.last_offset[scanned.count - 1] + 1, place + scanned.size


def everything(fold: SegmentFold) -> tuple[Any, ...]:
    return fold.facts, fold.epochs, list(fold.producer_events), fold.producer_events.overflowed, fold.save()


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_fold_saved_and_restored_anywhere_is_as_one_without_interruption(kernel: str, seed: int) -> None:
    rng = random.Random(seed)
    log = b"".join(some_log(rng))
    settings = {name: rng.choice(values) for name, values in ANY.items()}
    whole, parted, capacity = SegmentFold(50, kernel=kernel, **settings), SegmentFold(50, kernel=kernel, **settings), 3
    offsets, times = b"", b""
    for rows, count in pieces(log, capacity):
        whole.add(rows, count)
        parted.add(rows, count)
        if rng.random() < 0.5:
            more = parted.take_indexes()
            offsets, times = offsets + more[0], times + more[1]
        state = parted.save()
        if rng.random() < 0.3 and parted.index_sizes == (len(offsets), len(times)):
            parted = SegmentFold.restore(state, (offsets, times), kernel=kernel)
            assert (parted.offset_index(), parted.time_index()) == (whole.offset_index(), whole.time_index())
            parted.take_indexes()
        elif parted.index_sizes == (len(offsets), len(times)):
            parted = SegmentFold.restore(state, kernel=kernel)
        assert everything(parted) == everything(whole)
    more = parted.take_indexes()
    again = SegmentFold.restore(parted.save(), (offsets + more[0], times + more[1]), kernel=kernel)
    assert everything(again) == everything(whole)
    assert (again.offset_index(), again.time_index()) == (whole.offset_index(), whole.time_index())
    assert again.settings == whole.settings == (50, *settings.values())


@pytest.mark.skipif(kernel_name() != "c", reason="no C kernel")
@pytest.mark.parametrize("seed", range(100))
def test_both_kernels_save_the_same_bytes_and_go_on_from_those_of_the_other(seed: int) -> None:
    rng = random.Random(seed)
    log = b"".join(some_log(rng))
    settings = {name: rng.choice(values) for name, values in ANY.items()}
    folds = [SegmentFold(50, kernel=kernel, **settings) for kernel in ("python", "c")]
    for rows, count in pieces(log, rng.randrange(1, 9)):
        for fold in folds:
            fold.add(rows, count)
        states = [fold.save() for fold in folds]
        assert states[0] == states[1]
        indexes = [fold.take_indexes() for fold in folds]
        assert indexes[0] == indexes[1]
        folds = [SegmentFold.restore(states[1], kernel="python"), SegmentFold.restore(states[0], kernel="c")]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_state_of_a_known_log_is_these_bytes_and_whoever_changes_them_raises_the_version(kernel: str) -> None:
    fold = SegmentFold(5, kernel=kernel)
    first, second = (batch_v2(n, producer_id=p, leader_epoch=p) for n, p in ((5, 8), (6, 9)))
    for rows, count in pieces(first + second + batch_v2(7, producer_id=9, leader_epoch=9), 8):
        fold.add(rows, count)
    assert (STATE_VERSION, len(fold.save()), crc32c(memoryview(fold.save())[:-4])) == (1, 668, 4294109216)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_state_that_is_damaged_cut_or_of_another_version_is_refused(kernel: str) -> None:
    rng = random.Random(1)
    fold = SegmentFold(0, kernel=kernel)
    for rows, count in pieces(b"".join(some_log(random.Random(5))), 8):
        fold.add(rows, count)
    state = fold.save()
    for size in range(len(state)):
        with pytest.raises(ValueError, match="damaged"):
            SegmentFold.restore(state[:size], kernel=kernel)
    for _ in range(300):
        place, bit = rng.randrange(len(state)), 1 << rng.randrange(8)
        with pytest.raises(ValueError, match="damaged"):
            SegmentFold.restore(state[:place] + bytes([state[place] ^ bit]) + state[place + 1 :], kernel=kernel)
    other = state[:4] + (STATE_VERSION + 1).to_bytes(4, "little") + state[8:-4]
    with pytest.raises(ValueError, match="version 2, this is 1"):
        SegmentFold.restore(other + crc32c(memoryview(other)).to_bytes(4, "little"), kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_state_whose_numbers_do_not_add_up_is_refused_though_its_checksum_holds(kernel: str) -> None:
    fold = SegmentFold(0, kernel=kernel)
    for rows, count in pieces(b"".join(some_log(random.Random(5))), 8):
        fold.add(rows, count)
    state = fold.save()[:-4]
    for place in (31, 32, 33):  # how many rises, events and runs there are
        for value in (-1, 1 << 40, (1 << 63) - 1, 1 << 61):
            at = 40 + 8 * place
            false = state[:at] + value.to_bytes(8, "little", signed=True) + state[at + 8 :]
            with pytest.raises(ValueError, match="numbers of a fold"):
                SegmentFold.restore(false + crc32c(memoryview(false)).to_bytes(4, "little"), kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_indexes_that_are_not_of_the_saved_lengths_are_refused(kernel: str) -> None:
    fold = SegmentFold(0, index_interval_bytes=0, kernel=kernel)
    for rows, count in pieces(b"".join(batch_v2(n) for n in range(4)), 8):
        fold.add(rows, count)
    state, (offsets, times) = fold.save(), fold.take_indexes()
    assert (len(offsets), len(times)) == (24, 12)
    for wrong in ((offsets[:-8], times), (offsets, times + bytes(12)), (b"", b"")):
        with pytest.raises(ValueError, match="were taken"):
            SegmentFold.restore(state, wrong, kernel=kernel)
    assert SegmentFold.restore(state, (offsets, times), kernel=kernel).offset_index() == offsets


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_fold_whose_indexes_were_taken_out_tells_no_whole_index(kernel: str) -> None:
    fold = SegmentFold(0, kernel=kernel)
    fold.take_indexes()
    for ask in (fold.offset_index, fold.time_index):
        with pytest.raises(ValueError, match="taken out"):
            ask()


def test_a_fold_of_blocks_is_not_saved() -> None:
    with pytest.raises(ValueError, match="blocks"):
        SegmentFold(0, block_offsets=10).save()
