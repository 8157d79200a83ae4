"""Runs a person's command for what they want to hear of: JSON on its standard input, never through a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Notifier:
    """Called with every event; runs `command` for findings of `severity` or worse, and for what stops the work.

    Never waits: one thread of its own runs one command at a time, for `seconds` at most, with a short queue before it.
    """

    def __init__(self, command: Sequence[str], severity: str, seconds: float) -> None:
        raise NotImplementedError

    def __call__(self, event: str, fields: Mapping[str, object]) -> None:
        """Take an event; returns at once."""

    def close(self) -> None:
        """Let the command that runs end, or end it."""
