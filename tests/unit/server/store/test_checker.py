"""The checker: which batches it walks, where, and what ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from attacks.hostile import batch_of, many_records
from support.batches import TS, batch_v2, record

from daemon.own.engine import NotServing
from server.api.views import TopicView
from server.store import checker
from server.store.checker import Batch, Checker
from storage.base.config import LogConfig
from storage.base.errors import BatchCorrupt
from storage.base.rows import Walked
from storage.base.units import TopicPartition

TOPIC = TopicView("orders", None, 2, LogConfig(), {})
SMALL = batch_of(record(0), 1, base_timestamp=TS)


def sent(records: bytes, partition: int = 0, topic: str = "orders") -> Batch:
    return Batch(TopicPartition(topic, partition), memoryview(records))


def checked(*batches: Batch) -> tuple[Sequence[Any], bool]:
    """Return the verdicts, and whether they were there at once."""

    async def within() -> tuple[Sequence[Any], bool]:
        walker = Checker(lambda: {"orders": TOPIC})
        verdicts = walker.check(batches)
        is_later = isinstance(verdicts, Awaitable)
        outcome = await verdicts if isinstance(verdicts, Awaitable) else verdicts
        walker.stop()
        return outcome, not is_later

    return asyncio.run(within())


def test_an_ordinary_batch_is_walked_at_once() -> None:
    (walked,), is_at_once = checked(sent(SMALL))
    assert is_at_once
    assert walked == Walked(1, 0, TS, TS, is_dense=True, lacks_key=False)


def test_a_batch_that_unpacks_to_much_is_walked_beside_the_loop() -> None:
    (first, walked), is_at_once = checked(sent(SMALL), sent(many_records(3_000_000)))
    assert not is_at_once
    assert (first.count, walked.count, walked.lacks_key) == (1, 3_000_000, True)


def test_what_breaks_the_format_is_the_verdict_and_raises_nothing() -> None:
    broken = batch_v2(0, (), count=1, payload=b"no zstd", attributes=4)
    (fault,), _ = checked(sent(broken))
    assert isinstance(fault, BatchCorrupt)


@pytest.mark.parametrize(
    "batch",
    [
        sent(batch_v2(0, 1)),
        sent(SMALL, 2),
        sent(SMALL, topic="unknown"),
        sent(SMALL[:40]),
        sent(b""),
        sent(many_records()[:-1]),
        sent(batch_v2(0, (), count=1, payload=bytes(TOPIC.config.max_message_bytes), attributes=4)),
    ],
    ids=["plain", "no partition", "no topic", "no header", "nothing", "cut", "too large"],
)
def test_what_the_engine_refuses_or_judges_by_itself_is_not_walked(batch: Batch) -> None:
    assert checked(batch) == ([None], True)


def begun_walk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set once a walk has begun that is going to be long."""
    begun, walk = threading.Event(), checker.walk_batch

    def noted(header: Any, records: memoryview, goes_on: Callable[[int], bool]) -> Walked:
        return walk(header, records, lambda size: begun.set() or goes_on(size))  # type: ignore[func-returns-value]

    monkeypatch.setattr(checker, "walk_batch", noted)
    return begun


def test_walks_end_when_the_listener_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begun_walk(monkeypatch)

    async def within() -> None:
        walker = Checker(lambda: {"orders": TOPIC})
        verdicts = walker.check([sent(many_records())] * 500)
        assert isinstance(verdicts, Awaitable)
        waiting = asyncio.ensure_future(verdicts)
        while not begun.is_set():
            await asyncio.sleep(0)
        walker.stop()
        with pytest.raises((NotServing, asyncio.CancelledError)):
            await waiting

    asyncio.run(within())
