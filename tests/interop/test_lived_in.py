"""A broker that lives: no alarm beside it, none after a clean stop, and after a kill nothing is lost.

LOGMEND_LIVES=N lets N brokers live (one by default), LOGMEND_LIFE_ROUNDS=N each for N rounds, LOGMEND_LIFE_SEED=N says
with which seed the first begins; LOGMEND_LIFE_KEEP=DIR keeps the directories of an alarm.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from interop.broker_load import read_all
from interop.kafka_lab import Cluster
from interop.lived_in import SETTINGS, Life
from interop.test_recover_live_broker import (
    CUTS,
    MORE_CUTS,
    REBUILDS,
    check_readable,
    check_transactions,
    saying,
    start_again,
)
from support.waiting import until

LIVES = int(os.environ.get("LOGMEND_LIVES", "1"))
ROUNDS = int(os.environ.get("LOGMEND_LIFE_ROUNDS", "2"))
FIRST = int(os.environ.get("LOGMEND_LIFE_SEED", "1"))
KEEP = os.environ.get("LOGMEND_LIFE_KEEP")

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(300 + 300 * ROUNDS)]


def await_transactions(life: Life) -> None:
    """Check what a reader of committed records sees: behind a kill the broker has yet to write the last markers."""

    def are_served() -> bool:
        with contextlib.suppress(AssertionError):
            check_transactions(life.ledger, read_all(life.cluster, isolation="read_committed"))
            return True
        return False

    until(are_served, 60)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
def test_a_broker_that_lives_gets_no_alarm_and_loses_nothing(kafka_cluster: Callable[..., Cluster], seed: int) -> None:
    life = Life(kafka_cluster(config=SETTINGS, log_dirs=2), seed, Path(KEEP) if KEEP else None)
    life.begin()
    life.share()
    for number in range(ROUNDS):
        life.round(kill=number % 2 == 1)
        printed = start_again(life.broker)
        assert saying(printed, *CUTS, *MORE_CUTS, *REBUILDS) == []
        life.check_no_alarm("just after the start")
        check_readable(life.promised(), read_all(life.cluster))
        await_transactions(life)
