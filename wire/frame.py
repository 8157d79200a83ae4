"""FrameReader: the receiving half of a connection, bytes in and whole frames out; it does no input or output itself.

A frame is four bytes of size and as many bytes. The size is judged before a byte of the frame is kept: above the limit
the connection ends. Small frames come through the caller's buffer; a large one is received in place, in memory that
the system hands out page by page. Bytes count as they arrive, against a budget that all connections share and against
the account of their address in it, until they are processed; an announced size costs nothing. While there is no room
the caller stops reading, until `may_read`.
Source: Apache Kafka 4.3.0, NetworkReceive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from storage.base.errors import ExitStatus, LogmendError
from storage.disk.buffers import page_aligned

LARGE: Final = 1 << 14
"""Bytes from which on a frame has memory of its own."""
_SIZE_BYTES: Final = 4
_PIECE: Final = 1 << 20
"""Bytes received at a time: so far a connection may exceed what there is room for."""


class FrameInvalid(LogmendError):
    """A size that no request has, or one above the limit: later frames cannot be found any more."""

    status = ExitStatus.USAGE


class Budget:
    """Bytes that the unprocessed frames of all connections may take together; for one thread.

    Large frames leave `reserve` bytes to small ones. Frames that have filled the budget together come to an end all the
    same: one of them at a time is received above the limit. `on_room` is called when there is room again after
    something was refused.
    """

    def __init__(self, limit: int, on_room: Callable[[], None] = lambda: None, *, reserve: int = 0) -> None:
        self.limit, self.reserve, self.used, self._on_room = limit, reserve, 0, on_room
        self.is_pressed = False
        """Whether a connection was refused since there last was room."""
        self._ahead: memoryview | None = None

    def account(self, limit: int | None = None) -> Account:
        """Return the account of an address, which may hold `limit` bytes; None: no less than all addresses together."""
        return Account(self, self.limit if limit is None else limit)

    def goes_ahead(self, frame: memoryview) -> bool:
        """Return whether a large frame is the one that is received although there is no room."""
        if self._ahead is None:
            self._ahead = frame
        if self._ahead is frame:
            return True
        self.is_pressed = True
        return False

    def let_others(self, frame: memoryview | None) -> None:
        """Take note that a large frame is processed, or will not be."""
        if frame is not None and self._ahead is frame:
            self._ahead = None
            self.call_waiting()

    def call_waiting(self) -> None:
        """Tell those that were refused to ask again."""
        if self.is_pressed:
            self.is_pressed = False
            self._on_room()


class Account:
    """Bytes that the connections of one address hold of a budget."""

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget, self.limit, self.used = budget, limit, 0

    @property
    def is_pressed(self) -> bool:
        """Whether the budget has refused a connection since there last was room."""
        return self._budget.is_pressed

    def add(self, size: int) -> None:
        """Count `size` bytes that are in memory already."""
        self.used += size
        self._budget.used += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again."""
        self.used -= size
        self._budget.used -= size
        assert self.used >= 0, "more was given back than taken"
        self._budget.call_waiting()

    def has_room(self) -> bool:
        """Return whether the bytes of small frames may be received."""
        if self.used < self.limit and self._budget.used < self._budget.limit:
            return True
        self._budget.is_pressed = True
        return False

    def has_room_for(self, frame: memoryview) -> bool:
        """Return whether bytes of a large frame may be received."""
        reserve = self._budget.reserve
        if self.used < self.limit - reserve and self._budget.used < self._budget.limit - reserve:
            return True
        return self._budget.goes_ahead(frame)

    def ends(self, frame: memoryview | None) -> None:
        """Take note that a large frame is processed, or will not be."""
        self._budget.let_others(frame)


class Frame:
    """The bytes of a request without their size. `release` says that they are processed; once is enough."""

    __slots__ = ("_account", "_counted", "data")

    def __init__(self, data: memoryview, account: Account) -> None:
        """For bytes that the account has counted."""
        self.data, self._account = data, cast("Account | None", account)
        self._counted = len(data)

    def release(self) -> None:
        """Give the memory back to the budget; existing views of the data stay valid."""
        account, self._account = self._account, None
        if account is not None:
            account.give_back(self._counted)
            account.ends(self.data)


class FrameReader:
    """The frames of one connection. `limit`: bytes of the largest one; it may be changed between frames."""

    def __init__(self, limit: int, account: Account) -> None:
        self.limit, self._account = limit, account
        self._rest = b""
        """The beginning of a small frame, with its size."""
        self._large: memoryview | None = None
        self.received = 0
        """Bytes of the large frame that have come."""

    @property
    def is_midway(self) -> bool:
        """Whether a part of a frame has come."""
        return bool(self._rest) or self._large is not None

    def move_to(self, account: Account) -> None:
        """Count on another account from now on, such as that of clients who have logged in."""
        if self._account is not account:
            self._account.ends(self._large)
            self._account.give_back(self.received)
            self._account = account
            account.add(self.received)

    def target(self) -> memoryview | None:
        """Return where to receive the next bytes, None where any buffer will do; say `filled` or `feed` then."""
        return None if self._large is None else self._large[self.received : self.received + _PIECE]

    def filled(self, count: int) -> Frame | None:
        """Take note of `count` bytes received into the target; return the frame if that was all of it."""
        assert self._large is not None, "there was no target"
        self.received += count
        self._account.add(count)
        if self.received < len(self._large):
            return None
        frame = Frame(self._large, self._account)
        self._large, self.received = None, 0
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
            if end - position - _SIZE_BYTES < size:
                if size < LARGE:
                    break
                self._begin_large(data[position + _SIZE_BYTES :], size)
                return frames
            position += _SIZE_BYTES
            self._account.add(size)
            frames.append(Frame(memoryview(bytes(data[position : position + size])), self._account))
            position += size
        self._rest = bytes(data[position:])
        return frames

    def may_read(self) -> bool:
        """Return whether there is room for more."""
        return self._account.has_room() if self._large is None else self._account.has_room_for(self._large)

    def abandon(self) -> None:
        """Give back what the unfinished frame took; for the end of the connection."""
        self._account.ends(self._large)
        self._account.give_back(self.received)
        self._large, self._rest, self.received = None, b"", 0

    def _judged(self, data: memoryview, position: int) -> int:
        size = int.from_bytes(data[position : position + _SIZE_BYTES], "big", signed=True)
        if size < 1:
            raise FrameInvalid(f"a frame of {size} bytes")
        if size > self.limit:
            raise FrameInvalid(f"a frame of {size} bytes; {self.limit} are allowed")
        return size

    def _begin_large(self, begun: memoryview, size: int) -> None:
        # Its pages exist once they are written: a size that is only announced takes no memory.
        self._large = page_aligned(size)
        self._large[: len(begun)] = begun
        self.received = len(begun)
        self._account.add(len(begun))
