"""Whole batches at the wrong place: there twice, or exchanged with their neighbour. What is proven is put in order."""

from __future__ import annotations

import random

import pytest
from support.batches import batch_v2
from support.damages import LAST
from support.log_dirs import (
    END,
    META,
    OPTIONS,
    POINTS,
    SOUND,
    TOP,
    Files,
    checkpoint,
    damaged,
    live,
    on_disk,
    place,
    plan_of,
    recover,
    segment,
)

from recovery.evidence.kept import find_kept
from recovery.evidence.loss_account import account
from recovery.evidence.quarantine import restore
from recovery.plan.plan import PlanOptions

FULL = OPTIONS._replace(depth="full")
BATCHES = segment(20)


def with_last(*batches: bytes, files: Files = SOUND) -> Files:
    return {**files, LAST: b"".join(batches)}


def recovered(files: Files, options: PlanOptions = OPTIONS) -> Files:
    """Return what a broker finds after a recovery, after which nothing is left to do."""
    fs = on_disk(files)
    assert not plan_of(fs, options).is_held
    recover(fs, options)
    assert plan_of(fs, FULL).is_empty
    return live(fs.contents(str(TOP)))


def kinds(files: Files, options: PlanOptions = OPTIONS) -> list[str]:
    return [finding.kind.value for finding in plan_of(on_disk(files), options).findings]


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("twice", range(5))
def test_a_batch_that_is_there_again_later_is_left_out(twice: int, at: int) -> None:
    if at <= twice:
        return
    files = with_last(*BATCHES[:at], BATCHES[twice], *BATCHES[at:])
    assert "batch_doubled" in kinds(files)
    assert recovered(files) == SOUND


def test_a_run_of_batches_that_is_there_twice_is_left_out() -> None:
    files = with_last(*BATCHES[:4], *BATCHES[1:4], BATCHES[0], *BATCHES[4:])
    assert recovered(files) == SOUND


def test_a_batch_that_is_there_a_hundred_times_is_left_out_ninety_nine_times() -> None:
    files = with_last(*BATCHES[:2], *[BATCHES[1]] * 99, *BATCHES[2:])
    assert kinds(files).count("batch_doubled") == 99
    assert recovered(files) == SOUND


@pytest.mark.parametrize("first", [1, 2, 3])
def test_neighbours_of_different_lengths_that_changed_places_change_back(first: int) -> None:
    exchanged = list(BATCHES)
    exchanged[first : first + 2] = reversed(exchanged[first : first + 2])
    files = with_last(*exchanged)
    if first == 1:  # two batches of two records each, of two producers
        assert plan_of(on_disk(files)).is_held
        return
    assert "batches_swapped" in kinds(files)
    assert recovered(files) == SOUND


def producers_log(*batches: bytes) -> Files:
    return {POINTS: checkpoint({"orders-0": 0}), "meta.properties": META, place(0): b"".join(batches)}


def numbered(base: int, sequence: int, **more: int) -> bytes:
    return batch_v2(base, 2, producer_id=7, producer_epoch=0, base_sequence=sequence, **more)


def test_the_sequence_of_their_producer_proves_the_order_of_neighbours_of_one_length() -> None:
    batches = [numbered(0, 0), numbered(2, 2), numbered(4, 4), numbered(6, 6)]
    wanted = recovered(producers_log(*batches))
    assert recovered(producers_log(batches[0], batches[2], batches[1], batches[3])) == wanted
    assert recovered(producers_log(batches[1], batches[0], *batches[2:])) == wanted
    assert recovered(producers_log(*batches[:2], batches[3], batches[2])) == wanted


def test_neighbours_that_got_one_anothers_offsets_are_held_for_their_sequences_contradict_them() -> None:
    files = producers_log(numbered(0, 0), numbered(4, 2), numbered(2, 4), numbered(6, 6))
    plan = plan_of(on_disk(files))
    assert plan.is_held
    assert plan.is_empty


def test_neighbours_of_one_length_without_anything_that_tells_their_order_are_held() -> None:
    files = producers_log(batch_v2(0, 2), batch_v2(4, 2), batch_v2(2, 2), batch_v2(6, 2))
    assert plan_of(on_disk(files)).is_held


def test_a_batch_of_lower_offsets_that_is_not_there_before_is_held_and_all_behind_it_stays() -> None:
    stranger = batch_v2(22, 2, leader_epoch=2)
    files = with_last(*BATCHES[:3], stranger, *BATCHES[3:])
    fs = on_disk(files)
    assert plan_of(fs).is_held
    recover(fs)
    assert fs.contents(str(TOP))[LAST] == files[LAST]


def test_with_the_loss_accepted_the_log_ends_before_a_batch_of_which_the_place_is_not_proven() -> None:
    files = with_last(*BATCHES[:3], batch_v2(22, 2, leader_epoch=2), *BATCHES[3:])
    assert recovered(files, OPTIONS._replace(accept_loss=True))[LAST] == b"".join(BATCHES[:3])


def test_flushed_batches_are_put_in_order_without_a_loss_being_accepted() -> None:
    first = segment(0)
    files = {**SOUND, place(0): b"".join([*first[:2], first[0], *first[2:4], *first[3:]])}
    assert recovered(files, FULL) == SOUND


def test_a_torn_tail_behind_a_batch_that_is_there_twice_is_cut_as_it_is_elsewhere() -> None:
    tail = BATCHES[4][:-9]
    files = with_last(*BATCHES[:3], BATCHES[2], BATCHES[3], tail)
    wanted = recovered(with_last(*BATCHES[:4], tail))
    assert recovered(files) == wanted
    fs = on_disk(files)
    (cut,) = plan_of(fs).partitions[0].cuts
    assert cut.position == len(files[LAST]) - len(tail)
    recover(fs)
    (loss,) = account(fs, find_kept(fs, [TOP])[0])
    assert (loss.first_offset, loss.size) == (27, len(tail))


def test_rot_behind_a_batch_that_is_there_twice_is_reported_where_it_lies_in_the_file() -> None:
    rotten = bytearray(BATCHES[3])
    rotten[-1] ^= 0x41
    files = with_last(*BATCHES[:3], BATCHES[1], bytes(rotten), BATCHES[4])
    files[POINTS] = checkpoint({"orders-0": END})
    found = {f.kind.value: f for f in plan_of(on_disk(files)).findings}
    position = len(b"".join([*BATCHES[:3], BATCHES[1]]))
    assert found["batch_crc"].position == position
    assert f"at {position + len(rotten)}" in found["batch_crc"].evidence
    assert found["batch_doubled"].position == len(b"".join(BATCHES[:3]))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_was_put_in_order_comes_back_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    batches = list(BATCHES)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(batches) - 1)
        if rng.random() < 0.5:
            batches.insert(rng.randint(at, len(batches)), batches[at])
        else:
            batches[at : at + 2] = reversed(batches[at : at + 2])
    files = damaged(files=with_last(*batches, rng.choice([b"", b"torn", bytes(90)])))
    fs = on_disk(files)
    held = plan_of(fs).is_held
    recover(fs)
    assert plan_of(fs).is_empty
    assert plan_of(fs).is_held == held
    restore(fs, find_kept(fs, [TOP])[0])
    assert fs.contents(str(TOP)) == files
