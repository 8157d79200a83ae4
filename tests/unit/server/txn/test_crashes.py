"""Whatever dies: no transaction is committed by half, none that was acknowledged is lost, and none comes back."""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from support.managers import NOW
from support.memory_fs import Crashed, MemoryFs
from support.txn_sim import Ledger, Machine, SimTimers, Txn, client, live, rest_and_check

pytestmark = pytest.mark.slow

SEEDS = range(int(os.environ.get("LOGMEND_TXN_SEEDS", "6")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_process_that_is_killed_anywhere_leaves_every_transaction_whole(seed: int) -> None:
    async def lives() -> int:
        rng, fs, timers, ledger = random.Random(seed), MemoryFs(), SimTimers(NOW), Ledger()
        for _ in range(5):
            await live(fs, timers, rng, ledger, steps=rng.randrange(20, 160), syncs=False)
            await rest_and_check(fs, timers, rng, ledger, syncs=False)
        return sum(txn.outcome == "committed" for txn in ledger.txns)

    assert asyncio.run(lives()) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_with_each_append_synced_a_power_cut_leaves_every_transaction_whole(seed: int) -> None:
    async def lives() -> int:
        rng, fs, timers, ledger = random.Random(seed), MemoryFs(), SimTimers(NOW), Ledger()
        await rest_and_check(fs, timers, rng, ledger, syncs=True)
        for _ in range(3):
            fs.stop_before(fs.effects + rng.randrange(100, 1_500))
            try:
                await live(fs, timers, rng, ledger, steps=400, syncs=True)
            except Crashed:
                states, _ = fs.some_crash_states(3, rng)
                fs = rng.choice(states).to_fs(fs)
            else:
                fs.stop_before(-1)
            await rest_and_check(fs, timers, rng, ledger, syncs=True)
        return sum(txn.outcome == "committed" for txn in ledger.txns)

    assert asyncio.run(lives()) > 0


async def live_until(machine: Machine, ledger: Ledger, appends: int) -> bool:
    """Run two clients of one id, one after another, and die after so many appends; return whether it came to that."""
    try:
        await machine.start()
        machine.store.dies_behind(appends)
        for _ in range(2):
            task = asyncio.get_running_loop().create_task(client(machine, ledger, "t", 3))
            machine.tasks.append(task)
            while not task.done():
                await machine.turn()
    except Crashed:
        return True
    finally:
        await machine.end()
    return False


def outcomes(txns: list[Txn]) -> set[str]:
    return {txn.outcome for txn in txns}


def test_killed_behind_each_append_in_turn_every_transaction_is_whole() -> None:
    """And killed once more behind the first, second or third append of what the next start does."""

    async def lives(appends: int, more: int) -> tuple[bool, set[str]]:
        fs, timers, ledger = MemoryFs(), SimTimers(NOW), Ledger()
        dies = await live_until(Machine(fs, timers, random.Random(5), syncs=False), ledger, appends)
        if more:
            again = Machine(fs, timers, random.Random(appends), syncs=False)
            again.store.dies_behind(more)
            try:
                await again.start()
                await again.settle()
            except Crashed:
                pass
            finally:
                await again.end()
        await rest_and_check(fs, timers, random.Random(0), ledger, syncs=False)
        return dies, outcomes(ledger.txns)

    appends, seen = 1, set[str]()
    while True:
        dies, found = asyncio.run(lives(appends, more=appends % 4))
        seen |= found
        if not dies:
            break
        appends += 1
    assert appends > 30
    assert seen == {"left open", "commit asked", "committed", "aborted"}
