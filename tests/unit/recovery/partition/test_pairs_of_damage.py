"""Two kinds of damage in one log: no byte of it is lost, and a second recovery finds nothing to do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from support.batches import TRANSACTIONAL, batch_v2, marker
from support.damages import KINDS, LAST
from support.log_dirs import (
    META,
    OPTIONS,
    POINTS,
    SOUND,
    STARTS,
    Files,
    checkpoint,
    damaged,
    on_disk,
    place,
    plan_of,
    recover,
    segment,
)
from support.log_dirs import TOP as ROOT

from recovery.plan.plan import PlanOptions, SplitLog
from storage.base.errors import ExitStatus

FAR: Final = (1 << 31) + 5
"""More than fits the 32 bits of an offset index."""
SECOND: Final = 3 * FAR
ACCEPTED: Final = OPTIONS._replace(accept_loss=True)
TORN: Final = b"torn and no batch at all"


def lost(before: Files, after: Files) -> list[str]:
    """Return the names of the files of which a byte is neither in the log directory nor kept aside."""
    contents = set(after.values())
    return [name for name, data in before.items() if not _is_whole(name, data, after, contents)]


def _is_whole(name: str, data: bytes, after: Files, contents: set[bytes]) -> bool:
    if data in contents:
        return True
    left = after.get(name, b"")
    cut = data[len(left) :]
    return data.startswith(left) and (cut in contents or not any(cut))


def check(files: Files, options: PlanOptions = OPTIONS) -> None:
    """Recover twice: the first time keeps every byte, the second finds nothing to do."""
    fs = on_disk(files)
    held = plan_of(fs, options).is_held
    recover(fs, options)
    recovered = fs.contents(str(ROOT))
    assert lost(files, recovered) == []
    again = plan_of(fs, options)
    assert again.is_empty
    assert again.is_held == held
    assert held or again.status is ExitStatus.CLEAN
    recover(fs, options, created_ms=2)
    assert fs.contents(str(ROOT)) == recovered


# ---- logs whose segments are split


def refused(base: int) -> bytes:
    """Return a transaction that is open, and a batch of the same producer that belongs to none."""
    return batch_v2(
        base, 1, producer_id=11, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    ) + batch_v2(base + 1, 1, producer_id=11, producer_epoch=0, base_sequence=1)  # fmt: skip


def near(base: int, sequence: int) -> list[bytes]:
    return [
        batch_v2(base, 2),
        batch_v2(base + 2, 2, producer_id=7, producer_epoch=0, base_sequence=sequence),
        batch_v2(base + 4, 2, producer_id=9, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL),
        marker(base + 6, 9, commit=False),
        batch_v2(base + 7, 3),
    ]


def _rotten(base: int, sequence: int) -> bytes:
    batches = near(base, sequence)
    third = bytearray(batches[2])
    third[-1] ^= 0x41
    return b"".join([*batches[:2], bytes(third), *batches[3:]])


def _doubled(batches: list[bytes]) -> list[bytes]:
    return [*batches[:4], batches[1], *batches[4:]]


def _exchanged(batches: list[bytes]) -> list[bytes]:
    return [*batches[:3], batches[4], batches[3]]


SHAPES: dict[str, Callable[[int, int], bytes]] = {
    "sound": lambda base, sequence: b"".join(near(base, sequence)),
    "torn": lambda base, sequence: b"".join(near(base, sequence)) + TORN,
    "zeroes": lambda base, sequence: b"".join(near(base, sequence)) + bytes(700),
    "rotten": _rotten,
    "doubled": lambda base, sequence: b"".join(_doubled(near(base, sequence))),
    "exchanged, torn": lambda base, sequence: b"".join(_exchanged(near(base, sequence))) + TORN,
    "doubled, refused": lambda base, sequence: b"".join(_doubled(near(base, sequence))) + refused(base + 10),
    "refused": lambda base, sequence: b"".join(near(base, sequence)) + refused(base + 10),
    "overflowing": lambda base, sequence: b"".join(near(base, sequence) + near(base + FAR, sequence + 2)),
    "overflowing, doubled": lambda base, sequence: (
        SHAPES["sound"](base, sequence) + b"".join(_doubled(near(base + FAR, sequence + 2)))
    ),
    "overflowing, torn": lambda base, sequence: SHAPES["overflowing"](base, sequence) + TORN,
    "overflowing, rotten": lambda base, sequence: b"".join(near(base, sequence)) + _rotten(base + FAR, sequence + 2),
    "overflowing, refused": lambda base, sequence: SHAPES["overflowing"](base, sequence) + refused(base + FAR + 10),
    "refused, overflowing": lambda base, sequence: (
        b"".join(near(base, sequence)) + refused(base + 10) + b"".join(near(base + FAR, sequence + 2))
    ),
}
"""Segments, each from its base offset and the first sequence of its producers; most have something wrong."""


def two_segments(first: str, second: str, *, point: int, start: int = 0) -> Files:
    """Return a log of two segments; the second follows without a gap where nothing is missing from the first."""
    base = 2 * FAR if "overflowing" not in first else FAR + 10
    if "refused" in first:
        base += 2
    return {
        POINTS: checkpoint({"orders-0": point}),
        STARTS: checkpoint({"orders-0": start}),
        "meta.properties": META,
        place(0): SHAPES[first](0, 0),
        place(base): SHAPES[second](base, 4),
    }


def test_a_batch_that_is_refused_behind_a_torn_segment_to_be_split_leaves_the_torn_bytes_in_a_file() -> None:
    check(two_segments("overflowing, torn", "refused", point=0))


def test_a_batch_that_is_refused_in_a_later_piece_of_a_split_ends_the_log_there() -> None:
    files = two_segments("overflowing, refused", "sound", point=0)
    plan = plan_of(on_disk(files))
    (split,) = (action for action in plan.partitions[0].actions if isinstance(action, SplitLog))
    assert [piece.base_offset for piece in split.pieces] == [0, FAR]
    check(files)


@pytest.mark.parametrize("base", [5, FAR])
def test_a_split_that_would_take_the_place_of_another_segment_is_held(base: int) -> None:
    files = two_segments("overflowing", "sound", point=0)
    files = {name: data for name, data in files.items() if name.endswith(place(0)) or not name.endswith(".log")}
    files[place(base)] = SHAPES["sound"](base, 4)
    (partition,) = plan_of(on_disk(files)).partitions
    assert partition.held
    assert partition.actions == ()
    check(files)


@pytest.mark.parametrize("accepted", [False, True], ids=["", "accept-loss"])
@pytest.mark.parametrize("point", [0, FAR, 9 * FAR], ids=["unflushed", "half", "flushed"])
@pytest.mark.parametrize("first", SHAPES)
def test_two_segments_of_any_two_shapes_keep_every_byte(first: str, point: int, accepted: bool) -> None:
    for second in SHAPES:
        check(two_segments(first, second, point=point), ACCEPTED if accepted else OPTIONS)


@pytest.mark.parametrize("first", SHAPES)
def test_two_segments_of_any_two_shapes_whose_log_start_lies_behind_keep_every_byte(first: str) -> None:
    for second, start in itertools.product(SHAPES, (5, FAR + 3, 9 * FAR)):
        check(two_segments(first, second, point=0, start=start))


# ---- every two kinds


def overflow(files: Files) -> None:
    files[LAST] += batch_v2(20 + FAR, 2, leader_epoch=2) + batch_v2(20 + 2 * FAR, 2, leader_epoch=2)


def overflow_with_a_torn_tail(files: Files) -> None:
    overflow(files)
    files[LAST] += TORN


def refused_in_a_piece(files: Files) -> None:
    overflow(files)
    files[LAST] += refused(22 + 2 * FAR)


def refused_in_an_unflushed_segment(files: Files) -> None:
    files[POINTS] = checkpoint({"orders-0": 10})
    files[place(10)] = b"".join(segment(10)[:4]) + refused(17)


ALL: Final = KINDS | {
    made.__name__: made
    for made in (overflow, overflow_with_a_torn_tail, refused_in_a_piece, refused_in_an_unflushed_segment)
}


def made_pairs(one: str) -> Iterator[Files]:
    """Yield a log with the kind, and with it and each of the kinds behind it in their order."""
    names = list(ALL)
    for other in names[names.index(one) :]:
        changes = [ALL[one]] if one == other else [ALL[one], ALL[other]]
        try:
            yield damaged(*changes, files=SOUND)
        except (KeyError, IndexError):
            continue  # the one took away what the other damages


@pytest.mark.parametrize("one", ALL)
def test_every_two_kinds_of_damage_keep_every_byte(one: str) -> None:
    for files in made_pairs(one):
        check(files)
