"""A proxy between Kafka clients and a listener that cuts connections where it hurts: in place of an answer."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import deque
from typing import Final, Self

PRODUCE: Final = 0


class CuttingProxy:
    """Cuts the connection in place of each Produce answer with the probability `share`; 0 lets all pass."""

    def __init__(self, share: float, seed: int = 1) -> None:
        self.share, self.cuts, self.passed = share, 0, 0
        self.target: tuple[str, int] | None = None
        self._draw = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._pairs:
            _end(each)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            assert self.target is not None
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            self._pairs += [client, server]
            keys: deque[int] = deque()
            for pump in (self._up, self._down):
                threading.Thread(target=pump, args=(client, server, keys), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, keys: deque[int]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                keys.append(int.from_bytes(frame[4:6], "big"))
                server.sendall(frame)
        _end(client)
        _end(server)

    def _down(self, client: socket.socket, server: socket.socket, keys: deque[int]) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(server):
                if keys.popleft() == PRODUCE and self._draw.random() < self.share:
                    self.cuts += 1
                    break
                self.passed += 1
                client.sendall(frame)
        _end(client)
        _end(server)


def _frame(source: socket.socket) -> bytes:
    """Return the next frame with its length, nothing at the end."""
    head = _exactly(source, 4)
    return head + _exactly(source, int.from_bytes(head, "big")) if head else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = source.recv(size - len(found))
        if not more:
            return b""
        found += more
    return bytes(found)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
