"""Frames: sizes are judged before memory is taken, and all memory is counted."""

from __future__ import annotations

import random
import struct

import pytest

from wire.frame import LARGE, Budget, Frame, FrameInvalid, FrameReader

LIMIT = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Feeding:
    """Gives bytes to a reader as a transport does, `step` at a time."""

    def __init__(self, budget: Budget | None = None, limit: int = LIMIT) -> None:
        self.budget = budget or Budget(1 << 30)
        self.reader = FrameReader(limit, self.budget)
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


def test_a_large_frame_waits_while_there_is_no_room_and_goes_on_with_room() -> None:
    told: list[int] = []
    budget = Budget(3 * LARGE, lambda: told.append(1))
    first, second = Feeding(budget), Feeding(budget)
    first.give(framed(b"a" * (2 * LARGE)), 4096)
    data = framed(b"b" * (2 * LARGE))
    assert second.give(data, 4096) == []
    assert second.reader.is_waiting
    assert budget.used == 2 * LARGE
    assert not told
    first.frames[0].release()
    assert told == [1]
    assert second.give(b"", 4096) == [b"b" * (2 * LARGE)]


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
    assert feeding.budget.used == LARGE
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
        # A step of small frames may come on top of what was there when it was read.
        assert budget.used <= 4 * LARGE + (1 << 18)
        if draw.random() < 0.3:
            for frame in feeding.frames:
                frame.release()
            feeding.frames.clear()
    for feeding in readers:
        feeding.reader.abandon()
        for frame in feeding.frames:
            frame.release()
    assert budget.used == 0
