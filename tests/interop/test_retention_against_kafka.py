"""Which segments we would delete, and what Kafka deletes of a copy.

As many random logs as LOGMEND_COMPACTION_SCRIPTS says, 40 without; seeds from LOGMEND_COMPACTION_SEED on.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from interop.kafka_lab import Oracle
from interop.scripted_log import Script
from support.tiers import spread

from storage.base.config import LogConfig
from storage.base.units import Offset
from storage.cleanup.retention import LogEnds, RetainedSegment, RetentionPolicy, retain

SCRIPTS = int(os.environ.get("LOGMEND_COMPACTION_SCRIPTS", "40"))
FIRST_SEED = int(os.environ.get("LOGMEND_COMPACTION_SEED", "1"))


def seen(state: dict[str, Any]) -> list[RetainedSegment]:
    """Return the segments of a log as Kafka describes them."""
    segments = state["segments"]
    bases = [*(segment["base"] for segment in segments[1:]), None]
    return [
        RetainedSegment(Offset(segment["base"]), segment["size"], segment["largest_timestamp"], base)
        for segment, base in zip(segments, bases, strict=True)
    ]


def chosen_policy(script: Script, state: dict[str, Any]) -> dict[str, str]:
    """Return settings that let some segments go, often at the very border."""
    rng, segments = script.rng, state["segments"]
    size = sum(segment["size"] for segment in segments)
    part = sum(segment["size"] for segment in segments[rng.randrange(len(segments)) :])
    age = script.now - rng.choice(segments)["largest_timestamp"]
    return {
        "cleanup.policy": rng.choice(("delete", "delete", "delete", "compact", "compact,delete", "")),
        "retention.bytes": str(rng.choice((-1, -1, 0, part, part - 1, part + 1, size, size + 1))),
        "retention.ms": str(rng.choice((-1, -1, max(age, 0), max(age - 1, 0), 0))),
    }


@pytest.mark.parametrize("seed", spread(range(FIRST_SEED, FIRST_SEED + SCRIPTS), 10))
def test_retention_deletes_what_kafka_deletes(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    script = Script(seed, oracle, tmp_path / "t-0")
    rng = script.rng
    state = script.write(rng.choice((3, 60)))
    for number in range(6):
        script.now += rng.choice((0, 10, 5000))
        script.config |= chosen_policy(script, state)
        copy = tmp_path / f"copy-{number}" / "t-0"
        shutil.copytree(script.directory, copy)
        oracle(op="now", ms=script.now)
        script.open(copy)
        script.ask(
            "high_watermark", offset=rng.choice((state["log_end"], state["log_end"], rng.choice(seen(state))[0]))
        )
        now_state = script.ask("state")
        if rng.random() < 0.5 and now_state["high_watermark"] > 0:
            script.ask("log_start", offset=rng.randrange(now_state["high_watermark"] + 1))
            now_state = script.ask("state")
        ends = LogEnds(*(Offset(now_state[name]) for name in ("log_start", "log_end", "high_watermark")))
        policy = RetentionPolicy.of(LogConfig.from_properties(script.config))
        result = retain(seen(now_state), policy, ends, script.now)
        deleted = script.ask("retain")["deleted"]
        after = script.ask("state")
        script.ask("close")
        assert len(result.deletable) == deleted, (script.config, ends, result)
        kept = [verdict.segment.base_offset for verdict in result.verdicts if verdict.reason is None]
        assert [segment["base"] for segment in after["segments"]] == (kept or [state["log_end"]])
        assert after["log_start"] == result.log_start
