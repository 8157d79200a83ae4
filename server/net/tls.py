"""TlsTransport: a connection by asyncio's TLS, which the kernel cannot send files through.

Ranges of files are read in pieces, the next one only when the peer has taken the last: a peer that does not read costs
a piece and asyncio's buffer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from server.net.conversation import Conversation, Tally
from server.net.transport import Transport
from storage.base.errors import ConfigInvalid, printable
from wire.frame import Account, FrameReader
from wire.segments import FileRange, close_files

_PIECE: Final = 64 << 10


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS context of the listener; raises `ConfigInvalid` if the files do not hold certificate and key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake costs the server more than the client
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        place = f"{printable(certificate)}, {printable(key)}"
        raise ConfigInvalid(f"{place}: no certificate with its key: {error.strerror or error}") from error
    return context


class TlsTransport(Transport, asyncio.BufferedProtocol):
    """One connection; used like `PlainTransport` once `connection_made` was called."""

    def __init__(
        self,
        reader: FrameReader,
        tally: Tally,
        peer: str,
        admitted: Account,
        begun: Callable[[TlsTransport], Conversation],
        closed: Callable[[TlsTransport], None],
    ) -> None:
        super().__init__(reader, tally, peer, admitted)
        self._begun, self._closed = begun, closed
        self._buffer = memoryview(bytearray(_PIECE))
        self._has_target = False
        self._is_reading = True
        self._transport: asyncio.Transport | None = None

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_PIECE)
        if self.is_closed:
            self._transport.abort()
            return
        self.conversation = self._begun(self)
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.close()

    def pause_writing(self) -> None:
        self._waits = True

    def resume_writing(self) -> None:
        self._waits = False
        self._write()
        if not self.is_congested and not self.is_closed and self.conversation is not None:
            self.conversation.pump()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        target = self._reader.target()
        self._has_target = target is not None
        return self._buffer if target is None else target

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed or self.conversation is None:
            return
        self.moved = self._loop.time()
        frames = self._frames(nbytes, None if self._has_target else self._buffer)
        if frames is None:
            return
        if frames:
            self.conversation.take(frames)
        self.look()

    def eof_received(self) -> bool:
        return False

    # ---- Sink

    @property
    def is_congested(self) -> bool:
        return bool(self._out) or self._waits

    def close(self, reason: str = "") -> None:
        del reason
        if self.is_closed:
            return
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()
        if self.conversation is not None:
            self.conversation.over()
        self._forget(lambda: self._closed(self))

    def close_when_sent(self) -> None:
        self._ends_when_sent = True
        self._write()

    def look(self) -> None:
        if self.is_closed or self.conversation is None or self._transport is None:
            return
        self._admit(self.conversation)
        reads = self.conversation.wants_more and self._reader.may_read()
        if reads != self._is_reading:
            self._is_reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # ---- sending

    def _write(self) -> None:
        transport = self._transport
        assert transport is not None, "nothing is sent before"
        while self._out and not self._waits and not self.is_closed:
            first = self._out[0]
            if isinstance(first, FileRange):
                data = self._piece(first)
                if data is None:
                    self.close("a file is shorter than it was")
                    return
            else:
                data = memoryview(first)
                self._out.popleft()
            self.moved = self._loop.time()
            self._tally.sent += len(data)
            transport.write(data)
        if self._ends_when_sent and not self._out and not self.is_closed:
            transport.close()  # asyncio sends what it holds, then `connection_lost`

    def _piece(self, piece: FileRange) -> memoryview | None:
        """Return the next bytes of a range, None where the file has no more."""
        size = min(piece.size - self._sent_of_first, _PIECE)
        buffer = memoryview(bytearray(size))
        try:
            count = piece.file.read_into(piece.position + self._sent_of_first, buffer)
        except (OSError, ValueError):
            return None
        if count < size:
            return None
        self._sent_of_first += size
        if self._sent_of_first == piece.size:
            self._sent_of_first = 0
            close_files([self._out.popleft()])
        return buffer
