"""Frames: sizes are judged before memory is taken, and all memory is counted."""

from __future__ import annotations

import random
import struct

import pytest

from wire.frame import LARGE, Account, Budget, Frame, FrameInvalid, FrameReader

LIMIT = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Feeding:
    """Gives bytes to a reader as a transport does, `step` at a time."""

    def __init__(self, budget: Budget | None = None, limit: int = LIMIT, account: Account | None = None) -> None:
        self.budget = budget or Budget(1 << 30)
        self.reader = FrameReader(limit, account or self.budget.account())
        self.frames: list[Frame] = []
        self.waiting = b""

    def give(self, data: bytes, step: int) -> list[bytes]:
        """Return the bodies of the frames that were whole by then, which count as processed."""
        data = self.waiting + data
        position = 0
        while position < len(data) and self.reader.may_read():
            target = self.reader.target()
            if target is None:
                piece = data[position : position + step]
                self.frames += self.reader.feed(memoryview(piece))
                position += len(piece)
            else:
                piece = data[position : position + min(step, len(target))]
                target[: len(piece)] = piece
                frame = self.reader.filled(len(piece))
                self.frames += [] if frame is None else [frame]
                position += len(piece)
        self.waiting = data[position:]
        return [bytes(frame.data) for frame in self.frames]


@pytest.mark.parametrize("step", [1, 3, 7, 4096, 1 << 22])
def test_frames_come_out_as_they_went_in_however_they_are_cut(step: int) -> None:
    bodies = [b"x", b"", b"small" * 10, bytes(range(256)) * 400, b"y" * LARGE, b"z" * (LARGE - 1), b"end"]
    bodies.remove(b"")
    if step == 1:
        bodies = [body for body in bodies if len(body) < 1000]
    assert Feeding().give(framed(*bodies), step) == bodies


def test_a_frame_above_the_limit_is_refused_by_its_size_alone() -> None:
    feeding = Feeding(limit=1000)
    with pytest.raises(FrameInvalid, match="1001 bytes; 1000 are allowed"):
        feeding.give(struct.pack(">i", 1001), 4)
    assert feeding.budget.used == 0


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_a_size_that_no_request_has_is_refused(size: int) -> None:
    with pytest.raises(FrameInvalid):
        Feeding().give(struct.pack(">i", size), 4)


def test_the_limit_may_rise_between_frames() -> None:
    feeding = Feeding(limit=10)
    feeding.give(framed(b"login"), 100)
    feeding.reader.limit = 100
    assert feeding.give(framed(b"x" * 50), 100)[-1] == b"x" * 50


def test_every_frame_is_counted_until_it_is_released_and_once_only() -> None:
    feeding = Feeding()
    feeding.give(framed(b"a" * 100, b"b" * LARGE), 4096)
    assert feeding.budget.used == 100 + LARGE
    for frame in feeding.frames * 2:
        frame.release()
    assert feeding.budget.used == 0


def test_an_announced_size_costs_nothing_and_bytes_count_as_they_come() -> None:
    budget = Budget(3 * LARGE)
    for _ in range(100):
        assert Feeding(budget).give(framed(b"x" * LIMIT)[:5], 5) == []
    assert budget.used == 100
    assert Feeding(budget).give(framed(b"a" * LARGE), 4096) == [b"a" * LARGE]


def test_of_large_frames_that_fill_the_budget_one_at_a_time_comes_to_its_end() -> None:
    told: list[int] = []
    budget = Budget(3 * LARGE, lambda: told.append(1))
    three, body = [Feeding(budget) for _ in range(3)], b"x" * (2 * LARGE)
    for feeding in three:
        feeding.give(framed(body)[: LARGE + 4], 4096)
    assert budget.used == 3 * LARGE
    for feeding in three:
        feeding.waiting = framed(body)[LARGE + 4 :]
        feeding.give(b"", 4096)
    assert [len(feeding.frames) for feeding in three] == [1, 0, 0]
    for feeding in three:
        assert feeding.give(b"", 4096) == [body]
        feeding.frames.pop().release()
    assert told
    assert budget.used == 0


def test_a_connection_that_goes_ahead_and_ends_lets_the_next_one_go() -> None:
    budget = Budget(LARGE)
    first, second = Feeding(budget), Feeding(budget)
    for feeding in (first, second):
        feeding.give(framed(b"x" * (2 * LARGE))[:LARGE], LARGE // 2)
    assert second.reader.may_read()
    assert not first.reader.may_read()
    assert budget.is_pressed
    second.reader.abandon()
    assert first.give(framed(b"x" * (2 * LARGE))[LARGE:], 4096) == [b"x" * (2 * LARGE)]


def test_large_frames_leave_a_reserve_to_small_ones() -> None:
    budget = Budget(4 * LARGE, reserve=2 * LARGE)
    large = [Feeding(budget) for _ in range(2)]
    for feeding in large:
        feeding.give(framed(b"x" * (4 * LARGE))[: LARGE + 4], 4096)
    assert [feeding.reader.may_read() for feeding in large] == [True, False], "one goes ahead"
    assert Feeding(budget).give(framed(b"small"), 4096) == [b"small"]


def test_one_address_cannot_take_the_room_of_another() -> None:
    budget = Budget(6 * LARGE)
    greedy = budget.account(2 * LARGE)
    for _ in range(8):
        Feeding(budget, account=greedy).give(framed(b"x" * (4 * LARGE))[: 2 * LARGE], 4096)
    assert budget.used < 5 * LARGE, "one went ahead, the others stopped"
    assert Feeding(budget, account=budget.account(2 * LARGE)).give(framed(b"y" * LARGE), 4096) == [b"y" * LARGE]


def test_bytes_that_have_come_move_to_the_account_of_who_has_logged_in() -> None:
    before, after = Budget(LARGE), Budget(1 << 30)
    feeding = Feeding(before)
    feeding.give(framed(b"x" * LIMIT)[:5000], 5000)
    account = after.account()
    feeding.reader.move_to(account)
    assert (before.used, after.used) == (0, 4996)
    feeding.reader.abandon()
    assert after.used == 0


def test_nothing_more_is_read_while_the_small_frames_of_all_take_all_the_room() -> None:
    budget = Budget(1000)
    first, second = Feeding(budget), Feeding(budget)
    first.give(framed(*[b"x" * 100] * 10), 1 << 20)
    assert not second.reader.may_read()
    first.frames[0].release()
    assert second.reader.may_read()


def test_one_frame_above_the_budget_is_let_in_when_nothing_else_is_there() -> None:
    feeding = Feeding(Budget(10))
    assert feeding.give(framed(b"x" * LARGE), 4096) == [b"x" * LARGE]


def test_a_connection_that_ends_midway_gives_its_memory_back() -> None:
    feeding = Feeding()
    feeding.give(framed(b"x" * LARGE)[:5000], 4096)
    assert feeding.reader.is_midway
    assert feeding.budget.used == 5000 - 4
    feeding.reader.abandon()
    assert feeding.budget.used == 0
    assert not feeding.reader.is_midway


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_in_any_pieces_keep_memory_within_bounds_and_end_in_nothing_but_refusals(seed: int) -> None:
    draw = random.Random(seed)
    budget = Budget(4 * LARGE)
    readers = [Feeding(budget, limit=2 * LARGE) for _ in range(4)]
    for _ in range(300):
        feeding = draw.choice(readers)
        size = draw.choice([0, 5, 40, 2000, LARGE, 2 * LARGE, 2 * LARGE + 1, -1, 2**31 - 1])
        data = struct.pack(">i", size) + draw.randbytes(draw.choice([0, size if 0 <= size < 9000 else 10, 3]))
        try:
            feeding.give(data, draw.choice([1, 3, 900, 1 << 18]))
        except FrameInvalid:
            feeding.reader.abandon()
            for frame in feeding.frames:
                frame.release()
            readers[readers.index(feeding)] = Feeding(budget, limit=2 * LARGE)
        # A step of frames may come on top of what was there when it was read, and one frame goes ahead.
        assert budget.used <= 4 * LARGE + (1 << 18) + 2 * LARGE
        if draw.random() < 0.3:
            for frame in feeding.frames:
                frame.release()
            feeding.frames.clear()
    for feeding in readers:
        feeding.reader.abandon()
        for frame in feeding.frames:
            frame.release()
    assert budget.used == 0
