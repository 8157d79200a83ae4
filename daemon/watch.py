"""Hears that something at the top of a log directory has changed; decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePath

from daemon.snapshot import Clock, Events

OnChange = Callable[[frozenset[PurePath]], None]


class Watcher:
    """Watches the roots of log directories and tells `on_change` of paths right below them, the latest once.

    `on_change` is called from a thread of the watcher. With `poll_only` (network file systems) no events are asked for.
    """

    def __init__(
        self,
        paths: Iterable[PurePath],
        on_change: OnChange,
        clock: Clock,
        poll_seconds: float,
        events: Events,
        *,
        poll_only: bool = False,
    ) -> None:
        self._roots, self._on_change, self._clock = tuple(paths), on_change, clock
        self._poll_seconds, self._events, self._poll_only = poll_seconds, events, poll_only

    def start(self) -> None:
        """Begin; a directory that is not there yet is looked for at each poll."""

    def stop(self) -> None:
        """End the threads; no call of `on_change` comes afterwards."""
