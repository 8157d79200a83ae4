"""What happened in the service: each event is counted, logged in one line, shown, and passed to the notifier.

`EventLog.tell` may be called from any thread and returns at once: lines are written, and the notifier is called, by one
thread of its own, the only one that a slow reader of the log can delay. Events that it cannot write are dropped and
counted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

import structlog

from daemon.events.names import EVENTS, EventKind
from daemon.events.safe_json import dumps
from storage.base.errors import printable

FORMATS: Final = ("console", "logfmt", "json", "journald")
LEVELS: Final = ("debug", "info", "warning", "error")
Notifier = Callable[[str, Mapping[str, object]], None]
"""Accepts an event and its fields; runs the command for it later."""

_QUEUE: Final = 10_000
_RECENT: Final = 200
_LONGEST: Final = 4096
_PRIORITY: Final = {"error": 3, "warning": 4, "info": 6, "debug": 7}
_JOURNAL: Final = "/run/systemd/journal/socket"
_UNKNOWN: Final = EventKind("warning", "")


class Told(NamedTuple):
    """One event."""

    at_ms: int
    level: str
    event: str
    fields: Mapping[str, object]


class EventLog:
    """The `Events` of the service. `format` is one of `FORMATS`, `level` one of `LEVELS`.

    The thread that writes calls `notifier` for every event, whatever its level. Without a journal, `journald` is
    `logfmt`. `close` ends it, and waits a bounded time for events that are not written yet.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 (the word of the configuration)
        level: str,
        notifier: Notifier | None = None,
        *,
        stream: TextIO | None = None,
        journal: str = _JOURNAL,
        now: Callable[[], float] = time.time,
    ) -> None:
        assert format in FORMATS, format
        self.level, self.notifier = level, notifier
        self._now = now
        self._counters: dict[str, int] = {}
        self._recent: deque[Told] = deque(maxlen=_RECENT)
        self._queue: deque[Told] = deque()
        self._dropped = 0
        self._turn = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._show = _as_it_is if format == "json" else _printable
        self._output, self._logger = _logger(format, stream or sys.stderr, journal)

    def tell(self, event: str, **fields: object) -> None:
        """Count the event, and queue it for the log and the notifier."""
        kind = EVENTS.get(event)
        if kind is None:
            event, fields, kind = "event_unknown", {"name": event, **fields}, EVENTS["event_unknown"]
        told = Told(int(self._now() * 1000), kind.level, event, fields)
        with self._turn:
            self._count(told, kind)
            if kind.level != "debug":
                self._recent.append(told)
            if self._is_wanted(told):
                self._put(told)

    def counters(self) -> dict[str, int]:
        """Return the number of each event, and the sums of the fields that are added up."""
        with self._turn:
            return dict(self._counters)

    def recent(self) -> tuple[Told, ...]:
        """Return the latest events above `debug`, the oldest first."""
        with self._turn:
            return tuple(self._recent)

    def close(self, seconds: float = 2.0) -> None:
        """Write the queued events, for at most `seconds`; later events are only counted."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self._output.close()

    def _count(self, told: Told, kind: EventKind) -> None:
        self._counters[told.event] = self._counters.get(told.event, 0) + 1
        for name in kind.sums:
            value = told.fields.get(name)
            if isinstance(value, int):
                key = f"{told.event}_{name}"
                self._counters[key] = self._counters.get(key, 0) + value

    def _is_wanted(self, told: Told) -> bool:
        if self._closing:
            return False
        return self.notifier is not None or LEVELS.index(told.level) >= LEVELS.index(self.level)

    def _put(self, told: Told) -> None:
        if len(self._queue) >= _QUEUE:
            self._dropped += 1
            return
        self._queue.append(told)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="events", daemon=True)
            self._thread.start()
        self._turn.notify()

    def _take(self) -> tuple[Told | None, int]:
        """Wait for the next event, None at the end; return it with the number of events dropped since the last."""
        with self._turn:
            while not self._queue and not self._closing:
                self._turn.wait()
            dropped, self._dropped = self._dropped, 0
            return (self._queue.popleft() if self._queue else None), dropped

    def _run(self) -> None:
        while True:
            entry, dropped = self._take()
            if dropped:
                with self._turn:
                    self._counters["events_dropped"] = self._counters.get("events_dropped", 0) + dropped
                self._write(Told(int(self._now() * 1000), "warning", "events_dropped", {"count": dropped}))
            if entry is None:
                return
            self._write(entry)
            if self.notifier is not None:
                with contextlib.suppress(Exception):  # the log must go on
                    self.notifier(entry.event, entry.fields)

    def _write(self, entry: Told) -> None:
        if LEVELS.index(entry.level) < LEVELS.index(self.level):
            return
        with contextlib.suppress(
            OSError, ValueError
        ):  # the log cannot be written: there is no other place to report that
            shown = {name: self._show(value) for name, value in entry.fields.items() if value is not None}
            # As one value: a field may have the name of an argument of the logger.
            self._logger.info(entry.event, _told=(entry.at_ms, entry.level, shown))


def _as_it_is(value: object) -> object:
    """Return a value for JSON, which escapes by itself: a number, or text of bounded length."""
    if isinstance(value, bool | int | float):
        return value
    text = " ".join(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _printable(value: object) -> object:
    """Return a value for a line of text, with names from the disk escaped."""
    plain = _as_it_is(value)
    return printable(plain) if isinstance(plain, str) else plain


def stamp(at_ms: int) -> str:
    """Return a time as `2026-11-21T10:34:52.123Z`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _logger(style: str, stream: TextIO, journal: str) -> tuple[_Lines | _Journal, Any]:
    """Return the output and the structlog logger of a format. Neither is global: a process may have several."""
    output: _Lines | _Journal = _Lines(stream)
    if style == "journald":
        try:
            output = _Journal(journal)
        except OSError:  # no systemd here
            style = "logfmt"
    renderers: dict[str, Callable[..., Any]] = {
        "console": _console(stream),
        "logfmt": structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False),
        "json": structlog.processors.JSONRenderer(serializer=lambda told, **_: dumps(told)),
        "journald": _journal_fields,
    }
    logger = structlog.wrap_logger(
        output,
        processors=[_frame, renderers[style]],
        wrapper_class=structlog.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return output, logger


def _frame(_logger: Any, _method: str, told: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the event with time and level in front."""
    at_ms, level, fields = told["_told"]
    return {"timestamp": stamp(at_ms), "level": level, "event": told["event"], **fields}


def _console(stream: TextIO) -> Callable[..., Any]:
    wants = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return structlog.dev.ConsoleRenderer(colors=wants, sort_keys=False, pad_event_to=24)


def _journal_fields(_logger: Any, _method: str, told: MutableMapping[str, Any]) -> str:
    """Return an event for the journal: one field a line, all of them printable."""
    level, event = told["level"], told["event"]
    rest = {name: value for name, value in told.items() if name not in ("timestamp", "level", "event")}
    message = " ".join([event, *(f"{name}={value}" for name, value in rest.items())])
    fields = {"MESSAGE": message, "PRIORITY": _PRIORITY[level], "SYSLOG_IDENTIFIER": "logmend", "LOGMEND_EVENT": event}
    fields |= {f"LOGMEND_{name.upper()}": value for name, value in rest.items()}
    return "\n".join(f"{name}={value}" for name, value in fields.items())


class _Lines:
    """A stream as structlog wants it: one event, one line, written whole."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def info(self, line: str) -> None:
        self._stream.write(line.replace("\n", " ") + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller that opened it."""


class _Journal:
    """systemd's journal, by its native protocol: a datagram an event."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def info(self, fields: str) -> None:
        self._socket.send(fields.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        self._socket.close()
