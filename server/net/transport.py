"""The part of a connection that is the same with and without TLS: frames come in, files are closed at its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from server.net.conversation import Conversation, Tally
from wire.frame import Account, Frame, FrameInvalid, FrameReader
from wire.segments import Segment, close_files


class Transport:
    """A base of transports; subclasses send, and decide when to read."""

    def __init__(self, reader: FrameReader, tally: Tally, peer: str, admitted: Account) -> None:
        """`admitted`: what its frames count on once the client has logged in."""
        self._reader: Final = reader
        self.peer: Final = peer
        self._admitted: Final = admitted
        self.conversation: Conversation | None = None
        self._tally: Final = tally
        self._out: deque[Segment] = deque()
        self._sent_of_first = 0
        self._is_reading = self._ends_when_sent = self.is_closed = False
        self._waits = False
        """The peer takes no more for now, or others have their turn: what is to be sent goes out later."""
        self._loop = asyncio.get_running_loop()
        self.began = self.moved = self._loop.time()
        """When it began, and when a byte last came or went."""
        self.reading_s = 0.0
        """How long the frame that is coming has been read, as the server's sweep counts it."""

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to log in."""
        return self.conversation is None or not self.conversation.is_logged_in

    @property
    def is_midway(self) -> bool:
        """Whether a frame has begun to come, and the connection reads."""
        return self._reader.is_midway and self._is_reading

    @property
    def received(self) -> int:
        """Bytes of the large frame that is coming."""
        return self._reader.received

    def send(self, segments: list[Segment]) -> None:
        """Send behind what is sent already; the files of a closed connection are closed."""
        if self.is_closed:
            close_files(segments)
            return
        self._out.extend(segments)
        if not self._waits:
            self._write()

    def close(self, reason: str = "") -> None:
        """End the connection at once."""
        raise NotImplementedError

    def _write(self) -> None:
        """Send as much as the peer takes."""
        raise NotImplementedError

    def _admit(self, conversation: Conversation) -> None:
        """Let the reader take what the client may send now."""
        self._reader.limit = conversation.frame_limit
        if conversation.is_logged_in:
            self._reader.move_to(self._admitted)

    def _frames(self, count: int, shared: memoryview | None) -> list[Frame] | None:
        """Return the frames that are whole with `count` bytes more; None for bytes that end the connection.

        They came into `shared`, or, where that is None, into what the reader had asked for.
        """
        self._tally.received += count
        try:
            if shared is not None:
                frames = self._reader.feed(shared[:count])
            else:
                frame = self._reader.filled(count)
                frames = [] if frame is None else [frame]
        except FrameInvalid as error:
            self._tally.closed["frame"] += 1
            self._tally.report("frame", str(error))
            self.close(str(error))
            return None
        if frames:
            self.reading_s = 0.0
        return frames

    def _forget(self, closed: Callable[[], None]) -> None:
        """Release frames that came and close files that were to be sent; call `closed` last."""
        self._reader.abandon()
        close_files(list(self._out))
        self._out.clear()
        closed()
