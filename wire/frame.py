"""FrameReader: the receiving half of a connection, bytes in and whole frames out; it does no input or output itself.

A frame is four bytes of size and as many bytes. The size is judged before a byte of the frame is kept: above the limit
the connection ends. Small frames come through the caller's buffer; a large one is received in place. Either is counted
against a budget which all connections share, from when its memory is taken until it is processed. While the budget has
no room the caller stops reading, until `may_read`.
Source: Apache Kafka 4.3.0, NetworkReceive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from storage.base.errors import ExitStatus, LogmendError

LARGE: Final = 1 << 14
"""Bytes from which on a frame has memory of its own."""
_SIZE_BYTES: Final = 4


class FrameInvalid(LogmendError):
    """A size that no request has, or one above the limit: later frames cannot be found any more."""

    status = ExitStatus.USAGE


class Budget:
    """Bytes that the unprocessed frames of all connections may take together; for one thread.

    One frame is let in however large it is when nothing else is there: limits of single frames are for the reader.
    `on_room` is called when there is room again after a frame was refused.
    """

    def __init__(self, limit: int, on_room: Callable[[], None] = lambda: None) -> None:
        self.limit, self.used, self._on_room = limit, 0, on_room
        self._has_refused = False

    def take(self, size: int) -> bool:
        """Count `size` bytes if there is room; return whether there was."""
        if self.used and self.used + size > self.limit:
            self._has_refused = True
            return False
        self.used += size
        return True

    def add(self, size: int) -> None:
        """Count `size` bytes that are in memory already."""
        self.used += size

    def has_room(self) -> bool:
        """Return whether any more bytes may be received."""
        if self.used < self.limit:
            return True
        self._has_refused = True
        return False

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used -= size
        assert self.used >= 0, "more was given back than taken"
        if self._has_refused:
            self._has_refused = False
            self._on_room()


class Frame:
    """The bytes of a request without their size. `release` says that they are processed; once is enough."""

    __slots__ = ("_budget", "_counted", "data")

    def __init__(self, data: memoryview, budget: Budget) -> None:
        """For bytes that the budget has counted."""
        self.data, self._budget = data, cast("Budget | None", budget)
        self._counted = len(data)

    def release(self) -> None:
        """Give the memory back to the budget; existing views of the data stay valid."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget.give_back(self._counted)


class FrameReader:
    """The frames of one connection. `limit`: bytes of the largest one; it may be changed between frames."""

    def __init__(self, limit: int, budget: Budget) -> None:
        self.limit, self._budget = limit, budget
        self._rest = b""
        """The beginning of a small frame, with its size."""
        self._large: memoryview | None = None
        self._have = 0
        self._wanted = 0
        """Bytes of a large frame for which the budget has no room yet."""

    @property
    def is_waiting(self) -> bool:
        """Whether the next frame waits for room in the budget."""
        return self._wanted > 0

    @property
    def is_midway(self) -> bool:
        """Whether a part of a frame has come."""
        return bool(self._rest) or self._large is not None

    def target(self) -> memoryview | None:
        """Return where to receive the next bytes, None where any buffer will do; say `filled` or `feed` then."""
        return None if self._large is None else self._large[self._have :]

    def filled(self, count: int) -> Frame | None:
        """Take note of `count` bytes received into the target; return the frame if that was all of it."""
        assert self._large is not None, "there was no target"
        self._have += count
        if self._have < len(self._large):
            return None
        frame = Frame(self._large, self._budget)
        self._large = None
        return frame

    def feed(self, data: memoryview) -> list[Frame]:
        """Return the frames that are whole with these bytes, which the caller may reuse afterwards.

        Raises `FrameInvalid`.
        """
        assert self._large is None, "there is a target"
        if self._rest:
            data = memoryview(self._rest + bytes(data))
            self._rest = b""
        frames: list[Frame] = []
        position, end = 0, len(data)
        while end - position >= _SIZE_BYTES:
            try:
                size = self._judged(data, position)
            except FrameInvalid:
                for frame in frames:  # no one processes them
                    frame.release()
                raise
            if size >= LARGE and end - position - _SIZE_BYTES < size:
                self._begin_large(data[position:], size)
                return frames
            if end - position - _SIZE_BYTES < size:
                break
            position += _SIZE_BYTES
            self._budget.add(size)
            frames.append(Frame(memoryview(bytes(data[position : position + size])), self._budget))
            position += size
        self._rest = bytes(data[position:])
        return frames

    def may_read(self) -> bool:
        """Return whether there is room for more; a frame that waits for room gets it if there is."""
        if not self._wanted:
            return self._large is not None or self._budget.has_room()
        size = self._wanted
        if not self._budget.take(size):
            return False
        self._wanted = 0
        self._allocate(memoryview(self._rest)[_SIZE_BYTES:], size)
        return True

    def abandon(self) -> None:
        """Give back what the unfinished frame took; for the end of the connection."""
        if self._large is not None:
            self._budget.give_back(len(self._large))
            self._large = None
        self._rest, self._wanted = b"", 0

    def _judged(self, data: memoryview, position: int) -> int:
        size = int.from_bytes(data[position : position + _SIZE_BYTES], "big", signed=True)
        if size < 1:
            raise FrameInvalid(f"a frame of {size} bytes")
        if size > self.limit:
            raise FrameInvalid(f"a frame of {size} bytes; {self.limit} are allowed")
        return size

    def _begin_large(self, data: memoryview, size: int) -> None:
        if self._budget.take(size):
            self._allocate(data[_SIZE_BYTES:], size)
        else:
            self._wanted, self._rest = size, bytes(data)

    def _allocate(self, begun: memoryview, size: int) -> None:
        self._large = memoryview(bytearray(size))
        self._large[: len(begun)] = begun
        self._have, self._rest = len(begun), b""
