"""A broker that lives: no alarm beside it, none after a clean stop, and after a kill nothing is lost.

LOGMEND_LIFE_SEED=N says with which seed it lives, LOGMEND_LIFE_ROUNDS=N for how long; LOGMEND_LIFE_KEEP=DIR keeps the
directories of an alarm. `python -m interop.lives` lets many brokers live, one after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interop.lived_in import live

ROUNDS = int(os.environ.get("LOGMEND_LIFE_ROUNDS", "2"))
SEED = int(os.environ.get("LOGMEND_LIFE_SEED", "1"))
KEEP = os.environ.get("LOGMEND_LIFE_KEEP")


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(300 + 300 * ROUNDS)
def test_a_broker_that_lives_gets_no_alarm_and_loses_nothing(kafka_kit: None, tmp_path: Path) -> None:
    life = live(tmp_path / "kafka", SEED, rounds=ROUNDS, keep=Path(KEEP) if KEEP else None)
    assert life.looks
    assert life.ledger.committed
