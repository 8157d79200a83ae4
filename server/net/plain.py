"""PlainTransport: a connection's own non-blocking socket on the loop.

Frames are received where they stay; responses leave with `sendmsg`, ranges of files with `sendfile`: a peer that does
not read costs no memory. A file that turns out shorter than was announced ends the connection: there is no other
way to take the announced size back.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Final

from server.net.conversation import Conversation, Tally
from server.net.transport import Transport
from wire.frame import Account, FrameReader
from wire.segments import FileRange, Segment, close_files, size_of

_PIECES: Final = 64
"""Buffers in one `sendmsg`."""
_FILE_PIECE: Final = 1 << 20
_A_TURN: Final = 8 << 20
"""Bytes that one connection sends or receives before the others have their turn."""


class PlainTransport(Transport):
    """One socket; `received_into` is memory that all transports of the loop share."""

    conversation: Conversation

    def __init__(
        self,
        connection: socket.socket,
        reader: FrameReader,
        received_into: memoryview,
        tally: Tally,
        peer: str,
        admitted: Account,
        closed: Callable[[PlainTransport], None],
    ) -> None:
        super().__init__(reader, tally, peer, admitted)
        self._socket, self._shared = connection, received_into
        self._closed = closed

    def begin(self, conversation: Conversation) -> None:
        """Read from now on."""
        self.conversation = conversation
        self.look()

    # ---- Sink

    @property
    def is_congested(self) -> bool:
        return bool(self._out)

    def close(self, reason: str = "") -> None:
        del reason
        if self.is_closed:
            return
        self.is_closed = True
        if self._is_reading:
            self._loop.remove_reader(self._socket)
        if self._waits:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self.conversation.over()
        self._forget(lambda: self._closed(self))

    def close_when_sent(self) -> None:
        self._ends_when_sent = True
        if not self._out:
            self.close()

    def look(self) -> None:
        if self.is_closed:
            return
        self._admit(self.conversation)
        reads = self.conversation.wants_more and self._reader.may_read()
        if reads and not self._is_reading:
            self._loop.add_reader(self._socket, self._guarded, self._read)
        elif self._is_reading and not reads:
            self._loop.remove_reader(self._socket)
        self._is_reading = reads

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what the loop asks for; a fault of ours, or memory that is not there, ends this connection alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 (the loop would call again at once, forever)
            self._tally.closed["fault"] += 1
            self._tally.report("fault", f"{type(error).__name__}: {error}")
            self.close(str(error))

    # ---- receiving

    def _read(self) -> None:
        target = self._reader.target()
        try:
            count = self._socket.recv_into(self._shared if target is None else target)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self.close("the peer has closed it")
            return
        self.moved = self._loop.time()
        frames = self._frames(count, self._shared if target is None else None)
        if frames is None:
            return
        if frames:
            self.conversation.take(frames)
        elif not self._reader.may_read():
            self.look()

    # ---- sending

    def _write(self) -> None:
        """Send until the peer takes no more, or others are to have their turn."""
        budget = _A_TURN
        try:
            while self._out and budget > 0:
                first = self._out[0]
                count = self._send_range(first) if isinstance(first, FileRange) else self._send_memory()
                budget -= count
                self._tally.sent += count
                self.moved = self._loop.time()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, ValueError) as error:  # ValueError: the file was closed under us
            self.close(str(error))
            return
        if self._ends_when_sent and not self._out:
            self.close()
            return
        wants = bool(self._out)
        if wants and not self._waits:
            self._loop.add_writer(self._socket, self._guarded, self._writable)
        elif self._waits and not wants:
            self._loop.remove_writer(self._socket)
        self._waits = wants

    def _writable(self) -> None:
        self._write()
        if not self._out and not self.is_closed:
            self.conversation.pump()

    def _send_range(self, found: FileRange) -> int:
        done = self._sent_of_first
        wanted = min(found.size - done, _FILE_PIECE)
        count = os.sendfile(self._socket.fileno(), found.file.fileno(), found.position + done, wanted) if wanted else 0
        if wanted and not count:
            raise OSError("a file is shorter than it was")
        self._sent(count)
        return count

    def _send_memory(self) -> int:
        pieces: list[Segment] = []
        for segment in self._out:
            if isinstance(segment, FileRange) or len(pieces) == _PIECES:
                break
            pieces.append(segment)
        if self._sent_of_first:
            first = pieces[0]
            assert not isinstance(first, FileRange), "ranges are sent elsewhere"
            pieces[0] = memoryview(first)[self._sent_of_first :]
        count = self._socket.sendmsg(pieces)  # type: ignore[arg-type]
        self._sent(count)
        return count

    def _sent(self, count: int) -> None:
        """Take `count` sent bytes off the queue."""
        count += self._sent_of_first
        while self._out and count >= (size := size_of(self._out[0])):
            count -= size
            close_files([self._out.popleft()])
        self._sent_of_first = count
