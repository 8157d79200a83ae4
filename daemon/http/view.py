"""What is shown, made once for all who look: the latest state, and what changed in it from one second to the next.

A reader of the stream that fell behind gets the whole state again instead of what it missed, so that none of them costs
memory by being slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from daemon.events.events import EventLog, stamp
from daemon.events.safe_json import dumps
from daemon.status.document import CELL_FIELDS, cell_values, to_document
from daemon.status.model import LogDirStatus, ServiceStatus

SNAPSHOT_SECONDS: Final = 5.0
"""After which a service that does not say how it is counts as stuck."""
_MOST_FINDINGS: Final = 200
_MOST_EVENTS: Final = 50
_MOST_LAGS: Final = 50
_RANK: Final = {"blocking": 0, "damage": 1, "repairable": 2, "note": 3}


Made = dict[str, "asyncio.Future[bytes]"]


class Stuck(Exception):
    """The service did not say how it is."""


class View:
    """The state as it is shown. All methods belong to one event loop; what is shown is made by a thread beside it."""

    def __init__(self, snapshot: Callable[[], ServiceStatus], events: EventLog | None, refresh_seconds: float) -> None:
        self._snapshot, self._events, self._refresh = snapshot, events, refresh_seconds
        self._thread = ThreadPoolExecutor(1, "http-view")
        self._turn = asyncio.Lock()
        self._latest: ServiceStatus | None = None
        self._taken = 0.0
        self._made: Made = {}

    async def status(self) -> ServiceStatus:
        """Return the state, not older than the time between two looks; raises `Stuck`."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            if self._latest is None or loop.time() - self._taken >= self._refresh:
                asked = loop.run_in_executor(self._thread, self._snapshot)
                try:
                    self._latest = await asyncio.wait_for(asked, SNAPSHOT_SECONDS)
                except Exception as error:
                    raise Stuck(type(error).__name__) from error
                self._taken = loop.time()
                self._made = {}
            return self._latest

    async def body(self, name: str, make: Callable[[ServiceStatus], bytes], *, packed: bool) -> bytes:
        """Return what `make` makes of the state, gzipped if `packed`; made once for all who ask at the same time."""
        status = await self.status()
        made = self._made
        plain = await self._once(made, name, make, status)
        return await self._once(made, f"{name}.gz", gzip.compress, plain, 5) if packed else plain

    async def _once(self, made: Made, name: str, make: Callable[..., bytes], *given: Any) -> bytes:
        """Return what is made under a name; whoever comes while it is being made waits for the same."""
        if name not in made:
            made[name] = asyncio.get_running_loop().run_in_executor(self._thread, make, *given)
        return await asyncio.shield(made[name])  # one who goes away takes it from nobody

    def close(self) -> None:
        """Let the thread go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def events_shown(self) -> list[list[str]]:
        """Return the latest events, the newest first, as time, level, name and fields."""
        told = self._events.recent() if self._events is not None else ()
        return [
            [
                stamp(each.at_ms),
                each.level,
                each.event,
                " ".join(f"{name}={_words(value)}" for name, value in each.fields.items() if value is not None)[:300],
            ]
            for each in reversed(told[-_MOST_EVENTS:])
        ]


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class Feed:
    """The stream of states: one task takes them while somebody reads, each reader takes what it is ready for."""

    def __init__(self, view: View, interval_seconds: float) -> None:
        self._view, self._interval = view, interval_seconds
        self._news = asyncio.Condition()
        self._version = 0
        self._now: dict[str, Any] | None = None
        self._delta: bytes = b""
        self._readers = 0
        self._task: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield a whole state, then changes; the whole state again where changes were missed. Ends with the server."""
        self._readers += 1
        if self._task is None:
            self._now = None
            self._task = asyncio.create_task(self._run())
        try:
            seen = -1
            while True:
                async with self._news:
                    while self._now is None or self._version == seen:
                        await self._news.wait()
                frame = self._delta if seen == self._version - 1 and self._delta else self._whole()
                seen = self._version
                yield frame
        finally:
            self._readers -= 1
            if not self._readers:
                self.stop()

    def stop(self) -> None:
        """Take no more states."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _whole(self) -> bytes:
        assert self._now is not None
        return _frame("full", self._version, self._now)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(Stuck):
                status = await self._view.status()
                new = await asyncio.to_thread(page_document, status, self._view.events_shown())
                old, self._now = self._now, new
                delta = None if old is None else difference(old, new)
                self._version += 1
                self._delta = b"" if delta is None else _frame("delta", self._version, delta)
                async with self._news:
                    self._news.notify_all()
            await asyncio.sleep(self._interval)


def _frame(event: str, number: int, told: dict[str, Any]) -> bytes:
    return f"event: {event}\nid: {number}\ndata: {dumps(told)}\n\n".encode("ascii")


def page_document(status: ServiceStatus, events: list[list[str]]) -> dict[str, Any]:
    """Return what the page shows: the status with cells as bare values, and no more findings than a person reads."""
    told = to_document(status, partitions=False)
    told.pop("counters")
    for document, each in zip(told["log_dirs"], status.log_dirs, strict=True):
        worst = sorted(document["findings"], key=lambda found: _RANK.get(found["severity"], 9))
        document["findings_total"] = len(worst)
        document["findings"] = worst[:_MOST_FINDINGS]
        document["cells"] = _cells(each)
    for listener in told["listeners"]:
        listener["lags_total"] = len(listener["lags"])
        listener["lags"] = sorted(listener["lags"], key=lambda lag: -lag["records"])[:_MOST_LAGS]
        for request in listener["requests"]:
            del request["buckets"]
    return told | {"cell_fields": list(CELL_FIELDS), "events": events}


def _cells(status: LogDirStatus) -> list[list[Any]]:
    return [cell_values(cell) for cell in sorted(status.partitions, key=lambda cell: (cell.topic, cell.partition))]


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """Return what turns the old page's document into the new one; None if it has to be sent whole.

    Changed fields stand as they are; of a log directory only the changed ones, of its cells `[index, values]` each.
    """
    if len(old["log_dirs"]) != len(new["log_dirs"]):
        return None
    changed = {name: value for name, value in new.items() if name != "log_dirs" and old.get(name) != value}
    dirs: list[dict[str, Any]] = []
    for before, after in zip(old["log_dirs"], new["log_dirs"], strict=True):
        if [cell[:2] for cell in before["cells"]] != [cell[:2] for cell in after["cells"]]:
            return None
        fields = {name: value for name, value in after.items() if name != "cells" and before.get(name) != value}
        pairs = zip(before["cells"], after["cells"], strict=True)
        fields["cells"] = [[index, cell] for index, (was, cell) in enumerate(pairs) if was != cell]
        dirs.append(fields)
    return changed | {"log_dirs": dirs}
