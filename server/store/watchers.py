"""Watchers: who is called when the high watermark of a partition has moved."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TypeAlias

from storage.base.units import TopicPartition

Watcher: TypeAlias = Callable[[], None]


class Watchers:
    """For the loop's thread; a partition that moves several times at once is reported once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: dict[TopicPartition, list[Watcher]] = {}
        self._moved: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, name: TopicPartition, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` soon after each move; return what ends that."""
        watchers = self._watchers.setdefault(name, [])
        watchers.append(watcher)

        def end() -> None:
            with contextlib.suppress(ValueError):
                watchers.remove(watcher)
            if not watchers and self._watchers.get(name) is watchers:
                del self._watchers[name]

        return end

    def moved(self, names: Iterable[TopicPartition]) -> None:
        """Call the watchers of these partitions soon."""
        for name in names:
            if name in self._watchers:
                if not self._moved:
                    self._loop.call_soon(self._call)
                self._moved[name] = None

    def _call(self) -> None:
        moved, self._moved = self._moved, {}
        for name in moved:
            for watcher in tuple(self._watchers.get(name, ())):
                watcher()
