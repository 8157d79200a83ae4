"""How long one request goes on making topics."""

from __future__ import annotations

import asyncio
from typing import Any

from support.managers import NOW
from support.serving import stored
from support.wire_calls import INFO, answer_of

from server.api.errors import ErrorCode
from server.api.versions import ApiKey
from server.handlers.parts import Parts
from server.handlers.topics import topics
from server.store.flushing import FlushPolicy

E = ErrorCode
WAIT_SECONDS = 60


class Clock:
    """A clock that goes on whenever it is read."""

    def __init__(self) -> None:
        self.now, self.step_ms = NOW, 0

    def now_ms(self) -> int:
        self.now += self.step_ms
        return self.now


def test_a_request_begins_with_no_more_topics_after_its_time_and_the_rest_may_be_asked_for_again() -> None:
    async def test() -> None:
        async with stored(FlushPolicy.NONE) as (store, _):
            clock = Clock()
            handlers = topics.handlers(Parts(store, INFO, clock))  # type: ignore[arg-type]

            async def ask(key: ApiKey, version: int, wanted: list[dict[str, Any]]) -> list[int]:
                answer = await answer_of(handlers, key, version, topics=wanted)
                return [each.error_code for each in (answer.topics if key is ApiKey.CREATE_TOPICS else answer.results)]

            wanted = [{"name": f"n{number}", "num_partitions": 1, "replication_factor": 1} for number in range(30)]
            clock.step_ms = 1_000
            codes = await ask(ApiKey.CREATE_TOPICS, 7, wanted)
            made = codes.count(E.NONE)
            assert 0 < made < 30
            assert codes == [E.NONE] * made + [E.REQUEST_TIMED_OUT] * (30 - made)
            assert {name for name in store.topics() if name.startswith("n")} == {f"n{n}" for n in range(made)}
            clock.step_ms = 20_000
            more = [{"name": f"n{number}", "count": 2, "assignments": None} for number in range(made)]
            assert set(await ask(ApiKey.CREATE_PARTITIONS, 3, more)) == {E.REQUEST_TIMED_OUT}
            clock.step_ms = 0
            assert set(await ask(ApiKey.CREATE_TOPICS, 7, wanted[made:])) == {E.NONE}

    asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))
