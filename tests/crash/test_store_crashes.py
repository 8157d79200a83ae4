"""A power cut at any moment under a store that answers once data is durable: nothing answered or seen is gone.

`LOGMEND_STORE_CRASH_SEEDS` (3) is how many schedules are tried.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

import pytest
from support.managers import NOW, batch, open_manager, records
from support.memory_fs import MemoryFs
from support.remains import Remainder
from support.serving import stored

from server.store.flushing import FlushPolicy
from storage.base.units import TopicPartition

SEEDS = int(os.environ.get("LOGMEND_STORE_CRASH_SEEDS", "3"))
NAMES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
CLIENTS, EACH, STATES = 5, 40, 3

Told = dict[tuple[TopicPartition, int], str]
Moment = tuple[Told, dict[TopicPartition, int], list[Remainder]]
"""What was answered, what consumers could see, and what a power cut at this moment might leave."""


class Watched:
    """A disk in memory that notes what may remain, now and then, before something is done to it."""

    def __init__(self, seed: int) -> None:
        self.fs, self.draw = MemoryFs(), random.Random(seed)
        self.told: Told = {}
        self.seen: Callable[[], dict[TopicPartition, int]] = dict
        self.moments: list[Moment] = []

    def look(self, fs: MemoryFs) -> None:
        if self.draw.random() < 0.15:
            told, seen = dict(self.told), self.seen()
            self.moments.append((told, seen, fs.some_crash_states(STATES, self.draw)[0]))


async def live(world: Watched, policy: FlushPolicy) -> None:
    """Let clients append at the same time, with retention of what is flushed and new segments in between."""
    async with stored(policy, fs=world.fs) as (store, engine):
        await store.run(lambda m: m.topics.alter("orders", NOW, settings={"internal.segment.bytes": "2000"}))
        world.seen = lambda: {name: int(store.log(name).high_watermark) for name in NAMES}

        async def client(number: int) -> None:
            for count in range(EACH):
                value, name = f"{number}-{count}", world.draw.choice(NAMES)
                done = await store.append(name, batch(value))
                world.told[name, done.first_offset] = value

        async def schedules() -> None:
            for beat in range(10):
                await asyncio.to_thread(engine.run, lambda m, beat=beat: m.run_due(NOW + beat * 10_000))  # type: ignore[misc]

        world.fs.before_effect = world.look
        await asyncio.gather(schedules(), *(client(number) for number in range(CLIENTS)))
        world.fs.before_effect = None


def lost(world: Watched) -> list[str]:
    """Return what is missing, or hidden, after a power cut at one of the moments."""
    found = []
    for told, seen, states in world.moments:
        for state in states:
            manager = open_manager(state.to_fs(world.fs))
            for name in NAMES:
                there = {record.offset: (record.value or b"").decode() for record in records(manager, name)}
                found += [
                    f"{name} {offset} {value}" for (of, offset), value in told.items()
                    if of == name and there.get(offset) != value
                ]  # fmt: skip
                if manager.log(name).log_end < seen[name]:
                    found.append(f"{name} was seen up to {seen[name]}")
            manager.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_takes_nothing_back_that_was_answered_or_seen(seed: int) -> None:
    world = Watched(seed)
    asyncio.run(asyncio.wait_for(live(world, FlushPolicy.SYNC), 120))
    assert len(world.told) == CLIENTS * EACH
    assert len(world.moments) > 20
    assert lost(world) == []


@pytest.mark.slow
def test_without_sync_a_power_cut_does_take_something_back() -> None:
    world = Watched(1)
    asyncio.run(asyncio.wait_for(live(world, FlushPolicy.NONE), 120))
    assert lost(world), "then the test above could not fail"
