"""What a service is made of in a test: workers that do as they are told, a clock to be moved, an ear for systemd."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from daemon.status.model import DirState, LogDirStatus, Mode


class Told:
    """The events that were told."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def tell(self, event: str, **fields: object) -> None:
        self.all.append((event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in tuple(self.all) if name == event]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in tuple(self.all)]


class MovedClock:
    """A clock that stands still unless moved; the time of day may be set apart."""

    def __init__(self) -> None:
        self.seconds, self.ms = 1000.0, 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.ms += round(seconds * 1000)


class ObedientWorker:
    """Does in `start`, `step` and `stop` what the test hands it, and says what the test sets."""

    def __init__(self, *paths: str, mode: Mode = Mode.GUARD) -> None:
        self.paths = tuple(map(PurePath, paths))
        self.state = {path: LogDirStatus(path, mode, DirState.STARTING, "", 0) for path in self.paths}
        self.calls: list[str] = []
        self.woken: list[frozenset[PurePath]] = []
        self.on_start: Callable[[], object] = lambda: self.enter(DirState.GUARDING)
        self.on_step: Callable[[], object] = lambda: None
        self.on_stop: Callable[[], object] = lambda: None
        self.wait = 3600.0
        self.steps = 0

    def enter(self, state: DirState, **more: Any) -> None:
        self.state = {
            path: LogDirStatus(path, each.mode, state, more.pop("reason", ""), 0, **more)
            for path, each in self.state.items()
        }

    @property
    def log_dirs(self) -> tuple[PurePath, ...]:
        return self.paths

    def start(self) -> None:
        self.calls.append("start")
        self.on_start()

    def step(self) -> float:
        self.steps += 1
        self.on_step()
        return self.wait

    def wake(self, paths: frozenset[PurePath]) -> None:
        self.woken.append(paths)

    def command(self, name: str, argument: str = "") -> str:
        if name != "greet":
            raise ValueError(f"unknown order {name}")
        return f"{self.paths[0]} greets {argument}"

    def status(self) -> tuple[LogDirStatus, ...]:
        return tuple(self.state.values())

    def stop(self) -> None:
        self.calls.append("stop")
        self.on_stop()


class Listening:
    """The socket of a systemd; `said` are the lines that came."""

    def __init__(self, place: Path) -> None:
        self.address = str(place)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                return
            self.said += data.decode().split("\n")

    def count(self, line: str) -> int:
        return self.said.count(line)

    def close(self) -> None:
        self._socket.close()
