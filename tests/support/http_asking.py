"""Asking an `HttpServer` in tests: over its Unix socket or its port, politely or not."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.events.events import EventLog
from daemon.http.answers import HttpOptions
from daemon.http.server import HttpServer
from daemon.status.model import ServiceStatus


@dataclass
class Answer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Asker(http.client.HTTPConnection):
    """A client of one server, by whichever way it listens."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        super().__init__("localhost", timeout=60)

    def connect(self) -> None:
        self.sock = dial(self._server)


def dial(server: HttpServer) -> socket.socket:
    """Return a connected socket."""
    if server.listen.path is not None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(60)
        made.connect(str(server.listen.path))
        return made
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def ask(server: HttpServer, target: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Send one request and return the answer."""
    connection = Asker(server)
    try:
        connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


def raw(server: HttpServer, data: bytes) -> bytes:
    """Send bytes as they are and return all that comes back until the server closes, or nothing more comes."""
    with dial(server) as connection:
        connection.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            while part := connection.recv(65536):
                received += part
        return received


@contextlib.contextmanager
def following(server: HttpServer) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the (event, document) pairs of the stream of a server."""
    connection = Asker(server)
    try:
        connection.request("GET", "/events")
        response = connection.getresponse()
        assert response.status == 200
        yield _frames(response)
    finally:
        connection.close()


def _frames(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    event = ""
    while line := response.readline():
        if line.startswith(b"event: "):
            event = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield event, json.loads(line[6:])


@contextlib.contextmanager
def serving(
    listen: str,
    status: Callable[[], ServiceStatus],
    command: Callable[[str, str, str], str] = lambda name, argument, log_dir: f"{name} {log_dir}".strip(),
    events: EventLog | None = None,
    **options: Any,
) -> Iterator[HttpServer]:
    """A server that runs for as long as the block."""
    server = HttpServer(
        listen, status, command, events=events, options=HttpOptions(**{"refresh_seconds": 0.05, **options})
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


def unix(directory: Path) -> str:
    """Return a place in a directory."""
    return f"unix:{directory}/s.sock"
