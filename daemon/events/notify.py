"""Runs the configured command for events: JSON on its standard input, never through a shell."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from daemon.events.safe_json import dumps
from recovery.plan.findings import Severity
from storage.base.errors import printable

_FINDING: Final = "finding_opened"
_ALWAYS: Final = ("log_dir_offline", "recovery_failed", "device_sick", "worker_failed")
"""Events that stop the work on a directory are as bad as any finding."""
_WAITING: Final = 100
_GRACE_SECONDS: Final = 2.0
_LONGEST_ANSWER: Final = 500
_RANK: Final = {each.value: rank for rank, each in enumerate(Severity)}
Failed = Callable[..., None]


class Notifier:
    """Gets every event; runs `command` for findings of `severity` or worse, and for events that stop the work.

    Never waits: one thread of its own runs one command at a time, for `seconds` at most, with a short queue before it.
    `command`, `severity` and `seconds` may be changed at any time. `failed` is called with the fields of the event
    `notification_failed`.
    """

    def __init__(self, command: Sequence[str], severity: str, seconds: float, failed: Failed) -> None:
        self.command, self.severity, self.seconds = tuple(command), severity, seconds
        self._failed = failed
        self._waiting: queue.Queue[Mapping[str, object] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._running: subprocess.Popen[bytes] | None = None

    def __call__(self, event: str, fields: Mapping[str, object]) -> None:
        """Take an event; returns at once."""
        if not self.command or not self._is_wanted(event, fields):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()
        told = {"schema_version": 1, "document": "notification", "event": event, **_plain(fields)}
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            self._tell_failure(told, f"{_WAITING} notifications are waiting already")

    def close(self) -> None:
        """Run the queued commands within the time of one; then end the one that runs."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(min(self.seconds, _GRACE_SECONDS))
        if (running := self._running) is not None:
            _end(running)

    def _is_wanted(self, event: str, fields: Mapping[str, object]) -> bool:
        if event != _FINDING:
            return event in _ALWAYS
        return _RANK.get(str(fields.get("severity")), len(_RANK)) >= _RANK[self.severity]

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            reason = self._run_one(told)
            if reason:
                self._tell_failure(told, reason)

    def _run_one(self, event: Mapping[str, object]) -> str:
        """Run the command; return why it failed, empty if it ended with 0 in time."""
        try:
            # A process group of its own, so that its children end with it.
            running = subprocess.Popen(  # noqa: S603 (the words of the configuration, as they are, without a shell)
                self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                cwd="/", start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return f"cannot be run: {error}"
        self._running = running
        try:
            _, said = running.communicate(dumps(event).encode() + b"\n", timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return f"ended after {self.seconds:g} s"
        except OSError as error:
            return f"did not take its input: {error}"
        finally:
            _end(running)
            self._running = None
        if running.returncode == 0:
            return ""
        answer = printable(said[-_LONGEST_ANSWER:].decode("utf-8", "backslashreplace").strip())
        return f"exit status {running.returncode}" + (f": {answer}" if answer else "")

    def _tell_failure(self, told: Mapping[str, object], reason: str) -> None:
        self._failed(command=self.command[0] if self.command else "", reason=reason, id=told.get("id"))


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a command and its children; harmless if it has ended."""
    with contextlib.suppress(OSError):
        os.killpg(running.pid, signal.SIGKILL)
    for stream in (running.stdin, running.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(_GRACE_SECONDS)


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: str(value) if isinstance(value, PurePath) else value for name, value in fields.items()}
