"""Whatever dies: no transaction is committed by half, none that was acknowledged is lost, and none comes back."""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from support.managers import NOW
from support.memory_fs import Crashed, MemoryFs
from support.txn_sim import Ledger, SimTimers, live, rest_and_check

SEEDS = range(int(os.environ.get("LOGMEND_TXN_SEEDS", "12")))


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
