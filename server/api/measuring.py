"""How long requests take, by kind: a histogram as Prometheus wants it."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping

from daemon.status.model import LATENCY_BOUNDS
from server.api.dispatch import Answer, Call, Handler


class Latencies:
    """Times from the beginning of a request to its answer, by api key; for the thread of the loop."""

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        """By api key: how many were in each bucket."""
        self.seconds: dict[int, float] = {}
        """By api key: all of them together."""

    def timed(self, handlers: Mapping[int, Handler], clock: Callable[[], float]) -> dict[int, Handler]:
        """Return handlers that do the same and are measured by `clock`, which gives seconds."""
        return {key: self._timed(key, handler, clock) for key, handler in handlers.items()}

    def _timed(self, key: int, handler: Handler, clock: Callable[[], float]) -> Handler:
        counts = self.counts[key] = [0] * (len(LATENCY_BOUNDS) + 1)
        self.seconds[key] = 0.0

        def note(began: float) -> None:
            took = clock() - began
            counts[bisect_left(LATENCY_BOUNDS, took)] += 1
            self.seconds[key] += took

        def measured(call: Call) -> Answer | asyncio.Future[Answer]:
            began = clock()
            answer = handler(call)
            if answer is None or isinstance(answer, Mapping):
                note(began)
                return answer
            waiting = asyncio.ensure_future(answer)
            waiting.add_done_callback(lambda _: note(began))
            return waiting

        return measured
