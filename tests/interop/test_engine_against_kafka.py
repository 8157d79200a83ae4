"""The engine and Kafka's own log do the same with the same script: every answer, and every byte they leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interop.engine_pair import contents
from interop.engine_scripts import Script, run
from interop.kafka_lab import Oracle
from support.tiers import spread

SCRIPTS = int(os.environ.get("LOGMEND_ENGINE_SCRIPTS", "1000"))
STEPS = int(os.environ.get("LOGMEND_ENGINE_STEPS", "0"))
FIRST = int(os.environ.get("LOGMEND_ENGINE_SEED", "1"))
PARTS = 8
LONG, SHORT = 120, 24


@pytest.mark.slow
@pytest.mark.parametrize("part", spread(range(PARTS), 2))
def test_engine_and_kafka_answer_and_leave_the_same(part: int, oracle: Oracle, tmp_path: Path) -> None:
    taken = 0
    for seed in range(FIRST + part, FIRST + SCRIPTS, PARTS):
        print(f"seed {seed}")
        taken += run(seed, oracle, tmp_path / str(seed), STEPS or (LONG if seed % 17 == 0 else SHORT))
    assert taken > 0 or part >= SCRIPTS


def lasting(directory: Path, start: int, end: int) -> dict[str, object]:
    """Return every file of a log from `start` to `end` that a load does not change.

    The indexes of the last segment get zeros for appending; removed are snapshots up to the log start, and those of
    closes before the last one, which belong to no segment.
    """
    found = contents(directory)
    offsets = {end, *(int(name[:20]) for name in found if name.endswith(".log"))}
    kept = {f"{offset:020d}.snapshot" for offset in offsets if offset > start}
    for name in list(found):
        if name.endswith("index"):
            found[name] = str(found[name]).rstrip("0")
        elif name.endswith(".snapshot") and name not in kept:
            del found[name]
    return found


@pytest.mark.parametrize("seed", [1001, 1002, 1003, 1004])
def test_kafka_opens_what_the_engine_closed_as_clean_and_changes_nothing(
    seed: int, oracle: Oracle, tmp_path: Path
) -> None:
    script = Script(seed, oracle, tmp_path, 60)
    script.play()
    pair, before = script.pair, lasting(script.pair.ours, script.pair.log_start, script.pair.log.log_end)
    state = oracle(
        op="open", log="closed", dir=str(pair.ours), clean=True, recovery_point=pair.log.log_end,
        log_start=pair.log_start, config=pair.config,
    )  # fmt: skip
    oracle(op="close", log="closed", abruptly=True)
    assert lasting(pair.ours, pair.log_start, pair.log.log_end) == before
    assert (state["log_start"], state["log_end"]) == (pair.log_start, pair.log.log_end)
    assert [segment["base"] for segment in state["segments"]] == [segment.base_offset for segment in pair.log.segments]


@pytest.mark.parametrize("seed", [1005, 1006])
def test_the_engine_opens_what_kafka_closed_changes_nothing_and_goes_on(
    seed: int, oracle: Oracle, tmp_path: Path
) -> None:
    script = Script(seed, oracle, tmp_path, 60)
    script.play()
    pair = script.pair
    pair.swap()
    end = pair.log.log_end
    before = lasting(pair.ours, pair.log_start, end)
    pair.open()
    pair.close()
    assert lasting(pair.ours, pair.log_start, end) == before
    pair.open()
    script.steps = 40
    assert script.play() > 0
