"""The engine and Kafka's own log do the same with the same script: every answer, and every byte they leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interop.engine_scripts import run
from interop.kafka_lab import Oracle

SCRIPTS = int(os.environ.get("LOGMEND_ENGINE_SCRIPTS", "60"))
FIRST = int(os.environ.get("LOGMEND_ENGINE_SEED", "1"))
PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_engine_and_kafka_answer_and_leave_the_same(part: int, oracle: Oracle, tmp_path: Path) -> None:
    taken = 0
    for seed in range(FIRST + part, FIRST + SCRIPTS, PARTS):
        print(f"seed {seed}")
        taken += run(seed, oracle, tmp_path / str(seed))
    assert taken > 0 or part >= SCRIPTS
